//! Records the events of a conversation from the agent's own transcript.

use stepback_engine::recorder::{EventSource, FinishedCalls, ReportedEvent, SessionMilestone};
use stepback_engine::{EngineError, Workspace};
use stepback_model::event::AgentEvent;
use stepback_model::ids::SessionId;
use stepback_model::record::Session;

use super::transcript_reader::TranscriptReader;
use super::{record_inbox_locked, redact_event};
use crate::transcript::TranscriptLocation;

/// The result of an import.
#[derive(Clone, Copy, Debug)]
pub struct RecordedImport {
    /// The session that was imported.
    pub session: SessionId,
    /// How many events the conversation has.
    pub steps: usize,
    /// How many of the steps were not recorded before.
    pub new: usize,
    /// Whether hooks had recorded the session already, so that nothing was imported.
    pub recorded_by_hooks: bool,
}

/// Records the events of a conversation from the agent's own transcript. Importing it again adds only what is new.
pub fn record_import(
    workspace: &Workspace,
    location: &TranscriptLocation,
    events: Vec<AgentEvent>,
) -> Result<RecordedImport, EngineError> {
    let lock = workspace.lock_recording()?;
    record_inbox_locked(workspace, &lock)?;
    let session = Session::id_of(workspace.record.id, location.agent.name(), &location.session);
    let (steps, mut new) = (events.len(), 0);
    // What hooks recorded is more exact than the agent's own transcript.
    let watched = workspace.store().session(session)?.is_some_and(|session| !session.info.imported);
    if watched {
        return Ok(RecordedImport { session, steps, new, recorded_by_hooks: watched });
    }
    let mut newest = workspace.newest_step_number()?;
    let last = steps.saturating_sub(1);
    for (at, mut event) in events.into_iter().enumerate() {
        redact_event(&mut event);
        let moment = event.at.unwrap_or_else(|| workspace.engine.env.now());
        let mut report = ReportedEvent::new(event, moment);
        report.source = EventSource::Imported;
        report.update.transcript = Some(location.path.display().to_string());
        if at == last {
            report.update.milestone = Some(SessionMilestone::Ended);
            report.update.finished_calls = FinishedCalls::All;
        }
        let step = workspace.open_step(&lock, &report)?;
        // Once is enough: the conversation is read as a whole.
        if let Some(conversation) = step.conversation().filter(|_| at == last) {
            let mut transcript = TranscriptReader::new(location.clone(), None, false);
            report.messages = Some(transcript.read_new(&conversation, &report.event)?);
        }
        let recorded = step.record(&report)?;
        new += usize::from(recorded.number > newest);
        newest = newest.max(recorded.number);
    }
    Ok(RecordedImport { session, steps, new, recorded_by_hooks: watched })
}
