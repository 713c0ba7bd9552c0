//! A workspace that is a git repository, in which a session makes calls.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stepback_engine::Workspace;
use stepback_engine::recorder::{CallFacts, ChangeScope, ReportedEvent, ScanPolicy};
use stepback_model::event::AgentEvent;
use stepback_model::record::{Annotation, Session, StepKind, Trigger};
use stepback_model::time::Timestamp;
use stepback_testkit::TestWorkspace;
use stepback_testkit::test_workspace::START;

/// A workspace, and a clock of its events.
pub struct Place {
    /// The workspace's directory and store.
    pub test: TestWorkspace,
    /// The workspace.
    pub workspace: Workspace,
    events: Cell<i64>,
}

impl Place {
    /// A workspace without a repository.
    pub fn plain() -> Self {
        let test = TestWorkspace::in_memory();
        let workspace = test.engine().open_workspace_root(&test.root).unwrap();
        Self { test, workspace, events: Cell::new(0) }
    }

    /// A workspace with a repository and one commit.
    pub fn new() -> Self {
        let place = Self::plain();
        place.git(&["init", "-q", "-b", "main"]);
        place.test.write("readme", "one\ntwo\n");
        place.commit("first");
        place
    }

    /// Runs git in the workspace.
    pub fn git(&self, arguments: &[&str]) -> String {
        git(&self.test.root, arguments)
    }

    /// Commits everything.
    pub fn commit(&self, subject: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        self.git(&["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// Makes a checkpoint.
    pub fn checkpoint(&self) {
        self.workspace.create_checkpoint(Annotation::default(), Trigger::Manual).unwrap();
    }

    fn record(&self, session: &str, kind: StepKind, summary: &str, path: Option<&str>) {
        let number = self.events.get();
        self.events.set(number + 1);
        let call = matches!(kind, StepKind::ToolStart | StepKind::ToolEnd)
            .then(|| format!("c{}", number - i64::from(kind == StepKind::ToolEnd)));
        let policy = match kind {
            StepKind::ToolStart => ScanPolicy::Before,
            StepKind::ToolEnd => ScanPolicy::After,
            _ => ScanPolicy::None,
        };
        let event = AgentEvent {
            key: Some(format!("k{number}")),
            tool: call.as_ref().map(|_| "Edit".to_owned()),
            call,
            ..AgentEvent::new("test", session, kind, summary.to_owned())
        };
        let facts = match path {
            Some(path) => {
                CallFacts { paths: vec![path.into()], scope: ChangeScope::NamedPaths, ..CallFacts::default() }
            }
            None => CallFacts::default(),
        };
        let at = Timestamp::from_micros(START + number * 1_000_000);
        let report = ReportedEvent { scan_policy: policy, call: facts, ..ReportedEvent::new(event, at) };
        let lock = self.workspace.lock_recording().unwrap();
        self.workspace.record(&lock, &report).unwrap();
    }

    /// The user's prompt.
    pub fn prompt(&self, session: &str, text: &str) {
        self.record(session, StepKind::UserInput, text, None);
    }

    /// A call that does something.
    pub fn call(&self, session: &str, path: Option<&str>, work: impl FnOnce()) {
        self.record(session, StepKind::ToolStart, "call begins", path);
        work();
        self.record(session, StepKind::ToolEnd, &format!("edit {}", path.unwrap_or("by a shell")), path);
    }

    /// A call that writes a file.
    pub fn edit(&self, session: &str, path: &str, text: &str) {
        self.call(session, Some(path), || self.test.write(path, text));
    }

    /// The record of a session.
    pub fn session(&self, name: &str) -> Session {
        let sessions = self.workspace.store().sessions(self.workspace.record.id).unwrap();
        sessions.into_iter().find(|session| session.info.external.as_deref() == Some(name)).unwrap()
    }

    /// Every file of the git directory, with its content and time of change.
    pub fn git_files(&self) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64)> {
        let mut files = BTreeMap::new();
        let mut rest = vec![self.test.root.join(".git")];
        while let Some(dir) = rest.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let metadata = entry.path().symlink_metadata().unwrap();
                if metadata.is_dir() {
                    rest.push(entry.path());
                    continue;
                }
                let content = fs::read(entry.path()).unwrap();
                files.insert(entry.path(), (content, metadata.mtime(), metadata.mtime_nsec()));
            }
        }
        files
    }

    /// The files that were added to the git directory; fails if another one changed or is gone.
    #[track_caller]
    pub fn added_git_files(&self, before: &BTreeMap<PathBuf, (Vec<u8>, i64, i64)>) -> Vec<String> {
        let after = self.git_files();
        for (path, content) in before {
            assert!(after.get(path) == Some(content), "{} changed", path.display());
        }
        let added = after.keys().filter(|path| !before.contains_key(*path));
        let inside = |path: &PathBuf| {
            path.strip_prefix(self.test.root.join(".git")).unwrap().to_string_lossy().into_owned()
        };
        added.map(inside).collect()
    }
}

/// Runs git, which has to succeed.
#[track_caller]
pub fn git(dir: &Path, arguments: &[&str]) -> String {
    let output = try_git(dir, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs git.
pub fn try_git(dir: &Path, arguments: &[&str]) -> Output {
    Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([("GIT_AUTHOR_NAME", "Ann"), ("GIT_AUTHOR_EMAIL", "ann@example.org")])
        .envs([("GIT_COMMITTER_NAME", "Bob"), ("GIT_COMMITTER_EMAIL", "bob@example.org")])
        .output()
        .unwrap()
}
