//! A merge of branches takes over the conclusions of all sessions that worked there.

use stepback_engine::Workspace;
use stepback_engine::board::BoardEditor;
use stepback_engine::moves::{MoveRequest, PlannedMove};
use stepback_engine::recorder::ReportedEvent;
use stepback_model::event::AgentEvent;
use stepback_model::ids::SessionId;
use stepback_model::record::{Session, StepKind, Trigger};
use stepback_reasoning::BoardMutation;
use stepback_reasoning::item::HypothesisStatus;

use crate::place::{BoardWorkspace, apply, conclude, propose};

fn note(text: &str) -> BoardMutation {
    BoardMutation::AddNote { text: text.into(), about: Vec::new(), tags: Vec::new() }
}

fn plan(workspace: &Workspace, branch: &str, session: SessionId) -> PlannedMove {
    let request = MoveRequest { board: Some(session), ..MoveRequest::merge(branch, false) };
    workspace.plan_move(&request).unwrap()
}

/// Another session of the agent, with one step.
fn second_session(place: &BoardWorkspace, workspace: &Workspace) -> Session {
    let lock = workspace.lock_recording().unwrap();
    let event = AgentEvent::new("test", "second", StepKind::AgentStep, "a second session");
    workspace.record(&lock, &ReportedEvent::new(event, place.now())).unwrap();
    drop(lock);
    workspace.find_session("second").unwrap()
}

#[test]
fn conclusions_come_with_the_files_and_go_with_them() {
    let place = BoardWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("file", "1");
    let session = place.session(&workspace);
    let mut editor = BoardEditor::new(&workspace, &session);
    apply(&mut editor, propose("it is the cache"));
    apply(&mut editor, propose("it is the disk"));
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    // No experiment: a branch is enough.
    workspace.create_branch("aside", &workspace.head().unwrap()).unwrap();
    editor.switch("aside", workspace.prepare_switch("aside").unwrap()).unwrap();
    place.write("file", "2");
    apply(&mut editor, conclude(1, HypothesisStatus::Confirmed));
    apply(&mut editor, conclude(2, HypothesisStatus::Confirmed));
    apply(&mut editor, note("found there"));
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    editor.switch("main", workspace.prepare_switch("main").unwrap()).unwrap();
    apply(&mut editor, conclude(2, HypothesisStatus::Rejected));
    apply(&mut editor, note("found here"));

    let planned = plan(&workspace, "aside", session.id);
    let merged = planned.merged_board.as_ref().unwrap();
    assert_eq!(merged.conflicts.len(), 1);
    assert!(merged.conflicts[0].sentence.starts_with("H2 is rejected"), "{:?}", merged.conflicts);
    assert_eq!(editor.board().unwrap().notes.count(), 1, "a plan changes nothing");
    workspace.apply_move(planned).unwrap();
    let board = editor.board().unwrap();
    assert_eq!(place.read("file"), "2");
    assert_eq!(board.hypotheses.get(1).unwrap().status, HypothesisStatus::Confirmed);
    assert_eq!(board.hypotheses.get(2).unwrap().status, HypothesisStatus::Rejected, "a conflict stays");
    assert_eq!(board.notes.count(), 2);
    // A second merge finds nothing new, although the note has another name here.
    assert!(plan(&workspace, "aside", session.id).is_empty());

    let undone = workspace.plan_move(&MoveRequest::undo()).unwrap();
    workspace.apply_move(undone).unwrap();
    let board = editor.board().unwrap();
    assert_eq!((place.read("file").as_str(), board.notes.count()), ("1", 1));
    assert_eq!(board.hypotheses.get(1).unwrap().status, HypothesisStatus::Active);
}

#[test]
fn what_another_session_concluded_on_the_branch_is_added() {
    let place = BoardWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("file", "1");
    let first = place.session(&workspace);
    let mut editor = BoardEditor::new(&workspace, &first);
    apply(&mut editor, propose("it is the cache"));
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    workspace.create_branch("aside", &workspace.head().unwrap()).unwrap();
    workspace.switch("aside", workspace.prepare_switch("aside").unwrap()).unwrap();
    let second = second_session(&place, &workspace);
    let mut other = BoardEditor::new(&workspace, &second);
    apply(&mut other, propose("it is the network"));
    apply(&mut other, conclude(1, HypothesisStatus::Confirmed));
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    workspace.switch("main", workspace.prepare_switch("main").unwrap()).unwrap();

    let planned = plan(&workspace, "aside", first.id);
    assert!(planned.merged_board.as_ref().unwrap().conflicts.is_empty(), "H1 is another hypothesis there");
    workspace.apply_move(planned).unwrap();
    let board = editor.board().unwrap();
    assert_eq!(board.hypotheses.get(1).unwrap().statement, "it is the cache");
    let added = board.hypotheses.get(2).unwrap();
    assert_eq!((added.statement.as_str(), added.status), ("it is the network", HypothesisStatus::Confirmed));
    assert!(plan(&workspace, "aside", first.id).is_empty(), "nothing is added twice");
    assert_eq!(other.board().unwrap().hypotheses.count(), 1, "their own board is as it was");
}
