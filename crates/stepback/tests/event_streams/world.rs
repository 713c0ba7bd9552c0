//! A directory, a store, and agents that report what they do in it.
//!
//! Most cases run the hook code and the engine inside of the test. Some run the real program instead: every hook and every
//! command of the user is a process then. What the store holds is always read by the engine.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use stepback_agents::Agent;
use stepback_agents::hook::Hook;
use stepback_engine::rewind::RewindRequest;
use stepback_engine::undo::UndoDirection;
use stepback_engine::{EngineError, Workspace};
use stepback_model::env::{Env, FrozenEnv};
use stepback_model::path::RelPath;
use stepback_model::record::{Annotation, Operation, Trigger};
use stepback_model::time::Timestamp;
use stepback_store::port::{StepQuery, StepRow};
use stepback_testkit::TestWorkspace;

/// The files that everybody writes to.
pub const PATHS: [&str; 5] = ["a.txt", "b.txt", "c.txt", "notes.md", "src/d.txt"];

/// What the files hold; one that is missing is not there.
pub type Files = BTreeMap<&'static str, String>;

/// A workspace in which agents, the user and commands do what a stream of events says.
pub struct StreamWorkspace {
    test: TestWorkspace,
    /// Whether hooks and commands are processes.
    runs_program: bool,
    pub log: Vec<String>,
}

/// The clock of the processes.
struct SystemClock(FrozenEnv);

impl Env for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap())
    }

    fn fresh_id(&self) -> [u8; 16] {
        self.0.fresh_id()
    }
}

pub fn text(error: EngineError) -> String {
    error.to_string()
}

impl Deref for StreamWorkspace {
    type Target = TestWorkspace;

    fn deref(&self) -> &TestWorkspace {
        &self.test
    }
}

impl StreamWorkspace {
    pub fn new(seed: u64, runs_program: bool) -> Self {
        // With a store on disk, events that change nothing wait in the inbox.
        let test = match runs_program || seed.is_multiple_of(5) {
            true => TestWorkspace::new(),
            false => TestWorkspace::in_memory(),
        };
        fs::create_dir(test.path("src")).unwrap();
        let frozen = FrozenEnv::new(Timestamp::from_micros(1_800_000_000_000_000), seed);
        let mut test = if runs_program { test.with_env(SystemClock(frozen)) } else { test.with_env(frozen) };
        test.threads = 1;
        Self { test, runs_program, log: Vec::new() }
    }

    /// Does something with the workspace, after everything that was reported is recorded.
    pub fn with<T>(&self, work: impl FnOnce(&Workspace) -> T) -> T {
        let engine = self.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        stepback_agents::record::record_inbox(&workspace).unwrap();
        work(&workspace)
    }

    /// Delivers one event to the hook, as the agent does.
    pub fn hook(&self, agent: Agent, payload: &Value) {
        let store = self.top().join("store");
        if self.runs_program {
            let (code, said) = self.run_program(&["hook", agent.name()], payload.to_string().as_bytes());
            assert_eq!((code, said.as_str()), (Some(0), ""), "{payload}");
            return;
        }
        let hook = Hook {
            agent,
            store: &store,
            directory: &self.root,
            env: &*self.env,
            with_engine: &|work| work(&self.engine()),
            new_root: &|directory: &Path| Some(directory.to_path_buf()),
            transcript: None,
            answer_timeout: Duration::ZERO,
            strict: false,
            max_minutes_between_scans: None,
            max_turns_between_scans: None,
            scan_around_calls: true,
            undo_hints: stepback_agents::hook::UndoHints::Off,
            clear_changes_on_commit: false,
            has_proxy: false,
            policy: None,
            find_launch_command: &|| None,
            variable_names: &Vec::new,
        };
        let outcome = hook.handle(payload.to_string().as_bytes());
        assert_eq!(outcome.error, None, "{payload}");
    }

