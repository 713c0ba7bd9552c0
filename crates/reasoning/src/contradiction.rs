//! Detects contradictions by rules, whenever an item changes that can take part in one.
//!
//! Only rules without doubt are used; two statements in prose are never compared. The rules detect:
//!
//! - an expectation and the newest observation of the same subject, where the value seen is not the value expected, or is out of
//!   the expected range;
//! - two expectations of the same subject that no value can meet;
//! - two observations of the same subject, one after the other, that cannot both be true;
//! - two confirmed hypotheses of which one excludes the other;
//! - a confirmed hypothesis that is a special case of a rejected one.
//!
//! A detected contradiction is resolved automatically when its rule no longer holds.

use crate::apply::clip_line;
use crate::error::MindError;
use crate::ids::{BeliefId, ContradictionId, HypothesisId, ItemId, ItemKind};
use crate::item::{
    Belief, BeliefKind, BeliefStatus, Contradiction, ContradictionStatus, HypothesisStatus, ItemOrigin,
    Measure, Severity,
};
use crate::mind::ReasoningBoard;
use crate::mutation::{CheckpointCause, MutationEffect};

/// Whether two values can both be true.
fn is_compatible(a: &Measure, b: &Measure) -> bool {
    use Measure::{Flag, Number, Range, Word};
    match (a, b) {
        (Number(a), Number(b)) => a == b,
        (Range(from, to), Number(n)) | (Number(n), Range(from, to)) => from <= n && n <= to,
        (Range(a, b), Range(c, d)) => a <= d && c <= b,
        (Flag(a), Flag(b)) => a == b,
        (Word(a), Word(b)) => a == b,
        // A number and a word about the same subject describe different aspects of it: that is not a contradiction.
        _ => true,
    }
}

/// A value, formatted for a sentence.
pub fn said(value: &Measure) -> String {
    match value {
        Measure::Number(number) => number.to_string(),
        Measure::Range(from, to) => format!("{from} to {to}"),
        Measure::Flag(flag) => flag.to_string(),
        Measure::Word(word) => format!("\"{}\"", clip_line(word)),
    }
}

/// A contradiction that a rule detected.
struct DetectedContradiction {
    left: ItemId,
    right: ItemId,
    reason: String,
    severity: Severity,
}

impl ReasoningBoard {
    /// Detects contradictions that the item takes part in, and resolves those whose rule no longer holds.
    pub(crate) fn watch_for_contradictions(
        &mut self,
        item: ItemId,
        effect: &mut MutationEffect,
        origin: &ItemOrigin,
    ) -> Result<(), MindError> {
        let detected = match item.kind {
            ItemKind::Belief => self.detect_around_belief(BeliefId(item.number)),
            ItemKind::Hypothesis => self.detect_around_hypotheses(),
            _ => return Ok(()),
        };
        let resolved: Vec<u32> = self
            .contradictions
            .iter()
            .filter(|(_, c)| c.detected && c.status == ContradictionStatus::Open)
            .filter(|(_, c)| c.left.kind == item.kind && self.can_resolve(item, c))
            .filter(|(_, c)| {
                !detected.iter().any(|detected| (detected.left, detected.right) == (c.left, c.right))
            })
            .map(|(number, _)| number)
            .collect();
        for number in resolved {
            self.contradictions.change(number, |is_settled| {
                is_settled.status = ContradictionStatus::Resolved;
                is_settled.resolution = Some("it no longer holds".to_owned());
            })?;
            effect.messages.push(format!("{} is resolved: it no longer holds", ContradictionId(number)));
        }
        for DetectedContradiction { left, right, reason, severity } in detected {
            // A settled contradiction stays settled until the two items change in a way that makes another one.
            let is_settled = |c: &Contradiction| {
                (c.left, c.right) == (left, right)
                    && (c.status != ContradictionStatus::Resolved || !c.detected || c.reason == reason)
                    && c.resolution.as_deref() != Some("it no longer holds")
            };
            if self.contradictions.iter().any(|(_, c)| is_settled(c)) {
                continue;
            }
            let message = format!("{left} and {right} contradict each other: {reason}");
            let suggestion = self.suggestion(left, right);
            let id = ContradictionId(self.contradictions.push(Contradiction {
                left,
                right,
                reason,
                severity,
                status: ContradictionStatus::Open,
                detected: true,
                suggestion,
                resolution: None,
                origin: origin.clone(),
            })?);
            effect.messages.push(format!("{message} ({id})"));
            effect.causes.push(CheckpointCause::Contradiction);
        }
        Ok(())
    }

    /// Whether a change of the item can end the contradiction.
    fn can_resolve(&self, item: ItemId, contradiction: &Contradiction) -> bool {
        if item.kind == ItemKind::Hypothesis || contradiction.left == item || contradiction.right == item {
            return true;
        }
        // A newer observation replaces an older one.
        let subject = |item: ItemId| self.beliefs.get(item.number).and_then(|belief| belief.subject.clone());
        subject(item).is_some() && subject(item) == subject(contradiction.left)
    }

