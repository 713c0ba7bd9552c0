//! Records the events of a service as steps of its workspace.

use axum::http::StatusCode;
use serde_json::Value;
use stepback_agents::record::redact_event;
use stepback_engine::recorder::{EventSource, RecordLock, ReportedEvent, SessionMilestone, SessionUpdate};
use stepback_engine::{Engine, EngineError, Workspace};
use stepback_model::event::AgentEvent;
use stepback_model::record::{self, StepKind};
use stepback_otlp::TelemetrySource;
use stepback_otlp::telemetry::Rejected;

use crate::problem::Problem;

/// Events recorded by one commit.
const AT_ONCE: usize = 512;

/// Returns the name of the workspace of a service. The mapping is one to one.
pub fn name(service: &TelemetrySource) -> String {
    // Slashes in a name are escaped, so that the separator is unambiguous.
    let written = |name: &str| name.replace('%', "%25").replace('/', "%2F");
    match &service.namespace {
        Some(namespace) => format!("{}/{}", written(namespace), written(&service.name)),
        None => written(&service.name),
    }
}

/// Returns the root of the workspace of a service.
pub fn workspace_root(service: &TelemetrySource) -> Vec<u8> {
    [record::WorkspaceRecord::REMOTE, name(service).as_bytes()].concat()
}

/// Opens the workspace of a service; creates it if it is new.
pub fn open_workspace(engine: &Engine, service: &TelemetrySource) -> Result<Workspace, EngineError> {
    engine.open_remote_workspace(&name(service))
}

/// Records the events of one workspace; those recorded before are skipped. An event that cannot be recorded does not fail the
/// others.
pub fn record_events(
    workspace: &Workspace,
    events: Vec<AgentEvent>,
    rejected: &mut Rejected,
) -> Result<(), EngineError> {
    let lock = workspace.lock_recording()?;
    let mut reports = events.into_iter().map(|event| build_report(workspace, event)).collect::<Vec<_>>();
    while !reports.is_empty() {
        let some: Vec<ReportedEvent> = reports.drain(..reports.len().min(AT_ONCE)).collect();
        match workspace.record_batch(&lock, &some) {
            Err(EngineError::Json(_)) => record_one_by_one(workspace, &lock, &some, rejected)?,
            Err(other) => return Err(other),
            Ok(_) => {}
        }
    }
    Ok(())
}

fn record_one_by_one(
    workspace: &Workspace,
    lock: &RecordLock,
    reports: &[ReportedEvent],
    rejected: &mut Rejected,
) -> Result<(), EngineError> {
    for report in reports {
        match workspace.record(lock, report) {
            Err(EngineError::Json(why)) => rejected.add(why.to_string()),
            Err(other) => return Err(other),
            Ok(_) => {}
        }
    }
    Ok(())
}

fn build_report(workspace: &Workspace, mut event: AgentEvent) -> ReportedEvent {
    redact_event(&mut event);
    let at = event.at.unwrap_or_else(|| workspace.engine.env.now());
    // Duplicates are recognised by their ids, whenever they arrive.
    ReportedEvent {
        source: EventSource::Imported,
        update: session_update(&event),
        ..ReportedEvent::new(event, at)
    }
}

/// What an event says about its session.
fn session_update(event: &AgentEvent) -> SessionUpdate {
    let cost = event.metadata.as_ref().and_then(|metadata| metadata.get("cost_usd")?.as_f64());
    // An answer without tool calls is a turn of its own; one with calls is counted by these.
    let is_answer = event.kind == StepKind::ModelEnd
        && event.error.is_none()
        && event.output.as_ref().is_some_and(|output| !has_tool_calls(output));
    SessionUpdate {
        model: event.tool.clone().filter(|_| event.kind == StepKind::ModelEnd),
        cost: cost.map_or(0, |dollars| (dollars * 1e6).round() as u64),
        milestone: is_answer.then_some(SessionMilestone::Answered),
        ..SessionUpdate::default()
    }
}

fn has_tool_calls(output: &Value) -> bool {
    let messages = output.get("messages").and_then(Value::as_array);
    messages.is_some_and(|messages| messages.iter().any(|message| message.get("tool_calls").is_some()))
}

/// Turns an error into 503, so that the sender retries: whatever the reason, it still has the data.
pub fn retryable_problem(error: EngineError) -> Problem {
    Problem::from(error).with_status(StatusCode::SERVICE_UNAVAILABLE)
}
