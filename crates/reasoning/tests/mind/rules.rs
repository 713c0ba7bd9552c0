//! Single rules, each by an example.

use crate::support::{belief, depend, evidence, origin, propose};
use stepback_reasoning::graph_view::Picture;
use stepback_reasoning::ids::{BeliefId, ExperimentId, GapId, HypothesisId, VerificationId};
use stepback_reasoning::item::{
    BeliefKind, Check, CheckOutcome, ContradictionStatus, Criticality, DependencyKind, ExperimentStatus,
    GapKind, GapStatus, HypothesisStatus, Measure, OnOutcome, Severity,
};
use stepback_reasoning::paged_table::MOST;
use stepback_reasoning::recovery::RecoveryContext;
use stepback_reasoning::{
    BoardMutation, CheckpointCause, ItemKind, MindError, MutationEffect, ReasoningBoard,
};

fn apply(mind: &mut ReasoningBoard, mutation: BoardMutation) -> MutationEffect {
    mind.apply(&mutation, &origin(1)).unwrap()
}

fn refused(mind: &mut ReasoningBoard, mutation: BoardMutation) -> String {
    mind.apply(&mutation, &origin(1)).unwrap_err().to_string()
}

fn set(hypothesis: u32, status: HypothesisStatus) -> BoardMutation {
    BoardMutation::SetHypothesis { hypothesis: HypothesisId(hypothesis), status, reason: None }
}

fn child(parent: u32) -> BoardMutation {
    BoardMutation::ProposeHypothesis {
        statement: "a special case".into(),
        prior: 0.5,
        parents: vec![HypothesisId(parent)],
        excludes: Vec::new(),
        tags: Vec::new(),
    }
}

fn gap(after: Vec<GapId>, criticality: Criticality) -> BoardMutation {
    BoardMutation::AddGap {
        question: "why?".into(),
        kind: GapKind::Cause,
        criticality,
        blocks: Vec::new(),
        after,
        strategy: None,
        minutes: None,
    }
}

#[test]
fn evidence_of_half_strength_makes_an_even_chance_82_percent() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("the cache is stale"));
    let effect = apply(&mut mind, evidence(1, 0.5, "the log"));
    assert_eq!(effect.messages, ["Added E1: H1 rose from 0.5 to 0.82"]);
    let effect = apply(&mut mind, evidence(1, -0.5, "the code"));
    assert_eq!(effect.messages, ["Added E2: H1 fell from 0.82 to 0.5"]);
    let effect = apply(&mut mind, evidence(1, 0.3, "the log"));
    assert_eq!(effect.messages, ["Added E3: H1 stays at 0.5, because its source already counts as strongly"]);
}

#[test]
fn numbers_that_are_none_or_out_of_range_are_refused() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("it"));
    apply(&mut mind, belief(BeliefKind::Assumption, None, None));
    apply(&mut mind, belief(BeliefKind::Assumption, None, None));
    let before = mind.clone();
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.001, -1.5] {
        assert!(refused(&mut mind, evidence(1, bad, "x")).contains("from -1 to 1"), "{bad}");
        assert!(refused(&mut mind, depend(1, 2, bad)).contains("from 0 to 1"), "{bad}");
        let revise = BoardMutation::ReviseBelief { belief: BeliefId(1), confidence: bad, reason: None };
        assert!(refused(&mut mind, revise).contains("from 0 to 1"), "{bad}");
        let propose = BoardMutation::ProposeHypothesis {
            statement: "it".into(),
            prior: bad,
            parents: Vec::new(),
            excludes: Vec::new(),
            tags: Vec::new(),
        };
        assert!(refused(&mut mind, propose).contains("from 0.001 to 0.999"), "{bad}");
    }
    assert_eq!(mind, before);
}

#[test]
fn what_does_not_exist_is_named_with_what_does() {
    let mut mind = ReasoningBoard::default();
    assert_eq!(
        refused(&mut mind, evidence(1, 0.5, "x")),
        "there is no hypothesis H1; there is no hypothesis yet"
    );
    apply(&mut mind, propose("it"));
    assert_eq!(refused(&mut mind, evidence(7, 0.5, "x")), "there is no hypothesis H7; the newest is H1");
    for bad in ["", "H", "H0", "H01", "Q1", "1", "H-1", "H99999999999", "ḧ1", "H1 "] {
        assert!(bad.parse::<HypothesisId>().is_err(), "{bad:?}");
    }
    assert_eq!("h12".parse::<HypothesisId>().unwrap(), HypothesisId(12));
    let wrong = "E1".parse::<HypothesisId>().unwrap_err().to_string();
    assert_eq!(wrong, "E1 is not a hypothesis; their names are H1, H2, …");
}

