//! What must hold whatever is thought, in whatever order.

use crate::support::{Objects, arbitrary, belief, depend, evidence, origin, propose};
use proptest::prelude::*;
use stepback_reasoning::ids::{BeliefId, EvidenceId, HypothesisId};
use stepback_reasoning::item::BeliefKind;
use stepback_reasoning::{BoardMutation, MindError, ReasoningBoard};

/// A mind after these changes, as far as they were not refused.
fn after(changes: &[(u8, u32, u32, f64)]) -> ReasoningBoard {
    let mut mind = ReasoningBoard::default();
    for (number, (kind, a, b, x)) in changes.iter().enumerate() {
        let _ = mind.apply(&arbitrary(*kind, *a, *b, *x), &origin(number as u64));
    }
    mind
}

fn changes(most: usize) -> impl Strategy<Value = Vec<(u8, u32, u32, f64)>> {
    prop::collection::vec((any::<u8>(), 0u32..12, 0u32..12, -1.0..=1.0), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_evidence_does_not_matter_to_the_last_bit(
        said in prop::collection::vec((-1.0..=1.0f64, 0u8..6), 0..40),
        seed in any::<u64>(),
    ) {
        let confidence = |said: &[(f64, u8)]| {
            let mut mind = ReasoningBoard::default();
            mind.apply(&propose("it"), &origin(0)).unwrap();
            for (at, (strength, source)) in said.iter().enumerate() {
                mind.apply(&evidence(1, *strength, &source.to_string()), &origin(at as u64 + 1)).unwrap();
            }
            mind.confidence(HypothesisId(1)).unwrap()
        };
        let mut shuffled = said.clone();
        let mut state = seed;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(at, (state >> 33) as usize % (at + 1));
        }
        let (one, other) = (confidence(&said), confidence(&shuffled));
        prop_assert_eq!(one.to_bits(), other.to_bits());
        prop_assert!((0.0001..=0.9999).contains(&one));
        let mut repeated = said.clone();
        repeated.extend(&said);
        prop_assert_eq!(confidence(&repeated).to_bits(), one.to_bits(), "saying it again adds nothing");
    }

    #[test]
    fn evidence_that_is_withdrawn_leaves_no_trace(
        stays in prop::collection::vec(-1.0..=1.0f64, 0..20),
        goes in prop::collection::vec(-1.0..=1.0f64, 1..20),
    ) {
        let mut mind = ReasoningBoard::default();
        mind.apply(&propose("it"), &origin(0)).unwrap();
        for (at, strength) in stays.iter().enumerate() {
            mind.apply(&evidence(1, *strength, &format!("stays {at}")), &origin(1)).unwrap();
        }
        let before = mind.confidence(HypothesisId(1)).unwrap();
        for _ in 0..3 {
            for (at, strength) in goes.iter().enumerate() {
                mind.apply(&evidence(1, *strength, &format!("goes {at}")), &origin(2)).unwrap();
                let newest = EvidenceId(mind.evidence.newest());
                let withdraw = BoardMutation::WithdrawEvidence { evidence: newest, reason: "wrong".into() };
                mind.apply(&withdraw, &origin(3)).unwrap();
            }
            prop_assert_eq!(mind.confidence(HypothesisId(1)).unwrap().to_bits(), before.to_bits());
        }
    }

    #[test]
    fn more_evidence_for_it_never_makes_it_less_likely(
        said in prop::collection::vec((-1.0..=1.0f64, 0u8..6), 0..20),
        strength in 0.0..=1.0f64,
    ) {
        let mut mind = ReasoningBoard::default();
        mind.apply(&propose("it"), &origin(0)).unwrap();
        for (strength, source) in &said {
            mind.apply(&evidence(1, *strength, &source.to_string()), &origin(1)).unwrap();
        }
        let before = mind.confidence(HypothesisId(1)).unwrap();
        mind.apply(&evidence(1, strength, "new"), &origin(2)).unwrap();
        prop_assert!(mind.confidence(HypothesisId(1)).unwrap() >= before);
    }

    #[test]
    fn circles_are_refused_and_nothing_else_is(edges in prop::collection::vec((1u32..10, 1u32..10), 0..60)) {
        let mut mind = ReasoningBoard::default();
        for _ in 1..10 {
            mind.apply(&belief(BeliefKind::Inference, None, None), &origin(0)).unwrap();
        }
        let mut known: Vec<(u32, u32)> = Vec::new();
        let reaches = |known: &[(u32, u32)], from: u32, to: u32| {
            let (mut seen, mut wave) = (vec![from], vec![from]);
            while let Some(at) = wave.pop() {
                for (_, next) in known.iter().filter(|(start, _)| *start == at) {
                    if !seen.contains(next) {
                        seen.push(*next);
                        wave.push(*next);
                    }
                }
            }
            seen.contains(&to)
        };
        for (from, to) in edges {
            match mind.apply(&depend(from, to, 0.5), &origin(1)) {
                Ok(_) => {
                    prop_assert!(!reaches(&known, to, from));
                    known.push((from, to));
                }
                Err(MindError::Itself(_)) => prop_assert_eq!(from, to),
                Err(MindError::Cycle(path)) => {
                    prop_assert!(reaches(&known, to, from));
                    prop_assert_eq!(path.first(), path.last(), "it is shown as a circle");
                    for pair in path.windows(2) {
                        let edge = (pair[0].number, pair[1].number);
                        prop_assert!(edge == (from, to) || known.contains(&edge), "{edge:?} is no dependency");
                    }
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
        // What falls with a belief is exactly what leads to it.
        for number in 1..10 {
            let impact = mind.impact(BeliefId(number)).unwrap();
            let mut shaken: Vec<u32> = impact.shaken.iter().map(|shaken| shaken.belief.0).collect();
            shaken.sort_unstable();
            let expected: Vec<u32> = (1..10).filter(|at| *at != number && reaches(&known, *at, number)).collect();
            prop_assert_eq!(shaken, expected);
            for shaken in impact.shaken {
                prop_assert!((0.0..=1.0).contains(&shaken.now) && shaken.then <= shaken.now);
            }
        }
    }

    #[test]
    fn a_mind_is_stored_as_what_it_is_however_it_came_about(all in changes(200)) {
        let objects = Objects::default();
        let mut mind = ReasoningBoard::default();
        let mut place = None;
        let mut versions = Vec::new();
        for (number, (kind, a, b, x)) in all.iter().enumerate() {
            if mind.apply(&arbitrary(*kind, *a, *b, *x), &origin(number as u64)).is_ok() {
                let written = mind.store(&objects, place.as_ref()).unwrap();
                mind.committed(&written);
                versions.push((written.place.root.unwrap(), mind.clone()));
                place = Some(written.place);
            }
        }
        let mut read = ReasoningBoard::default();
        for (at, (root, mind)) in versions.iter().enumerate() {
            let (loaded, _) = ReasoningBoard::load(&objects, *root).unwrap();
            prop_assert_eq!(&loaded, mind);
            // Read by a caller that has another version, earlier or later.
            let next = read.load_other(&objects, *root).unwrap().0;
            prop_assert_eq!(&next, mind);
            let changed = |number: &u32| read.confidence(HypothesisId(*number)).ok() != next.confidence(HypothesisId(*number)).ok();
            let touched = read.hypotheses_touched(&next);
            let newest = read.hypotheses.newest().max(next.hypotheses.newest());
            prop_assert!((1..=newest).filter(changed).all(|number| touched.contains(&number)));
            let all = next.confidences();
            let some = next.confidences_of(|number| touched.contains(&number));
            prop_assert!(some.iter().all(|(number, confidence)| all[number].to_bits() == confidence.to_bits()));
            read = next;
            if at % 3 == 0 {
                read = versions[versions.len() - 1].1.clone();
            }
            // Written all at once, without knowing any earlier version.
            let reloaded: ReasoningBoard = loaded;
            let written = reloaded.store(&Objects::default(), None).unwrap();
            prop_assert_eq!(written.place.root, Some(*root));
        }
    }

    #[test]
    fn taking_back_a_change_leads_to_what_was_before_it(all in changes(60), last in (any::<u8>(), 0u32..12, 0u32..12, -1.0..=1.0)) {
        let before = after(&all);
        let mut now = before.clone();
        let (kind, a, b, x) = last;
        if now.apply(&arbitrary(kind, a, b, x), &origin(1000)).is_ok() {
            let merged = now.revert(&before, &now).unwrap();
            prop_assert!(merged.conflicts.is_empty(), "{:?}", merged.conflicts);
            prop_assert_eq!(merged.mind.document(), before.document());
        }
    }

    #[test]
    fn what_two_branches_found_out_is_all_there_after_a_merge(
        base in changes(40),
        ours in changes(20),
        theirs in changes(20),
    ) {
        let base = after(&base);
        let grow = |more: &[(u8, u32, u32, f64)], from: u64| {
            let mut mind = base.clone();
            for (number, (kind, a, b, x)) in more.iter().enumerate() {
                let _ = mind.apply(&arbitrary(*kind, *a, *b, *x), &origin(from + number as u64));
            }
            mind
        };
        let (ours, theirs) = (grow(&ours, 10_000), grow(&theirs, 20_000));
        let merged = ours.merge(&base, &theirs, false).unwrap();
        let added = |mind: &ReasoningBoard| mind.count() - base.count();
        prop_assert_eq!(merged.mind.count(), base.count() + added(&ours) + added(&theirs));
        for item in ours.items() {
            prop_assert!(merged.mind.expect(item).is_ok(), "{item} of ours is gone");
        }
        for (_, here) in &merged.renamed {
            prop_assert!(merged.mind.expect(*here).is_ok());
        }
        // A second merge of the same board only adds new items: everything else is merged already.
        let again = merged.mind.merge(&theirs, &theirs, false).unwrap();
        prop_assert_eq!(again.mind.document(), merged.mind.document());
        // A merged mind is one that can be stored and read.
        let objects = Objects::default();
        let root = merged.mind.store(&objects, None).unwrap().place.root.unwrap();
        prop_assert_eq!(ReasoningBoard::load(&objects, root).unwrap().0, merged.mind);
    }

    #[test]
    fn a_refused_change_changes_nothing(all in changes(60), last in (any::<u8>(), 0u32..20, 0u32..20, -1.0..=1.0)) {
        let before = after(&all);
        let mut now = before.clone();
        let (kind, a, b, x) = last;
        if now.apply(&arbitrary(kind, a, b, x), &origin(1000)).is_err() {
            prop_assert_eq!(now, before);
        }
    }
}
