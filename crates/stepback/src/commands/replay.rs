//! The command `stepback replay`: plays the steps of a session.

mod block;
mod player;
mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use serde_json::json;
use stepback_api::steps::StepDetailDocument;
use stepback_engine::{EngineError, Workspace, diff};
use stepback_history::timeline::TimelineCursor;
use stepback_model::change::PathChange;
use stepback_model::record::Session;
use stepback_model::time::Timestamp;
use stepback_store::port::{StepQuery, StepRow};

use self::block::StepBlock;
use self::player::Player;
use super::{CommandResult, DONE, documents, sessions};
use crate::args::viewers::ReplayArgs;
use crate::context::Context;
use crate::failure::CommandFailure;
use crate::output::{self, Paint};

/// The longest pause before the next step, however long the agent thought.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Returns how long to wait for the next step at a speed.
fn pause_duration(gap: Duration, speed: f64) -> Duration {
    gap.min(MAX_PAUSE).div_f64(speed.max(0.001))
}

/// Runs `stepback replay`.
pub fn replay(context: &Context, arguments: &ReplayArgs) -> CommandResult {
    let (workspace, session) = sessions::find(context, arguments.session.as_deref())?;
    let cursor = TimelineCursor::new(load_steps(context, &workspace, &session, arguments)?);
    if cursor.is_empty() {
        output::print_unless_json(context.json, "No step matches.");
        return DONE;
    }
    let speed = arguments.speed.unwrap_or(1.0);
    let timed = arguments.timed || arguments.speed.is_some();
    let replayed = ReplayedSession {
        workspace: &workspace,
        session: &session,
        started_at: session_start_time(&workspace, &session)?,
    };
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if terminal && !context.json && !arguments.plain {
        return screen::play(&replayed, Player::new(cursor, timed, speed));
    }
    if !context.json {
        let title = session.info.title.as_deref().unwrap_or_default();
        output::print_line(
            Paint::stdout().strong(format!("{}  {title}", sessions::display_name(&session)).trim_end()),
        );
    }
    let mut before: Option<&StepRow> = None;
    for stored in cursor.steps() {
        if let (Some(before), true) = (before, timed) {
            let gap = cursor.elapsed_at(stored).saturating_sub(cursor.elapsed_at(before));
            std::thread::sleep(pause_duration(gap, speed));
        }
        before = Some(stored);
        let shown = replayed.load_block(stored)?;
        match context.json {
            true => output::print_line(replayed.block_document(&shown)),
            false => {
                let lines = block::render_lines(&shown, Paint::stdout(), output::terminal_width());
                lines.iter().for_each(output::print_line);
            }
        }
    }
    DONE
}

/// Returns the requested steps of the session.
fn load_steps(
    context: &Context,
    workspace: &Workspace,
    session: &Session,
    arguments: &ReplayArgs,
) -> Result<Vec<StepRow>, CommandFailure> {
    let until = arguments
        .until
        .as_ref()
        .map(|point| resolve_until(context, workspace, session, point))
        .transpose()?;
    let query = StepQuery {
        session: Some(session.id),
        kinds: sessions::parse_kinds(&arguments.filter)?,
        after: arguments.from_sequence.map(|number| number.saturating_sub(1)),
        before: until.map(|number| number.saturating_add(1)),
        oldest_first: true,
        ..StepQuery::default()
    };
    let mut steps = workspace.store().steps(workspace.record.id, &query).map_err(EngineError::from)?;
    steps.retain(|stored| {
        stored.hidden_by.is_none()
            && arguments.from_iteration.is_none_or(|from| stored.step.meta.iteration >= from)
    });
    Ok(steps)
}

/// Returns when the first step of a session was made.
fn session_start_time(workspace: &Workspace, session: &Session) -> Result<Timestamp, CommandFailure> {
    let query =
        StepQuery { session: Some(session.id), oldest_first: true, limit: Some(1), ..StepQuery::default() };
    let first = workspace.store().steps(workspace.record.id, &query).map_err(EngineError::from)?;
    Ok(first.first().map_or(session.started_at, |stored| stored.step.at))
}

/// Returns the number of the step that a point names. Points that need a session refer to this one.
fn resolve_until(
    context: &Context,
    workspace: &Workspace,
    session: &Session,
    given: &str,
) -> Result<u64, CommandFailure> {
    Ok(context.resolve_in_session(workspace, given, Some(session))?.step.number)
}

/// A session, and what is needed to show its steps.
struct ReplayedSession<'w> {
    workspace: &'w Workspace,
    session: &'w Session,
    /// The time of the first step of the session, even if that step is not shown.
    started_at: Timestamp,
}

impl ReplayedSession<'_> {
    /// Returns everything about a step that is shown.
    fn load_block<'s>(&self, stored: &'s StepRow) -> Result<StepBlock<'s>, CommandFailure> {
        let after = stored.step.at.as_micros().saturating_sub(self.started_at.as_micros());
        Ok(StepBlock {
            stored,
            detail: self.workspace.load_detail(&stored.step)?,
            changes: self.load_changes(stored)?,
            since_start: Duration::from_micros(u64::try_from(after).unwrap_or(0)),
        })
    }

    /// Returns what a checkpoint found changed since its parent step. Empty if the files of either are not available.
    fn load_changes(&self, stored: &StepRow) -> Result<Vec<PathChange>, CommandFailure> {
        let (Some(_), Some(parent)) = (stored.trigger, stored.step.parent) else {
            return Ok(Vec::new());
        };
        let Some(before) = self.workspace.store().step(parent).map_err(EngineError::from)? else {
            return Ok(Vec::new());
        };
        let state = |stored| match self.workspace.load_state(stored) {
            Err(EngineError::Purged { .. } | EngineError::NoFiles { .. }) => Ok(None),
            Err(error) => Err(error),
            Ok(state) => Ok(Some(state)),
        };
        let (Some(before), Some(after)) = (state(&before)?, state(stored)?) else { return Ok(Vec::new()) };
        Ok(diff::compare_visible_files(self.workspace.store(), &before, &after)?)
    }

    fn block_document(&self, shown: &StepBlock<'_>) -> serde_json::Value {
        let mut value = json!(StepDetailDocument::from_row(shown.stored, shown.detail.clone()));
        value["detail"] = json!(shown.stored.step.meta.detail);
        value["agent"] = json!(self.session.agent);
        value["after_us"] = json!(u64::try_from(shown.since_start.as_micros()).unwrap_or(u64::MAX));
        value["changes"] = shown.changes.iter().map(documents::change).collect();
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_longer_than_five_seconds() {
        let hour = Duration::from_secs(3600);
        assert_eq!(pause_duration(hour, 1.0), MAX_PAUSE);
        assert_eq!(pause_duration(hour, 2.0), MAX_PAUSE / 2);
        assert_eq!(pause_duration(Duration::from_secs(1), 0.5), Duration::from_secs(2));
        assert_eq!(pause_duration(Duration::ZERO, 0.25), Duration::ZERO);
    }
}
