//! Acknowledged commits that the database loses are noticed and brought back; what a crash leaves is not mistaken for that.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::ObjectSource;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::prelude::*;
use stepback_store::{Mutation, StoreError};
use stepback_testkit::sample::{Sample, append, noise, prose};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["log.sqlite", "log.sqlite-wal", "log.sqlite-shm"];

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Everything that the store says about its history, and the bytes of every object.
fn contents(store: &EmbeddedStore) -> String {
    let mut all = String::new();
    for workspace in store.workspaces().unwrap() {
        let steps = store.checkpoints(workspace.id).unwrap();
        let operations = store.operations(workspace.id).unwrap();
        all += &format!("{:?} {steps:?} {operations:?}", store.sessions(workspace.id).unwrap());
        // Commits that are brought back give their steps the links that they had.
        let links = store.chain_entries(workspace.id, 0, u64::MAX).unwrap();
        all += &format!("{links:?} {:?}", store.chain_heads(workspace.id).unwrap());
    }
    let mut objects = Vec::new();
    store.for_each_object(&mut |object| objects.push((object.kind, object.hash))).unwrap();
    objects.sort();
    for (kind, hash) in objects {
        let bytes = store.read(kind, hash).unwrap();
        all += &format!("{kind} {hash} {}", bytes.len());
    }
    all + &format!("{:?}", store.references("").unwrap())
}

/// Commits `count` steps, each with a small object and every third with a large one.
fn fill(dir: &Path, sample: &Sample, count: u64) {
    let store = EmbeddedStore::open(dir).unwrap();
    let session = match store.workspaces().unwrap().first() {
        Some(workspace) => store.sessions(workspace.id).unwrap().remove(0),
        None => sample.begin(&store, b"/w").1,
    };
    for _ in 0..count {
        let seed = store.commit_seq().unwrap().0;
        let batch = store.begin().unwrap();
        let state = batch.write(ObjectKind::Blob, &prose(seed, 10), None).unwrap();
        if seed.is_multiple_of(3) {
            batch.write(ObjectKind::Blob, &noise(seed, 40_000), None).unwrap();
        }
        let step = sample.step(session.id, state);
        let expected = store.reference("head").unwrap();
        let head = Mutation::SetRef { name: "head".into(), expected, value: step.id };
        store.commit(Some(batch.finish().unwrap()), &[append(step), head]).unwrap();
    }
}

fn filled(count: u64) -> (TempDir, Sample) {
    let dir = tempfile::tempdir().unwrap();
    let sample = Sample::new(7);
    fill(dir.path(), &sample, count);
    (dir, sample)
}

