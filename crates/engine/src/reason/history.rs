//! How sure a session was of its hypotheses, from its first thought to its last.

use std::collections::BTreeMap;

use stepback_mind::Mind;
use stepback_mind::item::HypothesisStatus;
use stepback_model::record::Session;
use stepback_model::time::Timestamp;

use crate::error::EngineError;
use crate::workspace::Workspace;

/// How sure a session was of its hypotheses over time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct History {
    /// The moments that were looked at, oldest first: the number of the step, and when it was.
    pub moments: Vec<(u64, Timestamp)>,
    /// How many thoughts there were.
    pub thoughts: usize,
    /// Every how many of them there is a moment; 1 if none was left out.
    pub every: usize,
    /// What became of each hypothesis, by its number.
    pub lines: BTreeMap<u32, Line>,
}

/// What became of one hypothesis. An entry holds until the next.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Line {
    /// At which moments something about it changed.
    pub at: Vec<usize>,
    /// How likely it was from there on; nothing once it was taken back.
    pub confidence: Vec<Option<f64>>,
    /// How far it had got.
    pub status: Vec<Option<HypothesisStatus>>,
}

impl Workspace<'_> {
    /// How sure a session was of its hypotheses over time, at so many moments at most: of a longer session, every few thoughts.
    /// What is told of a moment is exact.
    pub fn confidence_history(&self, session: &Session, most: usize) -> Result<History, EngineError> {
        let thoughts = self.thoughts(session)?;
        let every = thoughts.len().div_ceil(most.max(1)).max(1);
        let mut history = History { thoughts: thoughts.len(), every, ..History::default() };
        let mut known = Mind::default();
        // The last of each few, so that the last of all is one of them.
        let first = (thoughts.len() + every - 1) % every;
        for thought in thoughts.iter().skip(first).step_by(every) {
            let mind = self.mind_of(thought, &known)?.0;
            let moment = history.moments.len();
            history.moments.push((thought.checkpoint.step.number, thought.checkpoint.step.at));
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
