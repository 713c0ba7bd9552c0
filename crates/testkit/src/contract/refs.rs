//! Clauses about references: they move only from the value that the caller expects.

use stepback_model::ids::StepId;
use stepback_store::StoreError;
use stepback_store::port::{Mutation, Store};

fn set_ref(name: &str, expected: Option<StepId>, value: StepId) -> Mutation {
    Mutation::SetRef { name: name.into(), expected, value }
}

fn step_id(byte: u8) -> StepId {
    StepId::from_bytes([byte; 16])
}

/// A reference is created only if it does not exist, and moved only from the expected value.
pub fn a_reference_moves_only_from_what_the_caller_saw(store: &dyn Store) {
    let try_set = |expected, value| store.commit(None, &[set_ref("heads/main", expected, value)]);
    let (a, b, c) = (step_id(1), step_id(2), step_id(3));
    assert_eq!(store.reference("heads/main").unwrap(), None);
    assert!(
        matches!(try_set(Some(a), b), Err(StoreError::Moved { .. })),
        "moved a reference that is not there"
    );
    try_set(None, a).unwrap();
    assert!(matches!(try_set(None, b), Err(StoreError::Moved { .. })), "made a reference twice");
    assert!(matches!(try_set(Some(c), b), Err(StoreError::Moved { .. })));
    assert_eq!(store.reference("heads/main").unwrap(), Some(a));
    try_set(Some(a), b).unwrap();
    try_set(Some(b), b).unwrap();
    assert_eq!(store.reference("heads/main").unwrap(), Some(b));
    assert_eq!(store.reference("heads/mai").unwrap(), None);
    assert_eq!(store.reference("HEADS/MAIN").unwrap(), None);
}

/// Of several threads that expect the same value, exactly one moves the reference, each time.
pub fn of_many_racing_for_a_reference_one_wins(store: &dyn Store) {
    let mut current = None;
    for round in 0..10u8 {
        let barrier = std::sync::Barrier::new(4);
        let winners: Vec<StepId> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4u8)
                .map(|thread| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let value = step_id(1 + round * 4 + thread);
                        barrier.wait();
                        match store.commit(None, &[set_ref("head", current, value)]) {
                            Ok(_) => Some(value),
                            Err(StoreError::Moved { .. }) => None,
                            Err(other) => panic!("{other}"),
                        }
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(winners.len(), 1, "{winners:?}");
        current = store.reference("head").unwrap();
        assert_eq!(current, Some(winners[0]));
    }
}

/// A prefix is taken literally; names come back sorted.
pub fn references_are_listed_by_prefix(store: &dyn Store) {
    let names = ["a%b", "a_b", "heads/b", "heads/a", "heads/a/deeper", "Heads/x", "hé/ü", "axb"];
    let mutations: Vec<Mutation> = names.iter().map(|name| set_ref(name, None, step_id(1))).collect();
    store.commit(None, &mutations).unwrap();
    let listed = |prefix: &str| -> Vec<String> {
        store.references(prefix).unwrap().into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(listed("heads/"), ["heads/a", "heads/a/deeper", "heads/b"]);
    assert_eq!(listed("heads/a"), ["heads/a", "heads/a/deeper"]);
    assert_eq!(listed("a%"), ["a%b"]);
    assert_eq!(listed("a_"), ["a_b"]);
    assert_eq!(listed("hé/"), ["hé/ü"]);
    assert_eq!(listed("nothing"), [""; 0]);
    assert_eq!(listed("").len(), names.len());
}