fn pack_bytes(dir: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let mut packs: Vec<_> = fs::read_dir(dir.join("packs"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
        .collect();
    packs.sort();
    packs
}

/// Commits are refused, sweeps too, and neither touches a pack.
fn assert_refused(dir: &Path, store: &EmbeddedStore) {
    let before = pack_bytes(dir);
    let write = || -> Result<(), StoreError> {
        let batch = store.begin()?;
        batch.write(ObjectKind::Blob, &noise(99, 200_000), None)?;
        store.commit(Some(batch.finish()?), &[]).map(drop)
    };
    for _ in 0..2 {
        let refused = write();
        assert!(matches!(&refused, Err(StoreError::Lost { .. } | StoreError::Object(_))), "{refused:?}");
    }
    let mark = store.commit_seq().unwrap();
    let refused = store.sweep(&HashSet::new(), mark);
    assert!(matches!(refused, Err(StoreError::Lost { .. })), "{refused:?}");
    assert!(pack_bytes(dir) == before, "a pack was changed");
}

#[test]
fn a_flipped_bit_in_the_write_ahead_log_is_noticed_and_repaired() {
    // Few enough that the log was never folded.
    let (dir, sample) = filled(9);
    let intact = contents(&EmbeddedStore::open(dir.path()).unwrap());
    let log = fs::read(dir.path().join("log.sqlite-wal")).unwrap();
    let (mut lost, mut tried) = (0, 0);
    let step = (log.len() * 8 / 400).max(1);
    for bit in (0..log.len() * 8).step_by(step + 1) {
        tried += 1;
        let copy = tempfile::tempdir().unwrap();
        copy_dir(dir.path(), copy.path());
        let mut damaged = log.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        fs::write(copy.path().join("log.sqlite-wal"), &damaged).unwrap();
        fs::remove_file(copy.path().join("log.sqlite-shm")).unwrap();
        let store = match EmbeddedStore::open(copy.path()) {
            Ok(store) => store,
            // Nothing is left of the tables.
            Err(StoreError::Corrupt { .. }) => EmbeddedStore::open_to_repair(copy.path()).unwrap(),
            Err(error) => panic!("bit {bit}: {error}"),
        };
        if !store.has_lost_commits().unwrap() {
            assert_eq!(contents(&store), intact, "bit {bit}: lost in silence");
            assert_eq!(store.check().unwrap(), Vec::<String>::new());
            continue;
        }
        lost += 1;
        assert!(!store.check().unwrap().is_empty());
        if lost % 20 == 1 {
            assert_refused(copy.path(), &store);
        }
        let plan = store.lost_commits().unwrap();
        assert!(!plan.is_empty() && plan.iter().all(|commit| commit.obstacle.is_none()), "{plan:?}");
        assert!(store.has_lost_commits().unwrap(), "a plan changes nothing");
        assert_eq!(store.restore_lost_commits().unwrap(), plan);
        assert_eq!(contents(&store), intact, "bit {bit}");
        assert_eq!(store.check().unwrap(), Vec::<String>::new());
        drop(store);
        if lost % 20 == 1 {
            fill(copy.path(), &sample, 1);
            assert_eq!(EmbeddedStore::open(copy.path()).unwrap().check().unwrap(), Vec::<String>::new());
        }
    }
    assert!(tried >= 300 && lost * 2 > tried, "{lost} of {tried} flips lost a commit");
}

#[test]
fn a_missing_or_shortened_log_is_noticed_and_repaired() {
    let (dir, _) = filled(40);
    let intact = contents(&EmbeddedStore::open(dir.path()).unwrap());
    let len = fs::metadata(dir.path().join("log.sqlite-wal")).unwrap().len();
    for keep in [None, Some(0), Some(32), Some(len / 3), Some(len / 2), Some(len - 5000)] {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(dir.path(), copy.path());
        let log = copy.path().join("log.sqlite-wal");
        match keep {
            Some(keep) => fs::File::options().write(true).open(&log).unwrap().set_len(keep).unwrap(),
            None => fs::remove_file(&log).unwrap(),
        }
        fs::remove_file(copy.path().join("log.sqlite-shm")).unwrap();
        let store = EmbeddedStore::open_existing(copy.path()).unwrap();
        if contents(&store) == intact {
            assert!(!store.has_lost_commits().unwrap(), "a false alarm for {keep:?}");
            continue;
        }
        assert!(store.has_lost_commits().unwrap(), "{keep:?} of {len}");
        assert_refused(copy.path(), &store);
        store.restore_lost_commits().unwrap();
        assert_eq!(contents(&store), intact, "{keep:?}");
    }
}

#[test]
fn a_lost_database_is_made_again_while_the_record_reaches_back() {
    let (dir, _) = filled(5);
    let intact = contents(&EmbeddedStore::open(dir.path()).unwrap());
    for lost in [&NAMES[..1], &NAMES[..2], &NAMES[..]] {
        for empty in [false, true] {
            let copy = tempfile::tempdir().unwrap();
            copy_dir(dir.path(), copy.path());
            for name in lost {
                fs::remove_file(copy.path().join(name)).unwrap();
            }
            if empty {
                fs::write(copy.path().join(NAMES[0]), b"").unwrap();
            }
            let packs = pack_bytes(copy.path());
            for opened in [EmbeddedStore::open_existing(copy.path()), EmbeddedStore::open(copy.path())] {
                assert!(matches!(opened, Err(StoreError::Corrupt { .. })), "{opened:?}");
            }
            assert!(pack_bytes(copy.path()) == packs);
            let store = EmbeddedStore::open_to_repair(copy.path()).unwrap();
            assert!(store.has_lost_commits().unwrap());
            store.restore_lost_commits().unwrap();
            assert_eq!(contents(&store), intact);
        }
    }
}

#[test]
fn an_older_copy_of_the_database_is_noticed_and_brought_up_to_date() {
    let (dir, sample) = filled(4);
    let backup = tempfile::tempdir().unwrap();
    copy_dir(dir.path(), backup.path());
    fill(dir.path(), &sample, 8);
    let intact = contents(&EmbeddedStore::open(dir.path()).unwrap());
    for name in NAMES {
        fs::copy(backup.path().join(name), dir.path().join(name)).unwrap();
    }
    let store = EmbeddedStore::open(dir.path()).unwrap();
    assert!(store.has_lost_commits().unwrap());
    assert_refused(dir.path(), &store);
    store.restore_lost_commits().unwrap();
    assert_eq!(contents(&store), intact);
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

/// Also when the copy is older than the collection after which the record starts anew: what is gone is given up, on request.
#[test]
fn what_cannot_be_brought_back_is_said_and_given_up_on_request() {
    let (dir, sample) = filled(4);
    let backup = tempfile::tempdir().unwrap();
    copy_dir(dir.path(), backup.path());
    fill(dir.path(), &sample, 3);
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let mut live = HashSet::new();
    store.for_each_object(&mut |object| live.extend([object.hash])).unwrap();
    store.sweep(&live, store.commit_seq().unwrap()).unwrap();
    drop(store);
    fill(dir.path(), &sample, 2);
    for name in NAMES {
        fs::copy(backup.path().join(name), dir.path().join(name)).unwrap();
    }
    let store = EmbeddedStore::open(dir.path()).unwrap();
    assert!(store.has_lost_commits().unwrap());
    let plan = store.lost_commits().unwrap();
    assert!(plan.iter().any(|commit| commit.obstacle.is_some()), "{plan:?}");
    store.restore_lost_commits().unwrap();
    assert!(!store.has_lost_commits().unwrap());
    drop(store);
    fill(dir.path(), &sample, 1);
}

/// A power cut takes any part of the record, which is never synced: that is not a loss of history.
#[test]
fn a_record_that_a_power_cut_shortened_is_no_alarm() {
    let (dir, sample) = filled(6);
    let record = fs::read(dir.path().join("commits.log")).unwrap();
    for cut in (0..record.len()).step_by(211) {
        for zeroes in [0, 4096] {
            let mut torn = record[..cut].to_vec();
            torn.resize(cut + zeroes, 0);
            fs::write(dir.path().join("commits.log"), &torn).unwrap();
            let store = EmbeddedStore::open(dir.path()).unwrap();
            assert!(!store.has_lost_commits().unwrap(), "cut at {cut}");
            assert_eq!(store.check().unwrap(), Vec::<String>::new(), "cut at {cut}");
        }
    }
    fs::remove_file(dir.path().join("commits.log")).unwrap();
    fill(dir.path(), &sample, 2);
    assert!(!EmbeddedStore::open(dir.path()).unwrap().has_lost_commits().unwrap());
}

/// A store of a program that keeps no record is used as before, and is covered from its next commit on.
#[test]
fn a_store_without_a_record_gets_one_with_its_next_commit() {
    let (dir, sample) = filled(3);
    rusqlite::Connection::open(dir.path().join("log.sqlite"))
        .unwrap()
        .execute_batch("ALTER TABLE meta DROP COLUMN chain")
        .unwrap();
    fs::remove_file(dir.path().join("commits.log")).unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    drop(store);
    fill(dir.path(), &sample, 2);
    assert!(fs::metadata(dir.path().join("commits.log")).unwrap().len() > 0);
    let store = EmbeddedStore::open(dir.path()).unwrap();
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

#[test]
fn the_record_stays_short_and_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, sample) = filled(1);
    for _ in 0..6 {
        fill(dir.path(), &sample, 60);
    }
    let mut total = 0;
    for name in ["commits.log", "commits.old"] {
        let metadata = fs::metadata(dir.path().join(name)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{name}");
        total += metadata.len();
    }
    assert!(total < 2 << 20, "{total} bytes");
    let store = EmbeddedStore::open(dir.path()).unwrap();
    store.sweep(&HashSet::<Hash>::new(), store.commit_seq().unwrap()).unwrap();
    assert!(!dir.path().join("commits.old").exists());
    assert!(fs::metadata(dir.path().join("commits.log")).unwrap().len() < 4096);
    assert!(!store.has_lost_commits().unwrap());
}

/// `rm -rf` of the store, or another one in its place, while a process has it open: no commit is acknowledged.
#[test]
fn nothing_is_acknowledged_into_a_store_that_was_deleted_or_replaced() {
    let commit = |store: &EmbeddedStore, large: bool| {
        let batch = store.begin()?;
        batch.write(ObjectKind::Blob, &noise(5, if large { 200_000 } else { 100 }), None)?;
        store.commit(Some(batch.finish()?), &[])
    };
    for large in [false, true] {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("store");
        type Attack = fn(&Path);
        let attacks: [(&str, Attack); 6] = [
            ("deleted", |dir| fs::remove_dir_all(dir).unwrap()),
            ("emptied", |dir| {
                fs::remove_dir_all(dir).unwrap();
                fs::create_dir(dir).unwrap();
            }),
            ("replaced", |dir| {
                fs::remove_dir_all(dir).unwrap();
                drop(EmbeddedStore::open(dir).unwrap());
            }),
            ("moved", |dir| fs::rename(dir, dir.with_file_name("moved")).unwrap()),
            ("without log", |dir| fs::remove_file(dir.join("log.sqlite-wal")).unwrap()),
            ("without database", |dir| fs::remove_file(dir.join("log.sqlite")).unwrap()),
        ];
        for (what, attack) in attacks {
            let _ = fs::remove_dir_all(&dir);
            let _ = fs::remove_dir_all(dir.with_file_name("moved"));
            let store = EmbeddedStore::open(&dir).unwrap();
            commit(&store, false).unwrap();
            store.check_writable().unwrap();
            attack(&dir);
            let refused = commit(&store, large);
            assert!(
                matches!(refused, Err(StoreError::Replaced { .. } | StoreError::Io { .. })),
                "{what}: {refused:?}"
            );
            assert!(matches!(store.check_writable(), Err(StoreError::Replaced { .. })), "{what}");
        }
    }
}