#[test]
fn texts_that_say_nothing_or_too_much_are_refused() {
    let mut mind = ReasoningBoard::default();
    for bad in ["", "  \n ", "\u{1b}[31mred", &"x".repeat(10_001)] {
        assert!(mind.apply(&propose(bad), &origin(1)).is_err(), "{bad:.20}");
    }
    assert!(mind.is_empty());
}

#[test]
fn a_rejected_parent_takes_its_children_along_and_brings_them_back() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("it is the network"));
    apply(&mut mind, child(1));
    apply(&mut mind, child(2));
    apply(&mut mind, child(1));
    apply(&mut mind, set(3, HypothesisStatus::Testing));
    apply(&mut mind, set(4, HypothesisStatus::Archived));
    let effect = apply(&mut mind, set(1, HypothesisStatus::Rejected));
    assert_eq!(effect.messages[1..], ["H2 was rejected along with it", "H3 was rejected along with it"]);
    assert_eq!(effect.causes, [CheckpointCause::HypothesisStatus]);
    let said = refused(&mut mind, set(3, HypothesisStatus::Active));
    assert!(said.contains("it was rejected along with H1"), "{said}");
    assert!(refused(&mut mind, child(1)).contains("rejected"));
    apply(&mut mind, set(1, HypothesisStatus::Active));
    let status = |number| mind.hypotheses.get(number).unwrap().status;
    assert_eq!(status(2), HypothesisStatus::Active);
    assert_eq!(status(3), HypothesisStatus::Testing, "as it was before");
    assert_eq!(status(4), HypothesisStatus::Archived, "it had not fallen");
}

#[test]
fn a_hypothesis_goes_only_where_it_can() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("it"));
    apply(&mut mind, set(1, HypothesisStatus::Confirmed));
    let said = refused(&mut mind, set(1, HypothesisStatus::Rejected));
    assert_eq!(said, "H1 is confirmed: it can become active, archived, not rejected");
    apply(&mut mind, set(1, HypothesisStatus::Archived));
    assert!(refused(&mut mind, evidence(1, 0.5, "x")).contains("reopen it"));
}

#[test]
fn an_observation_that_is_not_what_was_expected_is_found_and_forgotten_when_it_is_over() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, belief(BeliefKind::Expectation, Some("rows"), Some(Measure::Range(10.0, 20.0))));
    let seen = |value| belief(BeliefKind::Observation, Some("rows"), Some(Measure::Number(value)));
    assert!(apply(&mut mind, seen(15.0)).causes.is_empty());
    let effect = apply(&mut mind, seen(25.0));
    assert!(effect.messages[2].contains("rows was seen as 15 and then as 25"), "{:?}", effect.messages);
    assert_eq!(effect.causes, [CheckpointCause::Contradiction]);
    assert_eq!(effect.messages[1], "B1 and B3 contradict each other: rows should be 10 to 20 and is 25 (C1)");
    assert!(mind.contradictions.get(1).unwrap().suggestion.contains("check B1"), "what was seen counts");
    let effect = apply(&mut mind, seen(12.0));
    assert_eq!(effect.messages[1], "C1 is resolved: it no longer holds");
    // Another subject, or another kind of value, is nothing to compare.
    let effect =
        apply(&mut mind, belief(BeliefKind::Observation, Some("columns"), Some(Measure::Number(99.0))));
    assert!(effect.causes.is_empty());
    let effect =
        apply(&mut mind, belief(BeliefKind::Observation, Some("rows"), Some(Measure::Word("many".into()))));
    assert!(effect.causes.is_empty());
}

