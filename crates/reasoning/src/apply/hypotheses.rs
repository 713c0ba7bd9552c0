//! Hypotheses and their evidence.

use super::{check_count, check_optional_text, check_tags, check_word, clip_line, format_confidence, text};
use crate::confidence::{PRIORS, check_range, check_strength};
use crate::error::MindError;
use crate::ids::{EvidenceId, HypothesisId};
use crate::item::{
    AutoRejected, EarlierWording, Evidence, EvidenceOrigin, Hypothesis, HypothesisStatus, ItemOrigin,
};
use crate::mind::ReasoningBoard;
use crate::mutation::{BoardMutation, CheckpointCause, MutationEffect};

use HypothesisStatus::{Active, Archived, Confirmed, Rejected, Testing};

impl ReasoningBoard {
    pub(super) fn apply_hypotheses(
        &mut self,
        mutation: &BoardMutation,
        origin: &ItemOrigin,
    ) -> Result<MutationEffect, MindError> {
        match mutation {
            BoardMutation::ProposeHypothesis { statement, prior, parents, excludes, tags: given } => {
                check_count("hypotheses that it is a special case of", parents.len())?;
                let mut parents = parents.clone();
                parents.sort();
                parents.dedup();
                for parent in &parents {
                    let entry = self.hypotheses.require(parent.0)?;
                    if entry.status == Rejected {
                        return Err(MindError::State {
                            item: (*parent).into(),
                            is: "rejected",
                            rule: "its special cases are rejected, too; reopen it first".into(),
                        });
                    }
                }
                check_count("hypotheses that it excludes", excludes.len())?;
                let mut excluded = excludes.clone();
                excluded.sort();
                excluded.dedup();
                for other in &excluded {
                    self.hypotheses.require(other.0)?;
                }
                let statement = text("hypothesis", statement)?;
                let message = clip_line(&statement);
                let prior = check_range("prior", *prior, PRIORS.0, PRIORS.1)?;
                let id = HypothesisId(self.hypotheses.push(Hypothesis {
                    statement,
                    status: Active,
                    prior,
                    parents,
                    earlier: Vec::new(),
                    excludes: excluded,
                    tags: check_tags(given)?,
                    reason: None,
                    fallen: None,
                    origin: origin.clone(),
                    changed: None,
                })?);
                Ok(MutationEffect::new(
                    id,
                    format!("Proposed {id} ({}): {message}", format_confidence(prior)),
                ))
            }
            BoardMutation::EditHypothesis { hypothesis, statement } => {
                let statement = text("hypothesis", statement)?;
                let old = self.hypotheses.require(hypothesis.0)?.statement.clone();
                if old == statement {
                    return Err(MindError::Senseless(format!("{hypothesis} says that already")));
                }
                let message = format!("{hypothesis} now says: {}", clip_line(&statement));
                self.hypotheses.change(hypothesis.0, |entry| {
                    entry.earlier.push(EarlierWording { statement: old, replaced: origin.clone() });
                    entry.statement = statement;
                    entry.changed = Some(origin.clone());
                })?;
                Ok(MutationEffect::new(*hypothesis, message))
            }
            BoardMutation::SetHypothesis { hypothesis, status, reason } => {
                self.set_status(*hypothesis, *status, check_optional_text("reason", reason.as_ref())?, origin)
            }
            BoardMutation::AddEvidence { hypothesis, strength: given, text: message, kind, source } => {
                let evidence = Evidence {
                    hypothesis: *hypothesis,
                    strength: check_strength(*given)?,
                    kind: *kind,
                    text: text("evidence", message)?,
                    source: self.check_source(source)?,
                    withdrawn: None,
                    origin: origin.clone(),
                };
                self.add_evidence(evidence)
            }
            BoardMutation::WithdrawEvidence { evidence, reason } => {
                let entry = self.evidence.require(evidence.0)?;
                let hypothesis = entry.hypothesis;
                if entry.withdrawn.is_some() {
                    return Err(MindError::State {
                        item: (*evidence).into(),
                        is: "already withdrawn",
                        rule: "there is nothing left to withdraw".into(),
                    });
                }
                let reason = text("reason", reason)?;
                let confidence_before = self.confidence(hypothesis)?;
                self.evidence.change(evidence.0, |entry| entry.withdrawn = Some(reason))?;
                let moved = describe_shift(hypothesis, confidence_before, self.confidence(hypothesis)?);
                Ok(MutationEffect::new(*evidence, format!("Withdrew {evidence}: {moved}")))
            }
            other => Err(MindError::Senseless(format!("{} does not apply to a hypothesis", other.noun()))),
        }
    }

