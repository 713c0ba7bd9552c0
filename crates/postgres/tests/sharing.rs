//! Several stores on one database, a server that goes away in the middle, and the certainty that what was acknowledged is there.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stepback_model::hash::ObjectKind;
use stepback_model::object::ObjectSource;
use stepback_model::record::StepKind;
use stepback_postgres::{Access, PostgresStore};
use stepback_store::port::{Mutation, StepQuery};
use stepback_store::prelude::*;
use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::sample::{Sample, append, noise, put};

fn open(url: &str, local: &Path) -> PostgresStore {
    PostgresStore::open(url, local).unwrap()
}

#[test]
fn stores_on_one_database_number_steps_without_gaps() {
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    // All at once: they make the tables together.
    let stores: Vec<PostgresStore> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|at| {
                let (url, dir) = (&url, local.path().join(at.to_string()));
                scope.spawn(move || open(url, &dir))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(&stores[0], b"/w");
    let numbers: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6u64)
            .map(|thread| {
                let (store, session) = (&stores[thread as usize % 3], session.id);
                scope.spawn(move || {
                    let sample = Sample::new(100 + thread);
                    let commit = |at: u64| {
                        let batch = store.begin().unwrap();
                        // The same object for all, and one of its own.
                        batch.write(ObjectKind::Blob, &at.to_le_bytes(), None).unwrap();
                        let state =
                            batch.write(ObjectKind::Blob, &noise(thread * 100 + at, 500), None).unwrap();
                        let steps =
                            [append(sample.step(session, state)), append(sample.step(session, state))];
                        store.commit(Some(batch.finish().unwrap()), &steps).unwrap().steps
                    };
                    (0..20).flat_map(commit).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(numbers.len(), 240);
    assert_eq!(numbers.iter().copied().collect::<BTreeSet<_>>(), (1..=240).collect());
    for store in &stores {
        let steps = store.steps(workspace.id, &StepQuery::default()).unwrap();
        assert!(steps.iter().map(|stored| stored.step.number).eq((1..=240).rev()));
        assert_eq!(store.check().unwrap(), Vec::<String>::new());
        for stored in steps {
            store.read(ObjectKind::Blob, stored.step.state).unwrap();
        }
    }
}

#[test]
fn what_was_acknowledged_survives_the_death_of_the_server() {
    let mut server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(&open(&url, &local.path().join("0")), b"/w");
    let acknowledged = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let mut kept = Vec::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|thread| {
                let store = open(&url, &local.path().join(thread.to_string()));
                let (session, acknowledged, stop) = (session.id, &acknowledged, &stop);
                scope.spawn(move || {
                    let sample = Sample::new(100 + thread);
                    let mut kept = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let batch = store.begin();
                        let Ok(batch) = batch else { continue };
                        let bytes = noise(thread << 32 | kept.len() as u64, 2000);
                        let state = batch.write(ObjectKind::Blob, &bytes, None).unwrap();
                        let step = sample.step(session, state);
                        let Ok(batch) = batch.finish() else { continue };
                        if let Ok(receipt) = store.commit(Some(batch), &[append(step.clone())]) {
                            kept.push((step.id, receipt.steps[0], bytes));
                            acknowledged.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    kept
                })
            })
            .collect();
        for round in 1..=3u64 {
            while acknowledged.load(Ordering::Relaxed) < round * 60 {
                std::thread::sleep(Duration::from_millis(5));
            }
            server.crash_and_restart();
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            kept.extend(writer.join().unwrap());
        }
    });
    let store = open(&url, &local.path().join("after"));
    for (id, number, bytes) in &kept {
        let stored = store.step(*id).unwrap().expect("an acknowledged step is gone");
        assert_eq!(stored.step.number, *number);
        assert!(store.read(ObjectKind::Blob, stored.step.state).unwrap() == *bytes);
    }
    let numbers =
        store.steps(workspace.id, &StepQuery { oldest_first: true, ..StepQuery::default() }).unwrap();
    assert!(numbers.iter().map(|stored| stored.step.number).eq(1..=numbers.len() as u64));
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_batch_larger_than_memory_allows_is_sent_ahead() {
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let store = open(&url, local.path());
    let stored = put(&store, &[b"stored"])[0];
    let blobs: Vec<Vec<u8>> = (0..60).map(|seed| noise(seed, 1 << 20)).collect();
    let batch = store.begin().unwrap();
    let hashes: Vec<_> =
        blobs.iter().map(|bytes| batch.write(ObjectKind::Blob, bytes, None).unwrap()).collect();
    assert!(!store.contains(ObjectKind::Blob, hashes[0]).unwrap());
    drop(batch);
    assert_eq!(store.usage().unwrap().objects, 1, "a batch that was given up left something");
    let batch = store.begin().unwrap();
    for bytes in &blobs {
        batch.write(ObjectKind::Blob, bytes, None).unwrap();
    }
    assert_eq!(batch.write(ObjectKind::Blob, b"stored", None).unwrap(), stored);
    store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
    assert_eq!(store.usage().unwrap().objects, 61);
    for (hash, bytes) in hashes.iter().zip(&blobs) {
        assert!(store.read(ObjectKind::Blob, *hash).unwrap() == *bytes);
    }
}

#[test]
fn a_commit_of_another_process_ends_the_wait() {
    let mut server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let (one, two) = (open(&url, &local.path().join("1")), open(&url, &local.path().join("2")));
    let sample = Sample::new(1);
    let (_, session) = sample.begin(&one, b"/w");
    let long = Duration::from_secs(60);
    let mut mark = two.commit_seq().unwrap();
    assert_eq!(two.wait_for_commit(mark, Duration::ZERO).unwrap(), mark, "nothing was committed");
    for round in 0..20u64 {
        if round == 10 {
            // Whoever listens has to connect again.
            server.crash_and_restart();
        }
        std::thread::scope(|scope| {
            let waiting = {
                let (two, mark) = (&two, mark);
                scope.spawn(move || two.wait_for_commit(mark, long).unwrap())
            };
            sample.append(&one, session.id, &round.to_le_bytes());
            let seen = waiting.join().unwrap();
            assert!(seen.0 > mark.0);
            mark = seen;
        });
        if round == 9 {
            let last = |words: &str| {
                server.sql(
                    "test0",
                    &format!("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '{words}%'"),
                )
            };
            assert_eq!(last("LISTEN stepback").trim(), "1");
            // Nobody waits for that, so that it may be on its way still.
            while last("NOTIFY stepback").trim() != "1" {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    // A number may be given to a commit that is tried again.
    assert!(two.commit_seq().unwrap().0 >= mark.0);
}

/// A directory belongs to a machine; what agents elsewhere report to belongs to none.
#[test]
fn a_workspace_without_a_directory_is_the_same_on_every_machine() {
    let server = PostgresServer::start();
    let (url, local) = (server.database(), tempfile::tempdir().unwrap());
    let on = |machine: &str| {
        let access = Access::new(&url, &local.path().join(machine));
        PostgresStore::connect(&Access { machine: Some(machine.to_owned()), ..access }).unwrap()
    };
    let (one, two) = (on("one"), on("two"));
    let sample = Sample::new(1);
    let (here, _) = sample.begin(&one, b"/w");
    let (remote, _) = sample.begin(&one, b"remote:shop");
    assert_eq!(one.workspace_at(b"/w").unwrap().map(|found| found.id), Some(here.id));
    assert_eq!(two.workspace_at(b"/w").unwrap(), None);
    for store in [&one, &two] {
        assert_eq!(store.workspace_at(b"remote:shop").unwrap().map(|found| found.id), Some(remote.id));
    }
}

#[test]
fn text_with_zeros_comes_back() {
    let server = PostgresServer::start();
    let local = tempfile::tempdir().unwrap();
    let store = open(&server.database(), local.path());
    let sample = Sample::new(1);
    let (workspace, mut session) = sample.begin(&store, b"/w");
    session.info.title = Some("a\0b\u{f8ff}".into());
    let mut step = sample.step(session.id, put(&store, &[b"x"])[0]);
    step.kind = StepKind::ToolEnd;
    step.summary = "zero \0 and \u{f8ff}0".into();
    step.meta.tool = Some("To\0l".into());
    step.meta.call = Some("\0".into());
    let info = Box::new(session.info.clone());
    store
        .commit(None, &[append(step.clone()), Mutation::SetSessionInfo { session: session.id, info }])
        .unwrap();
    step.number = 1;
    assert_eq!(store.session(session.id).unwrap(), Some(session));
    let query = StepQuery { tool: Some("tO\0L".into()), call: Some("\0".into()), ..StepQuery::default() };
    let found = store.steps(workspace.id, &query).unwrap();
    assert_eq!(found.iter().map(|stored| &stored.step).collect::<Vec<_>>(), [&step]);
}