#[test]
fn two_observations_of_one_subject_that_differ_contradict_until_one_is_retracted() {
    let mut mind = ReasoningBoard::default();
    let seen = |value| belief(BeliefKind::Observation, Some("port"), Some(Measure::Number(value)));
    apply(&mut mind, seen(80.0));
    assert!(apply(&mut mind, seen(80.0)).causes.is_empty(), "the same is no contradiction");
    let effect = apply(&mut mind, seen(443.0));
    assert_eq!(effect.causes, [CheckpointCause::Contradiction]);
    let found = mind.contradictions.get(1).unwrap();
    assert_eq!((found.left.to_string().as_str(), found.right.to_string().as_str()), ("B2", "B3"));
    assert!(found.suggestion.contains("check B2"), "what was seen last is believed: {}", found.suggestion);
    apply(&mut mind, seen(443.0));
    assert_eq!(mind.contradictions.get(1).unwrap().status, ContradictionStatus::Open, "both are still held");
    let retract = |number| BoardMutation::RetractBelief { belief: BeliefId(number), reason: None };
    apply(&mut mind, retract(2));
    assert_eq!(mind.contradictions.get(1).unwrap().status, ContradictionStatus::Resolved);
    assert_eq!(mind.contradictions.get(2).unwrap().left, BeliefId(1).into(), "and the one before it");
    apply(&mut mind, retract(1));
    assert!(mind.contradictions.iter().all(|(_, found)| found.status == ContradictionStatus::Resolved));
}

#[test]
fn a_special_case_of_two_falls_with_either_and_stays_down_with_the_other() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("it is the network"));
    apply(&mut mind, propose("it happens at night"));
    let both = BoardMutation::ProposeHypothesis {
        statement: "the network fails at night".into(),
        prior: 0.5,
        parents: vec![HypothesisId(2), HypothesisId(1), HypothesisId(2)],
        excludes: Vec::new(),
        tags: Vec::new(),
    };
    apply(&mut mind, both);
    assert_eq!(mind.hypotheses.get(3).unwrap().parents, [HypothesisId(1), HypothesisId(2)]);
    assert_eq!(mind.children(HypothesisId(1)), [HypothesisId(3)]);
    assert_eq!(mind.document()["hypotheses"][1]["children"], serde_json::json!(["H3"]));
    let status = |mind: &ReasoningBoard| mind.hypotheses.get(3).unwrap().status;
    apply(&mut mind, set(1, HypothesisStatus::Rejected));
    apply(&mut mind, set(2, HypothesisStatus::Rejected));
    apply(&mut mind, set(1, HypothesisStatus::Active));
    assert_eq!(status(&mind), HypothesisStatus::Rejected, "the other one is still rejected");
    apply(&mut mind, set(2, HypothesisStatus::Active));
    assert_eq!(status(&mind), HypothesisStatus::Active);
}

#[test]
fn a_hypothesis_is_worded_in_another_way_and_its_old_wording_is_kept() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("the cache is stale"));
    apply(&mut mind, evidence(1, 0.5, "x"));
    let edit = |statement: &str| BoardMutation::EditHypothesis {
        hypothesis: HypothesisId(1),
        statement: statement.into(),
    };
    let sure = mind.confidences()[&1];
    let effect = apply(&mut mind, edit("the cache is stale for an hour"));
    assert_eq!(effect.messages, ["H1 now says: the cache is stale for an hour"]);
    let entry = mind.hypotheses.get(1).unwrap();
    assert_eq!(entry.earlier[0].statement, "the cache is stale");
    assert_eq!(mind.confidences()[&1], sure, "evidence stays");
    assert!(refused(&mut mind, edit("the cache is stale for an hour")).contains("already"));
    assert!(refused(&mut mind, edit(" ")).contains("empty"));
}

/// Boards and logs of before a hypothesis could have several parents.
#[test]
fn a_single_parent_of_an_earlier_board_is_read() {
    let document = serde_json::json!({ "do": "propose-hypothesis", "statement": "it", "parent": "H1" });
    let BoardMutation::ProposeHypothesis { parents, .. } = serde_json::from_value(document).unwrap() else {
        panic!("another mutation");
    };
    assert_eq!(parents, [HypothesisId(1)]);
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("it"));
    let mut stored = serde_json::to_value(mind.hypotheses.get(1).unwrap()).unwrap();
    stored["parent"] = serde_json::json!("H7");
    let read: stepback_reasoning::item::Hypothesis = serde_json::from_value(stored).unwrap();
    assert_eq!(read.parents, [HypothesisId(7)]);
}

