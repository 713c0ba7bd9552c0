//! Clauses about operations: numbers, content, status, and the undone flag.

use stepback_model::ids::{OpId, SessionId, StepId};
use stepback_model::record::{Annotation, OpStatus, OperationAction, StateTransition};
use stepback_store::port::{Mutation, Store};

use crate::sample::Sample;

fn step_id(byte: u8) -> StepId {
    StepId::from_bytes([byte; 16])
}

/// Operations count 1, 2, 3 in each workspace.
pub fn operations_are_numbered_per_workspace(store: &dyn Store) {
    let sample = Sample::new(1);
    let ((one, _), (two, _)) = (sample.begin(store, b"/1"), sample.begin(store, b"/2"));
    let mut first = sample.operation(one.id, OpStatus::Done);
    first.number = 42;
    let mutations = [
        Mutation::AppendOp(first.clone()),
        Mutation::AppendOp(sample.operation(two.id, OpStatus::Done)),
        Mutation::AppendOp(sample.operation(one.id, OpStatus::Applying)),
    ];
    assert_eq!(store.commit(None, &mutations).unwrap().ops, [1, 1, 2]);
    let more = [Mutation::AppendOp(sample.operation(one.id, OpStatus::Done))];
    assert_eq!(store.commit(None, &more).unwrap().ops, [3]);
    assert_eq!(store.operation(first.id).unwrap().unwrap().number, 1);
}

/// Everything recorded about an operation is read back unchanged, for every action.
pub fn an_operation_keeps_every_field(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, _) = sample.begin(store, b"/w");
    let (step, op) = (step_id(1), OpId::from_bytes([2; 16]));
    let moved = StateTransition {
        before: step_id(3),
        after: step_id(4),
        onto: step_id(5),
        git: true,
        detail: None,
        branches: Some(("a".into(), "b".into())),
        by: Some(SessionId::from_bytes([6; 16])),
        conversation_from: Some(step_id(7)),
    };
    let annotation = Annotation { label: Some("ü".into()), note: None, tags: vec!["t".into()] };
    let actions = [
        OperationAction::CheckpointCreate { step },
        OperationAction::CheckpointAnnotate { step, before: Annotation::default(), after: annotation },
        OperationAction::CheckpointDelete { steps: vec![step, step_id(9)] },
        OperationAction::Prune { steps: vec![], freed: false },
        OperationAction::Rewind { moved: moved.clone() },
        OperationAction::Undo { op, moved: Some(moved.clone()) },
        OperationAction::Redo { op, moved: None },
    ];
    for (index, action) in actions.into_iter().enumerate() {
        let status = [OpStatus::Applying, OpStatus::Done, OpStatus::Reverted][index % 3];
        let mut operation = sample.operation(workspace.id, status);
        operation.action = action;
        operation.summary = "rewound to '#1'\n🦀".into();
        operation.undone = index % 2 == 1;
        operation.number = store.commit(None, &[Mutation::AppendOp(operation.clone())]).unwrap().ops[0];
        assert_eq!(store.operation(operation.id).unwrap(), Some(operation));
    }
    assert_eq!(store.operation(OpId::from_bytes([99; 16])).unwrap(), None);
}

/// Newest first, of one workspace only.
pub fn operations_are_listed_newest_first(store: &dyn Store) {
    let sample = Sample::new(1);
    let ((one, _), (two, _)) = (sample.begin(store, b"/1"), sample.begin(store, b"/2"));
    for workspace in [one.id, two.id, one.id, one.id] {
        store.commit(None, &[Mutation::AppendOp(sample.operation(workspace, OpStatus::Done))]).unwrap();
    }
    let numbers = |workspace| -> Vec<u64> {
        store.operations(workspace).unwrap().into_iter().map(|operation| operation.number).collect()
    };
    assert_eq!(numbers(one.id), [3, 2, 1]);
    assert_eq!(numbers(two.id), [1]);
}

/// The journal exists while an operation is applied and is dropped when it is done or reverted.
pub fn a_finished_operation_drops_its_journal(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, _) = sample.begin(store, b"/w");
    for status in [OpStatus::Done, OpStatus::Reverted] {
        let op = sample.operation(workspace.id, OpStatus::Applying);
        store.commit(None, &[Mutation::AppendOp(op.clone())]).unwrap();
        store.commit(None, &[Mutation::SetOpStatus { op: op.id, status: OpStatus::Applying }]).unwrap();
        assert_eq!(store.operation(op.id).unwrap().unwrap().journal, op.journal);
        store.commit(None, &[Mutation::SetOpStatus { op: op.id, status }]).unwrap();
        let stored = store.operation(op.id).unwrap().unwrap();
        assert_eq!((stored.status, stored.journal), (status, None));
    }
}

/// Taken back, and in force again.
pub fn an_undone_operation_can_come_back(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, _) = sample.begin(store, b"/w");
    let (op, other) =
        (sample.operation(workspace.id, OpStatus::Done), sample.operation(workspace.id, OpStatus::Done));
    store.commit(None, &[Mutation::AppendOp(op.clone()), Mutation::AppendOp(other.clone())]).unwrap();
    for undone in [true, false, true] {
        store.commit(None, &[Mutation::SetOpUndone { op: op.id, undone }]).unwrap();
        assert_eq!(store.operation(op.id).unwrap().unwrap().undone, undone);
        assert!(!store.operation(other.id).unwrap().unwrap().undone);
    }
}

/// Unfinished are those being applied, of this workspace, newest first.
pub fn unfinished_operations_are_those_being_applied(store: &dyn Store) {
    let sample = Sample::new(1);
    let ((one, _), (two, _)) = (sample.begin(store, b"/1"), sample.begin(store, b"/2"));
    let mut applying = Vec::new();
    for status in [OpStatus::Applying, OpStatus::Done, OpStatus::Reverted, OpStatus::Applying] {
        let op = sample.operation(one.id, status);
        store.commit(None, &[Mutation::AppendOp(op.clone())]).unwrap();
        applying.extend((status == OpStatus::Applying).then_some(op.id));
    }
    store.commit(None, &[Mutation::AppendOp(sample.operation(two.id, OpStatus::Applying))]).unwrap();
    let unfinished = || -> Vec<OpId> {
        store.unfinished(one.id).unwrap().into_iter().map(|operation| operation.id).collect()
    };
    assert_eq!(unfinished(), [applying[1], applying[0]]);
    store.commit(None, &[Mutation::SetOpStatus { op: applying[1], status: OpStatus::Done }]).unwrap();
    assert_eq!(unfinished(), [applying[0]]);
}