    /// Adds evidence that is already checked.
    pub(super) fn add_evidence(&mut self, evidence: Evidence) -> Result<MutationEffect, MindError> {
        let hypothesis = evidence.hypothesis;
        let entry = self.hypotheses.require(hypothesis.0)?;
        if entry.status == Archived {
            return Err(MindError::State {
                item: hypothesis.into(),
                is: "archived",
                rule: "reopen it before adding evidence".into(),
            });
        }
        let confidence_before = self.confidence(hypothesis)?;
        let id = EvidenceId(self.evidence.push(evidence)?);
        let moved = describe_shift(hypothesis, confidence_before, self.confidence(hypothesis)?);
        Ok(MutationEffect::new(id, format!("Added {id}: {moved}")))
    }

    fn check_source(&self, source: &EvidenceOrigin) -> Result<EvidenceOrigin, MindError> {
        Ok(match source {
            EvidenceOrigin::Tool { step, tool } => EvidenceOrigin::Tool {
                step: *step,
                tool: tool.as_ref().map(|tool| check_word("name of the tool", tool)).transpose()?,
            },
            EvidenceOrigin::Code { file, line } => {
                EvidenceOrigin::Code { file: text("file", file)?, line: *line }
            }
            EvidenceOrigin::Documentation(location) => {
                EvidenceOrigin::Documentation(text("name of the document", location)?)
            }
            EvidenceOrigin::Reasoning => EvidenceOrigin::Reasoning,
            EvidenceOrigin::Verification(id) => {
                self.verifications.require(id.0)?;
                EvidenceOrigin::Verification(*id)
            }
        })
    }

    fn set_status(
        &mut self,
        id: HypothesisId,
        status: HypothesisStatus,
        reason: Option<String>,
        origin: &ItemOrigin,
    ) -> Result<MutationEffect, MindError> {
        let entry = self.hypotheses.require(id.0)?;
        let old_status = entry.status;
        let allowed: &[HypothesisStatus] = match old_status {
            Active => &[Testing, Confirmed, Rejected, Archived],
            Testing => &[Active, Confirmed, Rejected, Archived],
            Confirmed | Rejected => &[Active, Archived],
            Archived => &[Active],
        };
        if !allowed.contains(&status) {
            let allowed: Vec<&str> = allowed.iter().map(|status| status.as_str()).collect();
            return Err(MindError::State {
                item: id.into(),
                is: old_status.as_str(),
                rule: format!("it can become {}, not {}", allowed.join(", "), status.as_str()),
            });
        }
        if let (Some(fallen), Active) = (&entry.fallen, status)
            && self.hypotheses.get(fallen.with.0).is_some_and(|ancestor| ancestor.status == Rejected)
        {
            return Err(MindError::State {
                item: id.into(),
                is: "rejected",
                rule: format!("it was rejected along with {}; reopen that one to restore it", fallen.with),
            });
        }
        let message = match (status, &reason) {
            (Active, _) => format!("Reopened {id}: {}", clip_line(&entry.statement)),
            (_, Some(reason)) => format!("{id} is {}: {}", status.as_str(), clip_line(reason)),
            (_, None) => format!("{id} is {}: {}", status.as_str(), clip_line(&entry.statement)),
        };
        let mut effect = MutationEffect::new(id, message).with_cause(CheckpointCause::HypothesisStatus);
        self.hypotheses.change(id.0, |entry| {
            entry.status = status;
            entry.fallen = None;
            entry.reason = reason;
            entry.changed = Some(origin.clone());
        })?;
        match (old_status, status) {
            (_, Rejected) => self.reject_special_cases(id, &mut effect, origin)?,
            (Rejected, Active) => self.restore_special_cases(id, &mut effect, origin)?,
            _ => {}
        }
        Ok(effect)
    }

