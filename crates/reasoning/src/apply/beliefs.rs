//! Beliefs, their dependencies, and declared contradictions.

use super::{check_optional_text, check_tags, check_word, clip_line, format_confidence, text};
use crate::confidence::check_range;
use crate::error::MindError;
use crate::graph::find_path;
use crate::ids::{BeliefId, ContradictionId, ItemId};
use crate::item::{
    Belief, BeliefStatus, Contradiction, ContradictionStatus, Dependency, ItemOrigin, Measure,
};
use crate::mind::ReasoningBoard;
use crate::mutation::{BoardMutation, CheckpointCause, MutationEffect};

/// The most beliefs that one can depend on.
const MAX_DEPENDENCIES: usize = 1000;

impl ReasoningBoard {
    pub(super) fn apply_beliefs(
        &mut self,
        mutation: &BoardMutation,
        origin: &ItemOrigin,
    ) -> Result<MutationEffect, MindError> {
        match mutation {
            BoardMutation::AddBelief {
                statement,
                kind,
                confidence,
                subject,
                value,
                hypothesis,
                tags: given,
            } => {
                if let Some(id) = hypothesis {
                    self.hypotheses.require(id.0)?;
                }
                if value.is_some() && subject.is_none() {
                    return Err(MindError::Senseless("a value requires a subject".into()));
                }
                let statement = text("belief", statement)?;
                let message = clip_line(&statement);
                let confidence = check_range("confidence", *confidence, 0.0, 1.0)?;
                let id = BeliefId(self.beliefs.push(Belief {
                    statement,
                    kind: *kind,
                    confidence,
                    status: BeliefStatus::Held,
                    subject: subject.as_ref().map(|subject| check_word("subject", subject)).transpose()?,
                    value: value.as_ref().map(check_measure).transpose()?,
                    hypothesis: *hypothesis,
                    depends: Vec::new(),
                    tags: check_tags(given)?,
                    reason: None,
                    origin: origin.clone(),
                    changed: None,
                })?);
                Ok(MutationEffect::new(
                    id,
                    format!("Added {id} ({}, {}): {message}", kind.as_str(), format_confidence(confidence)),
                ))
            }
            BoardMutation::ReviseBelief { belief, confidence, reason } => {
                let before = self.held_belief(*belief)?.confidence;
                let confidence = check_range("confidence", *confidence, 0.0, 1.0)?;
                let reason = check_optional_text("reason", reason.as_ref())?;
                self.beliefs.change(belief.0, |entry| {
                    entry.confidence = confidence;
                    entry.reason = reason;
                    entry.changed = Some(origin.clone());
                })?;
                let message = format!(
                    "{belief} went from {} to {}",
                    format_confidence(before),
                    format_confidence(confidence)
                );
                Ok(MutationEffect::new(*belief, message))
            }
            BoardMutation::RetractBelief { belief, reason } => {
                let message =
                    format!("Retracted {belief}: {}", clip_line(&self.held_belief(*belief)?.statement));
                let shaken = self.impact(*belief)?.shaken;
                let reason = check_optional_text("reason", reason.as_ref())?;
                self.beliefs.change(belief.0, |entry| {
                    entry.status = BeliefStatus::Retracted;
                    entry.reason = reason;
                    entry.changed = Some(origin.clone());
                })?;
                let mut effect = MutationEffect::new(*belief, message);
                effect.messages.extend(shaken.iter().filter(|shaken| shaken.then < shaken.now).map(
                    |shaken| {
                        format!(
                            "{} fell from {} to {}",
                            shaken.belief,
                            format_confidence(shaken.now),
                            format_confidence(shaken.then)
                        )
                    },
                ));
                Ok(effect)
            }
            other => self.apply_dependencies(other, origin),
        }
    }

