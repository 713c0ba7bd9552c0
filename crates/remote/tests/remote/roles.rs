//! What a client with the role `append` can do, and what the server refuses it.

use std::collections::HashSet;

use crate::support::TestServer;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, StepId};
use stepback_model::object::ObjectSource as _;
use stepback_model::record::{Annotation, OpStatus, Operation, OperationAction, SessionInfo};
use stepback_model::search::Pattern;
use stepback_remote::RemoteStore;
use stepback_store::StoreError;
use stepback_store::port::{CommitMark, Mutation, SearchRequest};
use stepback_store::prelude::*;
use stepback_testkit::sample::{Sample, append};

const STATE: Hash = Hash::from_bytes([7; 32]);

struct Recorded {
    server: TestServer,
    agent: RemoteStore,
    sample: Sample,
    workspace: stepback_model::ids::WorkspaceId,
    session: stepback_model::ids::SessionId,
    first: StepId,
    second: StepId,
}

fn record() -> Recorded {
    let server = TestServer::start();
    let agent = server.agent();
    let sample = Sample::new(3);
    let (workspace, session) = sample.begin(&agent, b"/w");
    let (first, _) = sample.append(&agent, session.id, b"first");
    let (second, _) = sample.append(&agent, session.id, b"second");
    Recorded { workspace: workspace.id, session: session.id, server, agent, sample, first, second }
}

impl Recorded {
    fn set(&self, name: &str, expected: Option<StepId>, value: StepId) -> Mutation {
        Mutation::SetRef { name: name.replace("WS", &self.workspace.to_string()), expected, value }
    }

    fn drop(&self, name: &str) -> Mutation {
        Mutation::DropRef { name: name.replace("WS", &self.workspace.to_string()) }
    }

    #[track_caller]
    fn allowed(&self, mutations: &[Mutation]) {
        self.agent.commit(None, mutations).unwrap();
    }

    /// The commit is refused with the typed error, and changes nothing.
    #[track_caller]
    fn refused(&self, mutations: &[Mutation]) {
        let before = self.server.store.commit_seq().unwrap();
        let result = self.agent.commit(None, mutations);
        assert!(matches!(result, Err(StoreError::Forbidden { .. })), "{result:?}");
        assert_eq!(self.server.store.commit_seq().unwrap(), before);
    }
}

#[test]
fn steps_operations_and_references_are_added() {
    let recorded = record();
    recorded.allowed(&[recorded.set("head/WS", None, recorded.first)]);
    recorded.allowed(&[recorded.set("head/WS", Some(recorded.first), recorded.second)]);
    // A head may move back: no step goes away.
    recorded.allowed(&[recorded.set("head/WS", Some(recorded.second), recorded.first)]);
    let moved = recorded.agent.commit(None, &[recorded.set("head/WS", None, recorded.first)]);
    assert!(matches!(moved, Err(StoreError::Moved { .. })), "{moved:?}");
    let op = recorded.sample.operation(recorded.workspace, OpStatus::Applying);
    recorded.allowed(&[Mutation::AppendOp(op.clone())]);
    recorded.allowed(&[Mutation::SetOpStatus { op: op.id, status: OpStatus::Done }]);
    recorded.allowed(&[Mutation::SetOpUndone { op: op.id, undone: true }]);
    assert_eq!(recorded.server.store.steps(recorded.workspace, &Default::default()).unwrap().len(), 2);
}

#[test]
fn the_status_of_an_operation_that_ended_stays() {
    let recorded = record();
    let op = recorded.sample.operation(recorded.workspace, OpStatus::Done);
    recorded.allowed(&[Mutation::AppendOp(op.clone())]);
    for status in [OpStatus::Reverted, OpStatus::Applying] {
        recorded.refused(&[Mutation::SetOpStatus { op: op.id, status }]);
    }
    let open = recorded.sample.operation(recorded.workspace, OpStatus::Applying);
    recorded.allowed(&[Mutation::AppendOp(open.clone())]);
    recorded.refused(&[Mutation::SetOpStatus { op: open.id, status: OpStatus::Applying }]);
}

