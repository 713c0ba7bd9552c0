//! Promises about objects: immutable, found by kind and hash, visible from their commit on.

use std::collections::HashSet;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::ObjectError;
use stepback_store::port::{ObjectBatch, Store};

use super::hashes;
use crate::sample::{noise, prose, put};

fn commit(store: &dyn Store, batch: Box<dyn ObjectBatch + '_>) {
    store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
}

fn assert_missing(store: &dyn Store, kind: ObjectKind, hash: Hash) {
    assert!(!store.contains(kind, hash).unwrap(), "{kind} {hash} is contained");
    let read = store.read(kind, hash);
    assert!(matches!(read, Err(ObjectError::Missing { .. })), "{kind} {hash} was read: {read:?}");
}

/// Objects of all sizes and contents are read back unchanged.
pub fn what_is_written_reads_back(store: &dyn Store) {
    let mut samples = vec![Vec::new(), vec![0], vec![0; 100_000], prose(1, 1000), noise(2, 300_000)];
    samples.extend((40..60).map(|len| prose(len, 10)[..len as usize].to_vec()));
    samples.extend([4095, 4096, 4097, 65_536].map(|len| noise(len as u64, len)));
    let batch = store.begin().unwrap();
    let hashes: Vec<Hash> =
        samples.iter().map(|bytes| batch.write(ObjectKind::Blob, bytes, None).unwrap()).collect();
    commit(store, batch);
    for (bytes, hash) in samples.iter().zip(hashes) {
        assert_eq!(hash, Hash::of(ObjectKind::Blob, bytes));
        assert!(store.contains(ObjectKind::Blob, hash).unwrap());
        assert!(
            store.read(ObjectKind::Blob, hash).unwrap() == *bytes,
            "{} bytes came back differently",
            bytes.len()
        );
    }
    assert_missing(store, ObjectKind::Blob, Hash::of(ObjectKind::Blob, b"never written"));
}

/// The same bytes under two kinds are two objects, and one is never read as the other.
pub fn an_object_is_found_only_as_its_own_kind(store: &dyn Store) {
    let batch = store.begin().unwrap();
    let tree = batch.write(ObjectKind::Tree, b"same bytes", None).unwrap();
    commit(store, batch);
    for kind in ObjectKind::ALL.into_iter().filter(|kind| *kind != ObjectKind::Tree) {
        assert_missing(store, kind, tree);
        assert_missing(store, kind, Hash::of(kind, b"same bytes"));
    }
    let batch = store.begin().unwrap();
    for kind in ObjectKind::ALL {
        assert_eq!(batch.write(kind, b"same bytes", None).unwrap(), Hash::of(kind, b"same bytes"));
    }
    commit(store, batch);
    assert_eq!(store.usage().unwrap().objects, ObjectKind::ALL.len() as u64);
    for kind in ObjectKind::ALL {
        assert_eq!(store.read(kind, Hash::of(kind, b"same bytes")).unwrap(), b"same bytes");
    }
}

/// The same bytes are stored once, however often they are written, in one batch or in several.
pub fn an_object_is_stored_once(store: &dyn Store) {
    let bytes = noise(7, 10_000);
    for _ in 0..3 {
        let batch = store.begin().unwrap();
        for _ in 0..3 {
            batch.write(ObjectKind::Blob, &bytes, None).unwrap();
        }
        commit(store, batch);
    }
    let usage = store.usage().unwrap();
    assert_eq!((usage.objects, usage.raw_bytes), (1, 10_000));
    assert!(usage.stored_bytes < 11_000, "stored more than once: {usage:?}");
}

/// A long chain of edits, each written as similar to the one before, reads back exactly.
pub fn a_similar_object_changes_nothing_but_the_size(store: &dyn Store) {
    let mut text = prose(3, 400);
    let mut previous = None;
    let mut versions = Vec::new();
    for version in 0..30 {
        let offset = version * 37 % text.len();
        text.splice(offset..offset, format!("<edit {version}>").into_bytes());
        let batch = store.begin().unwrap();
        let hash = batch.write(ObjectKind::Blob, &text, previous).unwrap();
        commit(store, batch);
        previous = Some(hash);
        versions.push((hash, text.clone()));
    }
    for (hash, bytes) in versions {
        assert!(store.read(ObjectKind::Blob, hash).unwrap() == bytes, "{hash} came back differently");
    }
}

