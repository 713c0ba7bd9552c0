//! Gaps, and checks that fill them.

use super::{check_count, check_optional_text, check_word, clip_line, text};
use crate::confidence::{check_range, check_strength};
use crate::error::MindError;
use crate::graph::find_path;
use crate::ids::{GapId, ItemId, RunId, VerificationId};
use crate::item::{
    Check, CheckOutcome, CheckRun, Evidence, EvidenceKind, EvidenceOrigin, Gap, GapStatus, HypothesisStatus,
    ItemOrigin, Measured, OnOutcome, Verification,
};
use crate::mind::ReasoningBoard;
use crate::mutation::{BoardMutation, CheckpointCause, MutationEffect};

/// The longest timeout of a check, in milliseconds: a day.
const MAX_TIMEOUT_MILLIS: u64 = 24 * 60 * 60 * 1000;
/// The longest output kept of a run, in bytes.
pub const KEPT_OUTPUT: usize = 4000;

/// Checks that a path stays inside the workspace.
fn check_inside_workspace(path: &str) -> Result<(), MindError> {
    text("file", path)?;
    match path.starts_with('/') || path.split('/').any(|part| part == "..") {
        true => Err(MindError::Senseless(format!(
            "{path} is outside the workspace: use a path inside it, relative to its root"
        ))),
        false => Ok(()),
    }
}

impl ReasoningBoard {
    pub(super) fn apply_gaps(
        &mut self,
        mutation: &BoardMutation,
        origin: &ItemOrigin,
    ) -> Result<MutationEffect, MindError> {
        match mutation {
            BoardMutation::AddGap { question, kind, criticality, blocks, after, strategy, minutes } => {
                check_count("gaps that it waits for", after.len())?;
                let mut waits = after.clone();
                waits.sort();
                waits.dedup();
                for other in &waits {
                    self.gaps.require(other.0)?;
                }
                let question = text("question", question)?;
                let message = clip_line(&question);
                let minutes = minutes
                    .map(|minutes| check_range("number of minutes", minutes, 0.1, 100_000.0))
                    .transpose()?;
                let id = GapId(self.gaps.push(Gap {
                    question,
                    kind: *kind,
                    criticality: *criticality,
                    status: GapStatus::Open,
                    blocks: self.check_items(blocks)?,
                    after: waits,
                    strategy: check_optional_text("strategy", strategy.as_ref())?,
                    minutes,
                    answer: None,
                    origin: origin.clone(),
                    changed: None,
                })?);
                Ok(MutationEffect::new(id, format!("Added {id} ({}): {message}", criticality.as_str())))
            }
            BoardMutation::GapAfter { gap, after } => {
                self.gaps.require(gap.0)?;
                self.gaps.require(after.0)?;
                if gap == after {
                    return Err(MindError::Itself((*gap).into()));
                }
                let waits = |number: u32| {
                    let after = self.gaps.get(number).map(|gap| gap.after.as_slice());
                    after.unwrap_or_default().iter().map(|gap| gap.0).collect()
                };
                if let Some(path) = find_path(after.0, gap.0, waits) {
                    let circle = std::iter::once(gap.0).chain(path).map(|number| GapId(number).into());
                    return Err(MindError::Cycle(circle.collect()));
                }
                self.gaps.change(gap.0, |entry| {
                    entry.after.push(*after);
                    entry.after.sort();
                    entry.after.dedup();
                })?;
                Ok(MutationEffect::new(*gap, format!("{gap} waits for {after}")))
            }
            BoardMutation::FillGap { gap, answer } => self.fill(*gap, text("answer", answer)?, origin),
            BoardMutation::DropGap { gap, reason } => {
                self.open_gap(*gap)?;
                let reason = text("reason", reason)?;
                let message = format!("Dropped {gap}: {}", clip_line(&reason));
                self.end_gap(*gap, GapStatus::Dropped, reason, origin)?;
                Ok(MutationEffect::new(*gap, message))
            }
            BoardMutation::ReopenGap { gap } => {
                let entry = self.gaps.require(gap.0)?;
                if entry.status == GapStatus::Open {
                    let rule = "only a filled or dropped gap can be reopened".into();
                    return Err(MindError::State { item: (*gap).into(), is: "open", rule });
                }
                self.gaps.change(gap.0, |entry| {
                    entry.status = GapStatus::Open;
                    entry.answer = None;
                    entry.changed = Some(origin.clone());
                })?;
                Ok(MutationEffect::new(*gap, format!("Reopened {gap}")))
            }
            other => self.apply_verifications(other, origin),
        }
    }