#[test]
fn labels_and_notes_are_added_and_never_changed() {
    let recorded = record();
    let annotate = |annotation| [Mutation::Annotate { step: recorded.first, annotation }];
    let labelled = Annotation::labelled("release");
    recorded.allowed(&annotate(labelled.clone()));
    let noted = Annotation { note: Some("n".into()), tags: vec!["a".into()], ..labelled.clone() };
    recorded.allowed(&annotate(noted.clone()));
    recorded.allowed(&annotate(Annotation { tags: vec!["b".into(), "a".into()], ..noted.clone() }));
    for wrong in [
        Annotation::default(),
        labelled,
        Annotation { label: Some("other".into()), ..noted.clone() },
        Annotation { note: Some("other".into()), tags: vec!["a".into(), "b".into()], ..noted.clone() },
        Annotation { tags: vec!["b".into()], ..noted },
    ] {
        recorded.refused(&annotate(wrong));
    }
}

#[test]
fn checkpoints_are_neither_hidden_nor_freed() {
    let recorded = record();
    let steps = vec![recorded.first];
    recorded.refused(&[Mutation::SetHidden { steps: steps.clone(), by: Some(OpId::from_bytes([1; 16])) }]);
    recorded.refused(&[Mutation::SetHidden { steps: steps.clone(), by: None }]);
    recorded.refused(&[Mutation::Purge { steps: steps.clone() }]);
    // Nor together with what is allowed.
    let op = recorded.sample.operation(recorded.workspace, OpStatus::Done);
    recorded.refused(&[Mutation::AppendOp(op.clone()), Mutation::SetHidden { steps, by: Some(op.id) }]);
    assert_eq!(recorded.server.store.operation(op.id).unwrap(), None);
}

#[test]
fn a_branch_is_not_deleted() {
    let recorded = record();
    recorded.allowed(&[recorded.set("branch/WS/idea", None, recorded.first)]);
    recorded.refused(&[recorded.drop("branch/WS/idea")]);
    let action = OperationAction::BranchDelete { name: "idea".into(), step: recorded.first };
    let op = Operation { action, ..recorded.sample.operation(recorded.workspace, OpStatus::Done) };
    recorded.refused(&[recorded.drop("branch/WS/idea"), Mutation::AppendOp(op)]);
    // Another branch with the name of a different step is no replacement.
    recorded
        .refused(&[recorded.drop("branch/WS/idea"), recorded.set("branch/WS/other", None, recorded.second)]);
    recorded.allowed(&[recorded.set("head/WS", None, recorded.first)]);
    recorded.refused(&[recorded.drop("head/WS")]);
}

#[test]
fn a_branch_is_renamed_and_switched_to() {
    let recorded = record();
    recorded.allowed(&[recorded.set("branch/WS/idea", None, recorded.first)]);
    recorded
        .allowed(&[recorded.drop("branch/WS/idea"), recorded.set("branch/WS/plan", None, recorded.first)]);
    recorded.allowed(&[
        recorded.set("branch/WS/main", None, recorded.second),
        recorded.drop("branch/WS/plan"),
        recorded.drop("present/WS/main"),
        recorded.set("present/WS/plan", None, recorded.first),
    ]);
    recorded.refused(&[recorded.drop("present/WS/plan")]);
    // And back.
    recorded.allowed(&[
        recorded.set("branch/WS/plan", None, recorded.first),
        recorded.drop("branch/WS/main"),
        recorded.drop("present/WS/plan"),
        recorded.set("present/WS/main", None, recorded.second),
    ]);
}

#[test]
fn the_creation_of_a_branch_is_undone_unless_it_moved() {
    let recorded = record();
    let action =
        |name: &str| OperationAction::BranchCreate { name: name.into(), step: recorded.first, upto: None };
    let create = |name| Operation {
        action: action(name),
        ..recorded.sample.operation(recorded.workspace, OpStatus::Done)
    };
    let undo = |op| Operation {
        action: OperationAction::Undo { op, moved: None },
        ..recorded.sample.operation(recorded.workspace, OpStatus::Done)
    };
    let (kept, moved) = (create("kept"), create("moved"));
    for (op, name) in [(&kept, "branch/WS/kept"), (&moved, "branch/WS/moved")] {
        recorded.allowed(&[recorded.set(name, None, recorded.first), Mutation::AppendOp(op.clone())]);
    }
    recorded.allowed(&[recorded.set("branch/WS/moved", Some(recorded.first), recorded.second)]);
    recorded.allowed(&[recorded.drop("branch/WS/kept"), Mutation::AppendOp(undo(kept.id))]);
    recorded.refused(&[recorded.drop("branch/WS/moved"), Mutation::AppendOp(undo(moved.id))]);
}

