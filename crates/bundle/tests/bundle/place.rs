//! A workspace in which agents and a person work at random, and stores that its sessions are taken to.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use stepback_bundle::{Bundle, BundleError, ImportReport};
use stepback_engine::Workspace;
use stepback_engine::prune::Rules;
use stepback_engine::recorder::{NewMessages, ReportedEvent, ScanPolicy};
use stepback_engine::rewind::RewindRequest;
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::record::{Annotation, Session, StepKind, Trigger};
use stepback_store::port::{StepQuery, StepRow};
use stepback_testkit::TestWorkspace;
use stepback_testkit::tree::{self, Copy, Draw};
use stepback_testkit::work::FileWorker;

/// A store that sessions are exported from or imported into.
pub struct BundleStore(TestWorkspace);

impl Deref for BundleStore {
    type Target = TestWorkspace;

    fn deref(&self) -> &TestWorkspace {
        &self.0
    }
}

impl BundleStore {
    pub fn new(seed: u64) -> Self {
        Self(TestWorkspace::new().with_seed(seed))
    }

    pub fn in_memory(seed: u64) -> Self {
        Self(TestWorkspace::in_memory().with_seed(seed))
    }

    /// Takes in a bundle.
    pub fn import(&self, bytes: &[u8]) -> Result<ImportReport, BundleError> {
        let path = self.top().join("bundle");
        fs::write(&path, bytes).unwrap();
        let engine = self.engine();
        let bundle = Bundle::open(fs::File::open(&path).unwrap(), None)?;
        stepback_bundle::import(&engine, &bundle)
    }

    /// That nothing is there, and nothing is wrong.
    #[track_caller]
    pub fn expect_nothing(&self) {
        assert_eq!(self.store.workspaces().unwrap(), []);
        assert_eq!(self.store.references("").unwrap(), []);
        let problems = self.engine().verify_objects().unwrap().problems;
        assert!(problems.is_empty(), "{problems:?}");
    }

    /// The steps of a session, oldest first.
    pub fn steps(&self, session: &Session) -> Vec<StepRow> {
        let query = StepQuery { session: Some(session.id), oldest_first: true, ..StepQuery::default() };
        self.store.steps(session.workspace, &query).unwrap()
    }

    pub fn session(&self, of: &Session) -> Session {
        self.store.session(of.id).unwrap().expect("the session is there")
    }

    /// Everything that can be seen of a session, but for numbers and what only its own place knows.
    pub fn view(&self, session: &Session) -> Vec<Value> {
        let engine = self.engine();
        let workspace = engine.open_session_workspace(session).unwrap();
        let mut seen = vec![json!([
            session.id,
            session.agent,
            session.started_at,
            session.info.title,
            session.info.iteration,
            stepback_model::conversation::texts(&*self.store, session.info.tip).unwrap(),
        ])];
        for stored in self.steps(session) {
            let step = &stored.step;
            let files = match workspace.load_state(&stored) {
                Ok(state) => json!(state),
                Err(error) => json!(error.to_string().split('#').next()),
            };
            seen.push(json!([
                step.id,
                step.kind,
                step.at,
                step.summary,
                step.meta,
                workspace.load_detail(step).unwrap(),
                stored.annotation,
                stored.trigger,
                stored.hidden_by,
                stored.purged,
                files,
            ]));
        }
        seen
    }

    /// The files of a step with its git directories, brought back into a directory; `None` if there are none to bring back.
    pub fn files(&self, session: &Session, stored: &StepRow) -> Option<Copy> {
        let engine = self.engine();
        let workspace = engine.open_session_workspace(session).unwrap();
        let state = workspace.load_state(stored).ok()?;
        let into = self.top().join("brought back");
        workspace.materialize(&state, &into, true).unwrap();
        let copy = tree::copy_of(&into, |_| false);
        fs::remove_dir_all(&into).unwrap();
        Some(copy)
    }
}

/// A home with a workspace in it.
pub struct BusyWorkspace {
    pub home: BundleStore,
    pub root: PathBuf,
    files: FileWorker,
    said: Vec<String>,
    calls: u64,
}

impl BusyWorkspace {
    pub fn new(seed: u64) -> Self {
        let home = BundleStore::new(seed);
        let root = home.root.clone();
        let files = FileWorker { root: root.clone(), draw: Draw::new(seed) };
        Self { home, root, files, said: Vec::new(), calls: 0 }
    }

    /// Makes the workspace a repository with commits. Random work goes on beside it: git's own files are not for others to change.
    pub fn with_git(mut self) -> Self {
        self.files.root = self.root.join("src");
        fs::create_dir(&self.files.root).unwrap();
        let run = |arguments: &[&str]| {
            let names = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"];
            let mut command = Command::new("git");
            command.args(names).args(arguments).current_dir(&self.root);
            command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("HOME", self.home.top());
            assert!(command.output().unwrap().status.success(), "git {arguments:?}");
        };
        run(&["init", "-q", "-b", "main"]);
        for name in ["one", "two"] {
            let text = format!("{name}\n").repeat(200);
            fs::write(self.root.join(name), text).unwrap();
            run(&["add", "."]);
            run(&["commit", "-q", "-m", name]);
        }
        run(&["gc", "-q"]);
        fs::write(self.root.join("three"), "three\n").unwrap();
        run(&["add", "."]);
        run(&["commit", "-q", "-m", "three"]);
        self
    }

