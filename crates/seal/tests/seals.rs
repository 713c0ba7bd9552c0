//! A seal names what was changed in a store since, also if every link was computed again.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::path::Path;
use std::process::Command;

use rusqlite::Connection;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::WorkspaceId;
use stepback_model::record::OpStatus;
use stepback_model::step_chain::StepLink;
use stepback_model::time::Timestamp;
use stepback_seal::{Seal, compare, git_ref, take_seal};
use stepback_store::embedded::EmbeddedStore;
use stepback_store::port::Mutation;
use stepback_store::prelude::*;
use stepback_store::step_chain;
use stepback_testkit::sample::{Sample, append};

const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// Ten steps of two sessions, and an operation.
fn fill(dir: &Path) -> WorkspaceId {
    let store = EmbeddedStore::open(dir).unwrap();
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(&store, b"/w");
    let other = sample.session(workspace.id);
    store.commit(None, &[Mutation::AddSession(other.clone())]).unwrap();
    let state = Hash::of(ObjectKind::State, b"state");
    let of = |at: u64| if at.is_multiple_of(3) { other.id } else { session.id };
    let mut mutations: Vec<_> = (0..10).map(|at| append(sample.step(of(at), state))).collect();
    mutations.push(Mutation::AppendOp(sample.operation(workspace.id, OpStatus::Done)));
    store.commit(None, &mutations).unwrap();
    workspace.id
}

fn sealed(dir: &Path) -> Seal {
    let workspace = fill(dir);
    take_seal(&EmbeddedStore::open(dir).unwrap(), workspace, NOW, Vec::new()).unwrap()
}

/// What is found after `sql`, and after every link and head was computed again, as an attacker would do.
fn found_after(sql: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let seal = sealed(dir.path());
    let db = Connection::open(dir.path().join("log.sqlite")).unwrap();
    db.execute_batch(sql).unwrap();
    relink(dir.path(), seal.workspace, &db);
    drop(db);
    let store = EmbeddedStore::open(dir.path()).unwrap();
    // The chains alone show nothing, unless a number is missing.
    let breaks = step_chain::verify(&store, seal.workspace).unwrap().breaks;
    assert!(breaks.iter().all(|found| found.session.is_none()), "{sql}: {breaks:?}");
    let comparison = compare(&seal, &store).unwrap();
    comparison.findings.iter().map(ToString::to_string).collect()
}

/// Computes the chains of all sessions again.
fn relink(dir: &Path, workspace: WorkspaceId, db: &Connection) {
    let store = EmbeddedStore::open(dir).unwrap();
    let entries = store.chain_entries(workspace, 0, u64::MAX).unwrap();
    let mut heads = std::collections::HashMap::new();
    for entry in entries {
        let (linked, head) = heads.entry(entry.session).or_insert((0i64, StepLink::START));
        *linked += 1;
        *head = head.next(entry.digest.unwrap());
        db.execute(
            "UPDATE steps SET link = ?2 WHERE number = ?1",
            rusqlite::params![entry.number as i64, head.as_bytes()],
        )
        .unwrap();
    }
    for (session, (linked, head)) in heads {
        db.execute(
            "UPDATE sessions SET linked = ?2, head = ?3 WHERE id = ?1",
            rusqlite::params![session.as_bytes(), linked, head.as_bytes()],
        )
        .unwrap();
    }
}

fn assert_found(sql: &str, expected: &[&str]) {
    let found = found_after(sql);
    let without_sessions: Vec<_> = found.iter().map(|text| text.split(" (session").next().unwrap()).collect();
    assert_eq!(without_sessions, expected, "{sql}: {found:?}");
}

#[test]
fn every_change_before_the_seal_is_named() {
    assert_found("SELECT 1", &[]);
    assert_found("UPDATE steps SET summary = 'harmless' WHERE number = 4", &["step #4 was altered"]);
    assert_found(
        "UPDATE steps SET state = zeroblob(32) WHERE number IN (1, 10)",
        &["step #1 was altered", "step #10 was altered"],
    );
    assert_found("DELETE FROM steps WHERE number = 10", &["step #10 was removed"]);
    // The gap is closed, so that the numbers look right.
    assert_found(
        "DELETE FROM steps WHERE number = 9; UPDATE steps SET number = 9 WHERE number = 10",
        &["step #9 was removed", "step #10 was renumbered to #9"],
    );
    assert_found(
        "UPDATE steps SET number = 100 WHERE number = 5; UPDATE steps SET number = 5 WHERE number = 6;
         UPDATE steps SET number = 6 WHERE number = 100",
        &["step #5 was renumbered to #6", "step #6 was renumbered to #5"],
    );
    // A forged step takes the number of one that is moved to the end.
    assert_found(
        "UPDATE steps SET number = 11 WHERE number = 10;
         CREATE TEMP TABLE copy AS SELECT * FROM steps WHERE number = 9;
         UPDATE copy SET position = 100, id = randomblob(16), number = 10; INSERT INTO steps SELECT * FROM copy",
        &["step #10 was renumbered to #11", "step #10 was added"],
    );
    assert_found("UPDATE operations SET summary = 'other'", &["operation 1 was changed"]);
    assert_found("UPDATE operations SET undone = 1; UPDATE steps SET label = 'x', hidden_by = NULL", &[]);
}