    /// Runs a command of the program. Returns its exit code and what it wrote to standard error.
    fn run_program(&self, arguments: &[&str], input: &[u8]) -> (Option<i32>, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_stepback"))
            .args(arguments)
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.top().join("home"))
            .env("STEPBACK_HOME", self.top().join("store"))
            .env("STEPBACK_WATCHER", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs a command of the user, which may leave something alone.
    fn command(&self, arguments: &[&str]) -> Result<(), String> {
        match self.run_program(arguments, b"") {
            (Some(0 | 5), _) => Ok(()),
            (code, said) => Err(format!("{arguments:?} exits with {code:?}: {said}")),
        }
    }

    pub fn create_checkpoint(&self) -> Result<(), String> {
        if self.runs_program {
            return self.command(&["checkpoint", "create"]);
        }
        let annotation = Annotation::default();
        self.with(|workspace| workspace.create_checkpoint(annotation, Trigger::Manual).map(drop))
            .map_err(text)
    }

    /// Rewinds, and says what became of each path.
    pub fn rewind(&self, request: &RewindRequest) -> Result<String, String> {
        if self.runs_program {
            let mut arguments = vec!["rewind".to_owned(), "--yes".into()];
            arguments.extend(request.target.iter().map(|target| format!("#{}", target.step.number)));
            arguments.extend(request.last.iter().map(|last| format!("--last={last}")));
            arguments.extend(request.changes.iter().map(|change| format!("--change={change}")));
            arguments.extend(request.session.iter().map(|session| format!("--session={session}")));
            arguments.extend(request.all.then(|| "--all".into()));
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            return self.command(&arguments).map(|()| String::new());
        }
        self.with(|workspace| {
            let report = workspace.apply_rewind(workspace.prepare_rewind(request)?)?;
            let left =
                report.left_alone.iter().map(|left| format!("{} left alone: {}", left.path, left.reason));
            let outcomes =
                report.outcomes.iter().map(|(change, outcome)| format!("{} {outcome:?}", change.path));
            Ok(outcomes.chain(left).collect::<Vec<_>>().join(", "))
        })
        .map_err(text)
    }

    pub fn undo(&self, operation: &Operation) -> Result<(), String> {
        if self.runs_program {
            return self.command(&["undo", "--yes", &format!("id:{}", operation.id)]);
        }
        self.with(|workspace| {
            let reversal = workspace.prepare_undo(Some(operation.id))?;
            workspace.apply_reversal(reversal, UndoDirection::Undo).map(drop)
        })
        .map_err(text)
    }

    pub fn create_branch(&self, name: &str, from: &StepRow) -> Result<(), String> {
        if self.runs_program {
            let from = format!("#{}", from.step.number);
            return self.command(&["branch", "create", name, "--from", &from]);
        }
        self.with(|workspace| workspace.create_branch(name, from).map(drop)).map_err(text)
    }

    pub fn switch(&self, name: &str) -> Result<(), String> {
        if self.runs_program {
            return self.command(&["branch", "switch", name, "--yes"]);
        }
        self.with(|workspace| workspace.switch(name, workspace.prepare_switch(name)?).map(drop)).map_err(text)
    }

    pub fn transcript(&self, session: &str) -> PathBuf {
        self.top().join(format!("{session}.jsonl"))
    }

    /// Adds a line to a conversation.
    pub fn say(&self, session: &str, line: &Value) {
        let path = self.transcript(session);
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    pub fn files(&self) -> Files {
        let read = |path: &&'static str| Some((*path, fs::read_to_string(self.root.join(path)).ok()?));
        PATHS.iter().filter_map(read).collect()
    }

    pub fn write(&self, path: &str, text: Option<&str>) {
        let path = self.root.join(path);
        match text {
            Some(text) => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            None => drop(fs::remove_file(path)),
        }
    }

    /// The files at a step, as the store has them.
    pub fn files_at(&self, workspace: &Workspace, step: &StepRow) -> Result<Files, String> {
        let state = workspace.load_state(step).map_err(|error| error.to_string())?;
        let mut files = Files::new();
        for path in PATHS {
            let relative = RelPath::parse(path.as_bytes()).unwrap();
            let found = workspace.read_path(&state, &relative).map_err(|error| error.to_string())?;
            if let Some((_, bytes)) = found {
                files.insert(path, String::from_utf8(bytes).unwrap());
            }
        }
        Ok(files)
    }

    /// Steps after the one with this number, oldest first.
    pub fn steps_after(&self, workspace: &Workspace, number: u64) -> Vec<StepRow> {
        let query = StepQuery { after: Some(number), oldest_first: true, ..StepQuery::default() };
        workspace.store().steps(workspace.record.id, &query).unwrap()
    }

    /// The payload of an event, with what every event has.
    pub fn payload(&self, session: &str, transcript: bool, name: &str, more: Value) -> Value {
        let mut payload = json!({ "session_id": session, "hook_event_name": name, "cwd": self.root });
        if transcript {
            payload["transcript_path"] = json!(self.transcript(session));
        }
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        payload
    }
}
