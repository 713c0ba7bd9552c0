//! A mirror that loses files, a disk that fails, a process that is killed: what counts as mirrored is there.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use stepback_faults::{Fault, arm, disarm, was_reached};
use stepback_mirror::archive::{IDENTITY, MirrorArchive};
use stepback_mirror::error::MirrorError;
use stepback_mirror::restore::restore;
use stepback_mirror::service::{MirrorService, ServiceEnd};
use stepback_mirror::settings::{ConfiguredMirror, MirrorSettings, MirrorState};
use stepback_mirror::storage::StorageAccess;
use stepback_mirror::storage::directory::DirectoryStorage;
use stepback_mirror::survey::MirrorSurvey;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::prelude::*;
use stepback_testkit::process;
use stepback_testkit::sample::noise;

use crate::fixture::{ID, MirroredStore, assert_same};
use crate::follow::copy_dir;

/// Faults are global to a process, so tests that arm them take turns with all that write.
static TURN: Mutex<()> = Mutex::new(());

fn my_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn segments(place: &MirroredStore) -> Vec<PathBuf> {
    let listed = fs::read_dir(place.path("mirror/segments")).unwrap();
    let mut files: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// A mirror of five segments, each with one step.
fn five_segments() -> (MirroredStore, EmbeddedStore) {
    let place = MirroredStore::new();
    let store = place.store();
    let (_, session) = place.begin(&store, "/w");
    for round in 0..5 {
        place.append(&store, &session, &noise(round, 500));
        place.sync(&store).unwrap();
    }
    assert_eq!(segments(&place).len(), 5);
    (place, store)
}

#[test]
fn a_mirror_that_lost_its_end_is_restored_up_to_there_and_healed_by_the_next_sync() {
    let (place, store) = five_segments();
    for file in &segments(&place)[3..] {
        fs::remove_file(file).unwrap();
    }
    let (report, copy) = place.restore("short").unwrap();
    assert_eq!((report.steps, report.missing), (3, Vec::<String>::new()));
    drop(copy);
    let report = place.sync(&store).unwrap();
    assert_eq!((report.commits, report.new_generation), (2, None), "the record still has them");
    let (report, copy) = place.restore("whole").unwrap();
    assert_eq!((report.steps, report.missing), (5, Vec::<String>::new()));
    assert_same(&store, &copy);
}

#[test]
fn a_segment_that_is_missing_or_damaged_is_named_and_what_is_before_it_restored() {
    for is_removed in [true, false] {
        let (place, _store) = five_segments();
        let file = &segments(&place)[2];
        match is_removed {
            true => fs::remove_file(file).unwrap(),
            false => {
                let mut bytes = fs::read(file).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(file, bytes).unwrap();
            }
        }
        let survey = MirrorSurvey::take(&place.archive(), true).unwrap();
        assert!(survey.report.problems.iter().any(|problem| problem.contains('3')), "{:?}", survey.report);
        let (report, copy) = place.restore("copy").unwrap();
        assert_eq!(report.steps, 2);
        assert!(report.missing.iter().any(|what| what.contains("commits between")), "{:?}", report.missing);
        assert_eq!(copy.check().unwrap(), Vec::<String>::new());
    }
}

/// A damaged last segment does not end the mirror: what it had is written again, after it.
#[test]
fn a_damaged_last_segment_is_written_again() {
    let (place, store) = five_segments();
    fs::write(&segments(&place)[4], b"SBMIRROR torn").unwrap();
    assert_eq!(place.archive().unreadable, [5]);
    let report = place.sync(&store).unwrap();
    assert_eq!((report.commits, report.new_generation), (1, None));
    let (report, copy) = place.restore("copy").unwrap();
    assert_eq!(report.steps, 5);
    assert_same(&store, &copy);
}

#[test]
fn a_mirror_without_its_identity_is_recognised_by_its_segments() {
    let (place, store) = five_segments();
    fs::remove_file(place.path("mirror").join(IDENTITY)).unwrap();
    assert_eq!(place.archive().id, ID);
    assert_eq!(place.sync(&store).unwrap().segments, 0);
    assert_same(&store, &place.restore("copy").unwrap().1);
}

#[test]
fn a_place_that_is_not_there_is_not_taken_for_an_empty_mirror() {
    let (place, _store) = five_segments();
    let storage = Arc::new(DirectoryStorage::open(&place.path("mirror")).unwrap());
    fs::rename(place.path("mirror"), place.path("elsewhere")).unwrap();
    assert!(matches!(MirrorArchive::open(storage), Err(MirrorError::Storage { .. })));
    assert!(DirectoryStorage::open(&place.path("mirror")).is_err());
}

#[test]
fn an_interrupted_restore_leaves_no_store_that_opens() {
    let _turn = my_turn();
    let (place, store) = five_segments();
    let mut refused = 0;
    for nth in 1..400 {
        let name = format!("copy{nth}");
        let archive = place.archive();
        arm(Fault::Once, nth);
        let restored = restore(&archive, &place.path(&name), None, &place.env, &AtomicU64::new(0));
        let is_over = !was_reached();
        disarm();
        match restored {
            Ok(report) => {
                assert_eq!(report.missing, Vec::<String>::new());
                assert_same(&store, &EmbeddedStore::open_existing(&place.path(&name)).unwrap());
            }
            Err(_) => {
                refused += 1;
                if let Ok(opened) = EmbeddedStore::open_existing(&place.path(&name)) {
                    assert!(opened.workspaces().unwrap().is_empty() || opened.references("").is_ok());
                    let is_whole = opened.workspaces().unwrap().len() == 1;
                    assert!(!is_whole || opened.newest_position().unwrap() == 5, "fault {nth}");
                }
            }
        }
        let _ = fs::remove_dir_all(place.path(&name));
        if is_over {
            assert!(refused > 5);
            return;
        }
    }
    panic!("a restore has more points than expected");
}

/// Every write of a sync fails once, and then all writes from one on: whatever the mirror says it has, it has.
#[test]
fn nothing_counts_as_mirrored_that_is_not_there() {
    let _turn = my_turn();
    for fault in [Fault::Once, Fault::DiskFull] {
        let place = MirroredStore::new();
        let store = place.store();
        let (_, session) = place.begin(&store, "/w");
        let mut nth = 0;
        loop {
            nth += 1;
            assert!(nth < 100, "a sync has more points than expected");
            disarm();
            for seed in 0..3 {
                place.append(&store, &session, &noise(seed * 1000 + u64::from(nth), 900));
            }
            let archive = (nth > 1).then(|| place.archive());
            arm(fault, nth);
            let outcome = match archive {
                Some(_) => place.sync(&store),
                None => {
                    disarm();
                    place.sync(&store)
                }
            };
            let is_over = nth > 1 && !was_reached();
            disarm();
            if let Err(error) = &outcome {
                assert!(matches!(error, MirrorError::Storage { .. } | MirrorError::Store(_)), "{error}");
            }
            let before = place.archive().cursor.steps();
            let (report, copy) = place.restore(&format!("copy{nth}")).unwrap();
            assert_eq!((report.steps, report.missing), (before, Vec::<String>::new()));
            if outcome.is_ok() {
                assert_same(&store, &copy);
            }
            let _ = fs::remove_dir_all(place.path(&format!("copy{nth}")));
            if is_over {
                break;
            }
        }
        place.sync(&store).unwrap();
        assert_same(&store, &place.restore("last").unwrap().1);
    }
}

/// The process that syncs is killed again and again while the store grows; another one continues.
#[test]
fn a_killed_process_costs_nothing() {
    const NAME: &str = "damage::a_killed_process_costs_nothing";
    if let Some(dir) = process::task() {
        return sync_until_killed(Path::new(&dir));
    }
    let place = MirroredStore::new();
    let store = place.store();
    let (_, session) = place.begin(&store, "/w");
    place.sync(&store).unwrap();
    let settings = MirrorSettings {
        id: ID.into(),
        mirrors: vec![ConfiguredMirror {
            address: place.path("mirror").display().to_string(),
            added_at: place.env.now(),
        }],
    };
    settings.save(&place.path("store")).unwrap();
    let task = place.dir.path().display().to_string();
    for round in 0..12u64 {
        let mut child = process::spawn(NAME, &task);
        // It says when it runs; after that it is killed at some moment of its work.
        let mut said = [0; 1];
        while child.stdout.as_mut().unwrap().read(&mut said).unwrap() == 1 && said[0] != b'!' {}
        for number in 0..round {
            place.append(&store, &session, &noise(round * 100 + number, 20_000));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mirrored = place.archive().cursor.steps();
        let (report, copy) = place.restore(&format!("copy{round}")).unwrap();
        assert_eq!((report.steps, report.missing), (mirrored, Vec::<String>::new()), "round {round}");
        drop(copy);
    }
    // What is left over is mirrored by the next one, which ends when nothing comes any more.
    let stop = AtomicBool::new(false);
    let service = MirrorService {
        dir: &place.path("store"),
        env: place.env.clone(),
        stop: &stop,
        idle: None,
        mirrors: None,
        access: StorageAccess::default(),
        observer: None,
    };
    let newest = store.newest_link().unwrap().commit;
    let address = &settings.mirrors[0].address;
    thread::scope(|scope| {
        scope.spawn(|| service.run().unwrap());
        while MirrorState::load(&place.path("store"), address).commit < newest {
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let state = MirrorState::load(&place.path("store"), address);
    assert_eq!((state.failure, state.contradiction), (None, None));
    assert_same(&store, &place.restore("last").unwrap().1);
}

fn sync_until_killed(dir: &Path) {
    let place = MirroredStore::new();
    println!("!");
    let stop = AtomicBool::new(false);
    let store = dir.join("store");
    let service = MirrorService {
        dir: &store,
        env: place.env.clone(),
        stop: &stop,
        idle: None,
        mirrors: None,
        access: StorageAccess::default(),
        observer: None,
    };
    service.run().unwrap();
}

/// A mirror that cannot be reached: the store records, the state says since when, and the mirror continues afterwards.
#[test]
fn an_unreachable_mirror_is_reported_and_catches_up() {
    let place = MirroredStore::new();
    let store = place.store();
    let (_, session) = place.begin(&store, "/w");
    place.sync(&store).unwrap();
    let address = place.path("mirror").display().to_string();
    let mirrors = vec![ConfiguredMirror { address: address.clone(), added_at: place.env.now() }];
    MirrorSettings { id: ID.into(), mirrors }.save(&place.path("store")).unwrap();
    fs::rename(place.path("mirror"), place.path("away")).unwrap();
    let stop = AtomicBool::new(false);
    let service = MirrorService {
        dir: &place.path("store"),
        env: place.env.clone(),
        stop: &stop,
        idle: None,
        mirrors: None,
        access: StorageAccess::default(),
        observer: None,
    };
    let state = || MirrorState::load(&place.path("store"), &address);
    thread::scope(|scope| {
        scope.spawn(|| service.run().unwrap());
        while state().failure.is_none() {
            thread::sleep(Duration::from_millis(5));
        }
        place.append(&store, &session, b"recorded meanwhile");
        assert!(!place.path("mirror").exists(), "it must not be created");
        fs::rename(place.path("away"), place.path("mirror")).unwrap();
        let newest = store.newest_link().unwrap().commit;
        while state().commit < newest || state().failure.is_some() {
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_same(&store, &place.restore("copy").unwrap().1);
}

/// A process without credentials makes room for one that has them when a bucket is added.
#[test]
fn a_process_without_credentials_ends_when_a_bucket_is_added() {
    let place = MirroredStore::new();
    let store = place.store();
    place.begin(&store, "/w");
    place.sync(&store).unwrap();
    let mirror = |address: String| ConfiguredMirror { address, added_at: place.env.now() };
    let settings =
        MirrorSettings { id: ID.into(), mirrors: vec![mirror(place.path("mirror").display().to_string())] };
    settings.save(&place.path("store")).unwrap();
    let stop = AtomicBool::new(false);
    let service = MirrorService {
        dir: &place.path("store"),
        env: place.env.clone(),
        stop: &stop,
        idle: None,
        mirrors: None,
        access: StorageAccess::default(),
        observer: None,
    };
    let state = || MirrorState::load(&place.path("store"), &settings.mirrors[0].address);
    thread::scope(|scope| {
        let running = scope.spawn(|| service.run().unwrap());
        while state().synced_at.is_none() {
            thread::sleep(Duration::from_millis(5));
        }
        let mut added = settings.clone();
        added.mirrors.push(mirror("s3://bucket/x".into()));
        added.save(&place.path("store")).unwrap();
        assert_eq!(running.join().unwrap(), ServiceEnd::Finished);
    });
}

/// A copy of a mirror is a mirror: it can be moved, and restored from anywhere.
#[test]
fn a_copied_mirror_is_a_mirror() {
    let (place, store) = five_segments();
    copy_dir(&place.path("mirror"), &place.path("moved"));
    fs::remove_dir_all(place.path("mirror")).unwrap();
    fs::rename(place.path("moved"), place.path("mirror")).unwrap();
    assert_same(&store, &place.restore("copy").unwrap().1);
}
