//! Real coding agents, run offline against a [scripted model](crate::model).
//!
//! A run has its own network namespace with only a loopback interface, in which the model listens on a fixed port, and a
//! clean environment with the home directory that the test passes: nothing an agent does leaves the machine or changes a
//! real home. [`config`] has what an agent needs to know about its model; [`run`] starts and ends a run.
//!
//! A test binary that runs agents calls `stepback_testkit::scripted_model!();` in its root, because the model is that
//! binary itself, started again inside the namespace.
//!
//! ```ignore
//! let run = RealAgent::claude(&home, &work)
//!     .hooks(json!({ "hooks": { "PreToolUse": [/* … */] } }))
//!     .script(Script::new([Turn::write("a.txt", "a\n"), Turn::text("Done.")]))
//!     .run("write a file")
//!     .succeeds();
//! assert_eq!(run.turns().len(), 2);
//! ```

pub mod config;
pub mod run;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::model::{Script, ScriptedAgent};

pub use run::{AgentRunOutcome, Running};

/// The port of the model, the same in every run: each run has its own loopback interface.
pub const PORT: u16 = 9999;

/// Adds the model to a test binary; call it once, in the root.
#[macro_export]
macro_rules! scripted_model {
    () => {
        /// Runs the model if this process was started for it; otherwise there is nothing to test.
        #[test]
        fn scripted_model() {
            $crate::agent::run::play_if_asked();
        }
    };
}

/// An agent about to be run.
#[derive(Clone, Debug)]
pub struct RealAgent {
    agent: ScriptedAgent,
    home: PathBuf,
    workspace: PathBuf,
    script: Script,
    env: Vec<(OsString, OsString)>,
    path: Vec<PathBuf>,
    args: Vec<OsString>,
    through: Vec<OsString>,
    resume: Option<String>,
    limit: Duration,
    silent: bool,
}

impl RealAgent {
    /// An agent with its home directory and the directory it works in.
    pub fn new(agent: ScriptedAgent, home: impl AsRef<Path>, workspace: impl AsRef<Path>) -> Self {
        Self {
            agent,
            home: home.as_ref().to_owned(),
            workspace: workspace.as_ref().to_owned(),
            script: Script::default(),
            env: Vec::new(),
            path: Vec::new(),
            args: Vec::new(),
            through: Vec::new(),
            resume: None,
            limit: Duration::from_secs(300),
            silent: false,
        }
    }

    /// Claude Code.
    pub fn claude(home: impl AsRef<Path>, workspace: impl AsRef<Path>) -> Self {
        Self::new(ScriptedAgent::Claude, home, workspace)
    }

    /// Codex.
    pub fn codex(home: impl AsRef<Path>, workspace: impl AsRef<Path>) -> Self {
        Self::new(ScriptedAgent::Codex, home, workspace)
    }

    /// Gemini CLI.
    pub fn gemini(home: impl AsRef<Path>, workspace: impl AsRef<Path>) -> Self {
        Self::new(ScriptedAgent::Gemini, home, workspace)
    }

    /// opencode.
    pub fn opencode(home: impl AsRef<Path>, workspace: impl AsRef<Path>) -> Self {
        Self::new(ScriptedAgent::Opencode, home, workspace)
    }

    /// Which agent it is.
    pub fn agent(&self) -> ScriptedAgent {
        self.agent
    }

    /// What its model says.
    #[must_use]
    pub fn script(mut self, script: Script) -> Self {
        self.script = script;
        self
    }

    /// Sets an environment variable. The environment has only what the agent needs to run.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Adds a directory to the front of its search path, for programs that its hooks call.
    #[must_use]
    pub fn path(mut self, directory: impl AsRef<Path>) -> Self {
        self.path.push(directory.as_ref().to_owned());
        self
    }

    /// Adds arguments to its command line.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Starts the agent by another program, which gets the agent's command line after these words.
    #[must_use]
    pub fn through<A: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = A>) -> Self {
        self.through.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Continues an earlier session of the same home.
    #[must_use]
    pub fn resume(mut self, session: &str) -> Self {
        self.resume = Some(session.to_owned());
        self
    }

    /// Runs without a model: no process listens on the model's port.
    #[must_use]
    pub fn without_model(mut self) -> Self {
        self.silent = true;
        self
    }

    /// The time limit of a run, 300 seconds by default: a busy machine must not fail a test.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets hooks for the whole home, as `{"hooks": {…}}` in the agent's own format; Codex is configured to trust them.
    #[must_use]
    pub fn hooks(mut self, hooks: &Value) -> Self {
        match self.agent {
            ScriptedAgent::Claude => self.merge(".claude/settings.json", hooks),
            ScriptedAgent::Gemini => self.merge(".gemini/settings.json", hooks),
            ScriptedAgent::Codex => {
                self.merge(".codex/hooks.json", hooks);
                self.args.push("--dangerously-bypass-hook-trust".into());
            }
            ScriptedAgent::Opencode => panic!("opencode has no hooks but plugins: use `plugin`"),
        }
        self
    }

    /// Puts a plugin of opencode into the home.
    #[must_use]
    pub fn plugin(self, name: &str, source: &str) -> Self {
        assert_eq!(self.agent, ScriptedAgent::Opencode, "only opencode has plugins of this kind");
        self.file(Path::new(".config/opencode/plugin").join(name), source)
    }

    /// Writes a file into the home.
    #[must_use]
    pub fn file(self, name: impl AsRef<Path>, content: &str) -> Self {
        write(&self.home.join(name), content);
        self
    }

    /// Writes the agent's configuration unless it exists; a run does so by itself.
    pub fn prepare(&self) {
        for (name, content) in config::files(self.agent) {
            let path = self.home.join(name);
            if !path.exists() {
                write(&path, &content);
            }
        }
        fs::create_dir_all(self.home.join("tmp")).unwrap();
    }

    /// Runs it on a prompt to its end.
    #[track_caller]
    pub fn run(&self, prompt: &str) -> AgentRunOutcome {
        self.spawn(prompt).wait()
    }

    /// Starts it on a prompt.
    pub fn spawn(&self, prompt: &str) -> Running {
        self.spawn_command(config::command(self.agent, self.resume.as_deref(), &self.args, prompt))
    }

    /// Runs any other command instead of the agent, with the same model, environment and namespace.
    #[track_caller]
    pub fn run_command<A: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = A>) -> AgentRunOutcome {
        self.spawn_command(command).wait()
    }

    /// Starts any other command instead of the agent.
    pub fn spawn_command<A: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = A>) -> Running {
        self.prepare();
        let words = command.into_iter().map(|word| word.as_ref().to_owned());
        run::start(self, self.through.iter().cloned().chain(words).collect())
    }

    /// Adds the fields of `more` to a JSON file of the home.
    fn merge(&self, name: &str, more: &Value) {
        self.prepare();
        let path = self.home.join(name);
        let text = fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
        let mut document: Value = serde_json::from_str(&text).unwrap();
        for (key, value) in more.as_object().expect("hooks are an object") {
            document[key] = value.clone();
        }
        write(&path, &format!("{document:#}\n"));
    }
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}
