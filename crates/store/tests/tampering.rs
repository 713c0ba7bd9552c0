//! An agent with a shell changes the database directly; the verification of chains names what it changed.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::path::Path;

use rusqlite::Connection;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_store::embedded::EmbeddedStore;
use stepback_store::prelude::*;
use stepback_store::step_chain::{self, ChainReport};
use stepback_testkit::process;
use stepback_testkit::sample::{Sample, append};

/// A store with ten steps of one session.
fn fill(dir: &Path) {
    let store = EmbeddedStore::open(dir).unwrap();
    let sample = Sample::new(1);
    let (_, session) = sample.begin(&store, b"/w");
    let state = Hash::of(ObjectKind::State, b"state");
    let steps: Vec<_> = (0..10).map(|_| append(sample.step(session.id, state))).collect();
    store.commit(None, &steps).unwrap();
}

fn verify(dir: &Path) -> ChainReport {
    let store = EmbeddedStore::open(dir).unwrap();
    let workspace = store.workspaces().unwrap().remove(0);
    step_chain::verify(&store, workspace.id).unwrap()
}

fn change(dir: &Path, sql: &str) {
    Connection::open(dir.join("log.sqlite")).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn a_direct_change_is_named() {
    const COPY: &str = "CREATE TEMP TABLE copy AS SELECT * FROM steps WHERE number = 10;
        UPDATE copy SET position = 100, id = randomblob(16), number = 11";
    let copied = |rest: &str| format!("{COPY}, {rest}; INSERT INTO steps SELECT * FROM copy");
    let cases = [
        ("SELECT 1".to_owned(), ""),
        ("UPDATE steps SET label = 'kept', note = 'n', hidden_by = NULL WHERE number = 4".into(), ""),
        ("UPDATE steps SET summary = 'harmless' WHERE number = 4".into(), "step #4 was altered"),
        ("UPDATE steps SET state = zeroblob(32) WHERE number = 1".into(), "step #1 was altered"),
        ("UPDATE steps SET at = at + 1 WHERE number = 7".into(), "step #7 was altered"),
        ("UPDATE steps SET parent = randomblob(16) WHERE number = 7".into(), "step #7 was altered"),
        ("UPDATE steps SET session = randomblob(16) WHERE number = 10".into(), "1 step was removed after #9"),
        ("UPDATE steps SET link = randomblob(32) WHERE number = 10".into(), "step #10 was altered"),
        ("UPDATE steps SET detail = zeroblob(32) WHERE number = 10".into(), "step #10 was altered"),
        ("UPDATE steps SET kind = 'nonsense' WHERE number = 4".into(), "step #4 was altered"),
        ("UPDATE steps SET state = 'text' WHERE number = 4".into(), "step #4 was altered"),
        ("DELETE FROM steps WHERE number = 5".into(), "step #5 was removed"),
        ("DELETE FROM steps WHERE number = 10".into(), "1 step was removed after #9"),
        ("DELETE FROM steps".into(), "10 steps were removed after #0"),
        (
            "UPDATE steps SET number = 100 WHERE number = 5; UPDATE steps SET number = 5 WHERE number = 6;
             UPDATE steps SET number = 6 WHERE number = 100"
                .into(),
            "step #5 was reordered",
        ),
        // A step is removed, and the gap closed.
        (
            "DELETE FROM steps WHERE number = 5; UPDATE steps SET number = number - 1 WHERE number > 5"
                .into(),
            "step #5 was altered",
        ),
        ("UPDATE steps SET number = number + 100".into(), "steps #1 to #100 were removed"),
        (copied("link = NULL"), "step #11 was inserted"),
        (copied("summary = 'forged'"), "step #11 was altered"),
        (copied("number = -1"), "step #18446744073709551615 was inserted"),
        ("UPDATE sessions SET head = zeroblob(32)".into(), "the chain does not end at its head"),
        ("UPDATE sessions SET head = NULL".into(), "the chain does not end at its head"),
        ("UPDATE sessions SET head = NULL, linked = 0".into(), "10 steps were inserted after #0"),
        ("UPDATE sessions SET linked = 9".into(), "step #10 was inserted"),
    ];
    for (sql, expected) in &cases {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path());
        change(dir.path(), sql);
        let said: Vec<String> = verify(dir.path()).breaks.iter().map(ToString::to_string).collect();
        assert!(said.first().map_or("", String::as_str).starts_with(expected), "{sql}: {said:?}");
        assert_eq!(said.is_empty(), expected.is_empty(), "{sql}: {said:?}");
    }
}

/// A store of format 3 can be read and verified as it is; its next step raises the format and is the first with a link.
#[test]
fn a_store_from_before_links_gets_them_with_its_next_step() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    change(
        dir.path(),
        "ALTER TABLE steps DROP COLUMN link; ALTER TABLE sessions DROP COLUMN head;
         ALTER TABLE sessions DROP COLUMN linked; PRAGMA user_version = 3",
    );
    let report = verify(dir.path());
    assert_eq!((report.steps, report.linked, report.breaks.len()), (10, 0, 0));

    let store = EmbeddedStore::open(dir.path()).unwrap();
    let session = store.sessions(store.workspaces().unwrap()[0].id).unwrap().remove(0);
    Sample::new(2).append(&store, session.id, b"new");
    drop(store);
    let report = verify(dir.path());
    assert_eq!((report.steps, report.linked, report.breaks.len()), (11, 1, 0));
    change(dir.path(), "UPDATE steps SET link = NULL");
    assert_eq!(verify(dir.path()).breaks.len(), 1);
}

/// Number of commits that each process makes.
const COMMITS: u64 = 25;

/// Not a test by itself: a process that appends to the one session of the store.
#[test]
fn child_appends() {
    let Some(task) = process::task() else { return };
    let (seed, dir) = task.split_once(':').unwrap();
    let store = EmbeddedStore::open(Path::new(dir)).unwrap();
    let session = store.sessions(store.workspaces().unwrap()[0].id).unwrap().remove(0);
    let sample = Sample::new(seed.parse().unwrap());
    let state = Hash::of(ObjectKind::State, b"state");
    for _ in 0..COMMITS {
        let steps = [append(sample.step(session.id, state)), append(sample.step(session.id, state))];
        store.commit(None, &steps).unwrap();
    }
}

#[test]
fn two_processes_append_to_one_chain() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let task = |seed: u64| format!("{seed}:{}", dir.path().display());
    let children = [100, 200].map(|seed| process::spawn("child_appends", &task(seed)));
    children.into_iter().for_each(process::expect_success);
    let report = verify(dir.path());
    let steps = 10 + 4 * COMMITS;
    assert_eq!((report.steps, report.linked, report.breaks.len()), (steps, steps, 0));
}
