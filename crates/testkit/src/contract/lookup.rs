//! The clause about lookups that are made together.

use std::collections::HashSet;

use stepback_model::hash::Hash;
use stepback_model::ids::SessionId;
use stepback_store::StoreError;
use stepback_store::port::{Mutation, Questions, Store};

use crate::sample::{Sample, append};

const STATE: Hash = Hash::from_bytes([7; 32]);

/// Several lookups made together have the results that each has by itself.
pub fn a_look_answers_everything(store: &dyn Store) {
    let sample = Sample::new(1);
    let (_, one) = sample.begin(store, b"/w");
    let step = sample.step(one.id, STATE);
    let head = Mutation::SetRef { name: "an\u{e4} 'odd\" name".into(), expected: None, value: step.id };
    store.commit(None, &[append(step.clone()), head]).unwrap();
    let looked = store
        .look(&Questions {
            steps: &[step.id],
            references: &["nowhere".into(), "an\u{e4} 'odd\" name".into(), "nowhere".into()],
            sessions: &[SessionId::from_bytes([97; 16]), one.id, one.id],
        })
        .unwrap();
    assert_eq!(looked.epoch, store.gc_generation().unwrap());
    assert_eq!(looked.stored, HashSet::from([step.id]));
    assert_eq!(looked.references, [None, Some(step.id), None]);
    assert_eq!(looked.sessions, [None, Some(one.clone()), Some(one)]);
    // What it says of the epoch is worth as much as what a batch finds by itself.
    let batch = store.begin_since(looked.epoch).unwrap();
    store.commit(Some(batch.finish().unwrap()), &[append(sample.step(step.session, STATE))]).unwrap();
    let batch = store.begin_since(looked.epoch + 1).unwrap();
    let other = append(sample.step(step.session, STATE));
    assert!(matches!(store.commit(Some(batch.finish().unwrap()), &[other]), Err(StoreError::Collected)));
}
