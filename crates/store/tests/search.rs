//! The embedded store and the one in memory find the same, and an index that is lost or foreign is made again.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use proptest::prelude::*;
use stepback_model::hash::Hash;
use stepback_model::search::{Field, Pattern, Texts};
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::memory::MemoryStore;
use stepback_store::port::{Document, Found, Search};
use stepback_testkit::sample::{Sample, append};

/// Commits a step for each of these, and tells the store their texts.
fn fill(store: &dyn Store, documents: &[Vec<(Field, String)>]) {
    let sample = Sample::new(1);
    let (_, session) = sample.begin(store, b"/w");
    let steps = documents.iter().map(|_| append(sample.step(session.id, Hash::from_bytes([1; 32]))));
    store.commit(None, &steps.collect::<Vec<_>>()).unwrap();
    let steps = store.unindexed(usize::MAX).unwrap().into_iter();
    let told: Vec<Document> = steps
        .zip(documents)
        .map(|(stored, texts)| Document { stored, texts: texts.iter().cloned().collect::<Texts>() })
        .collect();
    store.index(&told).unwrap();
}

fn numbers(found: &Found) -> Vec<u64> {
    found.hits.iter().map(|hit| hit.stored.checkpoint.step.number).collect()
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

fn documents() -> impl Strategy<Value = Vec<Vec<(Field, String)>>> {
    let field = prop::sample::select(Field::ALL.to_vec());
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
    prop_oneof![3 => words, 1 => "[a-z_ ]{1,3}|\\PC{1,2}|ß|i".prop_map(|text| Pattern::substring(&text).unwrap())]
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
            let search = Search::new(pattern, 100);
            let [one, other] = [&embedded as &dyn Store, &memory].map(|store| store.search(&search).unwrap());
            prop_assert_eq!(one.total, other.total, "{:?}", &search.pattern);
            prop_assert_eq!(one.hits.len(), other.hits.len());
            for (a, b) in one.hits.iter().zip(&other.hits) {
                prop_assert!((a.score - b.score).abs() < 1e-9, "{:?}: {} and {}", &search.pattern, a.score, b.score);
            }
            let sorted = |found: &Found| { let mut all = numbers(found); all.sort_unstable(); all };
            prop_assert_eq!(sorted(&one), sorted(&other));
        }
    }
}

fn word() -> Search {
    Search::new(Pattern::words("word").unwrap(), 10)
}

#[test]
fn an_index_that_is_damaged_or_removed_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("search.sqlite");
    fill(&EmbeddedStore::open(dir.path()).unwrap(), &[vec![(Field::Input, "word".into())]]);
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
        let texts = Texts::from([(Field::Input, "word".to_string())]);
        store.index(&[Document { stored: steps[0].clone(), texts }]).unwrap();
        assert_eq!(numbers(&store.search(&word()).unwrap()), [1]);
    }
}

#[test]
fn an_index_of_another_log_is_made_again() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(&EmbeddedStore::open(one.path()).unwrap(), &[vec![(Field::Input, "word".into())]]);
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
