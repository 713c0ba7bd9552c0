//! A mirror follows its store: step by step, from far behind, and when the store is not what it was.

use std::fs;

use rusqlite::Connection;
use stepback_mirror::error::MirrorError;
use stepback_mirror::sync::{MirrorSync, can_continue, compare_with_store};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_store::Mutation;
use stepback_store::embedded::{ChainLink, EmbeddedStore};
use stepback_store::prelude::*;
use stepback_testkit::sample::noise;

use crate::fixture::{MirroredStore, assert_same};

#[test]
fn the_first_sync_copies_everything_and_later_ones_what_is_new() {
    let place = MirroredStore::new();
    let store = place.store();
    let (_, session) = place.begin(&store, "/w");
    place.append(&store, &session, b"one");
    let first = place.sync(&store).unwrap();
    assert_eq!(first.new_generation.as_deref(), Some("the mirror is new"));
    assert_eq!(place.sync(&store).unwrap().segments, 0, "nothing is new");
    for text in ["two", "three", "four"] {
        place.append(&store, &session, text.as_bytes());
    }
    let later = place.sync(&store).unwrap();
    assert_eq!((later.new_generation, later.commits, later.segments), (None, 3, 1));
    assert_eq!(later.objects, 9, "a blob, a tree and a state each");
    let (report, copy) = place.restore("copy").unwrap();
    assert_eq!((report.steps, report.missing), (4, Vec::<String>::new()));
    assert_same(&store, &copy);
}

#[test]
fn an_empty_store_and_one_with_large_objects_are_mirrored() {
    let place = MirroredStore::new();
    let store = place.store();
    place.sync(&store).unwrap();
    let (_, session) = place.begin(&store, "/w");
    for seed in 0..6 {
        place.append(&store, &session, &noise(seed, 3_000_000));
    }
    let report = place.sync(&store).unwrap();
    assert!(report.segments > 1 && report.new_generation.is_none(), "{report:?}");
    let (report, copy) = place.restore("copy").unwrap();
    assert_eq!(report.missing, Vec::<String>::new());
    assert_same(&store, &copy);
}

/// The record of commits keeps what a mirror needs, if the mirror's progress was noted; otherwise the whole log is read again.
#[test]
fn a_mirror_that_is_far_behind_misses_nothing() {
    for is_noted in [true, false] {
        let place = MirroredStore::new();
        let store = place.store();
        let (_, session) = place.begin(&store, "/w");
        place.sync(&store).unwrap();
        let mirrored = store.newest_link().unwrap().commit;
        EmbeddedStore::note_mirrored(&place.path("store"), is_noted.then_some(mirrored)).unwrap();
        let summary = "a long summary ".repeat(2000);
        for number in 0..60 {
            let batch = store.begin().unwrap();
            let state = crate::fixture::write_state(&*batch, format!("{number}").as_bytes());
            let mut step = place.sample.step(session.id, state);
            step.summary.clone_from(&summary);
            store.commit(Some(batch.finish().unwrap()), &[stepback_testkit::sample::append(step)]).unwrap();
        }
        let report = place.sync(&store).unwrap();
        assert_eq!(report.new_generation.is_none(), is_noted, "{report:?}");
        assert_eq!(report.contradiction, None);
        let (report, copy) = place.restore("copy").unwrap();
        assert_eq!((report.steps, report.missing), (60, Vec::<String>::new()));
        assert_same(&store, &copy);
    }
}

#[test]
fn a_store_that_was_set_back_continues_as_another_generation() {
    let place = MirroredStore::new();
    let store = place.store();
    let (_, session) = place.begin(&store, "/w");
    place.append(&store, &session, b"one");
    drop(store);
    copy_dir(&place.path("store"), &place.path("backup"));
    let store = place.store();
    let lost = place.append(&store, &session, b"two");
    place.sync(&store).unwrap();
    drop(store);
    fs::remove_dir_all(place.path("store")).unwrap();
    copy_dir(&place.path("backup"), &place.path("store"));
    let store = place.store();
    let other = place.append(&store, &session, b"another two");
    assert!(compare_with_store(&store, &place.archive().cursor).unwrap().is_some());
    let report = place.sync(&store).unwrap();
    assert!(report.contradiction.is_some() && report.new_generation.is_some(), "{report:?}");
    place.append(&store, &session, b"three");
    assert_eq!(place.sync(&store).unwrap().new_generation, None);

    let Err(MirrorError::Contradiction { generations, .. }) = place.restore("none") else {
        panic!("restored without a choice")
    };
    assert_eq!(generations.len(), 2, "{generations:?}");
    let (report, old) = place.restore_generation("old", Some(1)).unwrap();
    assert_eq!((report.steps, report.missing), (2, Vec::<String>::new()));
    assert!(old.step(lost.id).unwrap().is_some() && old.step(other.id).unwrap().is_none());
    let (report, new) = place.restore_generation("new", Some(2)).unwrap();
    assert_eq!((report.steps, report.missing), (3, Vec::<String>::new()));
    assert_same(&store, &new);
}

