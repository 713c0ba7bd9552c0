//! What a session took: the time it was at work, and the checkpoints that were made in it.

use serde::Serialize;
use stepback_engine::{EngineError, Workspace};
use stepback_model::record::Session;
use stepback_reasoning::ReasoningBoard;
use stepback_reasoning::board::Metrics;
use stepback_store::port::StepQuery;

/// A longer time without a step does not count as work, in microseconds.
const LONGEST_PAUSE_MICROS: i64 = 15 * 60 * 1_000_000;
const HOUR_MICROS: f64 = 3_600_000_000.0;

/// The activity of a session.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct SessionActivity {
    /// The number of checkpoints made in it.
    pub checkpoints: u64,
    /// The time it was at work, in seconds: from its first step to its last, without pauses of more than 15 minutes.
    pub seconds_spent: u64,
    /// Checkpoints per hour of that time; `None` if it is less than a minute.
    pub checkpoints_per_hour: Option<f64>,
}

/// The numbers of a board and of its session.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SessionMetrics {
    /// What is on the board.
    #[serde(flatten)]
    pub board: Metrics,
    /// What the session took.
    #[serde(flatten)]
    pub activity: SessionActivity,
}

/// Measures a session and a board of it, up to the step numbered `until` if one is given.
pub fn measure_session(
    workspace: &Workspace,
    session: &Session,
    board: &ReasoningBoard,
    until: Option<u64>,
) -> Result<SessionMetrics, EngineError> {
    let activity = measure_activity(workspace, session, until)?;
    Ok(SessionMetrics { board: board.metrics(), activity })
}

/// Measures a session, up to the step numbered `until` if one is given. Checkpoints that the user made in the meantime count.
fn measure_activity(
    workspace: &Workspace,
    session: &Session,
    until: Option<u64>,
) -> Result<SessionActivity, EngineError> {
    let before = until.map(|until| until.saturating_add(1));
    let query = StepQuery { session: Some(session.id), before, oldest_first: true, ..StepQuery::default() };
    let steps = workspace.store().steps(workspace.record.id, &query)?;
    let times: Vec<i64> = steps.iter().map(|stored| stored.step.at.as_micros()).collect();
    let pauses = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).max(0));
    let spent: i64 = pauses.filter(|pause| *pause <= LONGEST_PAUSE_MICROS).sum();
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return Ok(SessionActivity::default());
    };
    let (first, last) = (first.step.number, last.step.number);
    let query = StepQuery {
        checkpoint: Some(true),
        after: Some(first.saturating_sub(1)),
        before: Some(last.saturating_add(1)),
        ..StepQuery::default()
    };
    let own = [session.id, workspace.session.id];
    let checkpoints = workspace.store().steps(workspace.record.id, &query)?;
    let checkpoints = checkpoints.iter().filter(|stored| own.contains(&stored.step.session)).count() as u64;
    let per_hour = checkpoints as f64 / (spent as f64 / HOUR_MICROS);
    Ok(SessionActivity {
        checkpoints,
        seconds_spent: u64::try_from(spent / 1_000_000).unwrap_or(0),
        checkpoints_per_hour: (spent >= 60_000_000).then(|| (per_hour * 100.0).round() / 100.0),
    })
}
