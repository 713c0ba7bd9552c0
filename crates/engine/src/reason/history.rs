//! The confidence of a session in its hypotheses, from its first thought to its last.

use std::collections::BTreeMap;

use stepback_model::record::Session;
use stepback_model::time::Timestamp;
use stepback_reasoning::ReasoningBoard;
use stepback_reasoning::item::HypothesisStatus;

use crate::error::EngineError;
use crate::workspace::Workspace;

/// The confidence of a session in its hypotheses over time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct History {
    /// The sampled moments, oldest first: the number and the time of the step.
    pub moments: Vec<(u64, Timestamp)>,
    /// The total number of thoughts.
    pub thoughts: usize,
    /// The sampling interval in thoughts; 1 if every thought is a moment.
    pub every: usize,
    /// The history of each hypothesis, by its number.
    pub lines: BTreeMap<u32, HypothesisHistory>,
}

/// The history of one hypothesis. An entry holds until the next one.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HypothesisHistory {
    /// The indexes into [`History::moments`] at which it changed.
    pub at: Vec<usize>,
    /// Its probability from that moment on; `None` once it was taken back.
    pub confidence: Vec<Option<f64>>,
    /// Its status from that moment on; `None` once it was taken back.
    pub status: Vec<Option<HypothesisStatus>>,
}

impl Workspace {
    /// Returns the confidence of a session in its hypotheses at no more than `most` moments: a longer session is sampled every
    /// few thoughts. The values at each moment are exact.
    pub fn confidence_history(&self, session: &Session, most: usize) -> Result<History, EngineError> {
        let thoughts = self.thoughts(session)?;
        let every = thoughts.len().div_ceil(most.max(1)).max(1);
        let mut history = History { thoughts: thoughts.len(), every, ..History::default() };
        let mut known = ReasoningBoard::default();
        // Sample the last of each interval, so that the newest thought is included.
        let first = (thoughts.len() + every - 1) % every;
        for thought in thoughts.iter().skip(first).step_by(every) {
            let mind = self.mind_of(thought, &known)?.0;
            let moment = history.moments.len();
            history.moments.push((thought.step.number, thought.step.at));
            let touched = known.hypotheses_touched(&mind);
            let confidences = mind.confidences_of(|number| touched.contains(&number));
            for number in touched {
                let confidence = confidences.get(&number).copied();
                let status = mind.hypotheses.get(number).map(|hypothesis| hypothesis.status);
                let line = history.lines.entry(number).or_default();
                let last = (line.confidence.last().copied(), line.status.last().copied());
                if last != (Some(confidence), Some(status)) {
                    line.at.push(moment);
                    line.confidence.push(confidence);
                    line.status.push(status);
                }
            }
            known = mind;
        }
        Ok(history)
    }
}