#[test]
fn what_comes_after_the_seal_is_no_finding() {
    let dir = tempfile::tempdir().unwrap();
    let seal = sealed(dir.path());
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let session = store.sessions(seal.workspace).unwrap().remove(0);
    let sample = Sample::new(2);
    sample.append(&store, session.id, b"later");
    let new = sample.session(seal.workspace);
    store.commit(None, &[Mutation::AddSession(new.clone())]).unwrap();
    sample.append(&store, new.id, b"later");
    let operation = sample.operation(seal.workspace, OpStatus::Done);
    store.commit(None, &[Mutation::AppendOp(operation)]).unwrap();
    let comparison = compare(&seal, &store).unwrap();
    assert_eq!(comparison.findings, []);
    assert_eq!((comparison.sealed_steps, comparison.steps_since, comparison.operations_since), (10, 2, 1));
}

/// The head in a seal is the one in the store, and a copy of the store has the same.
#[test]
fn a_copy_of_the_store_fits_the_seal() {
    let dir = tempfile::tempdir().unwrap();
    let seal = sealed(dir.path());
    let store = EmbeddedStore::open(dir.path()).unwrap();
    for head in store.chain_heads(seal.workspace).unwrap() {
        let session = seal.sessions.iter().find(|session| session.id == head.session).unwrap();
        assert_eq!((Some(session.head), session.steps), (head.head, head.linked));
    }
    let other = tempfile::tempdir().unwrap();
    let copy = EmbeddedStore::open(other.path()).unwrap();
    stepback_store::copy::copy(&store, &copy, &mut |_, _, _| {}).unwrap();
    assert_eq!(compare(&seal, &copy).unwrap().findings, []);
    assert_eq!(step_chain::verify(&copy, seal.workspace).unwrap().breaks, []);
}

fn git(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").arg("-C").arg(dir).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Git reads the commits, and nothing else in the repository changes.
#[test]
fn a_seal_is_kept_in_a_git_reference() {
    let dir = tempfile::tempdir().unwrap();
    git(dir.path(), &["init", "-q"]);
    std::fs::write(dir.path().join("staged"), "1").unwrap();
    git(dir.path(), &["add", "staged"]);
    let status = git(dir.path(), &["status", "--porcelain"]);
    let name = git_ref::full_name("git:main").unwrap();
    let first = git_ref::write_seal(dir.path(), &name, "{\"one\": 1}\n", NOW).unwrap();
    let second = git_ref::write_seal(dir.path(), &name, "{\"two\": 2}\n", NOW).unwrap();
    assert_eq!(git(dir.path(), &["rev-parse", &name, &format!("{name}^")]), format!("{second}\n{first}\n"));
    assert_eq!(git(dir.path(), &["show", &format!("{name}:seal.json")]), "{\"two\": 2}\n");
    assert_eq!(git(dir.path(), &["show", &format!("{name}^:seal.json")]), "{\"one\": 1}\n");
    git(dir.path(), &["fsck", "--strict"]);
    assert_eq!(git_ref::read_seal(dir.path(), &name).unwrap(), b"{\"two\": 2}\n");
    assert_eq!(git(dir.path(), &["status", "--porcelain"]), status);
    assert_eq!(git(dir.path(), &["for-each-ref", "--format=%(refname)"]), format!("{name}\n"));
    // A reference that git has packed gets a successor.
    git(dir.path(), &["pack-refs", "--all"]);
    let third = git_ref::write_seal(dir.path(), &name, "{}", NOW).unwrap();
    assert_eq!(git(dir.path(), &["rev-parse", &name, &format!("{name}^")]), format!("{third}\n{second}\n"));
    // One that is locked is refused.
    let lock = dir.path().join(".git").join(format!("{name}.lock"));
    std::fs::write(&lock, "").unwrap();
    let refused = git_ref::write_seal(dir.path(), &name, "{}", NOW).unwrap_err().to_string();
    assert!(refused.contains("is locked"), "{refused}");
    std::fs::remove_file(lock).unwrap();
    // Packed objects are read, too.
    git(dir.path(), &["gc", "-q"]);
    assert_eq!(git_ref::read_seal(dir.path(), &name).unwrap(), b"{}");
    let empty = tempfile::tempdir().unwrap();
    assert!(git_ref::write_seal(empty.path(), &name, "{}", NOW).is_err());
}

#[test]
fn a_seal_is_kept_from_a_linked_work_tree() {
    let dir = tempfile::tempdir().unwrap();
    let main = dir.path().join("main");
    std::fs::create_dir(&main).unwrap();
    git(&main, &["init", "-q"]);
    git(&main, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "1"]);
    git(&main, &["worktree", "add", "-q", "../linked"]);
    let name = git_ref::full_name("git:main").unwrap();
    let linked = dir.path().join("linked");
    let commit = git_ref::write_seal(&linked, &name, "{}", NOW).unwrap();
    assert_eq!(git(&main, &["rev-parse", &name]).trim(), commit);
    assert_eq!(git_ref::read_seal(&linked, &name).unwrap(), b"{}");
}
