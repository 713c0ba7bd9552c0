//! A workspace with a session in it, whose conversation grows in a file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stepback_engine::recorder::{
    CallOrigin, ConversationSource, ModelTurn, NewMessages, RecordedStep, ReportedEvent, ScanPolicy,
    SessionUpdate,
};
use stepback_engine::{Engine, Workspace};
use stepback_model::env::FrozenEnv;
use stepback_model::event::AgentEvent;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::memory::MemoryStore;
use stepback_testkit::tree;
use stepback_worktree::rules::Budget;

/// When the clock of these tests starts: 2023-11-14T22:13:20Z.
pub const START: i64 = 1_700_000_000_000_000;

/// A directory with a workspace in it, and a store.
pub struct Place {
    _dir: tempfile::TempDir,
    pub root: PathBuf,
    pub transcript: PathBuf,
    store: Box<dyn Store>,
    env: FrozenEnv,
}

impl Place {
    pub fn new() -> Self {
        Self::with(|dir| Box::new(EmbeddedStore::open(&dir.join("store")).unwrap()))
    }

    pub fn in_memory() -> Self {
        Self::with(|_| Box::new(MemoryStore::new(1 << 30)))
    }

    fn with(store: impl FnOnce(&Path) -> Box<dyn Store>) -> Self {
        let dir = tempfile::tempdir_in(tree::scratch_place()).unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("work");
        fs::create_dir(&root).unwrap();
        let store = store(&top);
        let env = FrozenEnv::new(Timestamp::from_micros(START), 1);
        Self { _dir: dir, root, transcript: top.join("transcript"), store, env }
    }

    pub fn engine(&self) -> Engine<'_> {
        Engine {
            store: &*self.store,
            env: &self.env,
            budget: Budget::default(),
            threads: 2,
            progress: None,
            watcher: None,
        }
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.root.join(name), text).unwrap();
    }

    /// Adds a line to the conversation.
    pub fn say(&self, line: &Value) {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&self.transcript).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

/// Lines of a file, read from where the last reading ended. A line `{"turn": T, "calls": [C]}` asks for calls.
impl ConversationSource for Place {
    fn fresh(&self, cursor: Option<&Value>) -> Option<NewMessages> {
        let read = |name: &str| cursor.and_then(|cursor| cursor[name].as_u64()).unwrap_or(0);
        let (mut offset, mut count) = (read("offset") as usize, read("count"));
        let bytes = fs::read(&self.transcript).ok()?;
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

impl Place {
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
pub fn record(workspace: &Workspace<'_>, report: &ReportedEvent<'_>) -> RecordedStep {
    let lock = workspace.lock_recording().unwrap();
    workspace.record(&lock, report).unwrap()
}