/// `similar_to` may name anything: something missing, of another kind, not similar at all, or the object itself.
pub fn a_useless_similar_object_is_no_harm(store: &dyn Store) {
    let text = prose(4, 200);
    let noise = put(store, &[&noise(1, 5000)])[0];
    let itself = Hash::of(ObjectKind::Blob, &text);
    let other_kind = Hash::of(ObjectKind::Tree, &text);
    let batch = store.begin().unwrap();
    batch.write(ObjectKind::Tree, &text, None).unwrap();
    commit(store, batch);
    for (at, similar) in [noise, itself, other_kind, Hash::from_bytes([9; 32])].into_iter().enumerate() {
        let mut bytes = text.clone();
        bytes.extend_from_slice(&vec![b'x'; at]);
        let batch = store.begin().unwrap();
        // Similar to something that this very batch has just written.
        let pending = batch.write(ObjectKind::Blob, &prose(100 + at as u64, 200), None).unwrap();
        let hash = batch.write(ObjectKind::Blob, &bytes, Some(similar)).unwrap();
        bytes.push(b'!');
        let second = batch.write(ObjectKind::Blob, &bytes, Some(pending)).unwrap();
        commit(store, batch);
        assert_eq!(store.read(ObjectKind::Blob, second).unwrap(), bytes);
        bytes.pop();
        assert_eq!(store.read(ObjectKind::Blob, hash).unwrap(), bytes);
    }
}

/// A batch that is dropped before it is finished leaves nothing visible, and does not disturb the next.
pub fn an_unfinished_batch_leaves_nothing(store: &dyn Store) {
    let big = noise(1, 3 << 20);
    let batch = store.begin().unwrap();
    let lost_hash = batch.write(ObjectKind::Blob, &big, None).unwrap();
    assert_missing(store, ObjectKind::Blob, lost_hash);
    drop(batch);
    assert_missing(store, ObjectKind::Blob, lost_hash);
    let kept_hash = put(store, &[b"kept"])[0];
    assert_eq!(hashes(store), [kept_hash]);
    assert_eq!(put(store, &[&big])[0], lost_hash);
    assert!(store.read(ObjectKind::Blob, lost_hash).unwrap() == big);
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}

/// A durable batch is invisible until its commit, and discarded without one.
pub fn a_finished_batch_is_invisible_until_its_commit(store: &dyn Store) {
    let batch = store.begin().unwrap();
    let hash = batch.write(ObjectKind::Blob, b"finished", None).unwrap();
    let finished = batch.finish().unwrap();
    assert_missing(store, ObjectKind::Blob, hash);
    drop(finished);
    let other = put(store, &[b"another one"])[0];
    assert_missing(store, ObjectKind::Blob, hash);
    let batch = store.begin().unwrap();
    assert!(!batch.contains(ObjectKind::Blob, hash).unwrap());
    batch.write(ObjectKind::Blob, b"finished", None).unwrap();
    commit(store, batch);
    assert_eq!(store.read(ObjectKind::Blob, hash).unwrap(), b"finished");
    assert_eq!(store.read(ObjectKind::Blob, other).unwrap(), b"another one");
}

/// A batch knows what it wrote and what was stored before; another batch does not know the former.
pub fn a_batch_contains_what_it_wrote_and_what_is_stored(store: &dyn Store) {
    let stored = put(store, &[b"stored"])[0];
    let (first_batch, second_batch) = (store.begin().unwrap(), store.begin().unwrap());
    let pending = first_batch.write(ObjectKind::Blob, b"pending", None).unwrap();
    assert!(first_batch.contains(ObjectKind::Blob, stored).unwrap());
    assert!(first_batch.contains(ObjectKind::Blob, pending).unwrap());
    assert!(second_batch.contains(ObjectKind::Blob, stored).unwrap());
    assert!(!second_batch.contains(ObjectKind::Blob, pending).unwrap());
    assert!(!first_batch.contains(ObjectKind::Tree, stored).unwrap());
}

/// Two batches that overlap in time and in content both commit.
pub fn two_batches_at_once_both_commit(store: &dyn Store) {
    let (first_batch, second_batch) = (store.begin().unwrap(), store.begin().unwrap());
    let mut hashes = Vec::new();
    for number in 0..50 {
        hashes.push((
            first_batch.write(ObjectKind::Blob, &prose(number, 20), None).unwrap(),
            prose(number, 20),
        ));
        hashes.push((
            second_batch.write(ObjectKind::Blob, &prose(number + 25, 20), None).unwrap(),
            prose(number + 25, 20),
        ));
    }
    let (first_batch, second_batch) = (first_batch.finish().unwrap(), second_batch.finish().unwrap());
    store.commit(Some(first_batch), &[]).unwrap();
    store.commit(Some(second_batch), &[]).unwrap();
    for (hash, bytes) in hashes {
        assert_eq!(store.read(ObjectKind::Blob, hash).unwrap(), bytes);
    }
    assert_eq!(store.usage().unwrap().objects, 75);
}

