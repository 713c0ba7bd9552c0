//! What to do next, ranked by score.
//!
//! Every open item gets a score, and the highest comes first:
//!
//! - a **gap** that waits for no other: its criticality (1, 2, 4 or 8), times one more than what it holds up, gaps behind it
//!   included, divided by how long it takes (1 for up to ten minutes, 2 for twenty, …);
//! - a **hypothesis** that is open: how much there is to learn, in bits (1 at 0.5, less towards certainty), times one more than
//!   the hypotheses that stand and fall with it, times 2, and once more times 1.5 if a check of it is ready to be run;
//! - a **contradiction** that is open: its severity (1, 2, 4 or 8), times 1.5.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::apply::{clip_line, format_confidence};
use crate::ids::{ContradictionId, GapId, HypothesisId, ItemId, VerificationId};
use crate::item::{ContradictionStatus, Gap, GapStatus, OnOutcome};
use crate::mind::ReasoningBoard;

/// A suggested next action.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SuggestedAction {
    /// The item it is about.
    pub item: ItemId,
    /// What to do.
    pub what: String,
    /// Why it is suggested.
    pub why: String,
    /// A command that does it, or with which it ends.
    pub command: String,
    /// The score: how much there is to gain.
    pub score: f64,
}

impl ReasoningBoard {
    /// Suggested next actions, the best first.
    pub fn next_actions(&self) -> Vec<SuggestedAction> {
        let mut actions = self.gap_actions();
        actions.extend(self.hypothesis_actions());
        actions.extend(self.contradiction_actions());
        actions.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.item.cmp(&b.item)));
        actions
    }

    /// Gaps that can be filled now, the best first.
    pub fn gap_actions(&self) -> Vec<SuggestedAction> {
        let is_open = |id: &GapId| self.gaps.get(id.0).is_some_and(|gap| gap.status == GapStatus::Open);
        let mut actions: Vec<SuggestedAction> = self
            .gaps
            .iter()
            .filter(|(number, gap)| is_open(&GapId(*number)) && !gap.after.iter().any(is_open))
            .map(|(number, gap)| self.gap_action(GapId(number), gap))
            .collect();
        actions.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.item.cmp(&b.item)));
        actions
    }

    fn gap_action(&self, id: GapId, gap: &Gap) -> SuggestedAction {
        let (held_up, behind) = self.held_up(id);
        let effort = (gap.minutes.unwrap_or(10.0) / 10.0).max(1.0);
        let score = gap.criticality.weight() * (1.0 + held_up.len() as f64 + behind as f64) / effort;
        let plan = self.plan_for(|act| matches!(act, OnOutcome::Fill(gap) if *gap == id));
        let mut reason = format!("it is {}", gap.criticality.as_str());
        if !held_up.is_empty() {
            let names: Vec<ItemId> = held_up.into_iter().collect();
            reason.push_str(&format!(" and blocks {}", crate::diff::list_names(&names)));
        }
        if behind > 0 {
            reason.push_str(&format!(
                "; {behind} more gap{} wait{} for it",
                plural_ending(behind),
                if behind == 1 { "s" } else { "" }
            ));
        }
        let (action, command) = match (plan, &gap.strategy) {
            (Some(plan), _) => (
                format!("run {plan} to answer: {}", clip_line(&gap.question)),
                format!("stepback board verify run {plan}"),
            ),
            (None, Some(strategy)) => (
                format!("answer: {} ({})", clip_line(&gap.question), clip_line(strategy)),
                format!("stepback board gap fill {id} \"…\""),
            ),
            (None, None) => (
                format!("answer: {}", clip_line(&gap.question)),
                format!("stepback board gap fill {id} \"…\""),
            ),
        };
        SuggestedAction { item: id.into(), what: action, why: reason, command, score }
    }

    /// The items that a gap and the gaps behind it hold up, and the number of these gaps.
    fn held_up(&self, id: GapId) -> (BTreeSet<ItemId>, usize) {
        let mut visited = BTreeSet::from([id]);
        let mut wave = vec![id];
        let mut items = BTreeSet::new();
        while let Some(current) = wave.pop() {
            items.extend(self.gaps.get(current.0).into_iter().flat_map(|gap| gap.blocks.iter().copied()));
            for (number, _) in self
                .gaps
                .iter()
                .filter(|(_, gap)| gap.status == GapStatus::Open && gap.after.contains(&current))
            {
                if visited.insert(GapId(number)) {
                    wave.push(GapId(number));
                }
            }
        }
        (items, visited.len() - 1)
    }

    /// The newest check that has such a consequence and was not run yet.
    fn plan_for(&self, test: impl Fn(&OnOutcome) -> bool) -> Option<VerificationId> {
        let was_run = |id: VerificationId| self.runs.iter().any(|(_, run)| run.verification == id);
        self.verifications
            .iter()
            .rev()
            .filter(|(_, plan)| plan.on_pass.iter().chain(&plan.on_fail).any(&test))
            .map(|(number, _)| VerificationId(number))
            .find(|id| !was_run(*id))
    }

    /// Hypotheses to test, the best first.
    pub fn hypothesis_actions(&self) -> Vec<SuggestedAction> {
        let confidences = self.confidences();
        let mut actions: Vec<SuggestedAction> = self
            .hypotheses
            .iter()
            .filter(|(_, hypothesis)| hypothesis.status.is_open())
            .map(|(number, hypothesis)| {
                let id = HypothesisId(number);
                let sure = confidences.get(&number).copied().unwrap_or(0.5);
                let descendants = self
                    .hypotheses
                    .iter()
                    .filter(|(_, h)| h.parents.contains(&id) && h.status.is_open())
                    .count();
                let plan = self.plan_for(
                    |act| matches!(act, OnOutcome::Evidence { hypothesis, .. } if *hypothesis == id),
                );
                let ready = if plan.is_some() { 1.5 } else { 1.0 };
                let bits = entropy_bits(sure);
                let mut reason =
                    format!("at {}, testing it yields up to {bits:.2} bits", format_confidence(sure));
                if descendants > 0 {
                    reason
                        .push_str(&format!("; {descendants} more depend{} on it", verb_ending(descendants)));
                }
                let (action, command) = match plan {
                    Some(plan) => (
                        format!("run {plan} to test {id}: {}", clip_line(&hypothesis.statement)),
                        format!("stepback board verify run {plan}"),
                    ),
                    None => (
                        format!("test {id}: {}", clip_line(&hypothesis.statement)),
                        format!("stepback board evidence add {id} \"…\" --strength …"),
                    ),
                };
                SuggestedAction {
                    item: id.into(),
                    what: action,
                    why: reason,
                    command,
                    score: bits * (1.0 + descendants as f64) * 2.0 * ready,
                }
            })
            .collect();
        actions.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.item.cmp(&b.item)));
        actions
    }

    fn contradiction_actions(&self) -> Vec<SuggestedAction> {
        self.contradictions
            .iter()
            .filter(|(_, contradiction)| contradiction.status == ContradictionStatus::Open)
            .map(|(number, contradiction)| {
                let id = ContradictionId(number);
                SuggestedAction {
                    item: id.into(),
                    what: format!("resolve {id}: {}", contradiction.suggestion),
                    why: format!(
                        "{} ({})",
                        clip_line(&contradiction.reason),
                        contradiction.severity.as_str()
                    ),
                    command: format!("stepback board contradiction resolve {id} \"…\""),
                    score: contradiction.severity.weight() * 1.5,
                }
            })
            .collect()
    }
}

/// The information, in bits, gained from learning whether something of this probability is true.
fn entropy_bits(p: f64) -> f64 {
    let part = |p: f64| if p <= 0.0 || p >= 1.0 { 0.0 } else { -p * p.log2() };
    part(p) + part(1.0 - p)
}

fn plural_ending(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The ending of a verb that goes with `count`.
fn verb_ending(count: usize) -> &'static str {
    if count == 1 { "s" } else { "" }
}
