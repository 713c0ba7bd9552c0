//! The confidence of a session in its hypotheses, from its first change of the board to its last.

use std::collections::BTreeMap;

use stepback_engine::{EngineError, Workspace};
use stepback_model::record::Session;
use stepback_model::time::Timestamp;
use stepback_reasoning::ReasoningBoard;
use stepback_reasoning::item::HypothesisStatus;

/// The confidence of a session in its hypotheses over time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ConfidenceHistory {
    /// The sampled moments, oldest first: the number and the time of the step.
    pub moments: Vec<(u64, Timestamp)>,
    /// The total number of changes.
    pub changes: usize,
    /// The sampling interval in changes; 1 if every change is a moment.
    pub every: usize,
    /// The history of each hypothesis, by its number.
    pub lines: BTreeMap<u32, HypothesisHistory>,
}

/// The history of one hypothesis. An entry holds until the next one.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HypothesisHistory {
    /// The indexes into [`ConfidenceHistory::moments`] at which it changed.
    pub at: Vec<usize>,
    /// Its probability from that moment on; `None` once it was taken back.
    pub confidence: Vec<Option<f64>>,
    /// Its status from that moment on; `None` once it was taken back.
    pub status: Vec<Option<HypothesisStatus>>,
}

/// Returns the confidence of a session in its hypotheses at no more than `max_moments` moments: a longer session is
/// sampled every few changes. The values at each moment are exact.
pub fn confidence_history(
    workspace: &Workspace,
    session: &Session,
    max_moments: usize,
) -> Result<ConfidenceHistory, EngineError> {
    let changes = workspace.board_changes(session)?;
    let interval = changes.len().div_ceil(max_moments.max(1)).max(1);
    let mut history =
        ConfidenceHistory { changes: changes.len(), every: interval, ..ConfidenceHistory::default() };
    let mut cached_board = ReasoningBoard::default();
    // Sample the last of each interval, so that the newest change is included.
    let first = (changes.len() + interval - 1) % interval;
    for change in changes.iter().skip(first).step_by(interval) {
        let board = workspace.board_after(change, &cached_board)?.0;
        let moment = history.moments.len();
        history.moments.push((change.step.number, change.step.at));
        let touched = cached_board.hypotheses_touched(&board);
        let confidences = board.confidences_of(|number| touched.contains(&number));
        for number in touched {
            let confidence = confidences.get(&number).copied();
            let status = board.hypotheses.get(number).map(|hypothesis| hypothesis.status);
            let line = history.lines.entry(number).or_default();
            let last = (line.confidence.last().copied(), line.status.last().copied());
            if last != (Some(confidence), Some(status)) {
                line.at.push(moment);
                line.confidence.push(confidence);
                line.status.push(status);
            }
        }
        cached_board = board;
    }
    Ok(history)
}