    fn apply_dependencies(
        &mut self,
        mutation: &BoardMutation,
        origin: &ItemOrigin,
    ) -> Result<MutationEffect, MindError> {
        match mutation {
            BoardMutation::Depend { belief, on, kind, strength, reason } => {
                let (belief, on) = (*belief, *on);
                self.held_belief(belief)?;
                self.held_belief(on)?;
                if belief == on {
                    return Err(MindError::Itself(belief.into()));
                }
                let rests_on = |number: u32| {
                    let depends = self.beliefs.get(number).map(|belief| belief.depends.as_slice());
                    depends.unwrap_or_default().iter().map(|dependency| dependency.on.0).collect()
                };
                if let Some(path) = find_path(on.0, belief.0, rests_on) {
                    let circle = std::iter::once(belief.0).chain(path).map(|number| BeliefId(number).into());
                    return Err(MindError::Cycle(circle.collect()));
                }
                let dependency = Dependency {
                    on,
                    kind: *kind,
                    strength: check_range("strength", *strength, 0.0, 1.0)?,
                    reason: check_optional_text("reason", reason.as_ref())?,
                };
                let entry = self.beliefs.require(belief.0)?;
                if entry.depends.len() >= MAX_DEPENDENCIES {
                    return Err(MindError::TooMany {
                        what: "dependencies of one belief",
                        most: MAX_DEPENDENCIES,
                        remedy: "add an intermediate inference",
                    });
                }
                self.beliefs.change(belief.0, |entry| {
                    entry.depends.retain(|old| old.on != on);
                    entry.depends.push(dependency);
                    entry.depends.sort_by_key(|dependency| dependency.on);
                    entry.changed = Some(origin.clone());
                })?;
                let sure = self.effective().get(&belief.0).copied().unwrap_or(0.0);
                let message = format!(
                    "{belief} {} {on}; its confidence is now {}",
                    kind.verb(),
                    format_confidence(sure)
                );
                Ok(MutationEffect::new(belief, message))
            }
            BoardMutation::Undepend { belief, on } => {
                let entry = self.beliefs.require(belief.0)?;
                if !entry.depends.iter().any(|dependency| dependency.on == *on) {
                    return Err(MindError::Senseless(format!("{belief} does not depend on {on}")));
                }
                self.beliefs.change(belief.0, |entry| {
                    entry.depends.retain(|dependency| dependency.on != *on);
                    entry.changed = Some(origin.clone());
                })?;
                Ok(MutationEffect::new(*belief, format!("{belief} no longer depends on {on}")))
            }
            other => self.apply_contradictions(other, origin),
        }
    }

    fn apply_contradictions(
        &mut self,
        mutation: &BoardMutation,
        origin: &ItemOrigin,
    ) -> Result<MutationEffect, MindError> {
        match mutation {
            BoardMutation::Contradict { left, right, reason, severity } => {
                self.expect(*left)?;
                self.expect(*right)?;
                if left == right {
                    return Err(MindError::Senseless(format!("{left} cannot contradict itself")));
                }
                let (left, right) = ((*left).min(*right), (*left).max(*right));
                let open = |c: &Contradiction| {
                    c.status == ContradictionStatus::Open && (c.left, c.right) == (left, right)
                };
                if let Some((number, _)) = self.contradictions.iter().find(|(_, c)| open(c)) {
                    return Err(MindError::Senseless(format!(
                        "this is already known as {}",
                        ContradictionId(number)
                    )));
                }
                let reason = text("reason", reason)?;
                let message = clip_line(&reason);
                let id = ContradictionId(self.contradictions.push(Contradiction {
                    left,
                    right,
                    reason,
                    severity: *severity,
                    status: ContradictionStatus::Open,
                    detected: false,
                    suggestion: self.suggestion(left, right),
                    resolution: None,
                    origin: origin.clone(),
                })?);
                let message = format!("{left} and {right} contradict each other ({id}): {message}");
                Ok(MutationEffect::new(id, message).with_cause(CheckpointCause::Contradiction))
            }
            BoardMutation::SettleContradiction { contradiction, status, resolution } => {
                let entry = self.contradictions.require(contradiction.0)?;
                let rule = "only an open contradiction can be resolved or dismissed";
                if entry.status != ContradictionStatus::Open || *status == ContradictionStatus::Open {
                    let (item, is) = ((*contradiction).into(), entry.status.as_str());
                    return Err(MindError::State { item, is, rule: rule.into() });
                }
                let resolution = text("resolution", resolution)?;
                let message = format!("{contradiction} is {}: {}", status.as_str(), clip_line(&resolution));
                self.contradictions.change(contradiction.0, |entry| {
                    entry.status = *status;
                    entry.resolution = Some(resolution);
                })?;
                Ok(MutationEffect::new(*contradiction, message))
            }
            other => Err(MindError::Senseless(format!("{} does not apply to a belief", other.noun()))),
        }
    }

    /// Returns a belief; fails if it is retracted.
    fn held_belief(&self, id: BeliefId) -> Result<&Belief, MindError> {
        let entry = self.beliefs.require(id.0)?;
        match entry.status {
            BeliefStatus::Held => Ok(entry),
            BeliefStatus::Retracted => Err(MindError::State {
                item: ItemId::from(id),
                is: "retracted",
                rule: "only current beliefs can change; add it again instead".into(),
            }),
        }
    }
}

/// Checks that a value can be compared.
fn check_measure(value: &Measure) -> Result<Measure, MindError> {
    let finite = |number: f64| check_range("value", number, f64::MIN, f64::MAX);
    Ok(match value {
        Measure::Number(number) => Measure::Number(finite(*number)?),
        Measure::Range(from, to) if from > to => {
            return Err(MindError::Senseless(format!("the range from {from} to {to} is empty")));
        }
        Measure::Range(from, to) => Measure::Range(finite(*from)?, finite(*to)?),
        Measure::Flag(flag) => Measure::Flag(*flag),
        Measure::Word(word) => Measure::Word(text("value", word)?),
    })
}
