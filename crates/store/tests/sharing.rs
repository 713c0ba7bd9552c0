//! Many handles, threads and processes on one embedded store.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::SessionId;
use stepback_model::object::ObjectSource;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::port::{Receipt, StepQuery};
use stepback_store::prelude::*;
use stepback_store::{Mutation, StoreError};
use stepback_testkit::process;
use stepback_testkit::sample::{Sample, append, noise, prose, put};

const PROCESSES: u64 = 4;
const STEPS: u64 = 12;

/// Appends a step whose state is `bytes`, again and again until no collection comes in between.
fn append_step(
    store: &EmbeddedStore,
    sample: &Sample,
    session: SessionId,
    bytes: &[u8],
    base: Option<Hash>,
) -> Receipt {
    loop {
        let batch = store.begin().unwrap();
        let state = batch.write(ObjectKind::Blob, bytes, base).unwrap();
        match store.commit(Some(batch.finish().unwrap()), &[append(sample.step(session, state))]) {
            Err(StoreError::Collected) => {}
            result => return result.unwrap(),
        }
    }
}

/// Sweeps, keeping the state of every step.
fn sweep(store: &EmbeddedStore) -> Result<(), StoreError> {
    let mark = store.commit_seq()?;
    let mut live = HashSet::new();
    for workspace in store.workspaces()? {
        live.extend(store.checkpoints(workspace.id)?.iter().map(|stored| stored.step.state));
    }
    store.sweep(&live, mark).map(drop)
}

fn assert_whole(store: &EmbeddedStore, expected: u64) {
    let workspace = store.workspaces().unwrap()[0].id;
    let checkpoints = store.checkpoints(workspace).unwrap();
    let numbers: Vec<u64> = checkpoints.iter().map(|stored| stored.step.number).collect();
    assert_eq!(numbers, (1..=expected).rev().collect::<Vec<_>>());
    for stored in checkpoints {
        store.read(ObjectKind::Blob, stored.step.state).unwrap();
    }
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

#[test]
fn two_handles_see_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (EmbeddedStore::open(dir.path()).unwrap(), EmbeddedStore::open(dir.path()).unwrap());
    let sample = Sample::new(1);
    let (_, session) = sample.begin(&one, b"/w");
    for at in 0..6u8 {
        let store = if at % 2 == 0 { &one } else { &two };
        assert_eq!(sample.append(store, session.id, &[at]).1.steps, [u64::from(at) + 1]);
    }
    // Batches of two handles at once are written into different packs.
    let (a, b) = (one.begin().unwrap(), two.begin().unwrap());
    let first = a.write(ObjectKind::Blob, b"a", None).unwrap();
    let second = b.write(ObjectKind::Blob, b"b", None).unwrap();
    two.commit(Some(b.finish().unwrap()), &[]).unwrap();
    one.commit(Some(a.finish().unwrap()), &[]).unwrap();
    assert_eq!(one.read(ObjectKind::Blob, second).unwrap(), b"b");
    assert_eq!(two.read(ObjectKind::Blob, first).unwrap(), b"a");
    // One handle collects, the other goes on reading what was moved.
    let kept = put(&one, &[&noise(1, 50_000), &prose(1, 50)])[1];
    two.read(ObjectKind::Blob, kept).unwrap();
    one.sweep(&HashSet::from([kept]), one.commit_seq().unwrap()).unwrap();
    assert_eq!(two.read(ObjectKind::Blob, kept).unwrap(), prose(1, 50));
    assert!(!ObjectStore::contains(&two, ObjectKind::Blob, first).unwrap());
}

#[test]
fn threads_with_their_own_handles_lose_and_double_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let (_, session) = Sample::new(1).begin(&store, b"/w");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (path, session) = (dir.path(), session.id);
            scope.spawn(move || {
                let store = EmbeddedStore::open(path).unwrap();
                let sample = Sample::new(10 + thread);
                for at in 0..STEPS {
                    append_step(&store, &sample, session, &prose(thread * 100 + at, 30), None);
                }
            });
        }
    });
    assert_whole(&store, 4 * STEPS);
}

#[test]
fn a_new_store_can_be_opened_by_many_at_once() {
    for _ in 0..15 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let barrier = Barrier::new(6);
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (path, barrier) = (&path, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    put(&EmbeddedStore::open(path).unwrap(), &[&prose(thread, 10)]);
                });
            }
        });
        assert_eq!(EmbeddedStore::open(&path).unwrap().usage().unwrap().objects, 6);
    }
}

#[test]
fn processes_that_make_and_fill_a_store_at_once_lose_and_double_nothing() {
    for _ in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let task = |at: u64| format!("{at}:{}", path.display());
        let children: Vec<_> =
            (0..PROCESSES).map(|at| process::spawn("child_appends_steps", &task(at))).collect();
        children.into_iter().for_each(process::expect_success);
        let store = EmbeddedStore::open_existing(&path).unwrap();
        assert_whole(&store, PROCESSES * STEPS);
        let states: BTreeSet<Hash> = store
            .checkpoints(store.workspaces().unwrap()[0].id)
            .unwrap()
            .iter()
            .map(|stored| stored.step.state)
            .collect();
        assert_eq!(states.len() as u64, PROCESSES * STEPS);
    }
}

