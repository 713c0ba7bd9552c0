//! A workspace with a session in it, whose conversation grows in a file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stepback_engine::Workspace;
use stepback_engine::recorder::{
    CallOrigin, ConversationSource, ModelTurn, NewMessages, RecordedStep, ReportedEvent, ScanPolicy,
    SessionUpdate,
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
impl ConversationSource for TranscriptFile {
    fn fresh(&self, cursor: Option<&Value>) -> Option<NewMessages> {
        let read = |name: &str| cursor.and_then(|cursor| cursor[name].as_u64()).unwrap_or(0);
        let (mut offset, mut count) = (read("offset") as usize, read("count"));
        let bytes = fs::read(&self.0).ok()?;
        if offset > bytes.len() {
            (offset, count) = (0, 0);
        }
        let text = std::str::from_utf8(&bytes[offset..]).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_string).collect();
        let cursor = json!({ "offset": bytes.len(), "count": count + lines.len() as u64 });
        Some(NewMessages { keep: count, lines, cursor })
    }

    fn turn(&self, tail: &[&str], call: &str) -> CallOrigin {
        let turn = self.asking(tail, call);
        CallOrigin { settled: turn.is_some(), turn }
    }
}

impl TranscriptFile {
    fn asking(&self, tail: &[&str], call: &str) -> Option<ModelTurn> {
        let asks = |line: &&str| line.contains("\"calls\"") && line.contains(&format!("\"{call}\""));
        let before = tail.iter().rposition(asks)?;
        let line: Value = serde_json::from_str(tail[before]).ok()?;
        Some(ModelTurn { before, id: line["turn"].as_str().map(str::to_string) })
    }
}

/// An event of a session.
pub fn event(session: &str, kind: StepKind, call: &str) -> AgentEvent {
    let is_call = matches!(kind, StepKind::ToolStart | StepKind::ToolEnd);
    AgentEvent {
        agent: "test".into(),
        session: session.into(),
        kind,
        at: None,
        key: (!call.is_empty()).then(|| call.to_string()),
        call: is_call.then(|| call.to_string()),
        tool: is_call.then(|| "Tool".to_string()),
        worker: None,
        summary: format!("{} {call}", kind.as_str()),
        input: None,
        output: None,
        error: None,
        duration: None,
        metadata: None,
        raw: None,
    }
}

/// A report of an event, `seconds` after the start.
pub fn report<'a>(event: AgentEvent, effect: ScanPolicy, seconds: i64) -> ReportedEvent<'a> {
    ReportedEvent {
        event,
        effect,
        at: Timestamp::from_micros(START + seconds * 1_000_000),
        conversation: None,
        paths: Vec::new(),
        learned: SessionUpdate::default(),
    }
}

#[track_caller]
pub fn record(workspace: &Workspace, report: &ReportedEvent<'_>) -> RecordedStep {
    let lock = workspace.lock_recording().unwrap();
    workspace.record(&lock, report).unwrap()
}