#[test]
fn two_expectations_that_nothing_can_meet_contradict() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, belief(BeliefKind::Expectation, Some("green"), Some(Measure::Flag(true))));
    let effect = apply(&mut mind, belief(BeliefKind::Expectation, Some("green"), Some(Measure::Flag(false))));
    assert_eq!(effect.causes, [CheckpointCause::Contradiction]);
    apply(&mut mind, BoardMutation::RetractBelief { belief: BeliefId(1), reason: None });
    assert_eq!(mind.contradictions.get(1).unwrap().status, ContradictionStatus::Resolved);
}

#[test]
fn exclusive_hypotheses_cannot_both_be_confirmed_unnoticed() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("the client retries"));
    apply(
        &mut mind,
        BoardMutation::ProposeHypothesis {
            statement: "the client never retries".into(),
            prior: 0.5,
            parents: Vec::new(),
            excludes: vec![HypothesisId(1)],
            tags: Vec::new(),
        },
    );
    apply(&mut mind, set(1, HypothesisStatus::Confirmed));
    let effect = apply(&mut mind, set(2, HypothesisStatus::Confirmed));
    assert!(effect.causes.contains(&CheckpointCause::Contradiction));
    assert_eq!(mind.contradictions.get(1).unwrap().severity, Severity::Critical);
    let effect = apply(&mut mind, set(2, HypothesisStatus::Active));
    assert!(effect.messages.iter().any(|said| said.contains("C1 is resolved")), "{:?}", effect.messages);
}

#[test]
fn a_dismissed_contradiction_is_not_detected_again() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, belief(BeliefKind::Expectation, Some("n"), Some(Measure::Number(1.0))));
    apply(&mut mind, belief(BeliefKind::Observation, Some("n"), Some(Measure::Number(2.0))));
    let dismiss = BoardMutation::SettleContradiction {
        contradiction: "C1".parse().unwrap(),
        status: ContradictionStatus::Dismissed,
        resolution: "another n".into(),
    };
    apply(&mut mind, dismiss);
    let revise = BoardMutation::ReviseBelief { belief: BeliefId(1), confidence: 0.4, reason: None };
    assert!(apply(&mut mind, revise).causes.is_empty());
    assert_eq!(mind.contradictions.count(), 1);
}

#[test]
fn what_a_belief_rests_on_decides_how_sure_it_is() {
    let mut mind = ReasoningBoard::default();
    for _ in 0..4 {
        apply(&mut mind, belief(BeliefKind::Inference, None, None));
    }
    apply(&mut mind, depend(1, 2, 1.0));
    let sure = |mind: &ReasoningBoard, number| (mind.effective()[&number] * 1000.0).round() / 1000.0;
    assert_eq!(sure(&mind, 1), 0.81);
    let support = |on| BoardMutation::Depend {
        belief: BeliefId(3),
        on: BeliefId(on),
        kind: DependencyKind::SupportedBy,
        strength: 0.8,
        reason: None,
    };
    apply(&mut mind, support(2));
    apply(&mut mind, support(4));
    let two = sure(&mind, 3);
    let effect = apply(&mut mind, BoardMutation::RetractBelief { belief: BeliefId(2), reason: None });
    assert!(effect.messages.contains(&"B1 fell from 0.81 to 0.0".to_owned()), "{:?}", effect.messages);
    assert_eq!(sure(&mind, 1), 0.0, "it cannot be true without it");
    assert!(sure(&mind, 3) > 0.6 && sure(&mind, 3) < two, "one of two supports is left");
    let roots = mind.roots(BeliefId(3)).unwrap();
    assert_eq!(roots[0].belief, BeliefId(2), "the shakiest first");
    assert_eq!(roots[0].path, [BeliefId(3), BeliefId(2)]);
}

#[test]
fn a_circle_is_shown() {
    let mut mind = ReasoningBoard::default();
    for _ in 0..3 {
        apply(&mut mind, belief(BeliefKind::Inference, None, None));
    }
    apply(&mut mind, depend(1, 2, 1.0));
    apply(&mut mind, depend(2, 3, 1.0));
    assert_eq!(refused(&mut mind, depend(3, 1, 1.0)), "this would be a cycle: B3 → B1 → B2 → B3");
    assert_eq!(refused(&mut mind, depend(3, 3, 1.0)), "B3 cannot depend on itself");
    apply(&mut mind, gap(Vec::new(), Criticality::Low));
    apply(&mut mind, gap(vec![GapId(1)], Criticality::Low));
    let after = BoardMutation::GapAfter { gap: GapId(1), after: GapId(2) };
    assert_eq!(refused(&mut mind, after), "this would be a cycle: G1 → G2 → G1");
}