#[test]
fn references_lead_to_steps_and_never_mark_the_store() {
    let recorded = record();
    recorded.refused(&[recorded.set("store/incomplete", None, recorded.first)]);
    recorded.refused(&[recorded.set("head/WS", None, StepId::from_bytes([9; 16]))]);
    let step = recorded.sample.step(recorded.session, STATE);
    let value = step.id;
    recorded.allowed(&[recorded.set("head/WS", None, value), append(step)]);
}

/// Opening a workspace finishes what is recorded as unfinished in it: it must not reach the store.
#[test]
fn a_workspace_never_contains_the_store() {
    let recorded = record();
    let store = recorded.server.dir.path().join("store");
    let parent = recorded.server.dir.path().to_path_buf();
    let roundabout = recorded.server.dir.path().join("x/../store");
    for root in
        [store.join("packs"), store, parent, roundabout, "/".into(), "work".into(), "//w".into(), "".into()]
    {
        let root = root.to_str().unwrap().as_bytes();
        recorded.refused(&[Mutation::AddWorkspace(recorded.sample.workspace(root))]);
    }
    recorded.allowed(&[Mutation::AddWorkspace(recorded.sample.workspace(b"remote:one:/x/../y"))]);
    recorded.allowed(&[Mutation::AddWorkspace(recorded.sample.workspace(b"/somewhere/else"))]);
}

#[test]
fn a_session_keeps_its_identity_and_origin() {
    let recorded = record();
    let set = |info| [Mutation::SetSessionInfo { session: recorded.session, info: Box::new(info) }];
    let info = SessionInfo {
        external: Some("s-1".into()),
        forked_from: Some((recorded.session, recorded.first)),
        title: Some("work".into()),
        ..SessionInfo::default()
    };
    recorded.allowed(&set(info.clone()));
    recorded.allowed(&set(SessionInfo { title: None, iteration: 4, ..info.clone() }));
    recorded.refused(&set(SessionInfo { external: None, ..info.clone() }));
    recorded.refused(&set(SessionInfo { external: Some("s-2".into()), ..info.clone() }));
    recorded.refused(&set(SessionInfo { forked_from: None, ..info.clone() }));
    recorded.allowed(&set(SessionInfo { forked_from: Some((recorded.session, recorded.second)), ..info }));
}

#[test]
fn nothing_is_swept_or_repaired_and_the_index_is_the_servers() {
    let recorded = record();
    let agent = &recorded.agent;
    let mark = agent.commit_seq().unwrap();
    let forbidden = |what: &str, result: Result<(), StoreError>| {
        assert!(matches!(result, Err(StoreError::Forbidden { .. })), "{what}: {result:?}");
    };
    forbidden("sweep", agent.sweep(&HashSet::new(), mark).map(drop));
    forbidden("sweep", agent.sweep(&HashSet::new(), CommitMark(0)).map(drop));
    forbidden("forget", agent.forget_index());
    forbidden("index", agent.index(&[]));
    forbidden("repair", agent.restore_lost_commits().map(drop));
    assert!(agent.unindexed(10).unwrap().is_empty());
    assert_eq!(recorded.server.store.unindexed(10).unwrap().len(), 2);
    let pattern = Pattern::Substring("step".into());
    assert!(agent.search(&SearchRequest::new(pattern, 3)).is_ok());
    assert!(agent.usage().unwrap().objects >= 2);
    let state = Hash::of(ObjectKind::Blob, b"first");
    assert_eq!(recorded.server.store.read(ObjectKind::Blob, state).unwrap(), b"first");
}
