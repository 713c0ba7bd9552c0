//! The store in PostgreSQL finds the same as the one in memory, which looks at every word of every step.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use stepback_model::hash::Hash;
use stepback_model::ids::StepId;
use stepback_model::record::Annotation;
use stepback_model::search::{Pattern, TextField, Texts};
use stepback_postgres::PostgresStore;
use stepback_store::memory::MemoryStore;
use stepback_store::port::{Mutation, SearchDocument, SearchRequest, SearchResult, StepQuery};
use stepback_store::prelude::*;
use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::sample::{Sample, append};

type Said = Vec<Vec<(TextField, String)>>;

/// Commits some steps.
fn fill(store: &dyn Store, count: usize) -> Vec<StepId> {
    let sample = Sample::new(1);
    let (_, session) = sample.begin(store, b"/w");
    let steps: Vec<_> = (0..count).map(|_| sample.step(session.id, Hash::from_bytes([1; 32]))).collect();
    let ids = steps.iter().map(|step| step.id).collect();
    store.commit(None, &steps.into_iter().map(append).collect::<Vec<_>>()).unwrap();
    ids
}

/// Tells the store what steps say, so many at a time.
fn tell(store: &dyn Store, ids: &[StepId], said: &Said, at_once: usize) {
    let documents: Vec<SearchDocument> = (ids.iter().zip(said))
        .map(|(id, texts)| SearchDocument {
            stored: store.step(*id).unwrap().unwrap(),
            texts: texts.iter().cloned().collect::<Texts>(),
        })
        .collect();
    for some in documents.chunks(at_once) {
        store.index(some).unwrap();
    }
}

fn numbers(found: &SearchResult) -> Vec<u64> {
    found.hits.iter().map(|hit| hit.stored.step.number).collect()
}

/// Both find the same steps with the same scores and show the same of them.
fn compare(postgres: &dyn Store, memory: &dyn Store, search: &SearchRequest) -> Result<(), TestCaseError> {
    let [one, other] = [postgres, memory].map(|store| store.search(search).unwrap());
    prop_assert_eq!(one.total, other.total, "{:?}", &search.pattern);
    prop_assert_eq!(one.next, other.next);
    prop_assert_eq!(numbers(&one), numbers(&other), "{:?}", &search.pattern);
    for (a, b) in one.hits.iter().zip(&other.hits) {
        prop_assert!((a.score - b.score).abs() < 1e-9, "{:?}: {} and {}", &search.pattern, a.score, b.score);
        prop_assert_eq!(&a.snippets, &b.snippets);
    }
    Ok(())
}

fn text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "alpha",
        "beta",
        "al",
        "Größe",
        "ΑΣ",
        "x_1",
        "a.b",
        "\0",
        "日本語",
        "İst",
        "\"q\"",
        "AND",
        "xx1",
        "%",
        "\u{f8ff}0",
    ]);
    prop::collection::vec(word, 0..8).prop_map(|words| words.join(" "))
}

fn said() -> impl Strategy<Value = Said> {
    let field = prop::sample::select(TextField::ALL.to_vec());
    let long = (60usize..70, "[ab]{1,3}").prop_map(|(count, end)| format!("{}{end}", "z".repeat(count)));
    let one = (field, prop_oneof![4 => text(), 2 => "\\PC{0,12}", 1 => long]);
    prop::collection::vec(prop::collection::vec(one, 0..3), 1..8)
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let term = prop_oneof![
        text(),
        text().prop_map(|text| format!("\"{}\"", text.replace('"', ""))),
        text().prop_map(|text| format!("{text} -al*")),
        Just("al*".to_string()),
        Just("zz*".to_string()),
        "\\PC{1,4}"
    ];
    let words = term.prop_filter_map("not a search", |text| Pattern::words(&text).ok());
    let part = prop_oneof![
        "[a-z_ ]{1,3}",
        "\\PC{1,2}",
        "z{1,3}[ab]",
        "z{58,66}[ab]?",
        "[a-z]{1,2}[. ][a-z]{1,2}",
        Just("ß".into())
    ];
    prop_oneof![2 => words, 1 => part.prop_map(|text: String| Pattern::substring(&text).unwrap())]
}