#[test]
fn a_long_chain_of_beliefs_needs_no_stack() {
    let mut mind = ReasoningBoard::default();
    const LENGTH: u32 = 2000;
    for _ in 0..LENGTH {
        mind.apply(&belief(BeliefKind::Inference, None, None), &origin(1)).unwrap();
    }
    // Each rests on the next, so that the first one looked at waits for all others.
    for number in 1..LENGTH {
        mind.apply(&depend(number, number + 1, 0.0), &origin(1)).unwrap();
    }
    assert!(mind.effective().values().all(|sure| *sure == 0.9));
    assert_eq!(mind.impact(BeliefId(LENGTH)).unwrap().shaken.len(), LENGTH as usize - 1);
    assert_eq!(mind.roots(BeliefId(1)).unwrap().len(), 1);
    let error = mind.apply(&depend(LENGTH, 1, 0.5), &origin(1)).unwrap_err();
    assert!(matches!(error, MindError::Cycle(path) if path.len() == LENGTH as usize + 1));
}

#[test]
fn more_than_a_board_can_have_is_refused() {
    let mut mind = ReasoningBoard::default();
    let note = BoardMutation::AddNote { text: "n".into(), about: Vec::new(), tags: Vec::new() };
    for number in 0..MOST as u64 {
        mind.apply(&note, &origin(number)).unwrap();
    }
    assert!(matches!(mind.apply(&note, &origin(1)), Err(MindError::TooMany { .. })));
    assert_eq!(mind.notes.count(), MOST);
}

#[test]
fn the_next_thing_to_do_is_what_holds_up_most() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("it"));
    apply(&mut mind, gap(Vec::new(), Criticality::Medium));
    apply(&mut mind, gap(vec![GapId(1)], Criticality::Critical));
    apply(&mut mind, gap(vec![GapId(1)], Criticality::Critical));
    let actions = mind.next_actions();
    assert_eq!(actions[0].item, GapId(1).into(), "{actions:?}");
    assert!(!actions.iter().any(|action| action.item == GapId(2).into()), "it waits");
    apply(&mut mind, BoardMutation::FillGap { gap: GapId(1), answer: "so".into() });
    assert_eq!(mind.next_actions()[0].item, GapId(2).into());
}

#[test]
fn a_run_does_what_its_plan_says() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("it"));
    apply(&mut mind, gap(Vec::new(), Criticality::High));
    let add = |on_pass, on_fail| BoardMutation::AddVerification {
        title: "tests pass".into(),
        check: Check::Command { run: "true".into(), exit: 0, contains: Vec::new(), lacks: Vec::new() },
        timeout_ms: 1000,
        inputs: Vec::new(),
        on_pass,
        on_fail,
    };
    let with = OnOutcome::Evidence { hypothesis: HypothesisId(1), strength: 0.5 };
    apply(&mut mind, add(vec![with, OnOutcome::Fill(GapId(1))], vec![OnOutcome::Halt]));
    assert_eq!(mind.hypothesis_actions()[0].command, "stepback board verify run V1");
    let run = |outcome| BoardMutation::RecordRun {
        verification: VerificationId(1),
        outcome,
        reason: "its exit code".into(),
        exit: None,
        took_ms: 1,
        output: "x".repeat(100_000),
        key: None,
    };
    let effect = apply(&mut mind, run(CheckOutcome::Passed));
    assert_eq!(effect.causes, [CheckpointCause::Verification, CheckpointCause::GapFilled]);
    assert_eq!(mind.gaps.get(1).unwrap().status, GapStatus::Filled);
    assert!(mind.runs.get(1).unwrap().output.len() < 5000);
    let rose = mind.confidence(HypothesisId(1)).unwrap();
    let effect = apply(&mut mind, run(CheckOutcome::Passed));
    assert_eq!(mind.confidence(HypothesisId(1)).unwrap(), rose, "the same check again proves nothing more");
    assert!(effect.messages.contains(&"G1 was not filled, because it is not open".to_owned()));
    let effect = apply(&mut mind, run(CheckOutcome::Failed));
    assert!(effect.halt);
    assert!(
        apply(&mut mind, run(CheckOutcome::TimedOut)).messages.len() == 1,
        "it says nothing about what was checked"
    );
}

