//! Branches that were set aside, and taken up again.

use std::collections::HashMap;

use stepback_engine::branch::BranchError;
use stepback_engine::moves::{MoveAction, MoveRequest};
use stepback_engine::reruns::{Rerun, RerunStatus};
use stepback_engine::undo::UndoDirection;
use stepback_engine::{EngineError, Workspace};
use stepback_model::record::BranchStatus;

use crate::support::{TestWorkspace, Words};

fn statuses(workspace: &Workspace) -> HashMap<String, BranchStatus> {
    workspace.branch_statuses().unwrap()
}

fn apply(workspace: &Workspace, request: &MoveRequest) {
    workspace.apply_move(workspace.plan_move(request).unwrap()).unwrap();
}

#[test]
fn a_status_follows_its_branch_and_is_undone() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    place.write("file", "1");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    let start = workspace.head().unwrap();
    workspace.create_branch("a side way", &start).unwrap();
    workspace.set_branch_status("a side way", BranchStatus::Abandoned).unwrap();
    workspace.rename_branch("a side way", "dead end").unwrap();
    workspace.set_branch_status("dead end", BranchStatus::Archived).unwrap();
    assert_eq!(statuses(&workspace), [("dead end".into(), BranchStatus::Archived)].into());
    apply(&workspace, &MoveRequest::undo());
    assert_eq!(statuses(&workspace), [("dead end".into(), BranchStatus::Abandoned)].into());
    apply(&workspace, &MoveRequest::from_user(MoveAction::Redo));
    assert_eq!(statuses(&workspace)["dead end"], BranchStatus::Archived);
    // Deleted, and brought back as it was; a new branch of the name is another one.
    workspace.delete_branch("dead end").unwrap();
    apply(&workspace, &MoveRequest::undo());
    assert_eq!(statuses(&workspace)["dead end"], BranchStatus::Archived);
    workspace.delete_branch("dead end").unwrap();
    workspace.create_branch("dead end", &start).unwrap();
    assert_eq!(statuses(&workspace), HashMap::new());
}

#[test]
fn who_switches_to_a_branch_takes_it_up_again() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    place.write("file", "1");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    workspace.create_branch("aside", &workspace.head().unwrap()).unwrap();
    workspace.set_branch_status("aside", BranchStatus::Archived).unwrap();
    for to in ["aside", "main"] {
        let action = MoveAction::Switch { branch: to.into(), begin_at: None };
        apply(&workspace, &MoveRequest::from_user(action));
    }
    assert_eq!(statuses(&workspace), HashMap::new());
}

#[test]
fn what_cannot_be_set_aside() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    place.write("file", "1");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("start");
    workspace.create_branch("aside", &workspace.head().unwrap()).unwrap();
    let refused = |name: &str, status: BranchStatus| {
        workspace.set_branch_status(name, status).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused("main", BranchStatus::Archived).contains("current branch"));
    assert!(refused("nowhere", BranchStatus::Archived).contains("not found"));
    assert!(refused("aside", BranchStatus::Active).contains("already active"));
}

#[test]
fn a_prepared_branch_keeps_its_name_and_is_deleted_and_brought_back() {
    let place = TestWorkspace::in_memory();
    let engine = place.engine();
    place.write("file", "1");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let prepared = Rerun {
        branch: "waiting".to_owned(),
        of: start.step.session,
        from: start.step.id,
        changes: vec!["prompt=other".to_owned()],
        status: RerunStatus::Pending,
        reason: None,
        session: None,
        process: 0,
        plan: Some(serde_json::json!({ "from": "#1" })),
        deleted: false,
    };
    workspace.record_rerun(&prepared).unwrap();
    // No other branch takes its name.
    let is_taken = |result: Result<(), EngineError>| {
        assert!(matches!(result, Err(EngineError::Branch(BranchError::Exists(_)))), "{result:?}");
    };
    is_taken(workspace.create_branch("waiting", &start).map(drop));
    is_taken(workspace.prepare_switch_to_new("waiting", &start).map(drop));
    workspace.create_branch("other", &start).unwrap();
    is_taken(workspace.rename_branch("other", "waiting").map(drop));
    // What needs files says that there are none.
    let has_none = |result: Result<(), EngineError>| {
        let Err(EngineError::Branch(BranchError::NoFiles { name, status })) = result else {
            panic!("{result:?}")
        };
        assert_eq!((name.as_str(), status), ("waiting", "pending"));
    };
    has_none(workspace.prepare_switch("waiting").map(drop));
    has_none(workspace.plan_move(&MoveRequest::merge("waiting", false)).map(drop));
    has_none(workspace.set_branch_status("waiting", BranchStatus::Archived).map(drop));
    has_none(workspace.rename_branch("waiting", "x").map(drop));
    // It is deleted, and undo and redo know it.
    let reruns = || workspace.reruns().unwrap();
    workspace.delete_branch("waiting").unwrap();
    assert_eq!(reruns(), []);
    apply(&workspace, &MoveRequest::undo());
    assert_eq!(reruns(), std::slice::from_ref(&prepared));
    apply(&workspace, &MoveRequest::from_user(MoveAction::Redo));
    assert_eq!(reruns(), []);
    // Its name is free, and while it is taken the deletion cannot be undone.
    let deletion = workspace
        .operations()
        .unwrap()
        .into_iter()
        .find(|op| !op.undone && op.action.kind() == "branch-delete");
    workspace.create_branch("waiting", &start).unwrap();
    let undone = workspace
        .prepare_undo(Some(deletion.unwrap().id))
        .and_then(|reversal| workspace.apply_reversal(reversal, UndoDirection::Undo));
    is_taken(undone.map(drop));
    workspace.delete_branch("waiting").unwrap();
    assert!(matches!(
        workspace.delete_branch("waiting"),
        Err(EngineError::Branch(BranchError::NotFound { .. }))
    ));
    // One that a process is at work on stays.
    workspace
        .record_rerun(&Rerun {
            plan: None,
            status: RerunStatus::Running,
            process: std::process::id(),
            ..prepared.clone()
        })
        .unwrap();
    let refused = workspace.delete_branch("waiting");
    assert!(
        matches!(refused, Err(EngineError::Branch(BranchError::NoFiles { status: "running", .. }))),
        "{refused:?}"
    );
}

#[test]
fn a_name_that_is_too_long_is_told_so() {
    let place = TestWorkspace::in_memory();
    let workspace = place.engine().open_workspace_root(&place.root).unwrap();
    let error = workspace.check_new_branch(&"ä".repeat(51)).unwrap_err().to_string();
    assert!(error.contains("100 bytes") && error.contains("102"), "{error}");
}