    fn report(&self, session: &str, kind: StepKind, key: &str, effect: ScanPolicy) -> ReportedEvent {
        let failed = kind == StepKind::ToolEnd && key.ends_with('3');
        let event = AgentEvent {
            key: Some(key.into()),
            call: Some(key.into()),
            tool: Some("Edit".into()),
            input: Some(json!({ "call": key, "text": "x".repeat(key.len() * 40) })),
            output: (kind == StepKind::ToolEnd).then(|| json!([key, { "deep": [1, 2, { "x": null }] }])),
            error: failed
                .then(|| ReportedError { message: "it went wrong".into(), ..ReportedError::default() }),
            duration: Some(1234),
            ..AgentEvent::new("test", session, kind, format!("{} {key}", kind.as_str()))
        };
        let at = self.home.env.now();
        ReportedEvent { scan_policy: effect, ..ReportedEvent::new(event, at) }
    }

    /// One call of an agent, which changes files at random.
    pub fn call(&mut self, session: &str) {
        self.calls += 1;
        let key = format!("{session}-{}", self.calls);
        self.said.push(json!({ "role": "assistant", "content": format!("now {key}") }).to_string());
        for _ in 0..self.files.draw.below(4) {
            self.files.change();
        }
        self.record(self.report(session, StepKind::ToolStart, &key, ScanPolicy::Before));
        for _ in 0..self.files.draw.below(4) {
            self.files.change();
        }
        self.record(self.report(session, StepKind::ToolEnd, &key, ScanPolicy::After));
        self.record(self.report(session, StepKind::AgentStep, &format!("{key}!"), ScanPolicy::None));
    }

    /// Records an event with everything that was said so far.
    fn record(&self, mut report: ReportedEvent) {
        let engine = self.home.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        let lock = workspace.lock_recording().unwrap();
        let step = workspace.open_step(&lock, &report).unwrap();
        report.messages = step.conversation().map(|recorded| {
            let keep = recorded.cursor().and_then(Value::as_u64).unwrap_or(0);
            NewMessages {
                keep: Some(keep),
                lines: self.said.iter().skip(keep as usize).cloned().collect(),
                start_cursor: recorded.cursor().cloned(),
                cursor: Some(self.said.len().into()),
                turn: None,
            }
        });
        step.record(&report).unwrap();
    }

    /// Something a person does: a checkpoint, a note, a rewind, an undo, a branch, a prune.
    pub fn person(&mut self) {
        let engine = self.home.engine();
        let workspace = engine.open_workspace_root(&self.root).unwrap();
        let steps = self.home.store.checkpoints(workspace.record.id).unwrap();
        let visible: Vec<&StepRow> = steps.iter().filter(|stored| stored.hidden_by.is_none()).collect();
        let number = self.files.draw.below(1000);
        let annotation = Annotation {
            label: Some(format!("label {number}")),
            note: Some("a \"note\"\nof two lines".into()),
            tags: vec!["tag".into(), format!("t{number}")],
        };
        if visible.is_empty() || self.files.draw.once_in(4) {
            workspace.create_checkpoint(annotation, Trigger::Manual).unwrap();
            return;
        }
        let some = (*self.files.draw.pick(&visible)).clone();
        match self.files.draw.below(5) {
            0 => {
                workspace.annotate(&some, annotation).unwrap();
            }
            1 => {
                let request =
                    RewindRequest { target: Some(some), everything: true, ..RewindRequest::default() };
                if let Ok(prepared) = workspace.prepare_rewind(&request) {
                    let _ = workspace.apply_rewind(prepared);
                }
            }
            2 => {
                let _ = workspace.create_branch(&format!("branch-{number}"), &some);
            }
            3 => {
                if let Ok(reversal) = workspace.prepare_undo(None) {
                    let _ = workspace.apply_reversal(reversal, stepback_engine::undo::UndoDirection::Undo);
                }
            }
            _ => prune(&workspace, self.files.draw.below(10)),
        }
    }

    pub fn sessions(&self) -> Vec<Session> {
        self.home.engine().open_workspace_root(&self.root).unwrap().agent_sessions().unwrap()
    }

    pub fn export(&self, sessions: &[Session]) -> Vec<u8> {
        let mut bytes = Vec::new();
        stepback_bundle::export(&self.home.engine(), sessions, &mut bytes).unwrap();
        bytes
    }
}

fn prune(workspace: &Workspace, keep: usize) {
    let rules = Rules { keep_last: Some(keep), now: keep.is_multiple_of(2), ..Rules::default() };
    let plan = workspace.plan_prune(rules).unwrap();
    workspace.prune(plan).unwrap();
}

/// A world with one session of a few calls.
pub fn small(seed: u64) -> BusyWorkspace {
    let mut world = BusyWorkspace::new(seed);
    for _ in 0..4 {
        world.call("one");
        world.person();
    }
    world
}