#[test]
fn changed_rows_are_noticed_and_do_not_reach_what_is_mirrored() {
    let place = MirroredStore::new();
    let store = place.store();
    let (_, session) = place.begin(&store, "/w");
    let step = place.append(&store, &session, b"one");
    place.append(&store, &session, b"two");
    place.sync(&store).unwrap();
    assert_eq!(compare_with_store(&store, &place.archive().cursor).unwrap(), None);
    let db = Connection::open(place.path("store/log.sqlite")).unwrap();
    db.execute("UPDATE steps SET summary = 'poison' WHERE number = 1", []).unwrap();
    drop(db);
    let found = compare_with_store(&store, &place.archive().cursor).unwrap();
    assert!(found.is_some_and(|found| found.contains("were changed")));
    place.append(&store, &session, b"three");
    assert_eq!(place.sync(&store).unwrap().new_generation, None, "the chain of commits goes on");
    let (report, copy) = place.restore("copy").unwrap();
    assert_eq!((report.steps, report.missing), (3, Vec::<String>::new()));
    assert_eq!(copy.step(step.id).unwrap().unwrap().step.summary, "a step");
}

/// A restored store has other commits, and all steps: it continues the mirror.
#[test]
fn a_restored_store_goes_on_in_the_same_mirror() {
    let place = MirroredStore::new();
    let store = place.store();
    let (_, session) = place.begin(&store, "/w");
    place.append(&store, &session, b"one");
    place.append(&store, &session, b"two");
    place.sync(&store).unwrap();
    let (_, copy) = place.restore("copy").unwrap();
    assert!(can_continue(&copy, &place.archive().cursor).unwrap());
    place.append(&copy, &session, b"three");
    let report = place.sync(&copy).unwrap();
    assert!(report.contradiction.is_none() && report.new_generation.is_some(), "{report:?}");
    assert_eq!(report.objects, 3, "the mirror has all others");
    let (report, again) = place.restore("again").unwrap();
    assert_eq!((report.generation, report.steps, report.missing), (2, 3, Vec::<String>::new()));
    assert_same(&copy, &again);

    let stranger = EmbeddedStore::open(&place.path("stranger")).unwrap();
    let (_, session) = place.begin(&stranger, "/w");
    place.append(&stranger, &session, b"one");
    assert!(!can_continue(&stranger, &place.archive().cursor).unwrap());
}

/// Two processes that write at the same time: each segment is written by one of them, and nothing twice.
#[test]
fn two_writers_do_not_disturb_each_other() {
    let place = MirroredStore::new();
    let store = place.store();
    let (_, session) = place.begin(&store, "/w");
    place.sync(&store).unwrap();
    let mut one = MirrorSync::new(&store, place.archive(), &*place.env);
    let mut other = MirrorSync::new(&store, place.archive(), &*place.env);
    for round in 0..20 {
        place.append(&store, &session, format!("{round}").as_bytes());
        std::thread::scope(|scope| {
            let first = scope.spawn(|| one.sync());
            let second = other.sync();
            first.join().unwrap().unwrap();
            second.unwrap();
        });
    }
    let (report, copy) = place.restore("copy").unwrap();
    assert_eq!((report.steps, report.missing), (20, Vec::<String>::new()));
    assert_same(&store, &copy);
}