/// Whoever comes first registers the workspace; all append to its one session.
#[test]
fn child_appends_steps() {
    let Some(task) = process::task() else { return };
    let (me, path) = task.split_once(':').unwrap();
    let me: u64 = me.parse().unwrap();
    let store = EmbeddedStore::open(Path::new(path)).unwrap();
    let (shared, mine) = (Sample::new(0), Sample::new(me + 1));
    let workspace = shared.workspace(b"/shared");
    let session = shared.session(workspace.id);
    match store.commit(None, &[Mutation::AddWorkspace(workspace), Mutation::AddSession(session.clone())]) {
        Ok(_) | Err(StoreError::Exists { .. }) => {}
        Err(other) => panic!("{other}"),
    }
    for at in 0..STEPS {
        append_step(&store, &mine, session.id, &prose(me * 1000 + at, 40), None);
        if at % 4 == 3 {
            // Another process may be faster, or collecting itself.
            match sweep(&store) {
                Ok(()) | Err(StoreError::Grew) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn sweeping_beside_writers_and_readers_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let (_, session) = Sample::new(1).begin(&store, b"/w");
    let anchors: Vec<Vec<u8>> = (0..8).map(|seed| prose(seed, 60)).collect();
    let sample = Sample::new(2);
    for bytes in &anchors {
        append_step(&store, &sample, session.id, bytes, None);
    }
    let (writing, sweeps) = (AtomicU32::new(2), AtomicU32::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (path, writing, session) = (dir.path(), &writing, session.id);
            scope.spawn(move || {
                let store = EmbeddedStore::open(path).unwrap();
                let sample = Sample::new(10 + writer);
                let mut text = prose(100 + writer, 60);
                let mut base = None;
                for at in 0..40 {
                    text.extend_from_slice(format!("round {at} of writer {writer}\n").as_bytes());
                    append_step(&store, &sample, session, &text, base);
                    base = Some(Hash::of(ObjectKind::Blob, &text));
                    // Something for the collector to free.
                    let batch = store.begin().unwrap();
                    batch.write(ObjectKind::Blob, &noise(writer * 1000 + at, 30_000), None).unwrap();
                    match store.commit(Some(batch.finish().unwrap()), &[]) {
                        Ok(_) | Err(StoreError::Collected) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for own_handle in [true, false] {
            let (path, store, stop, anchors) = (dir.path(), &store, &stop, &anchors);
            scope.spawn(move || {
                let own = own_handle.then(|| EmbeddedStore::open(path).unwrap());
                let store = own.as_ref().unwrap_or(store);
                for bytes in anchors.iter().cycle().take(20_000) {
                    let hash = Hash::of(ObjectKind::Blob, bytes);
                    assert_eq!(store.read(ObjectKind::Blob, hash).unwrap(), *bytes);
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
        }
        for _ in 0..2 {
            let (path, writing, sweeps, stop) = (dir.path(), &writing, &sweeps, &stop);
            scope.spawn(move || {
                let store = EmbeddedStore::open(path).unwrap();
                while writing.load(Ordering::SeqCst) > 0 || sweeps.load(Ordering::SeqCst) < 3 {
                    match sweep(&store) {
                        Ok(()) => drop(sweeps.fetch_add(1, Ordering::SeqCst)),
                        Err(StoreError::Grew) => {}
                        Err(other) => panic!("{other}"),
                    }
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                stop.store(true, Ordering::SeqCst);
            });
        }
    });
    assert_whole(&store, 8 + 80);
    while let Err(StoreError::Grew) = sweep(&store) {}
    assert_whole(&store, 8 + 80);
    assert_eq!(store.usage().unwrap().objects, 88);
}

/// The file of the log is made longer ahead of what is committed, by whoever stays; others write to it meanwhile.
#[test]
fn a_log_with_room_at_its_end_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (EmbeddedStore::open(dir.path()).unwrap(), EmbeddedStore::open(dir.path()).unwrap());
    let sample = Sample::new(1);
    let (_, session) = sample.begin(&one, b"/w");
    let log = || std::fs::metadata(dir.path().join("log.sqlite-wal")).unwrap().len();
    let mut made_room = 0;
    for number in 1..=150u64 {
        let before = log();
        let writer = if number % 3 == 0 { &other } else { &one };
        let (_, receipt) = sample.append(writer, session.id, &noise(number, 3000));
        assert_eq!(receipt.steps, [number]);
        made_room += u32::from(log() > before + (1 << 20) - (64 << 10));
        if number % 10 == 0 {
            // As it is now, as if both had been killed.
            let crashed = tempfile::tempdir().unwrap();
            std::fs::create_dir(crashed.path().join("packs")).unwrap();
            let packs = std::fs::read_dir(dir.path().join("packs")).unwrap();
            let packs = packs.map(|pack| Path::new("packs").join(pack.unwrap().file_name()));
            for name in packs.chain(["log.sqlite".into(), "log.sqlite-wal".into()]) {
                std::fs::copy(dir.path().join(&name), crashed.path().join(&name)).unwrap();
            }
            let left = EmbeddedStore::open(crashed.path()).unwrap();
            let steps = left.steps(session.workspace, &StepQuery::default()).unwrap();
            assert_eq!(steps.len() as u64, number);
            assert_eq!(left.check().unwrap(), Vec::<String>::new());
        }
    }
    assert!(made_room > 0, "nobody made room");
}
