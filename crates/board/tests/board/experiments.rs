//! Experiments on branches, and the boards that wait there.

use stepback_engine::board::{BoardEditor, BoardMoment};
use stepback_model::record::Trigger;
use stepback_reasoning::ids::HypothesisId;
use stepback_reasoning::item::HypothesisStatus;

use crate::place::{BoardWorkspace, apply, conclude, evidence, propose};

#[test]
fn an_experiment_has_a_board_of_its_own_and_its_conclusions_are_taken_over() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("file", "1");
    let session = place.session(&workspace);
    let mut editor = BoardEditor::new(&workspace, &session);
    apply(&mut editor, propose("it is the cache"));
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    place.write("file", "2");
    let begun = stepback_board::start_experiment(
        &mut editor,
        "no-cache",
        Some(HypothesisId(1)),
        "the test passes",
        None,
    )
    .unwrap();
    assert_eq!((begun.left.as_str(), begun.edit.effect.item.to_string().as_str()), ("main", "X1"));
    assert!(begun.edit.checkpoint.is_some() && begun.report.outcomes.is_empty());
    assert_eq!(workspace.present_branch().unwrap(), "no-cache");
    assert_eq!(place.read("file"), "2", "files stay as they are");
    place.write("file", "3");
    apply(&mut editor, evidence(1, 0.9, "the test"));
    apply(&mut editor, conclude(1, HypothesisStatus::Confirmed));
    let prepared = workspace.prepare_switch("main").unwrap();
    let report = editor.switch("main", prepared).unwrap();
    assert!(!report.board.unwrap().diff.changes.is_empty());
    assert_eq!(place.read("file"), "2", "what was there when it began, and not the checkpoint before");
    assert_eq!(editor.board().unwrap().hypotheses.get(1).unwrap().status, HypothesisStatus::Active);
    apply(&mut editor, evidence(1, 0.1, "a hunch"));
    let there = BoardMoment::Branch("no-cache".into());
    let joined = stepback_board::merge_board(&mut editor, &there, None, false, false).unwrap();
    assert!(joined.conflicts.is_empty(), "{:?}", joined.conflicts);
    let board = editor.board().unwrap();
    assert_eq!(board.hypotheses.get(1).unwrap().status, HypothesisStatus::Confirmed);
    assert_eq!(board.evidence.count(), 2);
    assert_eq!(joined.renamed.len(), 1, "both had an E1");
    let error = stepback_board::merge_board(&mut editor, &BoardMoment::Step(3), None, false, false)
        .unwrap_err()
        .to_string();
    assert!(error.contains("--base"), "{error}");
}

#[test]
fn an_experiment_that_cannot_begin_leaves_nothing() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    let mut editor = BoardEditor::new(&workspace, &session);
    let error =
        stepback_board::start_experiment(&mut editor, "x", None, "it works", None).unwrap_err().to_string();
    assert!(error.contains("has no checkpoint yet"), "{error}");
    place.write("file", "1");
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    for (branch, hypothesis, success, said) in [
        ("main", None, "it works", "branch main already exists"),
        ("-x", None, "it works", "-x"),
        ("x", Some(HypothesisId(7)), "it works", "H7"),
        ("x", None, " ", "success criterion"),
    ] {
        let error = stepback_board::start_experiment(&mut editor, branch, hypothesis, success, None)
            .unwrap_err()
            .to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(editor.board().unwrap().experiments.is_empty());
    assert_eq!(workspace.branch_names().unwrap(), ["main"]);
    stepback_board::start_experiment(&mut editor, "x", None, "it works", None).unwrap();
}

/// A branch that was never left has the board of the step it begins at.
#[test]
fn the_board_of_a_branch_is_that_of_its_newest_step_until_it_is_left() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    let mut editor = BoardEditor::new(&workspace, &session);
    place.write("file", "1");
    apply(&mut editor, propose("early"));
    let early = workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap().stored;
    place.write("file", "2");
    apply(&mut editor, propose("late"));
    workspace.create_branch("again", &early).unwrap();
    let prepared = workspace.prepare_switch("again").unwrap();
    editor.switch("again", prepared).unwrap();
    assert_eq!((place.read("file").as_str(), editor.board().unwrap().hypotheses.count()), ("1", 1));
    let prepared = workspace.prepare_switch("main").unwrap();
    editor.switch("main", prepared).unwrap();
    assert_eq!((place.read("file").as_str(), editor.board().unwrap().hypotheses.count()), ("2", 2));
}
