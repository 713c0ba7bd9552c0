//! Records what happens to a call while its hook waits: stops at breakpoints, the user's answers and messages, and refusals.

use serde_json::{Value, json};
use stepback_engine::control::{Breakpoint, Stop, StopAnswer};
use stepback_engine::recorder::{CallStatus, ReportedEvent, ScanPolicy};
use stepback_engine::{EngineError, Workspace};
use stepback_model::event::AgentEvent;
use stepback_model::record::{StepKind, Trigger};
use stepback_model::time::Timestamp;

use super::{record_inbox_locked, redact_event};
use crate::agent::Agent;
use crate::answer::HookAnswer;
use crate::decisions::RecordedDecision;
use crate::payload;

/// Records that an agent was stopped.
pub fn record_stop(
    workspace: &Workspace,
    about: &AgentEvent,
    stop: &Stop,
    at: Timestamp,
) -> Result<(), EngineError> {
    let summary = format!("stopped: {}", stop.reason);
    let input = json!({ "tool": stop.tool, "input": stop.input, "breakpoint": stop.breakpoint });
    record_own_event(workspace, related_report(about, StepKind::BreakpointHit, summary, Some(input), at))
}

/// Records that a call passed a log point, with the message of the log point or a summary of the call.
pub fn record_log_point(
    workspace: &Workspace,
    about: &AgentEvent,
    breakpoint: &Breakpoint,
    message: Option<&str>,
    at: Timestamp,
) -> Result<(), EngineError> {
    let summary = format!("log point {}: {}", breakpoint.id, message.unwrap_or(&about.summary));
    // The whole message, because a summary is one short line.
    let input = message.map(|message| json!({ "breakpoint": breakpoint.id, "message": message }));
    let summary = payload::summary_line(&summary);
    record_own_event(workspace, related_report(about, StepKind::BreakpointHit, summary, input, at))
}

/// Records the user's answer to a stopped agent; `answer` is `None` if the wait timed out.
pub fn record_decision(
    workspace: &Workspace,
    about: &AgentEvent,
    stop: &Stop,
    answer: Option<&StopAnswer>,
    at: Timestamp,
) -> Result<(), EngineError> {
    let summary = match answer {
        Some(StopAnswer::Resume) => format!("resumed: {}", about.summary),
        Some(StopAnswer::Deny { reason }) => format!("denied: {reason}"),
        Some(StopAnswer::Edit { .. }) if !accepts_changed_input(&about.agent) => {
            format!("input edited, to be called again: {}", about.summary)
        }
        Some(StopAnswer::Edit { .. }) => format!("input edited: {}", about.summary),
        None => "no answer in time; denied".into(),
    };
    let input = json!({ "before": stop.input, "answer": answer, "call": about.call });
    let mut report =
        related_report(about, StepKind::Decision, payload::summary_line(&summary), Some(input), at);
    // The user may have edited files while the agent was stopped; those changes are not the call's, which has not run yet.
    if about.kind == StepKind::ToolStart {
        report.scan_policy = ScanPolicy::Checkpoint(Trigger::Automatic);
    }
    if let Some(call) = about.call.clone() {
        let micros = u64::try_from(at.as_micros() - stop.at.as_micros()).unwrap_or(0);
        let edited = matches!(answer, Some(StopAnswer::Edit { .. }));
        report.call.status = CallStatus::Waited { call, micros, edited };
    }
    record_own_event(workspace, report)
}

/// In a rerun, records a decision of the user that is repeated from the recorded session.
pub fn record_repeated_decision(
    workspace: &Workspace,
    about: &AgentEvent,
    decision: &RecordedDecision,
    at: Timestamp,
) -> Result<(), EngineError> {
    let mut input = decision.input.clone();
    if let Some(fields) = input.as_object_mut() {
        fields.insert("call".into(), json!(about.call));
    }
    let summary = decision.summary.clone();
    record_own_event(workspace, related_report(about, StepKind::Decision, summary, Some(input), at))
}

/// Start of the summary of a step that records a message from the user to a working agent.
pub const MESSAGE_PREFIX: &str = "message: ";

/// Records a message that the user left for the agent and that the model gets with this event.
pub fn record_message(
    workspace: &Workspace,
    about: &AgentEvent,
    text: &str,
    at: Timestamp,
) -> Result<(), EngineError> {
    let summary = payload::summary_line(&format!("{MESSAGE_PREFIX}{text}"));
    let with = match about.kind {
        StepKind::UserInput => "prompt",
        StepKind::ToolStart => "start",
        _ => "end",
    };
    let input = json!({ "text": text, "with": with, "call": about.call });
    record_own_event(workspace, related_report(about, StepKind::AgentStep, summary, Some(input), at))
}

fn accepts_changed_input(agent: &str) -> bool {
    Agent::parse(agent).is_none_or(HookAnswer::can_change_input)
}

/// Records the end of a call that was refused and will not run.
pub fn record_refusal(
    workspace: &Workspace,
    about: &AgentEvent,
    reason: &str,
    at: Timestamp,
) -> Result<(), EngineError> {
    let event = AgentEvent {
        kind: StepKind::ToolEnd,
        summary: payload::summary_line(&format!("not run: {}", about.summary)),
        output: Some(json!({ "denied": reason })),
        error: None,
        raw: None,
        ..about.clone()
    };
    let mut report = ReportedEvent::new(event, at);
    report.call.status = CallStatus::NeverRan;
    record_own_event(workspace, report)
}

/// Records an event that stepback itself adds to a session.
fn record_own_event(workspace: &Workspace, mut report: ReportedEvent) -> Result<(), EngineError> {
    // What a user typed can hold a secret too.
    redact_event(&mut report.event);
    let lock = workspace.lock_recording()?;
    // Notes that other hooks left meanwhile are about earlier events.
    record_inbox_locked(workspace, &lock)?;
    workspace.record(&lock, &report)?;
    Ok(())
}

/// Returns the report of an event of the same session about the same call that is neither its start nor its end.
fn related_report(
    about: &AgentEvent,
    kind: StepKind,
    summary: String,
    input: Option<Value>,
    at: Timestamp,
) -> ReportedEvent {
    let event = AgentEvent {
        tool: about.tool.clone(),
        worker: about.worker.clone(),
        input,
        ..AgentEvent::new(&about.agent, &about.session, kind, summary)
    };
    ReportedEvent::new(event, at)
}
