//! A home and a git repository for every test, and agents that live and work there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use stepback_model::time::Timestamp;
use stepback_testkit::agent::{RealAgent, Running};
use stepback_testkit::model::ScriptedAgent;
use stepback_testkit::tree;
use tempfile::TempDir;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_stepback");

/// A world for one test.
pub struct AgentProject {
    _dir: TempDir,
    /// `$HOME` of the agent.
    pub home: PathBuf,
    /// The repository it works in.
    pub work: PathBuf,
    /// The store of stepback.
    pub store: PathBuf,
}

impl AgentProject {
    /// A world whose repository holds these files, committed.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let dir = TempDir::with_prefix_in("stepback-agents-", tree::scratch_place()).unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (home, work, store) = (root.join("home"), root.join("work"), root.join("store"));
        for made in [&home, &work] {
            fs::create_dir(made).unwrap();
        }
        let world = Self { _dir: dir, home, work, store };
        for (name, content) in files {
            world.write(name, content);
        }
        world.git(&["init", "--quiet", "--initial-branch=main", "--template="]);
        world.git(&["add", "--all"]);
        world.git(&["commit", "--quiet", "--allow-empty", "-m", "first"]);
        world
    }

    /// An agent that lives and works here and finds `stepback` on its path.
    pub fn agent(&self, agent: ScriptedAgent) -> RealAgent {
        RealAgent::new(agent, &self.home, &self.work)
            .path(Path::new(PROGRAM).parent().unwrap())
            .env("STEPBACK_HOME", &self.store)
            .env("STEPBACK_WATCHER", "ask")
    }

    /// The same agent once its hooks are installed: Codex runs them without a review.
    pub fn hooked(&self, agent: ScriptedAgent) -> RealAgent {
        let real = self.agent(agent);
        if agent == ScriptedAgent::Codex { real.args(["--dangerously-bypass-hook-trust"]) } else { real }
    }

    /// Installs the hooks of an agent, the way a person does.
    #[track_caller]
    pub fn init(&self, agent: ScriptedAgent, scope: &[&str]) {
        self.agent(agent).prepare();
        self.stepback(&[&["init", "--agent", agent.program()], scope].concat());
    }

    /// Runs `stepback` in the repository as a person would, beside the agent; returns what it printed.
    #[track_caller]
    pub fn stepback(&self, arguments: &[&str]) -> String {
        self.try_stepback(&self.store, arguments)
            .unwrap_or_else(|said| panic!("stepback {arguments:?}: {said}"))
    }

    /// The document that a command prints.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.stepback(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Runs `stepback` with a store; gives back its stdout, or all it said if it failed.
    pub fn try_stepback(&self, store: &Path, arguments: &[&str]) -> Result<String, String> {
        self.finish(self.command(store, arguments))
    }

    /// What `stepback` prints when it is this moment.
    #[track_caller]
    pub fn stepback_at(&self, moment: Timestamp, arguments: &[&str]) -> String {
        let mut command = self.command(&self.store, arguments);
        command.env("STEPBACK_TEST_CLOCK", format!("{moment}/1"));
        self.finish(command).unwrap_or_else(|said| panic!("stepback {arguments:?}: {said}"))
    }

    fn command(&self, store: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .current_dir(&self.work)
            .env_clear()
            .env("HOME", &self.home)
            .env("PATH", "/usr/bin:/bin")
            .env("STEPBACK_HOME", store)
            .env("STEPBACK_WATCHER", "ask");
        command
    }

    fn finish(&self, mut command: Command) -> Result<String, String> {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))),
        }
    }

    /// Waits until the agent is stopped at a call whose command contains `command`, and says where.
    #[track_caller]
    pub fn stopped(&self, running: &mut Running, command: &str) -> Value {
        let mut stop = Value::Null;
        running.until(&format!("a stop at {command:?}"), |_| {
            let inspected = self.try_stepback(&self.store, &["inspect", "--json"]).unwrap_or_default();
            let inspected: Value = serde_json::from_str(&inspected).unwrap_or_default();
            stop = inspected["stop"].clone();
            stop["input"]["command"].as_str().is_some_and(|found| found.contains(command))
        });
        stop
    }

    /// The session that stepback recorded for the agent's session `external`.
    #[track_caller]
    pub fn session(&self, external: &str) -> Value {
        let sessions = self.json(&["sessions"]);
        let found = items(&sessions).iter().find(|session| session["agent_session"] == external);
        found.unwrap_or_else(|| panic!("no session {external} in {sessions:#}")).clone()
    }

    /// Fails the test if anything could not be recorded.
    #[track_caller]
    pub fn has_no_gap(&self) {
        let gaps = self.json(&["log", "--kind", "gap"]);
        assert!(items(&gaps).is_empty(), "{gaps:#}");
    }

    /// All files of the repository but those of git.
    pub fn tree(&self) -> tree::Copy {
        tree::copy_of(&self.work, |path| path == b".git")
    }

    /// Fails the test unless the repository holds exactly these files.
    #[track_caller]
    pub fn is(&self, expected: &tree::Copy) {
        let differences = tree::differences(expected, &self.tree());
        assert!(differences.is_empty(), "the files are not what they were:\n{differences}");
    }

    /// Writes a file into the repository.
    pub fn write(&self, name: &str, content: &str) {
        let path = self.work.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Reads a file of the repository; `None` if there is none.
    pub fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.work.join(name)).ok()
    }

    /// Runs git in the repository.
    #[track_caller]
    pub fn git(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command
            .args(arguments)
            .current_dir(&self.work)
            .env("HOME", &self.home)
            .env("GIT_CONFIG_NOSYSTEM", "1");
        for (name, value) in [("NAME", "A"), ("EMAIL", "a@example.org"), ("DATE", "2026-01-01T00:00:00Z")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// The items of a document.
#[track_caller]
pub fn items(document: &Value) -> &Vec<Value> {
    document["items"].as_array().unwrap()
}

/// How many turns the model was asked for so far.
pub fn turns(running: &Running) -> usize {
    running.requests().iter().filter(|request| request.is_turn()).count()
}

/// What an agent's hooks call its shell.
pub fn shell(agent: ScriptedAgent) -> &'static str {
    match agent {
        ScriptedAgent::Claude | ScriptedAgent::Codex => "Bash",
        ScriptedAgent::Gemini => "run_shell_command",
        ScriptedAgent::Opencode => "bash",
    }
}

/// What an agent's hooks call the tool that changes lines of a file.
pub fn editor(agent: ScriptedAgent) -> &'static str {
    match agent {
        ScriptedAgent::Claude => "Edit",
        ScriptedAgent::Codex => "apply_patch",
        ScriptedAgent::Gemini => "replace",
        ScriptedAgent::Opencode => "edit",
    }
}
