//! Applies changes to a mind: a total function that either succeeds or changes nothing.

mod beliefs;
mod gaps;
mod hypotheses;

use stepback_model::clip;

use crate::error::MindError;
use crate::ids::{ExperimentId, ItemId, NoteId};
use crate::item::{Experiment, ExperimentStatus, ItemOrigin, Note};
use crate::mind::ReasoningBoard;
use crate::mutation::{BoardMutation, CheckpointCause, MutationEffect};

/// The longest statement, question or text, in bytes.
const MAX_TEXT_BYTES: usize = 10_000;
/// The longest tag or subject, in bytes.
const MAX_WORD_BYTES: usize = 200;
/// The most names in one list.
const MAX_NAMES: usize = 1000;

/// Checks a text that must not be blank.
fn text(what: &'static str, text: &str) -> Result<String, MindError> {
    let text = text.trim();
    let invalid = |how: String| Err(MindError::Text { what, how });
    if text.is_empty() {
        return invalid("is empty".into());
    }
    if text.len() > MAX_TEXT_BYTES {
        return invalid(format!(
            "is longer than {MAX_TEXT_BYTES} bytes; shorten it, and put the rest in a file"
        ));
    }
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return invalid("contains control characters".into());
    }
    Ok(text.to_owned())
}

/// The same for an optional text.
fn check_optional_text(what: &'static str, value: Option<&String>) -> Result<Option<String>, MindError> {
    value.map(|value| text(what, value)).transpose()
}

/// Checks a short text on one line.
fn check_word(what: &'static str, value: &str) -> Result<String, MindError> {
    let word = text(what, value)?;
    if word.len() > MAX_WORD_BYTES || word.contains('\n') {
        return Err(MindError::Text {
            what,
            how: format!("must be one line of at most {MAX_WORD_BYTES} bytes"),
        });
    }
    Ok(word)
}

/// Tags without duplicates, in the order given.
fn check_tags(given: &[String]) -> Result<Vec<String>, MindError> {
    check_count("tags", given.len())?;
    let mut tags = Vec::new();
    for tag in given {
        let tag = check_word("tag", tag)?;
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    Ok(tags)
}

fn check_count(what: &'static str, count: usize) -> Result<(), MindError> {
    match count > MAX_NAMES {
        true => Err(MindError::TooMany { what, most: MAX_NAMES, remedy: "use fewer" }),
        false => Ok(()),
    }
}

/// A probability, formatted for a sentence.
pub(crate) fn format_confidence(confidence: f64) -> String {
    let text = format!("{confidence:.2}");
    text.strip_suffix('0').map_or(text.clone(), str::to_owned)
}

/// A text, cut short enough for a line.
pub(crate) fn clip_line(text: &str) -> String {
    const WIDTH: usize = 100;
    let line = text.lines().next().unwrap_or_default();
    match clip::first(line, WIDTH) {
        first_line if first_line == line && text.lines().nth(1).is_some() => format!("{line}…"),
        short => short,
    }
}

impl ReasoningBoard {
    /// Applies a change and returns its effects. If it is refused, nothing has changed.
    pub fn apply(
        &mut self,
        mutation: &BoardMutation,
        origin: &ItemOrigin,
    ) -> Result<MutationEffect, MindError> {
        let mut next = self.clone();
        let mut effect = next.try_apply(mutation, origin)?;
        next.watch_for_contradictions(effect.item, &mut effect, origin)?;
        effect.causes.sort();
        effect.causes.dedup();
        *self = next;
        Ok(effect)
    }

    fn try_apply(
        &mut self,
        mutation: &BoardMutation,
        origin: &ItemOrigin,
    ) -> Result<MutationEffect, MindError> {
        match mutation {
            BoardMutation::ProposeHypothesis { .. }
            | BoardMutation::EditHypothesis { .. }
            | BoardMutation::SetHypothesis { .. }
            | BoardMutation::AddEvidence { .. }
            | BoardMutation::WithdrawEvidence { .. } => self.apply_hypotheses(mutation, origin),
            BoardMutation::AddBelief { .. }
            | BoardMutation::ReviseBelief { .. }
            | BoardMutation::RetractBelief { .. }
            | BoardMutation::Depend { .. }
            | BoardMutation::Undepend { .. }
            | BoardMutation::Contradict { .. }
            | BoardMutation::SettleContradiction { .. } => self.apply_beliefs(mutation, origin),
            BoardMutation::AddGap { .. }
            | BoardMutation::GapAfter { .. }
            | BoardMutation::FillGap { .. }
            | BoardMutation::DropGap { .. }
            | BoardMutation::ReopenGap { .. }
            | BoardMutation::AddVerification { .. }
            | BoardMutation::RecordRun { .. } => self.apply_gaps(mutation, origin),
            BoardMutation::AddNote { text: message, about: related, tags: given_tags } => {
                let note = Note {
                    text: text("note", message)?,
                    about: self.check_items(related)?,
                    tags: check_tags(given_tags)?,
                    origin: origin.clone(),
                };
                let message = clip_line(&note.text);
                let id = NoteId(self.notes.push(note)?);
                Ok(MutationEffect::new(id, format!("Noted {id}: {message}")))
            }
            BoardMutation::StartExperiment { branch, hypothesis, success } => {
                if let Some(id) = hypothesis {
                    self.hypotheses.require(id.0)?;
                }
                let branch = check_word("name of the branch", branch)?;
                let running = |e: &Experiment| e.branch == branch && e.status == ExperimentStatus::Running;
                if let Some((number, _)) = self.experiments.iter().find(|(_, e)| running(e)) {
                    return Err(MindError::State {
                        item: ExperimentId(number).into(),
                        is: "running",
                        rule: format!("end it before you start another one on branch {branch}"),
                    });
                }
                let success = text("success criterion", success)?;
                let message = format!("on branch {branch}; it succeeds if {}", clip_line(&success));
                let id = ExperimentId(self.experiments.push(Experiment {
                    branch,
                    hypothesis: *hypothesis,
                    success,
                    status: ExperimentStatus::Running,
                    result: None,
                    origin: origin.clone(),
                    changed: None,
                })?);
                let related = hypothesis.map_or(String::new(), |id| format!(" of {id}"));
                Ok(MutationEffect::new(id, format!("Started experiment {id}{related} {message}"))
                    .with_cause(CheckpointCause::Experiment))
            }
            BoardMutation::EndExperiment { experiment, status, result } => {
                let entry = self.experiments.require(experiment.0)?;
                if entry.status != ExperimentStatus::Running || *status == ExperimentStatus::Running {
                    return Err(MindError::State {
                        item: (*experiment).into(),
                        is: entry.status.as_str(),
                        rule: "only a running experiment can end, as succeeded, failed, inconclusive or abandoned"
                            .into(),
                    });
                }
                let result = text("result", result)?;
                let message = format!("Experiment {experiment} {}: {}", status.as_str(), clip_line(&result));
                self.experiments.change(experiment.0, |entry| {
                    entry.status = *status;
                    entry.result = Some(result);
                    entry.changed = Some(origin.clone());
                })?;
                Ok(MutationEffect::new(*experiment, message).with_cause(CheckpointCause::Experiment))
            }
        }
    }

    /// Checks that all items exist; returns them without duplicates.
    fn check_items(&self, items: &[ItemId]) -> Result<Vec<ItemId>, MindError> {
        check_count("names", items.len())?;
        let mut unique = Vec::new();
        for item in items {
            self.expect(*item)?;
            if !unique.contains(item) {
                unique.push(*item);
            }
        }
        Ok(unique)
    }
}
