//! Records what waits in the inbox: events that hooks left there, model calls of a proxy, and gaps.

use std::slice;
use std::time::Duration;

use serde_json::Value;
use stepback_engine::recorder::{RecordLock, ReportedEvent, ScanPolicy, SessionUpdate};
use stepback_engine::{EngineError, Workspace};
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::ids::StepId;
use stepback_model::record::{Session, Step, StepKind};
use stepback_model::time::Timestamp;

use super::hook_event::{record_compactions, report_hook_event};
use super::transcript_reader::TranscriptReader;
use crate::agent::Agent;
use crate::inbox::{self, InboxNote};
use crate::messages;
use crate::model_call_inbox::{self, RecordedCall};
use crate::payload;

/// How many notes are recorded in one commit.
const NOTES_PER_COMMIT: usize = 256;

/// Records the notes in the inbox, if there are any.
pub fn record_inbox(workspace: &Workspace) -> Result<(), EngineError> {
    if has_notes(workspace)? {
        record_inbox_locked(workspace, &workspace.lock_recording()?)?;
    }
    Ok(())
}

/// Records the notes in the inbox, unless another process is recording, which then does it itself. For callers that hold the
/// lock on the workspace: a hook that records waits for that lock, so waiting for the hook would be a deadlock.
pub fn record_inbox_if_free(workspace: &Workspace) -> Result<(), EngineError> {
    if !has_notes(workspace)? {
        return Ok(());
    }
    match workspace.lock_recording_with_timeout(Duration::ZERO) {
        Ok(lock) => record_inbox_locked(workspace, &lock),
        Err(EngineError::Busy { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn has_notes(workspace: &Workspace) -> Result<bool, EngineError> {
    Ok(workspace.cache_dir()?.is_some_and(|dir| !inbox::is_empty(&dir)))
}

/// Records the notes in the inbox, for callers that hold the lock already.
pub fn record_inbox_locked(workspace: &Workspace, lock: &RecordLock) -> Result<(), EngineError> {
    let Some(dir) = workspace.cache_dir()? else { return Ok(()) };
    let io = |error: std::io::Error| EngineError::Io {
        what: format!("cannot read the inbox of {}", dir.display()),
        error,
    };
    // More than once: notes that another process took and failed to record come first, as a batch of their own.
    while let Some(taken) = inbox::take_notes(&dir, workspace.engine.env.now()).map_err(io)? {
        for some in taken.notes.chunks(NOTES_PER_COMMIT) {
            record_notes(workspace, lock, some)?;
        }
        let notes = taken.delete_recorded().map_err(io)?;
        model_call_inbox::delete_recorded_calls(&dir, &notes);
    }
    Ok(())
}

/// Records notes. One that cannot be recorded leaves a gap and does not keep the others from being recorded.
pub fn record_notes(
    workspace: &Workspace,
    lock: &RecordLock,
    notes: &[InboxNote],
) -> Result<(), EngineError> {
    match record_batch(workspace, lock, notes) {
        Err(EngineError::Json(_)) => {}
        other => return other,
    }
    for note in notes {
        match record_batch(workspace, lock, slice::from_ref(note)) {
            Err(EngineError::Json(error)) => {
                let why = note.gap.clone().unwrap_or_else(|| format!("a report cannot be recorded: {error}"));
                workspace.record(lock, &gap_report(note, why, None))?;
            }
            other => other?,
        }
    }
    Ok(())
}

/// Records notes in one commit: all of them, or none.
fn record_batch(workspace: &Workspace, lock: &RecordLock, notes: &[InboxNote]) -> Result<(), EngineError> {
    let (mut reports, mut transcripts) = (Vec::new(), Vec::new());
    for note in notes {
        for (report, transcript) in report_note(workspace, note, &reports)? {
            reports.push(report);
            transcripts.push(transcript);
        }
    }
    let mut batch = workspace.open_batch(lock, &reports)?;
    let mut compacted = Vec::new();
    for (mut report, transcript) in reports.into_iter().zip(transcripts) {
        if let Some(mut transcript) = transcript
            && let Some(conversation) = batch.conversation(&report)?
        {
            report.messages = Some(transcript.read_new(&conversation, &report.event)?);
            compacted.push((transcript, report.at));
        }
        batch.add(report)?;
    }
    batch.commit()?;
    for (transcript, at) in compacted {
        record_compactions(workspace, lock, &transcript, at)?;
    }
    Ok(())
}

/// Returns the reports of a note, with the transcript to read for each: that of its event, that of a gap, or both. `earlier`
/// are the reports of the notes before it, which are not recorded yet.
fn report_note(
    workspace: &Workspace,
    note: &InboxNote,
    earlier: &[ReportedEvent],
) -> Result<Vec<(ReportedEvent, Option<TranscriptReader>)>, EngineError> {
    if let Some(name) = &note.carried {
        let dir = workspace.cache_dir()?.unwrap_or_default();
        return Ok(vec![match model_call_inbox::read_call(&dir, name) {
            Some(call) => (model_call_report(workspace, call, note.at)?, None),
            None => (gap_report(note, "a model call could not be recorded".into(), None), None),
        }]);
    }
    let payload = Agent::parse(&note.agent).zip(note.payload.as_ref());
    let event = payload.and_then(|(agent, payload)| payload::read(agent, payload).ok());
    let is_understood = event.is_some();
    let mut reports = Vec::new();
    if let Some(mut event) = event {
        if event.is_ignored {
            return Ok(reports);
        }
        // The time to scan the files for this event is over.
        event.scan_policy = ScanPolicy::None;
        event.left_out.clone_from(&note.left_out);
        // An event without a key gets one from its time, so that recording the note twice adds one step.
        let key = event.event.key.take().unwrap_or_else(|| format!("{} {}", event.name, note.at.as_micros()));
        let is_recorded = note.gap.is_some() && {
            // The failure may have happened after the step was stored.
            let step = step_id(workspace, &event.event, &key);
            let is_earlier = |ReportedEvent { event, .. }: &ReportedEvent| {
                event.key.as_ref().is_some_and(|key| step_id(workspace, event, key) == step)
            };
            workspace.store().step(step)?.is_some() || earlier.iter().any(is_earlier)
        };
        event.event.key = Some(match note.gap {
            // If the event is reported again, that report is a step of its own: it may come with a scan.
            Some(_) => format!("{key}, late"),
            None => key,
        });
        if !is_recorded {
            let (report, mut transcript) = report_hook_event(workspace, &event, note.at, note.transcript_len);
            if let Some(transcript) = &mut transcript {
                transcript.is_next &= note.gap.is_none();
            }
            reports.push((report, transcript));
        }
        if let Some(message) = messages::message_event(&event) {
            reports.push((ReportedEvent::new(message, note.at), None));
        }
    }
    if note.gap.is_some() || !is_understood {
        let why = note.gap.clone().unwrap_or_else(|| "a report could not be understood".into());
        let raw = note.payload.clone().filter(|_| !is_understood);
        reports.push((gap_report(note, why, raw), None));
    }
    Ok(reports)
}

/// Returns the report of a model call that a proxy recorded, in the session it belongs to.
fn model_call_report(
    workspace: &Workspace,
    call: RecordedCall,
    at: Timestamp,
) -> Result<ReportedEvent, EngineError> {
    let RecordedCall { mut event, since, cost, started } = call;
    if event.session.is_empty() {
        // The agent does not send its session id; use the session whose hooks reported last.
        let sessions = workspace.agent_sessions()?;
        let own = sessions
            .into_iter()
            .filter(|session| session.agent == event.agent && session.info.seen_at >= Some(since))
            .find_map(|session| session.info.external);
        event.session = own.unwrap_or_else(|| format!("run-{}", since.as_micros()));
    }
    let update = SessionUpdate { model: event.tool.clone(), cost, started, ..SessionUpdate::default() };
    let at = event.at.unwrap_or(at);
    Ok(ReportedEvent { update, is_exchange: true, ..ReportedEvent::new(event, at) })
}

fn step_id(workspace: &Workspace, event: &AgentEvent, key: &str) -> StepId {
    let session = Session::id_of(workspace.record.id, &event.agent, &event.session);
    Step::id_of(session, event.kind, key)
}

/// Returns the report that something is missing from the record, and why.
fn gap_report(note: &InboxNote, why: String, raw: Option<Value>) -> ReportedEvent {
    let event = AgentEvent {
        error: Some(ReportedError {
            name: Some("gap".into()),
            message: why.clone(),
            ..ReportedError::default()
        }),
        raw,
        ..AgentEvent::new(&note.agent, Session::GAPS, StepKind::Gap, payload::summary_line(&why))
    };
    let key = format!("{} {}", note.at.as_micros(), event.summary);
    ReportedEvent::new(AgentEvent { key: Some(key), ..event }, note.at)
}
