//! Every point of failure of the embedded store, one after the other: nothing acknowledged is lost, nothing half is seen.
//!
//! Faults are global to a process, so the tests of this file take turns.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stepback_faults::{Fault, arm, disarm, was_reached};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::StepId;
use stepback_model::object::ObjectSource;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::prelude::*;
use stepback_store::{Mutation, StoreError, step_chain};
use stepback_testkit::process;
use stepback_testkit::sample::{Sample, append, noise, prose, put};

/// More points than any command here has; a loop that gets this far would never end.
const TOO_MANY: u32 = 200;

static TURN: Mutex<()> = Mutex::new(());

fn my_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the store and commits a step with two objects, one of them large, and moves the reference `head`.
fn commit_a_step(dir: &Path, round: u32) -> Result<(), StoreError> {
    let store = EmbeddedStore::open(dir)?;
    let sample = Sample::new(1000 + u64::from(round));
    let batch = store.begin()?;
    let (small, large) = states_of(round);
    batch.write(ObjectKind::Blob, &large, None)?;
    let state = batch.write(ObjectKind::Blob, &small, None)?;
    let workspace = store.workspaces()?.into_iter().next();
    let mut mutations = Vec::new();
    let session = match &workspace {
        Some(workspace) => store.sessions(workspace.id)?[0].id,
        None => {
            let workspace = sample.workspace(b"/w");
            let session = sample.session(workspace.id);
            let id = session.id;
            mutations.extend([Mutation::AddWorkspace(workspace), Mutation::AddSession(session)]);
            id
        }
    };
    let step = sample.step(session, state);
    mutations.push(Mutation::SetRef {
        name: "head".into(),
        expected: store.reference("head")?,
        value: step.id,
    });
    mutations.push(append(step));
    store.commit(Some(batch.finish()?), &mutations).map(drop)
}

fn states_of(round: u32) -> (Vec<u8>, Vec<u8>) {
    (prose(u64::from(round), 20), noise(u64::from(round), 1_300_000))
}

fn blob(bytes: &[u8]) -> Hash {
    Hash::of(ObjectKind::Blob, bytes)
}

/// Everything the store shows is whole; returns the rounds whose commits are visible, oldest first.
fn rounds_seen(dir: &Path, tried: u32) -> Vec<u32> {
    let store = EmbeddedStore::open(dir).unwrap();
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    let Some(workspace) = store.workspaces().unwrap().into_iter().next() else {
        assert_eq!(store.usage().unwrap().objects, 0);
        assert_eq!(store.references("").unwrap(), []);
        return Vec::new();
    };
    let mut checkpoints = store.checkpoints(workspace.id).unwrap();
    checkpoints.reverse();
    let chain = step_chain::verify(&store, workspace.id).unwrap();
    assert_eq!((chain.linked, chain.breaks), (checkpoints.len() as u64, Vec::new()));
    let head: Option<StepId> = store.reference("head").unwrap();
    assert_eq!(head, checkpoints.last().map(|stored| stored.step.id), "half a commit");
    let mut seen = Vec::new();
    for (at, stored) in checkpoints.iter().enumerate() {
        assert_eq!(stored.step.number, at as u64 + 1);
        let state = stored.step.state;
        seen.extend((1..=tried).filter(|round| blob(&states_of(*round).0) == state));
        assert_eq!(seen.len(), at + 1);
        let (small, large) = states_of(seen[at]);
        assert_eq!(store.read(ObjectKind::Blob, state).unwrap(), small);
        assert!(store.read(ObjectKind::Blob, blob(&large)).unwrap() == large);
    }
    assert_eq!(
        store.usage().unwrap().objects,
        2 * seen.len() as u64,
        "objects of a failed commit are visible"
    );
    seen
}

/// Fails the n-th point of a commit for n = 1, 2, … until it succeeds.
fn commits_survive(fault: Fault, dir: &Path) {
    let mut acknowledged = rounds_seen(dir, 0);
    for round in 1..TOO_MANY {
        arm(fault, round);
        let result = commit_a_step(dir, round);
        disarm();
        let seen = rounds_seen(dir, round);
        assert!(acknowledged.iter().all(|known| seen.contains(known)), "{acknowledged:?} became {seen:?}");
        if result.is_ok() {
            assert_eq!(seen.last(), Some(&round));
        }
        if result.is_ok() && !was_reached() {
            assert!(round > 5, "only {round} points were passed");
            let left = EmbeddedStore::open(dir).unwrap().usage().unwrap();
            assert!(left.total_bytes < left.stored_bytes + 3_000_000, "failures left bytes behind: {left:?}");
            return;
        }
        acknowledged = seen;
    }
    panic!("the commit never succeeded");
}

#[test]
fn a_commit_survives_a_full_disk_at_every_point() {
    let _turn = my_turn();
    let dir = tempfile::tempdir().unwrap();
    commits_survive(Fault::DiskFull, &dir.path().join("store"));
}

#[test]
fn a_commit_survives_one_failure_at_every_point() {
    let _turn = my_turn();
    let dir = tempfile::tempdir().unwrap();
    commits_survive(Fault::Once, &dir.path().join("store"));
}