    fn apply_verifications(
        &mut self,
        mutation: &BoardMutation,
        origin: &ItemOrigin,
    ) -> Result<MutationEffect, MindError> {
        match mutation {
            BoardMutation::AddVerification { title, check, timeout_ms, inputs, on_pass, on_fail } => {
                let title = text("title", title)?;
                let message = clip_line(&title);
                self.check_check(check)?;
                // Within bounds, so exact as a float.
                check_range("timeout in milliseconds", *timeout_ms as f64, 1.0, MAX_TIMEOUT_MILLIS as f64)?;
                check_count("inputs", inputs.len())?;
                inputs.iter().try_for_each(|input| check_inside_workspace(input))?;
                let id = VerificationId(self.verifications.push(Verification {
                    title,
                    check: check.clone(),
                    timeout_ms: *timeout_ms,
                    inputs:
                        inputs.iter().map(|input| check_word("input", input)).collect::<Result<_, _>>()?,
                    on_pass: self.check_acts(on_pass)?,
                    on_fail: self.check_acts(on_fail)?,
                    origin: origin.clone(),
                })?);
                Ok(MutationEffect::new(id, format!("Added {id}: {message}")))
            }
            BoardMutation::RecordRun { verification, outcome, reason, exit, took_ms, output, key } => {
                let entry = self.verifications.require(verification.0)?.clone();
                let mut output = output.clone();
                stepback_model::clip::text(&mut output, KEPT_OUTPUT);
                let reason = text("reason", reason)?;
                let message = format!("{verification} {}: {}", outcome.as_str(), clip_line(&reason));
                let run = RunId(self.runs.push(CheckRun {
                    verification: *verification,
                    outcome: *outcome,
                    reason: reason.clone(),
                    exit: *exit,
                    took_ms: *took_ms,
                    output,
                    key: key.clone(),
                    origin: origin.clone(),
                })?);
                let mut effect = MutationEffect::new(run, message).with_cause(CheckpointCause::Verification);
                let acts = match outcome {
                    CheckOutcome::Passed => entry.on_pass,
                    CheckOutcome::Failed => entry.on_fail,
                    CheckOutcome::TimedOut | CheckOutcome::Error => Vec::new(),
                };
                for act in acts {
                    self.apply_outcome(
                        *verification,
                        &entry.title,
                        *outcome,
                        &reason,
                        act,
                        &mut effect,
                        origin,
                    )?;
                }
                Ok(effect)
            }
            other => Err(MindError::Senseless(format!("{} does not apply to a gap", other.noun()))),
        }
    }

    fn open_gap(&self, id: GapId) -> Result<&Gap, MindError> {
        let entry = self.gaps.require(id.0)?;
        match entry.status {
            GapStatus::Open => Ok(entry),
            status => {
                Err(MindError::State { item: id.into(), is: status.as_str(), rule: "reopen it first".into() })
            }
        }
    }

    fn end_gap(
        &mut self,
        id: GapId,
        status: GapStatus,
        answer: String,
        origin: &ItemOrigin,
    ) -> Result<(), MindError> {
        self.gaps.change(id.0, |entry| {
            entry.status = status;
            entry.answer = Some(answer);
            entry.changed = Some(origin.clone());
        })
    }

    fn fill(&mut self, id: GapId, answer: String, origin: &ItemOrigin) -> Result<MutationEffect, MindError> {
        let entry = self.open_gap(id)?;
        let waiting = entry
            .after
            .iter()
            .find(|blocker| self.gaps.get(blocker.0).is_some_and(|gap| gap.status == GapStatus::Open));
        let message = format!("Filled {id}: {}", clip_line(&answer));
        let mut effect = MutationEffect::new(id, message).with_cause(CheckpointCause::GapFilled);
        if let Some(blocker) = waiting {
            effect.messages.push(format!("{blocker}, which it waited for, is still open"));
        }
        self.end_gap(id, GapStatus::Filled, answer, origin)?;
        let freed: Vec<ItemId> = self.gaps.get(id.0).map(|gap| gap.blocks.clone()).unwrap_or_default();
        if !freed.is_empty() {
            let names: Vec<String> = freed.iter().map(ToString::to_string).collect();
            effect.messages.push(format!("{} can continue", names.join(", ")));
        }
        Ok(effect)
    }

