//! The embedded store and the one in memory find the same, and an index that is lost or foreign is made again.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use proptest::prelude::*;
use stepback_model::hash::Hash;
use stepback_model::search::{Pattern, TextField, Texts};
use stepback_store::embedded::EmbeddedStore;
use stepback_store::memory::MemoryStore;
use stepback_store::port::{SearchDocument, SearchRequest, SearchResult};
use stepback_store::prelude::*;
use stepback_testkit::sample::{Sample, append};

/// Commits a step for each of these, and tells the store their texts.
fn fill(store: &dyn Store, documents: &[Vec<(TextField, String)>]) {
    let sample = Sample::new(1);
    let (_, session) = sample.begin(store, b"/w");
    let steps = documents.iter().map(|_| append(sample.step(session.id, Hash::from_bytes([1; 32]))));
    store.commit(None, &steps.collect::<Vec<_>>()).unwrap();
    let steps = store.unindexed(usize::MAX).unwrap().into_iter();
    let told: Vec<SearchDocument> = steps
        .zip(documents)
        .map(|(stored, texts)| SearchDocument { stored, texts: texts.iter().cloned().collect::<Texts>() })
        .collect();
    store.index(&told).unwrap();
}

fn numbers(found: &SearchResult) -> Vec<u64> {
    found.hits.iter().map(|hit| hit.stored.step.number).collect()
}

fn text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("alpha"),
        Just("beta"),
        Just("al"),
        Just("Größe"),
        Just("ΑΣ"),
        Just("x_1"),
        Just("a.b"),
        Just("\0"),
        Just("日本語"),
        Just("İst"),
        Just("\"q\""),
        Just("AND"),
    ];
    prop::collection::vec(word, 0..8).prop_map(|words| words.join(" "))
}

fn documents() -> impl Strategy<Value = Vec<Vec<(TextField, String)>>> {
    let field = prop::sample::select(TextField::ALL.to_vec());
    prop::collection::vec(prop::collection::vec((field, prop_oneof![text(), "\\PC{0,12}"]), 0..3), 1..8)
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let term = prop_oneof![
        text(),
        text().prop_map(|text| format!("\"{}\"", text.replace('"', ""))),
        text().prop_map(|text| format!("{text} -al*")),
        Just("al*".to_string()),
        "\\PC{1,4}"
    ];
    let words = term.prop_filter_map("not a search", |text| Pattern::words(&text).ok());
    let long = text().prop_filter_map("nothing", |text| Pattern::substring(&text).ok());
    prop_oneof![3 => words, 1 => long, 1 => "[a-z_ ]{1,3}|\\PC{1,2}|ß|i".prop_map(|text| Pattern::substring(&text).unwrap())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn both_stores_find_the_same(documents in documents(), patterns in prop::collection::vec(pattern(), 1..12)) {
        let dir = tempfile::tempdir().unwrap();
        let (embedded, memory) = (EmbeddedStore::open(dir.path()).unwrap(), MemoryStore::new(u64::MAX));
        fill(&embedded, &documents);
        fill(&memory, &documents);
        for pattern in patterns {
            let search = SearchRequest::new(pattern, 100);
            let [one, other] = [&embedded as &dyn Store, &memory].map(|store| store.search(&search).unwrap());
            prop_assert_eq!(one.total, other.total, "{:?}", &search.pattern);
            prop_assert_eq!(one.hits.len(), other.hits.len());
            for (a, b) in one.hits.iter().zip(&other.hits) {
                prop_assert!((a.score - b.score).abs() < 1e-9, "{:?}: {} and {}", &search.pattern, a.score, b.score);
            }
            let sorted = |found: &SearchResult| { let mut all = numbers(found); all.sort_unstable(); all };
            prop_assert_eq!(sorted(&one), sorted(&other));
        }
    }
}

fn word() -> SearchRequest {
    SearchRequest::new(Pattern::words("word").unwrap(), 10)
}

#[test]
fn an_index_that_is_damaged_or_removed_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("search.sqlite");
    fill(&EmbeddedStore::open(dir.path()).unwrap(), &[vec![(TextField::Input, "word".into())]]);
    for damage in [
        "",
        "this is no database, and it is longer than the header of one, which has a hundred bytes, so that it is read",
    ] {
        std::fs::write(&index, damage).unwrap();
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(dir.path().join(format!("search.sqlite{suffix}")));
        }
        let store = EmbeddedStore::open(dir.path()).unwrap();
        let steps = store.unindexed(10).unwrap();
        assert_eq!(steps.len(), 1, "{damage}");
        let texts = Texts::from([(TextField::Input, "word".to_string())]);
        store.index(&[SearchDocument { stored: steps[0].clone(), texts }]).unwrap();
        assert_eq!(numbers(&store.search(&word()).unwrap()), [1]);
    }
}

