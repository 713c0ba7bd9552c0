//! An agent that is not there: its events, fed to `stepback hook` the way a real one would.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::sandbox::{Ran, Sandbox};

/// A session of Claude Code, or of an agent that speaks its dialect.
pub struct Talk<'w> {
    /// Where it happens.
    pub world: &'w Sandbox,
    /// Which agent's hook is called.
    pub agent: &'static str,
    /// The agent's id of the session.
    pub session: String,
    /// Where the agent runs.
    pub cwd: PathBuf,
    /// More words on the hook's command line.
    pub options: Vec<&'static str>,
    /// Number of prompts so far.
    pub prompts: Cell<u32>,
}

impl<'w> Talk<'w> {
    /// A session that has not said anything yet.
    pub fn new(world: &'w Sandbox, session: &str) -> Self {
        Self {
            world,
            agent: "claude",
            session: session.into(),
            cwd: world.work.clone(),
            options: Vec::new(),
            prompts: Cell::new(0),
        }
    }

    /// The world that it works in.
    pub fn world(&self) -> &'w Sandbox {
        self.world
    }

    /// Where its conversation is written.
    pub fn transcript(&self) -> PathBuf {
        self.world.home.join(format!("{}.jsonl", self.session))
    }

    /// Writes lines to the conversation.
    pub fn say(&self, lines: &[Value]) {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(self.transcript()).unwrap();
        for line in lines {
            writeln!(file, "{line}").unwrap();
        }
    }

    /// The payload of an event.
    pub fn payload(&self, name: &str, rest: Value) -> Value {
        let mut fields = Map::new();
        fields.insert("session_id".into(), json!(self.session));
        fields.insert("transcript_path".into(), json!(self.transcript()));
        fields.insert("cwd".into(), json!(self.cwd));
        fields.insert("prompt_id".into(), json!(format!("prompt-{}", self.prompts.get())));
        fields.insert("hook_event_name".into(), json!(name));
        fields.extend(rest.as_object().unwrap().clone());
        Value::Object(fields)
    }

    /// Delivers an event; the hook must end well, and soon.
    #[track_caller]
    pub fn event(&self, name: &str, rest: Value) -> Ran {
        self.give(self.payload(name, rest).to_string().as_bytes()).0
    }

    /// Delivers bytes and says how long it took.
    #[track_caller]
    pub fn give(&self, bytes: &[u8]) -> (Ran, Duration) {
        let begun = Instant::now();
        let ran: Ran = self.start(bytes).wait_with_output().unwrap().into();
        let ran = ran.exits(0);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        assert!(!ran.out.to_lowercase().contains("allow"), "{}", ran.out);
        if !ran.out.is_empty() {
            ran.json();
        }
        (ran, begun.elapsed())
    }

    /// Starts a hook and hands it its payload, without waiting for the answer.
    pub fn start(&self, bytes: &[u8]) -> Child {
        let words = ["hook", self.agent].into_iter().chain(self.options.iter().copied());
        let mut command = self.world.command(words);
        command.current_dir(if self.cwd.is_dir() { &self.cwd } else { &self.world.work });
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // A hook that has seen enough stops reading.
        let _ = input.write_all(bytes);
        child
    }

    /// The session begins.
    #[track_caller]
    pub fn begin(&self) {
        self.event("SessionStart", json!({ "source": "startup", "model": "a-model" }));
    }

    /// A prompt.
    #[track_caller]
    pub fn prompt(&self, text: &str) {
        self.prompts.set(self.prompts.get() + 1);
        self.event("UserPromptSubmit", json!({ "prompt": text }));
    }

    /// A call begins.
    #[track_caller]
    pub fn pre(&self, call: &str, tool: &str, input: Value) -> Ran {
        self.event("PreToolUse", json!({ "tool_name": tool, "tool_input": input, "tool_use_id": call }))
    }

    /// A call has ended.
    #[track_caller]
    pub fn post(&self, call: &str, tool: &str, input: Value) -> Ran {
        self.event(
            "PostToolUse",
            json!({ "tool_name": tool, "tool_input": input, "tool_use_id": call, "tool_response": { "stdout": "" } }),
        )
    }

    /// A call of Bash, from its beginning to its end.
    #[track_caller]
    pub fn bash(&self, call: &str, command: &str, effect: impl FnOnce()) {
        let input = json!({ "command": command });
        self.pre(call, "Bash", input.clone());
        effect();
        self.post(call, "Bash", input);
    }

    /// A call of Write, from its beginning to its end.
    #[track_caller]
    pub fn write(&self, call: &str, name: &str, content: &str) {
        let input = json!({ "file_path": self.cwd.join(name), "content": content });
        self.pre(call, "Write", input.clone());
        fs::write(self.cwd.join(name), content).unwrap();
        self.post(call, "Write", input);
    }

    /// The agent is done with the prompt.
    #[track_caller]
    pub fn stop(&self) -> Ran {
        self.event("Stop", json!({ "stop_hook_active": false, "last_assistant_message": "Done." }))
    }

    /// All steps of this session, oldest first.
    #[track_caller]
    pub fn steps(&self) -> Vec<Value> {
        let mut steps = items(&self.world.json(["log", "--session", &self.session]));
        steps.reverse();
        steps
    }
}

/// The items of a document.
#[track_caller]
pub fn items(document: &Value) -> Vec<Value> {
    document["items"].as_array().unwrap_or_else(|| panic!("no items in {document}")).clone()
}

/// Steps of a kind in the whole log, newest first.
#[track_caller]
pub fn of_kind(world: &Sandbox, kind: &str) -> Vec<Value> {
    items(&world.json(["log", "--kind", kind]))
}

/// The directory of the only workspace in the store.
pub fn workspace_dir(world: &Sandbox) -> PathBuf {
    let mut dirs: Vec<PathBuf> =
        fs::read_dir(world.store.join("workspaces")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    dirs.remove(0)
}

/// Waits until `count` agents are stopped.
#[track_caller]
pub fn until_stopped(world: &Sandbox, count: usize) {
    let control = workspace_dir(world).join("control");
    let begun = Instant::now();
    loop {
        let names = fs::read_dir(&control).map(|entries| {
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.starts_with("stop-")).count()
        });
        if names.is_ok_and(|found| found == count) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "nobody stopped");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Who made the last change of a path, as "stepback changes" says: sessions, by the agent's own ids.
#[track_caller]
pub fn authors_of(world: &Sandbox, path: &str) -> Vec<String> {
    let sessions = items(&world.json(["sessions"]));
    let name = |id: &Value| {
        let found = sessions.iter().find(|session| session["id"] == *id);
        found.map_or_else(|| id.to_string(), |session| session["agent_session"].as_str().unwrap().to_string())
    };
    let changes = items(&world.json(["changes", "--all"]));
    let change = changes.iter().find(|change| change["path"] == path);
    let change = change.unwrap_or_else(|| panic!("{path} is not among {changes:?}"));
    change["authors"].as_array().unwrap().iter().map(|author| name(&author["session"])).collect()
}

/// Every file below a directory.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() && !path.is_symlink() {
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found
}