    /// Rejects all open special cases of a rejected hypothesis: if it is false, so are they.
    fn reject_special_cases(
        &mut self,
        id: HypothesisId,
        effect: &mut MutationEffect,
        origin: &ItemOrigin,
    ) -> Result<(), MindError> {
        for child in self.list_special_cases(id) {
            let Some(old_status) = self
                .hypotheses
                .get(child)
                .map(|entry| entry.status)
                .filter(|old_status| old_status.is_open())
            else {
                continue;
            };
            self.hypotheses.change(child, |entry| {
                entry.status = Rejected;
                entry.fallen = Some(AutoRejected { with: id, was: old_status });
                entry.changed = Some(origin.clone());
            })?;
            effect.messages.push(format!("{} was rejected along with it", HypothesisId(child)));
        }
        Ok(())
    }

    /// Restores the status of the hypotheses that were rejected together with this one.
    fn restore_special_cases(
        &mut self,
        id: HypothesisId,
        effect: &mut MutationEffect,
        origin: &ItemOrigin,
    ) -> Result<(), MindError> {
        let fell =
            |h: &Hypothesis| h.fallen.as_ref().filter(|fallen| fallen.with == id).map(|fallen| fallen.was);
        let restored: Vec<(u32, HypothesisStatus)> =
            self.hypotheses.iter().filter_map(|(number, h)| Some((number, fell(h)?))).collect();
        for (child, old_status) in restored {
            // A special case of two that are rejected stays rejected with the other one.
            if let Some(other) = self.rejected_ancestor(child) {
                self.hypotheses.change(child, |entry| {
                    entry.fallen = Some(AutoRejected { with: other, was: old_status });
                })?;
                effect.messages.push(format!("{} stays rejected along with {other}", HypothesisId(child)));
                continue;
            }
            self.hypotheses.change(child, |entry| {
                entry.status = old_status;
                entry.fallen = None;
                entry.changed = Some(origin.clone());
            })?;
            effect.messages.push(format!("{} was reopened along with it", HypothesisId(child)));
        }
        Ok(())
    }

    /// A rejected hypothesis of which this one is a special case, directly or not, that was not itself rejected along with
    /// another one.
    fn rejected_ancestor(&self, number: u32) -> Option<HypothesisId> {
        let mut wave = self.hypotheses.get(number)?.parents.clone();
        let mut seen: Vec<HypothesisId> = Vec::new();
        while let Some(id) = wave.pop() {
            let Some(entry) = self.hypotheses.get(id.0).filter(|_| !seen.contains(&id)) else { continue };
            if entry.status == Rejected && entry.fallen.is_none() {
                return Some(id);
            }
            seen.push(id);
            wave.extend(&entry.parents);
        }
        None
    }

    /// All special cases of a hypothesis, transitively.
    fn list_special_cases(&self, id: HypothesisId) -> Vec<u32> {
        let mut descendants = Vec::new();
        let mut wave = vec![id.0];
        while let Some(current) = wave.pop() {
            // A hypothesis has a higher number than its parent, so this terminates.
            let children = self
                .hypotheses
                .iter()
                .filter(|(number, h)| h.parents.contains(&HypothesisId(current)) && *number > current);
            let children: Vec<u32> = children.map(|(number, _)| number).collect();
            descendants.extend(&children);
            wave.extend(children);
        }
        descendants.sort_unstable();
        descendants.dedup();
        descendants
    }
}

/// A sentence about how the confidence of a hypothesis changed.
fn describe_shift(id: HypothesisId, before: f64, after: f64) -> String {
    let (old, new) = (format_confidence(before), format_confidence(after));
    match after.total_cmp(&before) {
        std::cmp::Ordering::Greater => format!("{id} rose from {old} to {new}"),
        std::cmp::Ordering::Less => format!("{id} fell from {old} to {new}"),
        std::cmp::Ordering::Equal => {
            format!("{id} stays at {new}, because its source already counts as strongly")
        }
    }
}