    fn check_check(&self, check: &Check) -> Result<(), MindError> {
        let check_measured = |measured: &Measured| match measured {
            Measured::File(path) => check_inside_workspace(path),
            Measured::Command(run) => text("command", run).map(drop),
        };
        match check {
            Check::Command { run, exit, contains, lacks } => {
                text("command", run)?;
                check_range("exit code", f64::from(*exit), 0.0, 255.0)?;
                contains.iter().chain(lacks).try_for_each(|part| text("expected text", part).map(drop))
            }
            Check::SameFiles { left, right } => {
                check_inside_workspace(left)?;
                check_inside_workspace(right)
            }
            Check::FileText { path, text: expected, .. } => {
                check_inside_workspace(path)?;
                text("expected text", expected).map(drop)
            }
            Check::Json { from: measured, pointer, .. } => {
                check_measured(measured)?;
                match pointer.is_empty() || pointer.starts_with('/') {
                    true => Ok(()),
                    false => Err(MindError::Senseless(format!(
                        "\"{pointer}\" is not a JSON pointer: it must start with a slash, as in /results/0/name"
                    ))),
                }
            }
            Check::Reference { from: measured, reference, absolute, relative } => {
                check_measured(measured)?;
                check_inside_workspace(reference)?;
                check_range("absolute tolerance", *absolute, 0.0, f64::MAX)?;
                check_range("relative tolerance", *relative, 0.0, f64::MAX).map(drop)
            }
        }
    }

    fn check_acts(&self, acts: &[OnOutcome]) -> Result<Vec<OnOutcome>, MindError> {
        check_count("actions", acts.len())?;
        acts.iter()
            .map(|act| {
                Ok(match act {
                    OnOutcome::Evidence { hypothesis, strength: given } => {
                        self.hypotheses.require(hypothesis.0)?;
                        OnOutcome::Evidence { hypothesis: *hypothesis, strength: check_strength(*given)? }
                    }
                    OnOutcome::Fill(gap) => {
                        self.gaps.require(gap.0)?;
                        OnOutcome::Fill(*gap)
                    }
                    OnOutcome::Halt => OnOutcome::Halt,
                })
            })
            .collect()
    }

    /// Carries out one planned consequence of a run. A consequence that no longer applies is reported and skipped: the run
    /// itself counts.
    #[expect(clippy::too_many_arguments, reason = "it is one outcome")]
    fn apply_outcome(
        &mut self,
        id: VerificationId,
        title: &str,
        outcome: CheckOutcome,
        reason: &str,
        act: OnOutcome,
        effect: &mut MutationEffect,
        origin: &ItemOrigin,
    ) -> Result<(), MindError> {
        match act {
            OnOutcome::Evidence { hypothesis, strength } => {
                match self.hypotheses.get(hypothesis.0).map(|entry| entry.status) {
                    None | Some(HypothesisStatus::Archived) => {
                        effect
                            .messages
                            .push(format!("no evidence was added, because {hypothesis} is not open"));
                    }
                    Some(_) => {
                        let added = self.add_evidence(Evidence {
                            hypothesis,
                            strength,
                            kind: EvidenceKind::Test,
                            text: format!("{title}: {}", outcome.as_str()),
                            source: EvidenceOrigin::Verification(id),
                            withdrawn: None,
                            origin: origin.clone(),
                        })?;
                        effect.messages.extend(added.messages);
                    }
                }
            }
            OnOutcome::Fill(gap) => match self.gaps.get(gap.0).map(|entry| entry.status) {
                Some(GapStatus::Open) => {
                    let filled =
                        self.fill(gap, format!("{title}: {} ({reason})", outcome.as_str()), origin)?;
                    effect.messages.extend(filled.messages);
                    effect.causes.extend(filled.causes);
                }
                _ => effect.messages.push(format!("{gap} was not filled, because it is not open")),
            },
            OnOutcome::Halt => {
                effect.halt = true;
                effect.messages.push("Stopped, as the check declares".to_owned());
            }
        }
        Ok(())
    }
}
