//! Promises about commits: all or nothing, in order, counted.

use std::collections::BTreeSet;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::StepId;
use stepback_model::record::{Annotation, OpStatus};
use stepback_store::StoreError;
use stepback_store::port::{Mutation, Store};

use super::hashes;
use crate::sample::{Sample, append, put};

const STATE: Hash = Hash::from_bytes([7; 32]);

fn set_ref(name: &str, expected: Option<StepId>, value: StepId) -> Mutation {
    Mutation::SetRef { name: name.into(), expected, value }
}

fn step_id(byte: u8) -> StepId {
    StepId::from_bytes([byte; 16])
}

/// When one mutation fails, no object, row, reference or number of the commit remains.
pub fn a_failed_commit_leaves_nothing(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    let (first, _) = sample.append(store, session.id, b"first");
    let op = sample.operation(workspace.id, OpStatus::Applying);
    let mutations = [Mutation::AppendOp(op.clone()), set_ref("head", None, first)];
    store.commit(None, &mutations).unwrap();
    let objects = hashes(store);
    let mark = store.commit_seq().unwrap();

    let other_workspace = sample.workspace(b"/other");
    let late = sample.session(workspace.id);
    let batch = store.begin().unwrap();
    let lost_hash = batch.write(ObjectKind::Blob, b"lost", None).unwrap();
    let step = sample.step(session.id, lost_hash);
    let failed = store.commit(
        Some(batch.finish().unwrap()),
        &[
            Mutation::AddWorkspace(other_workspace.clone()),
            Mutation::AddSession(late),
            append(step.clone()),
            append(sample.step(session.id, lost_hash)),
            Mutation::AppendOp(sample.operation(workspace.id, OpStatus::Done)),
            Mutation::SetOpStatus { op: op.id, status: OpStatus::Done },
            Mutation::SetOpUndone { op: op.id, undone: true },
            Mutation::SetHidden { steps: vec![first], by: Some(op.id) },
            Mutation::Purge { steps: vec![first] },
            Mutation::Annotate { step: first, annotation: Annotation::labelled("x") },
            set_ref("new", None, first),
            set_ref("head", Some(first), step.id),
            set_ref("head", Some(first), first),
        ],
    );
    assert!(matches!(&failed, Err(StoreError::Moved { name }) if name == "head"), "{failed:?}");

    assert_eq!(hashes(store), objects);
    assert!(!store.contains(ObjectKind::Blob, lost_hash).unwrap());
    assert_eq!(store.workspaces().unwrap(), std::slice::from_ref(&workspace));
    assert_eq!(store.workspace_at(b"/other").unwrap(), None);
    assert_eq!(store.sessions(workspace.id).unwrap(), std::slice::from_ref(&session));
    let checkpoints = store.checkpoints(workspace.id).unwrap();
    assert_eq!(checkpoints.len(), 1);
    assert_eq!(checkpoints[0].annotation, Annotation::default());
    assert_eq!((checkpoints[0].hidden_by, checkpoints[0].purged), (None, false));
    assert_eq!(store.step(step.id).unwrap(), None);
    let operations = store.operations(workspace.id).unwrap();
    assert_eq!(operations.len(), 1);
    assert_eq!((operations[0].status, operations[0].undone), (OpStatus::Applying, false));
    assert_eq!(operations[0].journal, op.journal);
    assert_eq!(store.references("").unwrap(), [("head".to_string(), first)]);
    assert_eq!(store.commit_seq().unwrap(), mark, "a failed commit counts as one");

    let receipt = store
        .commit(None, &[append(step), Mutation::AppendOp(sample.operation(workspace.id, OpStatus::Done))])
        .unwrap();
    assert_eq!((receipt.steps, receipt.ops), (vec![2], vec![2]), "a failed commit used up numbers");
}

/// Later mutations of a commit see the earlier ones.
pub fn a_commit_applies_its_mutations_in_order(store: &dyn Store) {
    let sample = Sample::new(1);
    let workspace = sample.workspace(b"/w");
    let session = sample.session(workspace.id);
    let step = sample.step(session.id, STATE);
    let op = sample.operation(workspace.id, OpStatus::Applying);
    let receipt = store
        .commit(
            None,
            &[
                Mutation::AddWorkspace(workspace.clone()),
                Mutation::AddSession(session.clone()),
                append(step.clone()),
                set_ref("head", None, step_id(1)),
                set_ref("head", Some(step_id(1)), step.id),
                Mutation::AppendOp(op.clone()),
                Mutation::SetHidden { steps: vec![step.id], by: Some(op.id) },
                Mutation::Purge { steps: vec![step.id] },
                Mutation::SetOpStatus { op: op.id, status: OpStatus::Done },
            ],
        )
        .unwrap();
    assert_eq!((receipt.steps, receipt.ops), (vec![1], vec![1]));
    assert_eq!(store.reference("head").unwrap(), Some(step.id));
    let stored = store.step(step.id).unwrap().unwrap();
    assert_eq!((stored.hidden_by, stored.purged), (Some(op.id), true));
    assert_eq!(store.operation(op.id).unwrap().unwrap().status, OpStatus::Done);
}

/// Threads that append at once get every number once.
pub fn concurrent_commits_leave_no_gap_and_no_double(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    let numbers: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let session = session.id;
                scope.spawn(move || {
                    let sample = Sample::new(100 + thread);
                    let append =
                        |number: u64| sample.append(store, session, format!("{thread} {number}").as_bytes());
                    (0..15).flat_map(|number| append(number).1.steps).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(numbers.iter().copied().collect::<BTreeSet<_>>(), (1..=60).collect());
    assert_eq!(numbers.len(), 60);
    let listed = store.checkpoints(workspace.id).unwrap();
    assert!(listed.iter().map(|stored| stored.step.number).eq((1..=60).rev()));
    for stored in listed {
        store.read(ObjectKind::Blob, stored.step.state).unwrap();
    }
}

/// No two sessions, steps or operations have the same id.
pub fn ids_are_taken_once(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    let step = append(sample.step(session.id, STATE));
    let op = Mutation::AppendOp(sample.operation(workspace.id, OpStatus::Done));
    for (at, mutation) in
        [step, op, Mutation::AddSession(sample.session(workspace.id))].into_iter().enumerate()
    {
        store.commit(None, std::slice::from_ref(&mutation)).unwrap();
        let second_commit = store.commit(None, &[mutation]);
        assert!(matches!(second_commit, Err(StoreError::Exists { .. })), "{at}: {second_commit:?}");
    }
}

/// Every commit moves the mark; looking does not.
pub fn the_mark_moves_with_every_commit(store: &dyn Store) {
    let sample = Sample::new(1);
    let mut marks = vec![store.commit_seq().unwrap()];
    let (_, session) = sample.begin(store, b"/w");
    marks.push(store.commit_seq().unwrap());
    put(store, &[b"objects alone"]);
    marks.push(store.commit_seq().unwrap());
    sample.append(store, session.id, b"x");
    marks.push(store.commit_seq().unwrap());
    let distinct: BTreeSet<u64> = marks.iter().map(|mark| mark.0).collect();
    assert_eq!(distinct.len(), marks.len(), "{marks:?}");
    drop(store.begin().unwrap());
    store.checkpoints(sample.workspace(b"/x").id).unwrap();
    assert_eq!(store.commit_seq().unwrap(), marks[3]);
}
