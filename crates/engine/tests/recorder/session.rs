//! A workspace with a session in it, whose conversation grows in a file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stepback_engine::Workspace;
use stepback_engine::recorder::{
    ModelTurn, NewMessages, RecordedConversation, RecordedStep, ReportedEvent, ScanPolicy,
};
use stepback_model::event::AgentEvent;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
pub use stepback_testkit::TestWorkspace;
pub use stepback_testkit::test_workspace::START;

/// The conversation of a session, as lines in a file beside the workspace.
pub struct TranscriptFile(PathBuf);

impl TranscriptFile {
    pub fn new(place: &TestWorkspace) -> Self {
        Self(place.top().join("transcript"))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Adds a line to the conversation.
    pub fn say(&self, line: &Value) {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

/// Lines of a file, read from where the last reading ended. A line `{"turn": T, "calls": [C]}` asks for calls.
impl TranscriptFile {
    fn new_messages(&self, recorded: &RecordedConversation<'_>, event: &AgentEvent) -> Option<NewMessages> {
        let cursor = recorded.cursor();
        let read = |name: &str| cursor.and_then(|cursor| cursor[name].as_u64()).unwrap_or(0);
        let (mut offset, mut count) = (read("offset") as usize, read("count"));
        let bytes = fs::read(&self.0).ok()?;
        if offset > bytes.len() {
            (offset, count) = (0, 0);
        }
        let text = std::str::from_utf8(&bytes[offset..]).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_string).collect();
        let mut tail = recorded.tail(count, 256).unwrap();
        let first = count - tail.len() as u64;
        tail.extend(lines.iter().cloned());
        let call = event.call.as_deref().filter(|_| event.kind == StepKind::ToolStart);
        Some(NewMessages {
            keep: Some(count),
            start_cursor: cursor.cloned(),
            cursor: Some(json!({ "offset": bytes.len(), "count": count + lines.len() as u64 })),
            turn: call.and_then(|call| Self::find_turn(first, &tail, call)),
            lines,
        })
    }

    fn find_turn(first: u64, tail: &[String], call: &str) -> Option<ModelTurn> {
        let asks = |line: &String| line.contains("\"calls\"") && line.contains(&format!("\"{call}\""));
        let before = tail.iter().rposition(asks)?;
        let line: Value = serde_json::from_str(&tail[before]).ok()?;
        Some(ModelTurn { before: first + before as u64, id: line["turn"].as_str().map(str::to_string) })
    }
}

/// An event of a session.
pub fn event(session: &str, kind: StepKind, call: &str) -> AgentEvent {
    let is_call = matches!(kind, StepKind::ToolStart | StepKind::ToolEnd);
    AgentEvent {
        key: (!call.is_empty()).then(|| call.to_string()),
        call: is_call.then(|| call.to_string()),
        tool: is_call.then(|| "Tool".to_string()),
        ..AgentEvent::new("test", session, kind, format!("{} {call}", kind.as_str()))
    }
}

/// A report of an event, `seconds` after the start.
pub fn report(event: AgentEvent, effect: ScanPolicy, seconds: i64) -> ReportedEvent {
    let at = Timestamp::from_micros(START + seconds * 1_000_000);
    ReportedEvent { scan_policy: effect, ..ReportedEvent::new(event, at) }
}

#[track_caller]
pub fn record(workspace: &Workspace, report: &ReportedEvent) -> RecordedStep {
    let lock = workspace.lock_recording().unwrap();
    workspace.record(&lock, report).unwrap()
}

/// Records an event with what is new in its conversation.
#[track_caller]
pub fn record_reading(
    workspace: &Workspace,
    transcript: &TranscriptFile,
    mut report: ReportedEvent,
) -> RecordedStep {
    let lock = workspace.lock_recording().unwrap();
    let step = workspace.open_step(&lock, &report).unwrap();
    report.messages =
        step.conversation().and_then(|recorded| transcript.new_messages(&recorded, &report.event));
    step.record(&report).unwrap()
}