    /// All contradictions around the subject of a belief.
    fn detect_around_belief(&self, id: BeliefId) -> Vec<DetectedContradiction> {
        let Some(subject) = self.beliefs.get(id.0).and_then(|belief| belief.subject.clone()) else {
            return Vec::new();
        };
        let related: Vec<(BeliefId, &Belief, &Measure)> = self
            .beliefs
            .iter()
            .filter(|(_, belief)| {
                belief.status == BeliefStatus::Held && belief.subject.as_ref() == Some(&subject)
            })
            .filter_map(|(number, belief)| Some((BeliefId(number), belief, belief.value.as_ref()?)))
            .collect();
        let expected: Vec<_> = related.iter().filter(|(_, b, _)| b.kind == BeliefKind::Expectation).collect();
        let observations: Vec<_> =
            related.iter().filter(|(_, b, _)| b.kind == BeliefKind::Observation).collect();
        let observation = observations.last();
        let mut detected = Vec::new();
        let pair = |a: BeliefId, b: BeliefId| (ItemId::from(a.min(b)), ItemId::from(a.max(b)));
        for (index, (expects, _, expected_measure)) in expected.iter().enumerate() {
            if let Some((sees, _, value)) =
                observation.filter(|(_, _, value)| !is_compatible(expected_measure, value))
            {
                let (left, right) = pair(*expects, *sees);
                let reason = format!(
                    "{subject} should be {} and is {}",
                    self::said(expected_measure),
                    self::said(value)
                );
                detected.push(DetectedContradiction { left, right, reason, severity: Severity::High });
            }
            for (other, _, other_measure) in expected
                .iter()
                .skip(index + 1)
                .filter(|(_, _, other_measure)| !is_compatible(expected_measure, other_measure))
            {
                let (left, right) = pair(*expects, *other);
                let reason = format!(
                    "{subject} cannot be {} and {} at once",
                    self::said(expected_measure),
                    self::said(other_measure)
                );
                detected.push(DetectedContradiction { left, right, reason, severity: Severity::Medium });
            }
        }
        // Each with the one before it: what was seen last stands, and what it replaced is to be retracted or explained.
        for pair_seen in observations.windows(2) {
            let [(older, _, old_measure), (newer, _, new_measure)] = pair_seen else { continue };
            if !is_compatible(old_measure, new_measure) {
                let (left, right) = pair(*older, *newer);
                let reason = format!(
                    "{subject} was seen as {} and then as {}",
                    self::said(old_measure),
                    self::said(new_measure)
                );
                detected.push(DetectedContradiction { left, right, reason, severity: Severity::Medium });
            }
        }
        detected
    }

    /// All contradictions among hypotheses.
    fn detect_around_hypotheses(&self) -> Vec<DetectedContradiction> {
        let confirmed = |id: HypothesisId| {
            self.hypotheses.get(id.0).is_some_and(|other| other.status == HypothesisStatus::Confirmed)
        };
        let mut exclusions = Vec::new();
        for (number, hypothesis) in self.hypotheses.iter() {
            if hypothesis.status != HypothesisStatus::Confirmed {
                continue;
            }
            let id = HypothesisId(number);
            for other in hypothesis.excludes.iter().copied().filter(|other| *other != id && confirmed(*other))
            {
                let (left, right) = (ItemId::from(id.min(other)), ItemId::from(id.max(other)));
                let reason = format!("{left} and {right} exclude each other, and both are confirmed");
                if !exclusions.iter().any(|exclusions: &DetectedContradiction| {
                    (exclusions.left, exclusions.right) == (left, right)
                }) {
                    exclusions.push(DetectedContradiction {
                        left,
                        right,
                        reason,
                        severity: Severity::Critical,
                    });
                }
            }
            let rejected = hypothesis.parents.iter().copied().filter(|parent| {
                self.hypotheses
                    .get(parent.0)
                    .is_some_and(|parent_item| parent_item.status == HypothesisStatus::Rejected)
            });
            for parent in rejected {
                let reason =
                    format!("{id} is confirmed, and {parent}, of which it is a special case, is rejected");
                let (left, right) = (parent.min(id).into(), parent.max(id).into());
                exclusions.push(DetectedContradiction { left, right, reason, severity: Severity::Critical });
            }
        }
        exclusions
    }

    /// A suggestion for resolving a contradiction: doubt the side that is less certain.
    pub(crate) fn suggestion(&self, left: ItemId, right: ItemId) -> String {
        let (effective, confidences) = (self.effective(), self.confidences());
        let sure = |item: ItemId| match item.kind {
            ItemKind::Belief => effective.get(&item.number).copied(),
            ItemKind::Hypothesis => confidences.get(&item.number).copied(),
            _ => None,
        };
        let act = |item: ItemId| match item.kind {
            ItemKind::Belief => {
                let roots = self.roots(BeliefId(item.number)).unwrap_or_default();
                match roots.first() {
                    Some(root) => {
                        format!("check {item} again, starting with {}, on which it depends", root.belief)
                    }
                    None => format!("check {item} again; retract it if it is wrong"),
                }
            }
            ItemKind::Hypothesis => format!("reopen {item} and test it"),
            _ => format!("review {item}"),
        };
        let is_seen = |item: ItemId| {
            item.kind == ItemKind::Belief
                && self.beliefs.get(item.number).is_some_and(|belief| belief.kind == BeliefKind::Observation)
        };
        // An observation outweighs an expectation.
        let doubted = match (is_seen(left), is_seen(right)) {
            (true, false) => right,
            (false, true) => left,
            _ => match (sure(left), sure(right)) {
                (Some(a), Some(b)) if a > b => right,
                _ => left,
            },
        };
        act(doubted)
    }
}
