//! What an agent may do without the user, and what belongs to others.

use stepback_engine::Workspace;
use stepback_engine::board::BoardEditor;
use stepback_engine::recorder::ScanPolicy;
use stepback_engine::rewind::RewindRequest;
use stepback_engine::undo::{Reversal, UndoDirection};
use stepback_model::ids::SessionId;
use stepback_model::record::{StepKind, Trigger};

use crate::place::BoardWorkspace;

/// The agent writes a file, in a call that is recorded.
fn by_agent(place: &BoardWorkspace, workspace: &Workspace, call: &str, name: &str, text: &str) {
    place.report(workspace, StepKind::ToolStart, Some(call), ScanPolicy::Before);
    place.write(name, text);
    place.report(workspace, StepKind::ToolEnd, Some(call), ScanPolicy::After);
}

fn in_the_way(workspace: &Workspace, branch: &str, session: SessionId) -> Vec<String> {
    let prepared = workspace.prepare_switch(branch).unwrap();
    let paths = workspace.foreign_changes(branch, &prepared, session).unwrap();
    paths.iter().map(ToString::to_string).collect()
}

#[test]
fn what_others_changed_since_branches_parted_is_in_the_way() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    for name in ["ours", "theirs", "same"] {
        place.write(name, "1");
    }
    let session = place.session(&workspace);
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    // Before the branches diverge: both have it.
    place.write("theirs", "2");
    let mut editor = BoardEditor::new(&workspace, &session);
    stepback_board::start_experiment(&mut editor, "x", None, "it works", Some(session.id)).unwrap();
    by_agent(&place, &workspace, "c1", "ours", "2");
    by_agent(&place, &workspace, "c2", "made", "1");
    assert_eq!(in_the_way(&workspace, "main", session.id), [""; 0]);
    // Seen by a checkpoint, and not seen by one yet.
    place.write("theirs", "3");
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    place.write("new", "1");
    assert_eq!(in_the_way(&workspace, "main", session.id), ["new", "theirs"]);
    // Whoever changes a file back is not in the way any more.
    place.write("theirs", "2");
    std::fs::remove_file(place.root.join("new")).unwrap();
    assert_eq!(in_the_way(&workspace, "main", session.id), [""; 0]);
    workspace.switch("main", workspace.prepare_switch("main").unwrap()).unwrap();
    assert_eq!((place.read("ours").as_str(), place.read("theirs").as_str()), ("1", "2"));
    assert_eq!(in_the_way(&workspace, "x", session.id), [""; 0]);
}

#[test]
fn an_agent_takes_back_its_own_moves_and_no_others() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("file", "1");
    let session = place.session(&workspace);
    let first = workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap().stored;
    by_agent(&place, &workspace, "c1", "file", "2");
    let error = |reversal: Result<Reversal, stepback_engine::EngineError>| match reversal {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it should be refused"),
    };
    assert!(error(workspace.prepare_own_undo(session.id, None)).contains("nothing to undo"));
    let rewind = |by: Option<SessionId>| {
        let request = RewindRequest { target: Some(first.clone()), ..RewindRequest::default() };
        let mut prepared = workspace.prepare_rewind(&request).unwrap();
        prepared.requested_by = by;
        workspace.apply_rewind(prepared).unwrap().operation
    };
    // The person takes the work of the agent back; the agent cannot bring it back.
    let theirs = rewind(None);
    assert!(error(workspace.prepare_own_undo(session.id, None)).contains("nothing to undo"));
    let said = error(workspace.prepare_own_undo(session.id, Some(theirs.id)));
    assert!(said.contains("is not one of session"), "{said}");
    workspace.apply_reversal(workspace.prepare_undo(None).unwrap(), UndoDirection::Undo).unwrap();
    assert_eq!(place.read("file"), "2");
    let said = error(workspace.prepare_own_redo(session.id));
    assert!(said.contains("is not one of session"), "{said}");
    // Its own it can, however far down the list.
    rewind(Some(session.id));
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    let reversal = workspace.prepare_own_undo(session.id, None).unwrap();
    let undone = workspace.apply_reversal(reversal, UndoDirection::Undo).unwrap().into_files().unwrap();
    assert_eq!(place.read("file"), "2");
    assert_eq!(undone.operation.action.moved().unwrap().by, Some(session.id));
    let reversal = workspace.prepare_own_redo(session.id).unwrap();
    workspace.apply_reversal(reversal, UndoDirection::Redo).unwrap();
    assert_eq!(place.read("file"), "1");
    // The person takes that back, and it stays taken back.
    workspace.apply_reversal(workspace.prepare_undo(None).unwrap(), UndoDirection::Undo).unwrap();
    assert!(error(workspace.prepare_own_redo(session.id)).contains("is not one of session"));
}

#[test]
fn a_switch_is_taken_back_from_the_branch_it_led_to() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("file", "1");
    let first = workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap().stored;
    for branch in ["x", "y"] {
        workspace.create_branch(branch, &first).unwrap();
    }
    let switch = |branch: &str| {
        workspace.switch(branch, workspace.prepare_switch(branch).unwrap()).unwrap().operation.id
    };
    let to_x = switch("x");
    switch("y");
    let Err(error) = workspace.prepare_undo(Some(to_x)) else { panic!("the workspace stands on y") };
    assert!(error.to_string().contains("switch to x first"), "{error}");
    switch("x");
    workspace.apply_reversal(workspace.prepare_undo(Some(to_x)).unwrap(), UndoDirection::Undo).unwrap();
    assert_eq!(workspace.present_branch().unwrap(), "main");
    let names: Vec<String> = workspace.branches().unwrap().into_iter().map(|branch| branch.name).collect();
    assert_eq!(names, ["main", "x", "y"]);
}

/// What came to the branch that was left would be on no branch any more.
#[test]
fn a_switch_is_not_taken_back_once_the_branch_it_left_went_on() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("file", "1");
    let session = place.session(&workspace);
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    let mut editor = BoardEditor::new(&workspace, &session);
    stepback_board::start_experiment(&mut editor, "x", None, "it works", Some(session.id)).unwrap();
    let switch = |branch: &str| {
        workspace.switch(branch, workspace.prepare_switch(branch).unwrap()).unwrap();
    };
    switch("main");
    place.write("file", "by a person, on main");
    let theirs = workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap().stored;
    switch("x");
    let Err(error) = workspace.prepare_own_undo(session.id, None) else { panic!("main has gone on") };
    assert!(error.to_string().contains("stepback branch switch main"), "{error}");
    let tip = workspace.branch_tip("main").unwrap().unwrap();
    assert_eq!(tip.step.id, theirs.step.id);
    assert_eq!(workspace.present_branch().unwrap(), "x");
}

/// An agent that continues from before its own move affects no other session that worked since.
#[test]
fn a_move_after_which_another_agent_worked_stays() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("file", "1");
    place.session(&workspace);
    let first = workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap().stored;
    by_agent(&place, &workspace, "c1", "file", "2");
    let request = RewindRequest { target: Some(first), ..RewindRequest::default() };
    let mut prepared = workspace.prepare_rewind(&request).unwrap();
    prepared.requested_by = Some(SessionId::from_bytes([9; 16]));
    workspace.apply_rewind(prepared).unwrap();
    by_agent(&place, &workspace, "c2", "other", "1");
    let Err(error) = workspace.prepare_own_undo(SessionId::from_bytes([9; 16]), None) else {
        panic!("another agent changed something since")
    };
    assert!(error.to_string().contains("another agent changed other"), "{error}");
}