/// Entries that an attacker appends to the record are valid by themselves; they are not on the way from the database.
#[test]
fn forged_and_garbled_entries_of_the_record_are_not_followed() {
    let place = MirroredStore::new();
    let store = place.store();
    let (_, session) = place.begin(&store, "/w");
    place.sync(&store).unwrap();
    place.append(&store, &session, b"one");
    let record = place.path("store/commits.log");
    let bytes = fs::read(&record).unwrap();
    // The last entry twice, with bytes of no entry between.
    fs::write(&record, [&bytes[..], b"garbage", &bytes[bytes.len() / 2..], b"SBENTRY\x01"].concat()).unwrap();
    let report = place.sync(&store).unwrap();
    assert_eq!((report.commits, report.new_generation), (1, None));
    fs::write(&record, b"").unwrap();
    let _ = fs::remove_file(place.path("store/commits.old"));
    place.append(&store, &session, b"two");
    let report = place.sync(&store).unwrap();
    assert_eq!((report.new_generation, report.contradiction), (None, None), "one entry is enough");
    fs::write(&record, b"").unwrap();
    place.append(&store, &session, b"three");
    fs::write(&record, b"").unwrap();
    place.append(&store, &session, b"four");
    let report = place.sync(&store).unwrap();
    assert!(report.new_generation.is_some() && report.contradiction.is_none(), "{report:?}");
    let (report, copy) = place.restore("copy").unwrap();
    assert_eq!((report.steps, report.missing), (4, Vec::<String>::new()));
    assert_same(&store, &copy);
}

/// Appends an entry with valid checksums and links to the record, and makes the database name it as its newest: what a
/// program can do that knows the format.
fn forge_commit(place: &MirroredStore, store: &EmbeddedStore, mutations: &[u8]) {
    let newest = store.newest_link().unwrap();
    let mut bytes = b"SBENTRY\x01".to_vec();
    bytes.extend_from_slice(&(newest.commit + 1).to_le_bytes());
    bytes.extend_from_slice(&0u64.to_le_bytes());
    bytes.extend_from_slice(&newest.to_bytes());
    for len in [mutations.len() as u32, mutations.len() as u32, 0, 0] {
        bytes.extend_from_slice(&len.to_le_bytes());
    }
    bytes.extend_from_slice(mutations);
    let hash = Hash::of(ObjectKind::Blob, &bytes);
    bytes.extend_from_slice(hash.as_bytes());
    bytes.extend_from_slice(&(bytes.len() as u32 + 4).to_le_bytes());
    let record = place.path("store/commits.log");
    fs::write(&record, [fs::read(&record).unwrap(), bytes].concat()).unwrap();
    let link = ChainLink { commit: newest.commit + 1, hash };
    let db = Connection::open(place.path("store/log.sqlite")).unwrap();
    db.execute("UPDATE meta SET commits = commits + 1, chain = ?1", [link.to_bytes()]).unwrap();
}

/// Forged commits that no store would have written neither end the copying nor keep anything from being restored.
#[test]
fn forged_commits_do_not_poison_a_restore() {
    let place = MirroredStore::new();
    let store = place.store();
    let (workspace, session) = place.begin(&store, "/w");
    place.append(&store, &session, b"one");
    place.sync(&store).unwrap();
    let json = |mutations: &[Mutation]| serde_json::to_vec(mutations).unwrap();
    let stranger = place.sample.session(workspace.id);
    let step = place.sample.step(stranger.id, Hash::of(ObjectKind::Blob, b"nothing"));
    let moved = Mutation::SetRef { name: "x".into(), expected: Some(step.id), value: step.id };
    for forged in [
        b"not even JSON".to_vec(),
        b"[{\"NoSuchChange\":1}]".to_vec(),
        json(&[Mutation::AddSession(session.clone())]),
        json(&[stepback_testkit::sample::append(step)]),
        json(&[moved]),
    ] {
        forge_commit(&place, &store, &forged);
        place.sync(&store).unwrap();
        place.append(&store, &session, &forged);
        place.sync(&store).unwrap();
    }
    let (report, copy) = place.restore("copy").unwrap();
    assert_eq!((report.steps, report.generation), (6, 1));
    assert_eq!(report.missing.len(), 5, "{:?}", report.missing);
    assert_same(&store, &copy);
}

#[test]
fn notes_and_references_follow_too() {
    let place = MirroredStore::new();
    let store = place.store();
    let (_, session) = place.begin(&store, "/w");
    let step = place.append(&store, &session, b"one");
    place.sync(&store).unwrap();
    let annotation = stepback_model::record::Annotation { label: Some("good".into()), ..Default::default() };
    let reference = Mutation::SetRef { name: "head".into(), expected: None, value: step.id };
    store.commit(None, &[Mutation::Annotate { step: step.id, annotation }, reference]).unwrap();
    place.sync(&store).unwrap();
    let (_, copy) = place.restore("copy").unwrap();
    assert_same(&store, &copy);
}

pub fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
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
