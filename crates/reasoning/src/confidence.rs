//! The confidence in a hypothesis, computed from its evidence.
//!
//! In odds form: the odds of a hypothesis are those of its prior, multiplied by `20^s` for every source, where `s` is the
//! total of that source, from -1 to 1. So evidence of strength 1 makes it twenty times as likely against its opposite, 0.5
//! about four and a half times, and -0.5 cancels exactly that.
//!
//! The total of one source is its strongest evidence for the hypothesis plus its strongest evidence against it. Repeating
//! the same evidence therefore changes nothing, repeating it more strongly counts as the stronger, and a source that
//! contradicts itself counts as the difference. Reasoning alone is one source, however often it is repeated.
//!
//! Strengths are whole thousandths and are summed as integers. So the order of evidence does not matter, not even in the
//! last bit, and adding evidence and withdrawing it restores the exact value. The result is kept between 0.0001 and 0.9999:
//! nothing is ever certain, and every hypothesis can still change.

use std::collections::{BTreeMap, HashMap};

use crate::error::MindError;
use crate::ids::HypothesisId;
use crate::item::{Evidence, EvidenceOrigin};
use crate::mind::ReasoningBoard;

/// The factor by which evidence of strength 1 changes the odds.
pub const FACTOR: f64 = 20.0;
/// The lowest and the highest confidence in a hypothesis.
pub const BOUNDS: (f64, f64) = (0.0001, 0.9999);
/// The lowest and the highest prior of a hypothesis.
pub const PRIORS: (f64, f64) = (0.001, 0.999);

/// Checks that a number is within bounds.
pub(crate) fn check_range(what: &'static str, value: f64, min: f64, max: f64) -> Result<f64, MindError> {
    match value.is_finite() && value >= min && value <= max {
        true => Ok(value + 0.0),
        false => Err(MindError::Number { what, least: min, most: max, given: value }),
    }
}

/// Checks a strength and rounds it to thousandths.
pub(crate) fn check_strength(strength: f64) -> Result<f64, MindError> {
    Ok(f64::from(to_thousandths(check_range("strength", strength, -1.0, 1.0)?)) / 1000.0 + 0.0)
}

fn to_thousandths(strength: f64) -> i32 {
    // Within ±1000 for values that `strength` accepts; a damaged store saturates.
    (strength * 1000.0).round() as i32
}

/// A key that identifies the source of evidence.
fn source_key(evidence: &Evidence) -> String {
    match &evidence.source {
        EvidenceOrigin::Tool { step: Some(step), .. } => format!("step {step}"),
        // Without a step, the same text from the same tool is the same observation again.
        EvidenceOrigin::Tool { step: None, tool } => {
            format!("tool {} {}", tool.as_deref().unwrap_or_default(), evidence.text)
        }
        EvidenceOrigin::Code { file, line: Some(line) } => format!("code {file}:{line}"),
        EvidenceOrigin::Code { file, line: None } => format!("code {file}"),
        EvidenceOrigin::Documentation(location) => format!("documentation {location}"),
        EvidenceOrigin::Reasoning => "reasoning".to_owned(),
        EvidenceOrigin::Verification(id) => format!("verification {id}"),
    }
}

/// The strongest evidence for and against one hypothesis, by source.
#[derive(Default)]
struct EvidenceBySource(HashMap<String, (i32, i32)>);

impl EvidenceBySource {
    fn add_evidence(&mut self, evidence: &Evidence) {
        let thousandths = to_thousandths(evidence.strength).clamp(-1000, 1000);
        let (strongest_for, strongest_against) = self.0.entry(source_key(evidence)).or_default();
        *strongest_for = (*strongest_for).max(thousandths);
        *strongest_against = (*strongest_against).min(thousandths);
    }

    fn confidence(&self, prior: f64) -> f64 {
        let sum: i64 = self
            .0
            .values()
            .map(|(strongest_for, strongest_against)| i64::from(strongest_for + strongest_against))
            .sum();
        let log_odds = (prior / (1.0 - prior)).ln() + FACTOR.ln() * (sum as f64 / 1000.0);
        (1.0 / (1.0 + (-log_odds).exp())).clamp(BOUNDS.0, BOUNDS.1)
    }
}

impl ReasoningBoard {
    /// The confidence in a hypothesis.
    pub fn confidence(&self, id: HypothesisId) -> Result<f64, MindError> {
        let prior = self.hypotheses.require(id.0)?.prior;
        let mut by_source = EvidenceBySource::default();
        for evidence in self.evidence_for(id) {
            by_source.add_evidence(evidence.1);
        }
        Ok(by_source.confidence(prior))
    }

    /// The evidence about a hypothesis that is not withdrawn.
    pub fn evidence_for(&self, id: HypothesisId) -> impl Iterator<Item = (u32, &Evidence)> {
        self.evidence.iter().filter(move |(_, e)| e.hypothesis == id && e.withdrawn.is_none())
    }

    /// The confidence in every hypothesis, by its number.
    pub fn confidences(&self) -> BTreeMap<u32, f64> {
        self.confidences_of(|_| true)
    }

    /// The confidence in these hypotheses, by their numbers.
    pub fn confidences_of(&self, is_wanted: impl Fn(u32) -> bool) -> BTreeMap<u32, f64> {
        let mut by_hypothesis: HashMap<u32, EvidenceBySource> = HashMap::new();
        let counts = |evidence: &Evidence| evidence.withdrawn.is_none() && is_wanted(evidence.hypothesis.0);
        for (_, evidence) in self.evidence.iter().filter(|(_, evidence)| counts(evidence)) {
            by_hypothesis.entry(evidence.hypothesis.0).or_default().add_evidence(evidence);
        }
        let nothing = EvidenceBySource::default();
        self.hypotheses
            .iter()
            .filter(|(number, _)| is_wanted(*number))
            .map(|(number, h)| (number, by_hypothesis.get(&number).unwrap_or(&nothing).confidence(h.prior)))
            .collect()
    }
}