#[test]
fn a_diff_is_told_in_sentences() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("it is the cache"));
    apply(&mut mind, propose("it is the clock"));
    apply(&mut mind, gap(Vec::new(), Criticality::High));
    let before = mind.clone();
    apply(&mut mind, evidence(2, 0.5, "the log"));
    apply(&mut mind, set(1, HypothesisStatus::Rejected));
    apply(&mut mind, BoardMutation::FillGap { gap: GapId(1), answer: "midnight".into() });
    apply(
        &mut mind,
        BoardMutation::AddNote { text: "look at zones".into(), about: Vec::new(), tags: Vec::new() },
    );
    let diff = before.diff(&mind);
    let sentences: Vec<&str> = diff.changes.iter().map(|change| change.sentence.as_str()).collect();
    assert_eq!(
        sentences,
        [
            "H1 went from active to rejected",
            "H2 rose from 0.5 to 0.82 after E1",
            "E1 was added for H2 (+0.5): the log says so",
            "gap G1 is filled, was open: why? → midnight",
            "note N1 was added: look at zones",
        ]
    );
    assert_eq!(diff.summary, "2 hypotheses changed, 1 piece of evidence added, 1 gap filled, 1 note added.");
    assert_eq!(mind.diff(&mind).summary, "Nothing changed.");
}

#[test]
fn both_sides_of_a_merge_are_shown_where_they_part() {
    let mut base = ReasoningBoard::default();
    apply(&mut base, propose("it"));
    apply(
        &mut base,
        BoardMutation::StartExperiment { branch: "try".into(), hypothesis: None, success: "green".into() },
    );
    let (mut ours, mut theirs) = (base.clone(), base.clone());
    apply(&mut ours, set(1, HypothesisStatus::Rejected));
    apply(&mut ours, propose("something of ours"));
    apply(&mut theirs, set(1, HypothesisStatus::Confirmed));
    apply(&mut theirs, propose("something of theirs"));
    apply(&mut theirs, evidence(2, 0.9, "a test"));
    let end = BoardMutation::EndExperiment {
        experiment: ExperimentId(1),
        status: ExperimentStatus::Succeeded,
        result: "it works".into(),
    };
    apply(&mut theirs, end);
    let merged = ours.merge(&base, &theirs, false).unwrap();
    assert_eq!(merged.conflicts.len(), 1);
    assert_eq!(merged.conflicts[0].sentence, "H1 is rejected (it) here and confirmed (it) there");
    assert_eq!(merged.mind.hypotheses.get(1).unwrap().status, HypothesisStatus::Rejected);
    assert_eq!(merged.mind.hypotheses.get(3).unwrap().statement, "something of theirs");
    assert_eq!(merged.mind.evidence.get(1).unwrap().hypothesis, HypothesisId(3), "it refers to its new name");
    assert_eq!(merged.mind.experiments.get(1).unwrap().status, ExperimentStatus::Succeeded);
    let taken = ours.merge(&base, &theirs, true).unwrap();
    assert_eq!(taken.mind.hypotheses.get(1).unwrap().status, HypothesisStatus::Confirmed);
    assert!(taken.conflicts[0].taken);
}

#[test]
fn what_is_still_referred_to_is_not_taken_back() {
    let before = ReasoningBoard::default();
    let mut after = before.clone();
    apply(&mut after, propose("it"));
    let mut now = after.clone();
    apply(&mut now, evidence(1, 0.5, "x"));
    let merged = now.revert(&before, &after).unwrap();
    assert_eq!(merged.conflicts.len(), 1, "{:?}", merged.conflicts);
    assert!(merged.mind.hypotheses.get(1).is_some());
}