#[test]
fn a_commit_survives_a_kill_at_every_point() {
    let _turn = my_turn();
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 1..TOO_MANY {
        let output = process::run("child_is_killed", &format!("commit:{round}:{}", dir.path().display()));
        let seen = rounds_seen(dir.path(), round);
        assert!(acknowledged.iter().all(|known| seen.contains(known)), "{acknowledged:?} became {seen:?}");
        if output.status.success() {
            assert_eq!(seen.last(), Some(&round));
            assert!(round > 5, "only {round} points were passed");
            return;
        }
        acknowledged = seen;
    }
    panic!("the commit never succeeded");
}

/// Runs one command with a kill armed: `commit:N:DIR` or `sweep:N:DIR`.
#[test]
fn child_is_killed() {
    let Some(task) = process::task() else { return };
    let mut parts = task.splitn(3, ':');
    let (what, nth, dir) = (parts.next().unwrap(), parts.next().unwrap(), Path::new(parts.next().unwrap()));
    let nth: u32 = nth.parse().unwrap();
    arm(Fault::Kill, nth);
    match what {
        "commit" => commit_a_step(dir, nth).unwrap(),
        _ => sweep(dir).unwrap(),
    }
}

/// Three packs: one all dead, one mostly dead with a survivor in it, one with a dead writer's tail.
fn fill_for_sweep(dir: &Path) {
    let store = EmbeddedStore::open(dir).unwrap();
    let batches: Vec<_> = (0..3).map(|_| store.begin().unwrap()).collect();
    batches[0].write(ObjectKind::Blob, &noise(1, 200_000), None).unwrap();
    batches[1].write(ObjectKind::Blob, &noise(2, 200_000), None).unwrap();
    batches[1].write(ObjectKind::Blob, &prose(1, 100), None).unwrap();
    batches[2].write(ObjectKind::Blob, &noise(3, 100_000), None).unwrap();
    for batch in batches {
        store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
    }
    let edited = [prose(1, 100), b"edited".to_vec()].concat();
    let batch = store.begin().unwrap();
    batch.write(ObjectKind::Blob, &edited, Some(blob(&prose(1, 100)))).unwrap();
    store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
    let given_up = store.begin().unwrap();
    given_up.write(ObjectKind::Blob, &noise(4, 1_500_000), None).unwrap();
}

fn living() -> Vec<Vec<u8>> {
    vec![prose(1, 100), noise(3, 100_000), [prose(1, 100), b"edited".to_vec()].concat()]
}

fn sweep(dir: &Path) -> Result<(), StoreError> {
    let store = EmbeddedStore::open(dir)?;
    let live: HashSet<Hash> = living().iter().map(|bytes| blob(bytes)).collect();
    store.sweep(&live, store.commit_seq()?).map(drop)
}

fn assert_living(dir: &Path) -> EmbeddedStore {
    let store = EmbeddedStore::open(dir).unwrap();
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    for bytes in living() {
        assert!(store.read(ObjectKind::Blob, blob(&bytes)).unwrap() == bytes);
    }
    store
}

/// What a sweep leaves behind when it is through: the living, and nothing of the dead.
fn assert_swept(dir: &Path) {
    let store = assert_living(dir);
    let usage = store.usage().unwrap();
    assert_eq!(usage.objects, 3);
    assert!(usage.total_bytes < 350_000, "{usage:?}");
    put(&store, &[b"and writing goes on"]);
}

/// Runs `attempt(n)` for n = 1, 2, … until it says that the sweep went through; each on a store of its own, and then
/// all failures once more on one and the same store.
fn sweeps_survive(attempt: impl Fn(&Path, u32) -> bool) {
    let mut rounds = 0;
    for nth in 1..TOO_MANY {
        let dir = tempfile::tempdir().unwrap();
        fill_for_sweep(dir.path());
        let done = attempt(dir.path(), nth);
        assert_living(dir.path());
        sweep(dir.path()).unwrap();
        assert_swept(dir.path());
        if done {
            rounds = nth;
            break;
        }
    }
    assert!(rounds > 5, "only {rounds} points were passed");
    let dir = tempfile::tempdir().unwrap();
    fill_for_sweep(dir.path());
    for nth in 1..TOO_MANY {
        let done = attempt(dir.path(), nth);
        assert_living(dir.path());
        if done {
            assert_swept(dir.path());
            return;
        }
    }
    panic!("the sweep never succeeded");
}

#[test]
fn a_sweep_survives_a_full_disk_and_single_failures_at_every_point() {
    let _turn = my_turn();
    for fault in [Fault::DiskFull, Fault::Once] {
        sweeps_survive(|dir, nth| {
            arm(fault, nth);
            let result = sweep(dir);
            disarm();
            result.is_ok() && !was_reached()
        });
    }
}

#[test]
fn a_sweep_survives_a_kill_at_every_point() {
    let _turn = my_turn();
    sweeps_survive(|dir, nth| {
        process::run("child_is_killed", &format!("sweep:{nth}:{}", dir.display())).status.success()
    });
}
