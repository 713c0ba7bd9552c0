//! The order of commits across workspaces: a reader that continues from the last position misses no commit of any process.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stepback_model::hash::Hash;
use stepback_model::ids::StepId;
use stepback_postgres::{Access, FORMAT, PostgresStore};
use stepback_store::StoreError;
use stepback_store::port::StepQuery;
use stepback_store::prelude::*;
use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::sample::{Sample, append};

/// What comes after the place that `query` has, in whole pages; only those say where to go on.
fn follow(store: &PostgresStore, query: &mut StepQuery) -> Vec<StepId> {
    let mut steps = Vec::new();
    loop {
        let page = store.find(None, query).unwrap();
        let Some(next) = page.next else { return steps };
        steps.extend(page.steps.iter().map(|placed| placed.stored.step.id));
        query.from = Some(next);
    }
}

#[test]
fn who_follows_the_order_of_commits_misses_none() {
    const WRITERS: usize = 4;
    const COMMITS: usize = 60;
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let reader = PostgresStore::open(&url, &local.path().join("reader")).unwrap();
    let done = AtomicUsize::new(0);
    let mut seen = Vec::new();
    let written: Vec<StepId> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = PostgresStore::open(&url, &local.path().join(writer.to_string())).unwrap();
                let done = &done;
                scope.spawn(move || {
                    let sample = Sample::new(writer as u64 + 1);
                    let (_, session) = sample.begin(&store, format!("/{writer}").as_bytes());
                    let mut written = Vec::new();
                    for round in 0..COMMITS {
                        // Commits of very different lengths overtake each other.
                        let count = if round % 3 == writer % 3 { 40 } else { 1 };
                        let steps: Vec<_> =
                            (0..count).map(|_| sample.step(session.id, Hash::from_bytes([1; 32]))).collect();
                        written.extend(steps.iter().map(|step| step.id));
                        let mutations: Vec<_> = steps.into_iter().map(append).collect();
                        store.commit(None, &mutations).unwrap();
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                    written
                })
            })
            .collect();
        let mut query = StepQuery { oldest_first: true, limit: Some(7), ..StepQuery::default() };
        loop {
            let finished = done.load(Ordering::SeqCst) == WRITERS;
            seen.extend(follow(&reader, &mut query));
            if finished {
                break;
            }
        }
        let rest = reader.find(None, &StepQuery { limit: None, ..query }).unwrap();
        seen.extend(rest.steps.iter().map(|placed| placed.stored.step.id));
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(seen.len(), written.len(), "some were missed, or seen twice");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>(), written.iter().collect::<BTreeSet<_>>());
    assert_eq!(reader.check().unwrap(), Vec::<String>::new());
}

/// A commit that has a position and is not visible yet blocks no other commit, and readers wait for it.
#[test]
fn who_asks_for_the_order_waits_for_what_is_under_way() {
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let store = PostgresStore::open(&url, local.path()).unwrap();
    let hurried = Access { patience: Some(Duration::from_millis(200)), ..Access::new(&url, local.path()) };
    let hurried = PostgresStore::connect(&hurried).unwrap();
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(&store, b"/w");
    // The lock is 0x53420003; what a commit does before its end.
    let under_way =
        "SELECT pg_advisory_xact_lock_shared(1396834307, current_schema()::regnamespace::oid::integer);
        SELECT nextval('stepback_positions')";
    let holding = server.hold("test0", under_way);
    sample.append(&store, session.id, b"overtakes");
    assert!(matches!(hurried.find(None, &StepQuery::default()), Err(StoreError::Locked)));
    assert!(matches!(hurried.commit_seq(), Err(StoreError::Locked)));
    assert_eq!(hurried.find(Some(workspace.id), &StepQuery::default()).unwrap().total, 1);
    drop(holding);
    assert_eq!(store.find(None, &StepQuery::default()).unwrap().steps.len(), 1);
}

#[test]
fn an_older_store_is_migrated_by_the_first_process_that_opens_it() {
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let open = |name: &str| PostgresStore::open(&url, &local.path().join(name)).unwrap();
    let store = open("before");
    let sample = Sample::new(1);
    let sessions: Vec<_> = (0..3).map(|at| sample.begin(&store, format!("/{at}").as_bytes()).1).collect();
    for round in 0..30usize {
        sample.append(&store, sessions[round % 3].id, &round.to_le_bytes());
    }
    let all = StepQuery { oldest_first: true, ..StepQuery::default() };
    let before = store.find(None, &all).unwrap();
    drop(store);
    // Back to the first format.
    server.sql("test0", DOWN);
    std::thread::scope(|scope| {
        for at in 0..4 {
            let open = &open;
            scope.spawn(move || open(&at.to_string()));
        }
    });
    let store = open("after");
    assert_eq!(server.sql("test0", "SELECT version FROM stepback_schema").trim(), FORMAT.to_string());
    assert_eq!(store.find(None, &all).unwrap(), before, "each came a second after the other");
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    let (id, _) = sample.append(&store, sessions[0].id, b"new");
    let newest = store.find(None, &StepQuery { limit: Some(1), ..StepQuery::default() }).unwrap();
    assert_eq!(newest.steps[0].stored.step.id, id);
}

/// Takes away everything that was added after the first format.
const DOWN: &str = "DROP FUNCTION stepback_append, stepback_append_linked, stepback_append_traced;
    ALTER TABLE stepback_steps DROP COLUMN task, DROP COLUMN trace, DROP COLUMN span, DROP COLUMN parent_span;
    DROP AGGREGATE stepback_chain (bytea, bytea); DROP FUNCTION stepback_link; DROP TABLE stepback_chains;
    ALTER TABLE stepback_steps DROP COLUMN link; DROP TABLE stepback_plans; DROP SEQUENCE stepback_positions;
    ALTER TABLE stepback_sessions DROP COLUMN working;
    CREATE INDEX stepback_sessions_working ON stepback_sessions (workspace) WHERE info->'open' <> '[]';
    ALTER TABLE stepback_steps DROP COLUMN position;
    DROP INDEX stepback_steps_of_kind, stepback_steps_of_state, stepback_steps_of_worker, stepback_steps_labelled,
        stepback_steps_tagged, stepback_steps_hidden, stepback_sessions_of_agent;
    DROP TABLE stepback_tallies, stepback_index, stepback_texts, stepback_words, stepback_postings, stepback_blocks,
        stepback_stale;
    UPDATE stepback_schema SET version = 1";
