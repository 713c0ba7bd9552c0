//! The store in memory is bounded.

use std::collections::HashSet;

use stepback_model::hash::ObjectKind;
use stepback_model::object::ObjectError;
use stepback_store::StoreError;
use stepback_store::memory::MemoryStore;
use stepback_store::prelude::*;
use stepback_testkit::sample::{Sample, append, noise, put};

#[test]
fn a_commit_over_the_limit_is_refused_whole_and_a_sweep_makes_room() {
    let store = MemoryStore::new(1000);
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(&store, b"/w");
    put(&store, &[&noise(1, 600)]);
    let write = || {
        let batch = store.begin().unwrap();
        let hash = batch.write(ObjectKind::Blob, &noise(2, 401), None).unwrap();
        store.commit(Some(batch.finish().unwrap()), &[append(sample.step(session.id, hash))])
    };
    assert!(matches!(write(), Err(StoreError::Full { limit: 1000 })));
    assert_eq!(store.usage().unwrap().raw_bytes, 600);
    assert_eq!(store.checkpoints(workspace.id).unwrap(), []);
    put(&store, &[&noise(3, 400)]);
    put(&store, &[&noise(3, 400)]);
    store.sweep(&HashSet::new(), store.commit_seq().unwrap()).unwrap();
    assert_eq!(write().unwrap().steps, [1]);
}

#[test]
fn a_batch_cannot_grow_beyond_the_limit_before_its_commit() {
    let store = MemoryStore::new(1000);
    let batch = store.begin().unwrap();
    batch.write(ObjectKind::Blob, &noise(1, 600), None).unwrap();
    let refused = batch.write(ObjectKind::Blob, &noise(2, 600), None);
    assert!(matches!(&refused, Err(ObjectError::Backend(error)) if error.is::<StoreError>()), "{refused:?}");
    batch.write(ObjectKind::Blob, &noise(3, 400), None).unwrap();
    store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
    assert_eq!(store.usage().unwrap().objects, 2);
}