#[test]
fn an_index_of_another_log_is_made_again() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(&EmbeddedStore::open(one.path()).unwrap(), &[vec![(TextField::Input, "word".into())]]);
    let store = EmbeddedStore::open(other.path()).unwrap();
    let sample = Sample::new(2);
    let (_, session) = sample.begin(&store, b"/w");
    sample.append(&store, session.id, b"other");
    drop(store);
    for name in ["search.sqlite", "search.sqlite-wal"] {
        let _ = std::fs::copy(one.path().join(name), other.path().join(name));
    }
    let store = EmbeddedStore::open(other.path()).unwrap();
    assert_eq!(store.search(&word()).unwrap().total, 0);
    assert_eq!(store.unindexed(10).unwrap().len(), 1);
}

#[test]
fn nobody_else_can_read_the_index() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    fill(&EmbeddedStore::open(dir.path()).unwrap(), &[vec![]]);
    for entry in std::fs::read_dir(dir.path()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("search.") {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.file_name());
        }
    }
}

/// Common words in more steps than are ranked, counted or tried: everything is still found, once, and totals say what they are.
#[test]
fn what_very_many_steps_have_is_gone_through_to_the_end() {
    const STEPS: usize = 10_600;
    let dir = tempfile::tempdir_in(stepback_testkit::tree::scratch_place()).unwrap();
    let store = EmbeddedStore::open(&dir.path().join("store")).unwrap();
    let text = |at: usize| match at {
        7 => "common(x) needle haystack".to_string(),
        _ if at % 900 == 500 => "common(x) common(x) better".to_string(),
        _ => format!("common(x) number{at}"),
    };
    let documents: Vec<_> = (1..=STEPS).map(|at| vec![(TextField::Output, text(at))]).collect();
    fill(&store, &documents);
    let words = |text: &str| SearchRequest::new(Pattern::words(text).unwrap(), 300);
    let all = store.search(&words("common")).unwrap();
    assert!(all.at_least && all.total >= 10_000, "{}", all.total);
    assert_eq!(numbers(&all)[0], 10_400, "the newest of the best");
    // Through the ranked ones and behind them, page by page.
    let (mut seen, mut skip) = (Vec::new(), 0);
    while skip < 1200 {
        let page = store.search(&SearchRequest { skip, ..words("common") }).unwrap();
        seen.extend(numbers(&page));
        skip = page.next.unwrap();
    }
    seen.sort_unstable();
    let newest: Vec<u64> = (STEPS as u64 - 1199..=STEPS as u64).collect();
    assert_eq!(seen, newest);
    // What only few matches fulfil is found among all of them.
    let among = stepback_store::port::StepQuery { before: Some(10), ..Default::default() };
    let old = store.search(&SearchRequest { among, ..words("common") }).unwrap();
    assert_eq!((old.total, old.at_least), (9, false));
    let many = stepback_store::port::StepQuery { after: Some(1000), ..Default::default() };
    let most = store.search(&SearchRequest { among: many, ..words("common") }).unwrap();
    assert!(most.hits.len() == 300 && most.at_least && most.total >= 9000, "{}", most.total);
    let rare = store.search(&words("common needle")).unwrap();
    assert_eq!((numbers(&rare), rare.total, rare.at_least), (vec![7], 1, false));
    let substring =
        |text: &str| store.search(&SearchRequest::new(Pattern::substring(text).unwrap(), 20)).unwrap();
    assert_eq!(numbers(&substring("needle hay")), [7]);
    assert_eq!(substring("needle  hay").total, 0);
    let signs = substring("n(x) ");
    assert!(signs.at_least && signs.total >= 1000 && signs.hits.len() == 20);
    assert_eq!(numbers(&signs)[0], STEPS as u64);
    let newest_first = store.search(&SearchRequest { ranked: false, ..words("common") }).unwrap();
    assert_eq!(numbers(&newest_first)[..2], [STEPS as u64, STEPS as u64 - 1]);
}
