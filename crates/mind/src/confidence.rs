//! How likely a hypothesis is, from its evidence.
//!
//! In odds form: the odds of a hypothesis are those of its prior, multiplied by `20^s` for every source, where `s` is what
//! that source says in all, from -1 to 1. So evidence of strength 1 makes it twenty times as likely against its opposite,
//! 0.5 about four and a half times, and -0.5 takes exactly that back.
//!
//! What one source says in all is the strongest it says for the hypothesis plus the strongest it says against it. Saying the
//! same again therefore changes nothing, saying it more strongly counts as the stronger, and a source that contradicts itself
//! weighs as the difference. Thought alone is one source, however often it is repeated.
//!
//! Strengths are whole thousandths and are summed as integers. So the order in which evidence comes does not matter, not even
//! in the last bit, and adding evidence and withdrawing it leads back exactly. The result is kept between 0.0001 and 0.9999:
//! nothing is ever certain, and everything can still move.

use std::collections::{BTreeMap, HashMap};

use crate::error::MindError;
use crate::ids::HypothesisId;
use crate::item::{Evidence, Source};
use crate::mind::Mind;

/// By how much the odds change with evidence of strength 1.
pub const FACTOR: f64 = 20.0;
/// The least and the most likely a hypothesis can be.
pub const BOUNDS: (f64, f64) = (0.0001, 0.9999);
/// The least and the most likely a hypothesis can be said to be at first.
pub const PRIORS: (f64, f64) = (0.001, 0.999);

/// A number that must be within bounds.
pub(crate) fn within(what: &'static str, given: f64, least: f64, most: f64) -> Result<f64, MindError> {
    match given.is_finite() && given >= least && given <= most {
        true => Ok(given + 0.0),
        false => Err(MindError::Number { what, least, most, given }),
    }
}

/// A strength, rounded to thousandths.
pub(crate) fn strength(given: f64) -> Result<f64, MindError> {
    Ok(f64::from(thousandths(within("strength", given, -1.0, 1.0)?)) / 1000.0 + 0.0)
}

fn thousandths(strength: f64) -> i32 {
    // Within ±1000 by what `strength` lets through; a damaged store saturates.
    (strength * 1000.0).round() as i32
}

/// What tells one source from another.
fn source_key(evidence: &Evidence) -> String {
    match &evidence.source {
        Source::Tool { step: Some(step), .. } => format!("step {step}"),
        // Without a step, the same words of the same tool are the same thing seen again.
        Source::Tool { step: None, tool } => {
            format!("tool {} {}", tool.as_deref().unwrap_or_default(), evidence.text)
        }
        Source::Code { file, line: Some(line) } => format!("code {file}:{line}"),
        Source::Code { file, line: None } => format!("code {file}"),
        Source::Documentation(place) => format!("documentation {place}"),
        Source::Reasoning => "reasoning".to_owned(),
        Source::Verification(id) => format!("verification {id}"),
    }
}

/// What the sources of one hypothesis say.
#[derive(Default)]
struct Said(HashMap<String, (i32, i32)>);

impl Said {
    fn hear(&mut self, evidence: &Evidence) {
        let said = thousandths(evidence.strength).clamp(-1000, 1000);
        let (most, least) = self.0.entry(source_key(evidence)).or_default();
        *most = (*most).max(said);
        *least = (*least).min(said);
    }

    fn confidence(&self, prior: f64) -> f64 {
        let sum: i64 = self.0.values().map(|(most, least)| i64::from(most + least)).sum();
        let log_odds = (prior / (1.0 - prior)).ln() + FACTOR.ln() * (sum as f64 / 1000.0);
        (1.0 / (1.0 + (-log_odds).exp())).clamp(BOUNDS.0, BOUNDS.1)
    }
}

impl Mind {
    /// How likely a hypothesis is.
    pub fn confidence(&self, id: HypothesisId) -> Result<f64, MindError> {
        let prior = self.hypotheses.known(id.0)?.prior;
        let mut said = Said::default();
        for evidence in self.evidence_for(id) {
            said.hear(evidence.1);
        }
        Ok(said.confidence(prior))
    }

    /// The evidence about a hypothesis that counts.
    pub fn evidence_for(&self, id: HypothesisId) -> impl Iterator<Item = (u32, &Evidence)> {
        self.evidence.iter().filter(move |(_, e)| e.hypothesis == id && e.withdrawn.is_none())
    }

    /// How likely every hypothesis is, by its number.
    pub fn confidences(&self) -> BTreeMap<u32, f64> {
        self.confidences_of(|_| true)
    }

    /// How likely these hypotheses are, by their numbers.
    pub fn confidences_of(&self, wanted: impl Fn(u32) -> bool) -> BTreeMap<u32, f64> {
        let mut said: HashMap<u32, Said> = HashMap::new();
        let counts = |evidence: &Evidence| evidence.withdrawn.is_none() && wanted(evidence.hypothesis.0);
        for (_, evidence) in self.evidence.iter().filter(|(_, evidence)| counts(evidence)) {
            said.entry(evidence.hypothesis.0).or_default().hear(evidence);
        }
        let nothing = Said::default();
        self.hypotheses
            .iter()
            .filter(|(number, _)| wanted(*number))
            .map(|(number, h)| (number, said.get(&number).unwrap_or(&nothing).confidence(h.prior)))
            .collect()
    }
}
