//! A comparison of two points includes their boards, item by item.

use stepback_engine::board::BoardEditor;
use stepback_history::compare::{ComparedRun, compare};
use stepback_model::record::Trigger;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::HypothesisId;
use stepback_reasoning::item::{EvidenceKind, EvidenceOrigin};
use stepback_testkit::TestWorkspace;

#[test]
fn a_comparison_lists_the_items_of_the_board_that_differ() {
    let place = TestWorkspace::new();
    let workspace = place.engine().open_workspace_root(&place.root).unwrap();
    place.write("file", "1");
    workspace.create_checkpoint(Default::default(), Trigger::Manual).unwrap();
    let mut editor = BoardEditor::new(&workspace, &workspace.session);
    let hypothesis = BoardMutation::ProposeHypothesis {
        statement: "it".into(),
        prior: 0.5,
        parents: Vec::new(),
        excludes: Vec::new(),
        tags: Vec::new(),
    };
    let evidence = BoardMutation::AddEvidence {
        hypothesis: HypothesisId(1),
        strength: 0.5,
        text: "the log says so".into(),
        kind: EvidenceKind::Documentation,
        source: EvidenceOrigin::Documentation("the log".into()),
    };
    let [before, after] = [hypothesis, evidence].map(|mutation| {
        let number = editor.apply(&mutation).unwrap().step;
        let stored = workspace.store().step_numbered(workspace.record.id, number).unwrap().unwrap();
        ComparedRun::from_point(&workspace, &stored).unwrap()
    });
    let comparison = compare(workspace.store(), &before, &after).unwrap();
    let slot = comparison.ends.slots.iter().find(|slot| slot.slot == "reasoning").unwrap();
    let pointers: Vec<&str> = slot.differences.iter().map(|part| part.pointer.as_str()).collect();
    assert_eq!(pointers, ["/hypotheses/H1", "/evidence/E1"]);
    assert_eq!((slot.added, slot.changed), (1, 1));
}
