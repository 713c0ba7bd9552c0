//! Moves that are planned in one process and confirmed in another.

use std::sync::Arc;

use serde_json::{Value, json};
use stepback_engine::moves::{
    Confirmation, MoveAction, MoveKind, MoveReport, MoveRequest, MovingAgent, PlannedMove,
};
use stepback_engine::rewind::RewindRequest;
use stepback_engine::undo::{Reversal, UndoDirection};
use stepback_engine::{Engine, EngineError, Workspace};
use stepback_model::env::FrozenEnv;
use stepback_model::record::StepRow;
use stepback_model::time::Timestamp;

use crate::support::{START, TestWorkspace, Words, open_again};

fn back_to(target: &StepRow) -> MoveRequest {
    let rewind = RewindRequest { target: Some(target.clone()), everything: true, ..RewindRequest::default() };
    MoveRequest::from_user(MoveAction::Rewind(Box::new(rewind)))
}

fn undo() -> MoveRequest {
    MoveRequest::from_user(MoveAction::Undo { operation: None })
}

/// Plans a move and keeps the plan; returns its id.
fn show(workspace: &Workspace, request: &MoveRequest) -> String {
    let planned = workspace.plan_move(request).unwrap();
    workspace.save_plan(&planned, json!({ "shown": planned.summary })).unwrap();
    planned.id
}

/// Confirms a plan by its id; `Err` holds the plan that would be applied now.
fn confirm(engine: &Engine, workspace: &Workspace, id: &str) -> Result<MoveReport, Box<PlannedMove>> {
    let shown = engine.load_shown_plan(id).unwrap().expect("the plan was kept");
    assert_eq!(shown.workspace, workspace.record.id);
    match workspace.confirm_move(&shown).unwrap() {
        Confirmation::Same(planned) => {
            let report = workspace.apply_move(planned).unwrap();
            engine.delete_plan(id).unwrap();
            Ok(report)
        }
        Confirmation::Changed(planned) => Err(Box::new(planned)),
    }
}

#[test]
fn a_plan_is_confirmed_through_another_handle_of_the_store_and_only_once() {
    for place in [TestWorkspace::new(), TestWorkspace::in_memory()] {
        let (engine, there) = (place.engine(), Engine { store: open_again(&place), ..place.engine() });
        let workspace = engine.open_workspace_root(&place.root).unwrap();
        place.write("a", "1");
        let good = workspace.checkpoint("good");
        place.write("a", "2");
        let id = show(&workspace, &back_to(&good));
        assert_eq!(place.read("a"), "2", "planning changes nothing");
        let shown = there.load_shown_plan(&id).unwrap().unwrap();
        assert_eq!(shown.request.action.kind(), MoveKind::Rewind);
        assert_eq!(shown.document, json!({ "shown": "rewind to #1 \"good\"" }));
        let report = confirm(&there, &there.open_known_workspace(&place.root).unwrap(), &id);
        assert_eq!(place.read("a"), "1");
        assert!(report.ok().unwrap().operation().number > 0);
        assert!(engine.load_shown_plan(&id).unwrap().is_none(), "it was applied");

        let id = show(&workspace, &undo());
        confirm(&there, &there.open_known_workspace(&place.root).unwrap(), &id).ok().unwrap();
        assert_eq!(place.read("a"), "2");
        let id = show(&workspace, &MoveRequest::from_user(MoveAction::Redo));
        confirm(&engine, &workspace, &id).ok().unwrap();
        assert_eq!(place.read("a"), "1");
    }
}

#[test]
fn a_plan_that_no_longer_holds_is_answered_with_the_new_one() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("a", "1");
    let good = workspace.checkpoint("good");
    place.write("a", "2");
    let id = show(&workspace, &back_to(&good));
    place.write("b", "2");
    let Err(planned) = confirm(&engine, &workspace, &id) else { panic!("the workspace changed") };
    assert_ne!(planned.id, id);
    assert_eq!(planned.files.as_ref().unwrap().plan.changes.len(), 2);
    workspace.save_plan(&planned, Value::Null).unwrap();
    let now = planned.id.clone();
    drop(planned);
    confirm(&engine, &workspace, &now).ok().unwrap();
    assert!(place.read("a") == "1" && !place.has("b"));
    assert!(workspace.plan_move(&back_to(&good)).unwrap().is_empty());
}

#[test]
fn plans_are_kept_for_a_day_and_the_newest_stay() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("a", "1");
    let good = workspace.checkpoint("good");
    let first = show(&workspace, &back_to(&good));
    let kept = stepback_store::port::KEPT_PLANS;
    for number in 0..kept {
        let planned = workspace.plan_move(&back_to(&good)).unwrap();
        workspace.save_plan(&PlannedMove { id: number.to_string(), ..planned }, Value::Null).unwrap();
    }
    assert!(engine.load_shown_plan(&first).unwrap().is_none(), "the oldest went first");
    assert!(engine.load_shown_plan("0").unwrap().is_some());
    let tomorrow = FrozenEnv::new(Timestamp::from_micros(START + 25 * 60 * 60 * 1_000_000), 9);
    let later = Engine { env: Arc::new(tomorrow), ..place.engine() };
    assert!(later.load_shown_plan("0").unwrap().is_none(), "it is too old");
    let workspace = later.open_known_workspace(&place.root).unwrap();
    let id = show(&workspace, &back_to(&good));
    let plans = later.store.plans(workspace.record.id).unwrap();
    assert_eq!(plans.iter().map(|plan| &plan.id).collect::<Vec<_>>(), [&id], "old ones are dropped");
}

