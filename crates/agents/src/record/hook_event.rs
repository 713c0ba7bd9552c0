//! Records hook events: the event, what its transcript adds, and what the transcript shows that no hook reports.

use std::path::PathBuf;

use serde_json::Value;
use stepback_engine::recorder::{CallFacts, RecordLock, RecordedStep, ReportedEvent};
use stepback_engine::{EngineError, Workspace};
use stepback_model::event::AgentEvent;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
use stepback_store::port::StepQuery;

use super::transcript_reader::TranscriptReader;
use crate::agent::Agent;
use crate::payload::{self, HookEvent, HookPoint};
use crate::transcript::TranscriptLocation;
use crate::workspace_paths::relative_call_paths;
use crate::{gemini, messages};

/// Records one hook event. `limit` is the length of the transcript at that time, in bytes.
pub fn record_hook_event(
    workspace: &Workspace,
    lock: &RecordLock,
    event: &HookEvent,
    at: Timestamp,
    limit: Option<u64>,
) -> Result<RecordedStep, EngineError> {
    let recorded = record_event_itself(workspace, lock, event, at, limit)?;
    if let Some(message) = messages::message_event(event) {
        workspace.record(lock, &ReportedEvent::new(message, at))?;
    }
    Ok(recorded)
}

fn record_event_itself(
    workspace: &Workspace,
    lock: &RecordLock,
    event: &HookEvent,
    at: Timestamp,
    limit: Option<u64>,
) -> Result<RecordedStep, EngineError> {
    let (mut report, transcript) = report_hook_event(workspace, event, at, limit);
    let Some(mut transcript) = transcript else { return workspace.record(lock, &report) };
    let step = workspace.open_step(lock, &report)?;
    if let Some(conversation) = step.conversation() {
        report.messages = Some(transcript.read_new(&conversation, &report.event)?);
    }
    let recorded = step.record(&report)?;
    record_compactions(workspace, lock, &transcript, report.at)?;
    Ok(recorded)
}

/// Records compactions that no hook reported, as the transcript shows them.
pub(super) fn record_compactions(
    workspace: &Workspace,
    lock: &RecordLock,
    transcript: &TranscriptReader,
    at: Timestamp,
) -> Result<(), EngineError> {
    let TranscriptReader { location: place, limit, may_compact_from, .. } = transcript;
    let Some(from) = *may_compact_from else { return Ok(()) };
    for line in gemini::find_compactions(place, *limit, from) {
        let (agent, summary) = (place.agent.name(), "the conversation was compacted");
        let event = AgentEvent::new(agent, &place.session, StepKind::StateChange, summary.to_owned());
        let event = AgentEvent { key: Some(format!("compaction at line {line}")), ..event };
        workspace.record(lock, &ReportedEvent::new(event, at))?;
    }
    Ok(())
}

/// Returns the report of one hook event, and where to read its conversation.
pub(super) fn report_hook_event(
    workspace: &Workspace,
    hook_event: &HookEvent,
    at: Timestamp,
    limit: Option<u64>,
) -> (ReportedEvent, Option<TranscriptReader>) {
    let mut event = hook_event.event.clone();
    let agent = Agent::parse(&event.agent);
    let transcript = agent.zip(hook_event.transcript.clone()).map(|(agent, path)| {
        let place = TranscriptLocation { agent, path, session: event.session.clone() };
        TranscriptReader::new(place, limit, event.worker.is_none())
    });
    let mut update = hook_event.update.clone();
    if update.tasks.is_none() {
        update.tasks = read_claude_tasks(hook_event);
    }
    // Summaries show paths relative to the workspace.
    event.summary = event.summary.replace(&format!("{}/", workspace.root.display()), "");
    if let (Some(Agent::Gemini), HookPoint::Done, Some(transcript)) = (agent, hook_event.point, &transcript)
        && let Some(response) = event.output.as_ref().and_then(Value::as_str)
        && let Some(last_words) = gemini::find_last_answer(&transcript.location, limit, response)
    {
        event.summary = payload::summarize_done(&last_words);
        event.output = Some(last_words.into());
    }
    let call = CallFacts { paths: relative_call_paths(workspace, hook_event), ..hook_event.call.clone() };
    let at = event.at.unwrap_or(at);
    (
        ReportedEvent {
            scan_policy: hook_event.scan_policy,
            call,
            update,
            left_out: hook_event.left_out.clone(),
            ..ReportedEvent::new(event, at)
        },
        transcript,
    )
}

/// Reads the task list of a Claude Code session after an event that may have changed it. Claude Code keeps the list in
/// files beside the transcripts.
fn read_claude_tasks(hook_event: &HookEvent) -> Option<Value> {
    let event = &hook_event.event;
    let touches = matches!(event.kind, StepKind::TaskCreated | StepKind::TaskCompleted)
        || (event.kind == StepKind::ToolEnd
            && matches!(event.tool.as_deref(), Some("TaskCreate" | "TaskUpdate")));
    if event.agent != Agent::Claude.name() || !touches {
        return None;
    }
    // …/projects/FOLDER/SESSION.jsonl beside …/tasks/SESSION/N.json
    let home = hook_event.transcript.as_ref()?.ancestors().nth(3)?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(home.join("tasks").join(&event.session))
        .ok()?
        .flatten()
        .map(|file| file.path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let read = |path: &PathBuf| serde_json::from_slice::<Value>(&std::fs::read(path).ok()?).ok();
    let mut tasks: Value = files.iter().filter_map(read).collect();
    stepback_redact::redact_value(&mut tasks);
    Some(tasks)
}

/// Returns a note on how to go back to before a call that changed something; `None` if its start is not recorded.
pub fn describe_undo_of_call(
    workspace: &Workspace,
    recorded: &RecordedStep,
    event: &AgentEvent,
) -> Result<Option<String>, EngineError> {
    let query = StepQuery {
        session: Some(recorded.session),
        kinds: vec![StepKind::ToolStart],
        call: event.call.clone(),
        before: Some(recorded.number),
        limit: Some(1),
        ..StepQuery::default()
    };
    let start = workspace.store().steps(workspace.record.id, &query)?.pop();
    Ok(start.map(|start| {
        let number = start.step.number;
        format!("checkpoint saved: stepback rewind '#{number}' goes back to before this call")
    }))
}

/// Returns a note on how to take back what the current prompt led to; `None` if it changed nothing.
pub fn describe_undo(workspace: &Workspace, recorded: &RecordedStep) -> Result<Option<String>, EngineError> {
    let Some(session) = workspace.store().session(recorded.session)? else { return Ok(None) };
    let Some(prompt) = session.info.prompt else { return Ok(None) };
    let Some(prompt) = workspace.store().step(prompt)? else { return Ok(None) };
    let number = prompt.step.number;
    let query = StepQuery {
        session: Some(recorded.session),
        kinds: vec![StepKind::ToolEnd],
        after: Some(number),
        ..StepQuery::default()
    };
    let steps = workspace.store().steps(workspace.record.id, &query)?;
    let changed = steps.iter().any(|stored| stored.is_checkpoint());
    Ok(changed
        .then(|| format!("checkpoint saved: stepback rewind '#{number}' undoes the changes of this prompt")))
}
