//! Promises about collection: what is reachable stays, the rest is freed, and no commit refers to what was freed.

use std::collections::HashSet;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_store::StoreError;
use stepback_store::port::Store;

use super::hashes;
use crate::sample::{Sample, append, noise, prose, put};

fn sweep(store: &dyn Store, live: &[Hash]) -> u64 {
    let mark = store.commit_seq().unwrap();
    store.sweep(&live.iter().copied().collect::<HashSet<_>>(), mark).unwrap().objects
}

/// Objects in `live` are unchanged; everything else is removed and its space is free.
pub fn a_sweep_keeps_the_living_and_frees_the_dead(store: &dyn Store) {
    let blobs: Vec<Vec<u8>> = (0..40).map(|seed| noise(seed, 50_000)).collect();
    let hashes = put(store, &blobs.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let (live, dead) = hashes.split_at(10);
    let usage_before = store.usage().unwrap();
    let mark = store.commit_seq().unwrap();
    let swept = store.sweep(&live.iter().copied().collect(), mark).unwrap();
    assert_eq!(swept.objects, 30);
    assert!(swept.bytes > 1_200_000, "{swept:?}");
    for (hash, bytes) in live.iter().zip(&blobs) {
        assert!(store.read(ObjectKind::Blob, *hash).unwrap() == *bytes);
    }
    for hash in dead {
        assert!(!store.contains(ObjectKind::Blob, *hash).unwrap());
        assert!(store.read(ObjectKind::Blob, *hash).is_err());
    }
    let usage_after = store.usage().unwrap();
    assert_eq!((usage_after.objects, usage_after.raw_bytes), (10, 500_000));
    assert!(
        usage_after.total_bytes + 1_200_000 < usage_before.total_bytes,
        "{usage_before:?} {usage_after:?}"
    );
    assert_eq!(sweep(store, live), 0, "a second sweep found more");
    assert!(store.read(ObjectKind::Blob, live[0]).unwrap() == blobs[0]);
}

/// A sweep touches objects, never the log.
pub fn a_sweep_of_everything_leaves_the_log(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    for round in 0..5 {
        sample.append(store, session.id, &prose(round, 50));
    }
    let checkpoints_before = store.checkpoints(workspace.id).unwrap();
    assert_eq!(sweep(store, &[]), 5);
    assert_eq!(hashes(store), []);
    assert_eq!(store.checkpoints(workspace.id).unwrap(), checkpoints_before);
    let (_, receipt) = sample.append(store, session.id, b"after");
    assert_eq!(receipt.steps, [6]);
}

/// A batch that began before a sweep may rely on a freed object: its commit is refused as a whole, and a retry works.
pub fn an_older_batch_is_refused_after_a_sweep(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    let old = put(store, &[b"relied on"])[0];
    let epoch = store.gc_generation().unwrap();

    let open = store.begin().unwrap();
    assert!(open.contains(ObjectKind::Blob, old).unwrap());
    open.write(ObjectKind::Blob, b"new in an open batch", None).unwrap();
    let finished = store.begin().unwrap();
    finished.write(ObjectKind::Blob, b"new in a finished batch", None).unwrap();
    let finished = finished.finish().unwrap();
    assert_eq!(finished.epoch, epoch);

    assert_eq!(sweep(store, &[]), 1);
    assert!(store.gc_generation().unwrap() > epoch);
    for batch in [open.finish().unwrap(), finished] {
        let refused = store.commit(Some(batch), &[append(sample.step(session.id, old))]);
        assert!(matches!(refused, Err(StoreError::Collected)), "{refused:?}");
    }
    assert_eq!(hashes(store), []);
    assert_eq!(store.checkpoints(workspace.id).unwrap(), []);

    assert_eq!(sample.append(store, session.id, b"relied on").1.steps, [1]);
    assert_eq!(store.read(ObjectKind::Blob, old).unwrap(), b"relied on");
}

/// A sweep that does not know the latest commit frees nothing.
pub fn a_sweep_is_refused_when_something_was_committed(store: &dyn Store) {
    let sample = Sample::new(1);
    let (_, session) = sample.begin(store, b"/w");
    let first = put(store, &[b"first"])[0];
    let mark = store.commit_seq().unwrap();
    let epoch = store.gc_generation().unwrap();
    sample.append(store, session.id, b"second");
    let swept = store.sweep(&HashSet::from([first]), mark);
    assert!(matches!(swept, Err(StoreError::Grew)), "{swept:?}");
    assert_eq!(store.gc_generation().unwrap(), epoch);
    assert_eq!(hashes(store).len(), 2);

    let mark = store.commit_seq().unwrap();
    store.sweep(&HashSet::from([first]), mark).unwrap();
    let second_sweep = store.sweep(&HashSet::new(), mark);
    assert!(matches!(second_sweep, Err(StoreError::Grew)), "a sweep counts as a commit: {second_sweep:?}");
}

/// An object stored as a delta stays readable, even if the caller does not list its base.
pub fn what_a_living_object_is_stored_against_survives(store: &dyn Store) {
    let mut text = prose(1, 500);
    let mut previous = None;
    let mut versions = Vec::new();
    for version in 0..20 {
        text.extend_from_slice(format!("appended in version {version}\n").as_bytes());
        let batch = store.begin().unwrap();
        let hash = batch.write(ObjectKind::Blob, &text, previous).unwrap();
        store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
        previous = Some(hash);
        versions.push((hash, text.clone()));
    }
    put(store, &[&noise(1, 200_000)]);
    for live_versions in [vec![19, 7, 3], vec![19, 7], vec![7]] {
        let live: Vec<Hash> = live_versions.iter().map(|at| versions[*at].0).collect();
        sweep(store, &live);
        for at in live_versions {
            let (hash, bytes) = &versions[at];
            assert!(
                store.read(ObjectKind::Blob, *hash).unwrap() == *bytes,
                "version {at} came back differently"
            );
        }
        assert_eq!(store.check().unwrap(), Vec::<String>::new());
    }
    sweep(store, &[]);
    assert_eq!(hashes(store), []);
}

/// Freed is not forbidden.
pub fn a_freed_object_can_be_written_again(store: &dyn Store) {
    for round in 0..3 {
        let hash = put(store, &[&prose(1, 100)])[0];
        assert_eq!(store.read(ObjectKind::Blob, hash).unwrap(), prose(1, 100), "round {round}");
        assert_eq!(sweep(store, &[]), 1);
        assert!(!store.contains(ObjectKind::Blob, hash).unwrap());
    }
}

/// Nothing to free, nothing to fail.
pub fn sweeping_an_empty_store_is_no_harm(store: &dyn Store) {
    assert_eq!(sweep(store, &[]), 0);
    assert_eq!(sweep(store, &[Hash::from_bytes([1; 32])]), 0);
    put(store, &[b"works"]);
}

/// Usage counts objects and bytes, and decreases after a sweep.
pub fn usage_grows_and_shrinks(store: &dyn Store) {
    let empty = store.usage().unwrap();
    assert_eq!((empty.objects, empty.raw_bytes, empty.stored_bytes), (0, 0, 0));
    let live_hash = put(store, &[&noise(1, 400_000)])[0];
    let usage_of_one = store.usage().unwrap();
    put(store, &[&noise(2, 400_000)]);
    let two = store.usage().unwrap();
    assert_eq!(
        (usage_of_one.objects, usage_of_one.raw_bytes, two.objects, two.raw_bytes),
        (1, 400_000, 2, 800_000)
    );
    assert!(
        two.stored_bytes > usage_of_one.stored_bytes && two.total_bytes > usage_of_one.total_bytes,
        "{usage_of_one:?} {two:?}"
    );
    assert!(two.total_bytes >= two.stored_bytes);
    sweep(store, &[live_hash]);
    let swept = store.usage().unwrap();
    assert_eq!((swept.objects, swept.stored_bytes), (1, usage_of_one.stored_bytes));
    assert!(swept.total_bytes < two.total_bytes, "{two:?} {swept:?}");
}

/// A preview names the objects and bytes that a sweep leaves, and changes nothing.
pub fn the_usage_after_a_sweep_is_known_before(store: &dyn Store) {
    let small: Vec<Vec<u8>> = (0..200).map(|seed| noise(seed, 700)).collect();
    let mut live: Vec<Hash> = Vec::new();
    for bytes in &small {
        live.push(put(store, &[bytes.as_slice()])[0]);
    }
    live.extend(put(store, &[&noise(900, 60_000), &noise(901, 60_000), &noise(902, 60_000)]));
    let live: HashSet<Hash> = live.into_iter().step_by(4).collect();
    let usage_before = store.usage().unwrap();
    let expected = store.usage_after(&[], &live).unwrap();
    assert_eq!(store.usage().unwrap().objects, usage_before.objects);
    assert!(expected.total_bytes < usage_before.total_bytes, "{usage_before:?} {expected:?}");
    store.sweep(&live, store.commit_seq().unwrap()).unwrap();
    let usage_after = store.usage().unwrap();
    assert_eq!((usage_after.objects, usage_after.raw_bytes), (expected.objects, expected.raw_bytes));
    assert_eq!(usage_after.stored_bytes, expected.stored_bytes);
    // How much of its files a database server returns to the disk is known only afterwards.
    assert!(usage_after.total_bytes < usage_before.total_bytes, "{usage_before:?} {usage_after:?}");
}

/// The store's own check reports nothing, whatever was done through the port.
pub fn a_healthy_store_has_no_complaints(store: &dyn Store) {
    let nothing = Vec::<String>::new();
    assert_eq!(store.check().unwrap(), nothing);
    let kept = put(store, &[&noise(1, 100_000), &prose(1, 100)])[1];
    let given_up = store.begin().unwrap();
    given_up.write(ObjectKind::Blob, &noise(2, 2 << 20), None).unwrap();
    drop(given_up);
    assert_eq!(store.check().unwrap(), nothing);
    sweep(store, &[kept]);
    assert_eq!(store.check().unwrap(), nothing);
    assert_eq!(store.read(ObjectKind::Blob, kept).unwrap(), prose(1, 100));
}