#[test]
fn a_large_document_is_not_kept_and_the_plan_is() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("a", "1");
    let good = workspace.checkpoint("good");
    place.write("a", "2");
    let planned = workspace.plan_move(&back_to(&good)).unwrap();
    workspace.save_plan(&planned, json!("x".repeat(5 << 20))).unwrap();
    let id = planned.id.clone();
    drop(planned);
    assert_eq!(engine.load_shown_plan(&id).unwrap().unwrap().document, Value::Null);
    confirm(&engine, &workspace, &id).ok().unwrap();
    assert_eq!(place.read("a"), "1");
}

#[test]
fn a_move_of_the_log_alone_reports_its_operation() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let one = workspace.checkpoint("one");
    place.write("a", "1");
    workspace.checkpoint("two");
    workspace.delete_checkpoint(&one).unwrap();
    let planned = workspace.plan_move(&undo()).unwrap();
    assert!(planned.files.is_none() && !planned.moved_parts().files && !planned.is_empty());
    let report = workspace.apply_move(planned).unwrap();
    let recorded = workspace.operations().unwrap().remove(0);
    assert_eq!(report.operation(), &recorded);
    assert!(report.into_files().is_none());
}

#[test]
fn a_switch_can_create_its_branch() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("a", "1");
    let good = workspace.checkpoint("good");
    place.write("a", "2");
    let switch = |begin_at| MoveRequest::from_user(MoveAction::Switch { branch: "x".into(), begin_at });
    assert!(workspace.plan_move(&switch(None)).is_err(), "there is no such branch yet");
    let id = show(&workspace, &switch(Some(good.step.id)));
    assert_eq!(workspace.branch_names().unwrap(), ["main"], "planning creates nothing");
    confirm(&engine, &workspace, &id).ok().unwrap();
    assert_eq!((workspace.present_branch().unwrap().as_str(), place.read("a").as_str()), ("x", "1"));
}

#[test]
fn whether_an_agent_is_limited_to_its_own_moves_is_decided_by_the_process_that_applies() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("a", "1");
    let good = workspace.checkpoint("good");
    place.write("a", "2");
    workspace.apply_move(workspace.plan_move(&back_to(&good)).unwrap()).unwrap();
    let session = workspace.session.id;
    let agent = |own_only| Some(MovingAgent { session, own_only });
    let id = show(&workspace, &MoveRequest { agent: agent(false), ..undo() });
    let mut shown = engine.load_shown_plan(&id).unwrap().unwrap();
    shown.request.agent = agent(true);
    let refused = workspace.confirm_move(&shown).err().unwrap().to_string();
    assert!(refused.contains("nothing to undo"), "{refused}");
    confirm(&engine, &workspace, &id).ok().unwrap();
    assert_eq!(place.read("a"), "2");
}

#[test]
fn an_operation_that_was_planned_twice_is_undone_once() {
    let place = TestWorkspace::in_memory();
    let workspace = place.engine().open_workspace_root(&place.root).unwrap();
    place.write("f", "1");
    let first = workspace.checkpoint("a");
    place.write("f", "2");
    workspace.checkpoint("b");
    workspace.rewind(&first);
    let plan = || {
        let mut reversal = workspace.prepare_undo(None).unwrap();
        if let Reversal::Files { prepared, .. } = &mut reversal {
            prepared.release_lock();
        }
        reversal
    };
    let (mine, other) = (plan(), plan());
    workspace.apply_reversal(mine, UndoDirection::Undo).unwrap();
    assert_eq!(place.read("f"), "2");
    let late = workspace.apply_reversal(other, UndoDirection::Undo).unwrap_err();
    assert!(matches!(&late, EngineError::CannotUndo(why) if why.contains("by another process")), "{late}");
    workspace.redo();
    assert_eq!(place.read("f"), "1");
    workspace.undo();
    assert_eq!(place.read("f"), "2");
}

#[test]
fn switches_are_undone_one_after_the_other_unless_a_branch_went_on() {
    let place = TestWorkspace::in_memory();
    let workspace = place.engine().open_workspace_root(&place.root).unwrap();
    let switch = |name: &str| workspace.switch(name, workspace.prepare_switch(name).unwrap()).unwrap();
    let expect = |branch: &str, file: &str, what: &str| {
        assert_eq!(
            (workspace.present_branch().unwrap().as_str(), place.read("file").as_str()),
            (branch, file),
            "{what}"
        );
    };
    place.write("file", "here");
    workspace.checkpoint("here");
    workspace.create_branch("other", &workspace.head().unwrap()).unwrap();
    switch("other");
    place.write("file", "there");
    workspace.checkpoint("there");
    switch("main");
    let first = switch("other").operation.id;
    switch("main");
    for round in ["first", "second"] {
        workspace.undo();
        expect("other", "there", round);
        workspace.undo();
        expect("main", "here", round);
        workspace.redo();
        expect("other", "there", round);
        workspace.redo();
        expect("main", "here", round);
    }
    place.write("file", "further");
    workspace.checkpoint("further");
    switch("other");
    let refused = workspace.prepare_undo(Some(first)).err().expect("main went on").to_string();
    assert!(refused.contains("that was a switch from branch main, which is at"), "{refused}");
}
