//! Branches that were set aside, and taken up again.

use std::collections::HashMap;

use stepback_engine::Workspace;
use stepback_engine::moves::{MoveAction, MoveRequest};
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