/// The batch that began first may commit last, or not at all.
pub fn batches_may_commit_in_another_order_than_they_began(store: &dyn Store) {
    let (one, two, three) = (store.begin().unwrap(), store.begin().unwrap(), store.begin().unwrap());
    let first = one.write(ObjectKind::Blob, b"first", None).unwrap();
    let second = two.write(ObjectKind::Blob, b"second", None).unwrap();
    let third = three.write(ObjectKind::Blob, b"third", None).unwrap();
    commit(store, three);
    drop(two);
    commit(store, one);
    assert_eq!(store.read(ObjectKind::Blob, first).unwrap(), b"first");
    assert_missing(store, ObjectKind::Blob, second);
    assert_eq!(store.read(ObjectKind::Blob, third).unwrap(), b"third");
}

/// Objects of many megabytes are read back, alone and as deltas of each other.
pub fn a_large_object_reads_back(store: &dyn Store) {
    let mut large = noise(5, 9 << 20);
    let first = put(store, &[&large])[0];
    large[4 << 20] ^= 1;
    let batch = store.begin().unwrap();
    let second = batch.write(ObjectKind::Blob, &large, Some(first)).unwrap();
    let zeros = batch.write(ObjectKind::Blob, &vec![0; 20 << 20], None).unwrap();
    commit(store, batch);
    assert!(store.read(ObjectKind::Blob, second).unwrap() == large);
    large[4 << 20] ^= 1;
    assert!(store.read(ObjectKind::Blob, first).unwrap() == large);
    assert!(store.read(ObjectKind::Blob, zeros).unwrap() == vec![0; 20 << 20]);
}

/// Thousands of objects in one commit.
pub fn many_small_objects_read_back(store: &dyn Store) {
    let batch = store.begin().unwrap();
    for at in 0..5000u32 {
        batch.write(ObjectKind::Json, &at.to_le_bytes(), None).unwrap();
    }
    commit(store, batch);
    assert_eq!(store.usage().unwrap().objects, 5000);
    for at in (0..5000u32).step_by(7) {
        let hash = Hash::of(ObjectKind::Json, &at.to_le_bytes());
        assert_eq!(store.read(ObjectKind::Json, hash).unwrap(), at.to_le_bytes());
    }
}

/// Several threads may write to one batch, the same objects included.
pub fn threads_write_into_one_batch(store: &dyn Store) {
    let base = put(store, &[&prose(0, 100)])[0];
    let batch = store.begin().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let batch = &batch;
            scope.spawn(move || {
                for at in 0..100 {
                    batch.write(ObjectKind::Blob, &prose(at, 30), None).unwrap();
                    batch.write(ObjectKind::Blob, &prose(1000 * thread + at, 40), Some(base)).unwrap();
                }
            });
        }
    });
    commit(store, batch);
    assert_eq!(store.usage().unwrap().objects, 1 + 100 + 400);
    for at in 0..100 {
        assert_eq!(
            store.read(ObjectKind::Blob, Hash::of(ObjectKind::Blob, &prose(at, 30))).unwrap(),
            prose(at, 30)
        );
        let far = prose(3000 + at, 40);
        assert_eq!(store.read(ObjectKind::Blob, Hash::of(ObjectKind::Blob, &far)).unwrap(), far);
    }
}

/// Committed objects stay readable while other threads commit more.
pub fn threads_read_while_others_commit(store: &dyn Store) {
    let known: Vec<Vec<u8>> = (0..20).map(|seed| prose(seed, 50)).collect();
    put(store, &known.iter().map(Vec::as_slice).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            scope.spawn(move || {
                for at in 0..10 {
                    put(store, &[&noise(100 * (thread + 1) + at, 20_000)]);
                }
            });
            let known = &known;
            scope.spawn(move || {
                for bytes in known.iter().cycle().take(200) {
                    let hash = Hash::of(ObjectKind::Blob, bytes);
                    assert_eq!(store.read(ObjectKind::Blob, hash).unwrap(), *bytes);
                }
            });
        }
    });
    assert_eq!(store.usage().unwrap().objects, 40);
}

/// Listing names every object once, with its kind and size.
pub fn every_object_is_visited_once(store: &dyn Store) {
    let batch = store.begin().unwrap();
    for kind in ObjectKind::ALL {
        batch.write(kind, &vec![b'a'; 100 + kind as usize], None).unwrap();
    }
    commit(store, batch);
    let mut listed = HashSet::new();
    store
        .for_each_object(&mut |object| {
            let bytes = vec![b'a'; 100 + object.kind as usize];
            assert_eq!((object.hash, object.raw_len), (Hash::of(object.kind, &bytes), bytes.len() as u64));
            assert!(listed.insert(object.hash), "{} was visited twice", object.hash);
        })
        .unwrap();
    assert_eq!(listed.len(), ObjectKind::ALL.len());
}
