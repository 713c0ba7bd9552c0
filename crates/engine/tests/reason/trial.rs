//! Experiments on branches, and the boards that wait there.

use stepback_engine::reason::{BoardMoment, Thinker};
use stepback_model::record::Trigger;
use stepback_reasoning::ids::HypothesisId;
use stepback_reasoning::item::HypothesisStatus;

use crate::place::{BoardWorkspace, conclude, evidence, propose, think};

#[test]
fn an_experiment_has_a_board_of_its_own_and_its_conclusions_are_taken_over() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.workspace(&place.root).unwrap();
    place.write("file", "1");
    let session = place.session(&workspace);
    let mut thinker = Thinker::new(&workspace, &session);
    think(&mut thinker, propose("it is the cache"));
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    place.write("file", "2");
    let begun = thinker.start_experiment("no-cache", Some(HypothesisId(1)), "the test passes", None).unwrap();
    assert_eq!((begun.left.as_str(), begun.thought.effect.item.to_string().as_str()), ("main", "X1"));
    assert!(begun.thought.checkpoint.is_some() && begun.report.outcomes.is_empty());
    assert_eq!(workspace.present_branch().unwrap(), "no-cache");
    assert_eq!(place.read("file"), "2", "files stay as they are");
    place.write("file", "3");
    think(&mut thinker, evidence(1, 0.9, "the test"));
    think(&mut thinker, conclude(1, HypothesisStatus::Confirmed));
    let prepared = workspace.prepare_switch("main").unwrap();
    let report = thinker.switch("main", prepared).unwrap();
    assert!(!report.board.unwrap().diff.changes.is_empty());
    assert_eq!(place.read("file"), "2", "what was there when it began, and not the checkpoint before");
    assert_eq!(thinker.mind().unwrap().hypotheses.get(1).unwrap().status, HypothesisStatus::Active);
    think(&mut thinker, evidence(1, 0.1, "a hunch"));
    let there = BoardMoment::Branch("no-cache".into());
    let joined = thinker.merge(&there, None, false, false).unwrap();
    assert!(joined.conflicts.is_empty(), "{:?}", joined.conflicts);
    let mind = thinker.mind().unwrap();
    assert_eq!(mind.hypotheses.get(1).unwrap().status, HypothesisStatus::Confirmed);
    assert_eq!(mind.evidence.count(), 2);
    assert_eq!(joined.renamed.len(), 1, "both had an E1");
    let error = thinker.merge(&BoardMoment::Step(3), None, false, false).unwrap_err().to_string();
    assert!(error.contains("--base"), "{error}");
}

#[test]
fn an_experiment_that_cannot_begin_leaves_nothing() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.workspace(&place.root).unwrap();
    let session = place.session(&workspace);
    let mut thinker = Thinker::new(&workspace, &session);
    let error = thinker.start_experiment("x", None, "it works", None).unwrap_err().to_string();
    assert!(error.contains("has no checkpoint yet"), "{error}");
    place.write("file", "1");
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    for (branch, hypothesis, success, said) in [
        ("main", None, "it works", "branch main already exists"),
        ("-x", None, "it works", "-x"),
        ("x", Some(HypothesisId(7)), "it works", "H7"),
        ("x", None, " ", "success criterion"),
    ] {
        let error = thinker.start_experiment(branch, hypothesis, success, None).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(thinker.mind().unwrap().experiments.is_empty());
    assert_eq!(workspace.branch_names().unwrap(), ["main"]);
    thinker.start_experiment("x", None, "it works", None).unwrap();
}

/// A branch that nobody has left yet has the board of the step it begins at.
#[test]
fn the_board_of_a_branch_is_that_of_its_newest_step_until_it_is_left() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.workspace(&place.root).unwrap();
    let session = place.session(&workspace);
    let mut thinker = Thinker::new(&workspace, &session);
    place.write("file", "1");
    think(&mut thinker, propose("early"));
    let early = workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap().stored;
    place.write("file", "2");
    think(&mut thinker, propose("late"));
    workspace.create_branch("again", &early).unwrap();
    let prepared = workspace.prepare_switch("again").unwrap();
    thinker.switch("again", prepared).unwrap();
    assert_eq!((place.read("file").as_str(), thinker.mind().unwrap().hypotheses.count()), ("1", 1));
    let prepared = workspace.prepare_switch("main").unwrap();
    thinker.switch("main", prepared).unwrap();
    assert_eq!((place.read("file").as_str(), thinker.mind().unwrap().hypotheses.count()), ("2", 2));
}