#[test]
fn it_finds_what_memory_finds() {
    let server = PostgresServer::start();
    let local = tempfile::tempdir().unwrap();
    let postgres = PostgresStore::open(&server.database(), local.path()).unwrap();
    let ids = fill(&postgres, 8);
    let mut runner = TestRunner::new(ProptestConfig { cases: 64, ..ProptestConfig::default() });
    let cases = (said(), prop::collection::vec((pattern(), any::<bool>()), 1..12), 1..8usize);
    let result = runner.run(&cases, |(said, patterns, at_once)| {
        postgres.forget_index().unwrap();
        let memory = MemoryStore::new(u64::MAX);
        assert_eq!(fill(&memory, 8), ids);
        tell(&postgres, &ids, &said, at_once);
        tell(&memory, &ids, &said, 8);
        for (pattern, ranked) in patterns {
            compare(&postgres, &memory, &SearchRequest { ranked, ..SearchRequest::new(pattern, 100) })?;
        }
        Ok(())
    });
    result.unwrap();
}

/// Many small blocks are merged, and a text that was indexed again counts once.
#[test]
fn merged_blocks_and_reindexed_texts_are_found_once() {
    const STEPS: usize = 150;
    let server = PostgresServer::start();
    let local = tempfile::tempdir().unwrap();
    let url = server.database();
    let postgres = PostgresStore::open(&url, local.path()).unwrap();
    let memory = MemoryStore::new(u64::MAX);
    let ids = fill(&postgres, STEPS);
    fill(&memory, STEPS);
    let vocabulary = ["red", "green", "blue", "greenish", "a_b", "red_green"];
    let words = |at: usize, round: usize| {
        let word = |nth: usize| vocabulary[(at * 7 + nth * (round + 3)) % vocabulary.len()];
        (0..(at + round) % 9).map(word).collect::<Vec<_>>().join(" ")
    };
    for round in 0..3 {
        let said: Said = (0..STEPS).map(|at| vec![(TextField::Output, words(at, round))]).collect();
        // Every third step is indexed again in the second round, every fifth in the third.
        let every = [1, 3, 5][round];
        for store in [&postgres as &dyn Store, &memory] {
            for at in (0..STEPS).step_by(every) {
                let note = Annotation { note: Some(format!("round {round}")), ..Annotation::default() };
                if round > 0 {
                    store.commit(None, &[Mutation::Annotate { step: ids[at], annotation: note }]).unwrap();
                }
                tell(store, &ids[at..at + 1], &vec![said[at].clone()], 1);
            }
            // Told a second time, as by another server: nothing changes.
            tell(store, &ids[..1], &vec![said[0].clone()], 1);
        }
        let fast = StepQuery { after: Some(20), ..StepQuery::default() };
        for text in ["red", "green*", "\"red green\"", "\"green red\" blue", "blue -red", "\"blue green\"*"] {
            let search = SearchRequest::new(Pattern::words(text).unwrap(), 40);
            compare(&postgres, &memory, &search).unwrap();
            compare(&postgres, &memory, &SearchRequest { among: fast.clone(), skip: 3, ..search.clone() })
                .unwrap();
            compare(&postgres, &memory, &SearchRequest { ranked: false, ..search }).unwrap();
        }
        for text in ["ed", "d gr", "_b b", "e"] {
            compare(&postgres, &memory, &SearchRequest::new(Pattern::substring(text).unwrap(), 200)).unwrap();
        }
        assert_eq!(postgres.unindexed(10).unwrap(), []);
    }
    let blocks: usize = server.sql("test0", "SELECT count(*) FROM stepback_blocks").trim().parse().unwrap();
    assert!(blocks < 40, "{blocks} pieces");
    let left = "SELECT count(*) FROM stepback_postings WHERE block NOT IN (SELECT id FROM stepback_blocks)";
    assert_eq!(server.sql("test0", left).trim(), "0");
    assert_eq!(postgres.check().unwrap(), Vec::<String>::new());
}

/// Two servers that search at once tell the index the same.
#[test]
fn two_that_index_at_once_do_it_once() {
    let server = PostgresServer::start();
    let local = tempfile::tempdir().unwrap();
    let url = server.database();
    let stores: Vec<PostgresStore> =
        (0..3).map(|at| PostgresStore::open(&url, &local.path().join(at.to_string())).unwrap()).collect();
    fill(&stores[0], 200);
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(move || {
                loop {
                    let steps = store.unindexed(16).unwrap();
                    if steps.is_empty() {
                        break;
                    }
                    let document = |stored| SearchDocument {
                        stored,
                        texts: Texts::from([(TextField::Input, "one word".to_string())]),
                    };
                    store.index(&steps.into_iter().map(document).collect::<Vec<_>>()).unwrap();
                }
            });
        }
    });
    let counted = server.sql("test0", "SELECT documents, words FROM stepback_index");
    assert_eq!(counted.trim(), "200|400");
    assert_eq!(stores[1].search(&SearchRequest::new(Pattern::words("word").unwrap(), 1)).unwrap().total, 200);
}