#[test]
fn the_page_of_recovery_keeps_to_its_budget_and_has_the_important_first() {
    let mut mind = ReasoningBoard::default();
    for number in 0..200 {
        apply(&mut mind, propose(&format!("hypothesis number {number} about the system")));
        apply(&mut mind, evidence(number + 1, 0.3, &format!("document {number}")));
        apply(&mut mind, gap(Vec::new(), Criticality::Low));
    }
    let around = RecoveryContext {
        heading: vec!["# Where you stood".into()],
        prompt: Some("fix the test".into()),
        closing: vec!["Go on.".into()],
        ..RecoveryContext::default()
    };
    for budget in [0, 100, 500, 2000, 20_000] {
        let page = mind.recovery(&around, budget);
        assert!(page.len() <= budget.max(100) * 3, "{budget}: {}", page.len());
        assert!(page.starts_with("# Where you stood\n"), "{page}");
        assert!(page.ends_with("Go on.\n"), "{page}");
    }
    let page = mind.recovery(&around, 2000);
    assert!(
        page.contains("## Do next") && page.contains("## Open hypotheses") && page.contains("more lines")
    );
}

#[test]
fn a_damaged_or_newer_mind_is_refused() {
    use stepback_model::json;
    let objects = crate::support::Objects::default();
    for (value, what) in [
        (serde_json::json!({ "format": 2 }), "its format is 2"),
        (serde_json::json!({}), "format is missing"),
        (serde_json::json!({ "format": 1, "dreams": [] }), "dreams"),
        (serde_json::json!({ "format": 1, "notes": ["[1]"] }), "page 0 of the notes"),
        (serde_json::json!({ "format": 1, "notes": [5] }), "it is not text"),
        (serde_json::json!({ "format": 1, "notes": ["[]"] }), "it has 0 items"),
    ] {
        let root = json::store(&objects, &value, None).unwrap();
        let error = ReasoningBoard::load(&objects, root).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_picture_is_drawn_around_what_one_looks_at() {
    let mut mind = ReasoningBoard::default();
    apply(&mut mind, propose("it"));
    for _ in 0..9 {
        apply(&mut mind, belief(BeliefKind::Inference, None, None));
    }
    // B1 ← B2 ← B3 … B6, and B7, B8, B9 alone.
    (2..=6).for_each(|number| drop(apply(&mut mind, depend(number, number - 1, 0.5))));
    apply(
        &mut mind,
        BoardMutation::Contradict {
            left: BeliefId(9).into(),
            right: HypothesisId(1).into(),
            reason: "both cannot be".into(),
            severity: Severity::High,
        },
    );
    let names =
        |picture: &Picture| picture.nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let all = mind.picture(None, 100);
    assert_eq!((names(&all).as_str(), all.left_out), ("H1 B1 B2 B3 B4 B5 B6 B7 B8 B9", 0));
    let edges: Vec<String> =
        all.edges.iter().map(|edge| format!("{} {} {}", edge.from, edge.how, edge.to)).collect();
    assert_eq!(edges.len(), 6);
    assert!(
        edges.contains(&"B2 requires B1".to_owned()) && edges.contains(&"H1 contradicts B9".to_owned()),
        "{edges:?}"
    );
    let near = mind.picture(Some(BeliefId(4).into()), 3);
    assert_eq!((names(&near).as_str(), near.left_out), ("B3 B4 B5", 7));
    assert_eq!(near.edges.len(), 2);
    let newest = mind.picture(None, 3);
    assert_eq!(names(&newest), "H1 B8 B9");
    // Items that do not exist, and items that no rule reads.
    assert_eq!(mind.picture(Some(BeliefId(99).into()), 9).nodes, []);
    assert_eq!(mind.picture(None, 0).left_out, 10);
    assert_eq!(ReasoningBoard::default().picture(None, 9), Picture::default());
}

#[test]
fn what_matters_most_comes_first() {
    let mut mind = ReasoningBoard::default();
    for name in ["a", "b", "c", "d"] {
        apply(&mut mind, propose(name));
    }
    apply(&mut mind, evidence(3, 0.8, "book"));
    apply(&mut mind, set(1, HypothesisStatus::Rejected));
    apply(&mut mind, evidence(2, -0.8, "paper"));
    let order = |kind| mind.in_order(kind).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(order(ItemKind::Hypothesis), "H3 H4 H2 H1");
    assert_eq!(order(ItemKind::Evidence), "E2 E1");
    assert_eq!(order(ItemKind::Note), "");
}
