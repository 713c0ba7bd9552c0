//! Putting our hooks into an agent's own settings, and taking them out again.
//!
//! [`plan`] reads and decides, [`carry_out`] writes: what would change can be shown before it does. A plan holds the whole
//! file before and after, and is carried out only on the file it was made for. Everything else in the file stays as it is to
//! the byte; to install twice changes nothing; to uninstall gives back the file of before. [`run_command`] gives one run of
//! an agent the same hooks without a lasting change.
//!
//! Nothing here reads the environment, looks for a home or prints: [`SettingsPaths`] says where things are.

mod claude;
mod codex;
mod gemini;
mod hooks;
pub mod jsonc;
mod opencode;
mod parse;
mod plan;
mod route;
mod run;
mod server;
mod value;
mod write;

use std::io;
use std::path::{Path, PathBuf};

pub use self::parse::Position;
pub use self::plan::{Plan, plan};
pub use self::route::{IN_THE_WAY, Route, in_the_way, routes, through};
pub use self::run::{Run, RunPlan, agent_of, launcher, run_command};
pub use self::server::plan_server;
pub use self::write::{Done, carry_out, take_back};
use crate::Agent;

/// Where an agent's settings are looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsPaths {
    /// The user's home.
    pub home: PathBuf,
    /// The folder the agent works in.
    pub workspace: PathBuf,
    /// Claude Code's folder: `~/.claude`, or what `CLAUDE_CONFIG_DIR` says.
    pub claude_dir: PathBuf,
    /// Codex's home: `~/.codex`, or what `CODEX_HOME` says.
    pub codex_home: PathBuf,
    /// Gemini CLI's folder: `.gemini` in the home, or in what `GEMINI_CLI_HOME` says.
    pub gemini_dir: PathBuf,
    /// opencode's folder: `opencode` in `~/.config`, or in what `XDG_CONFIG_HOME` says.
    pub opencode_config_dir: PathBuf,
}

impl SettingsPaths {
    /// The usual places.
    pub fn usual(home: &Path, workspace: &Path) -> Self {
        Self {
            home: home.to_owned(),
            workspace: workspace.to_owned(),
            claude_dir: home.join(".claude"),
            codex_home: home.join(".codex"),
            gemini_dir: home.join(".gemini"),
            opencode_config_dir: home.join(".config/opencode"),
        }
    }

    /// `path` the way people write it, with a tilde for the home.
    pub fn show(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) if !rest.as_os_str().is_empty() => format!("~/{}", rest.display()),
            _ => path.display().to_string(),
        }
    }

    fn dirs(&self, agent: Agent) -> [PathBuf; 2] {
        match agent {
            Agent::Claude => [self.claude_dir.clone(), self.workspace.join(".claude")],
            Agent::Codex => [self.codex_home.clone(), self.workspace.join(".codex")],
            Agent::Gemini => [self.gemini_dir.clone(), self.workspace.join(".gemini")],
            Agent::Opencode => [self.opencode_config_dir.clone(), self.workspace.join(".opencode")],
        }
    }
}

/// For which work the hooks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// For this workspace.
    Project,
    /// For everything the user does.
    User,
}

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Put the hooks in, or bring them up to date.
    Install,
    /// Take them out.
    Uninstall,
}

/// The agents in use: those with a folder of theirs in the home or the workspace, and those with a program in `path`, the
/// folders that programs are looked for in.
pub fn detect(place: &SettingsPaths, path: &[PathBuf]) -> Vec<Agent> {
    let has_program = |agent: Agent| path.iter().any(|dir| dir.join(agent.name()).is_file());
    let has_dir = |agent| place.dirs(agent).iter().any(|dir| dir.is_dir());
    Agent::ALL.into_iter().filter(|&agent| has_dir(agent) || has_program(agent)).collect()
}

/// Why hooks could not be put in or taken out. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The settings are not what the agent writes.
    #[error(
        "{file} is broken: {what} at {position}. Nothing was changed; mend the file there and try again",
        file = file.display()
    )]
    Broken {
        /// The settings.
        file: PathBuf,
        /// Where in them.
        position: Position,
        /// What is wrong.
        what: String,
    },
    /// The settings have something in them that makes the agent ignore or refuse them, hooks and all.
    #[error(
        "{file} has {what} at {position}, which {agent} does not read. Nothing was changed; take it out and try again",
        file = file.display(), agent = agent.title()
    )]
    Unreadable {
        /// The settings.
        file: PathBuf,
        /// Whose.
        agent: Agent,
        /// Where in them.
        position: Position,
        /// What it is.
        what: &'static str,
    },
    /// The settings are not UTF-8.
    #[error("{} is not UTF-8 text. Nothing was changed; save it as UTF-8 and try again", .0.display())]
    NotText(PathBuf),
    /// A file that we did not write has the name of ours.
    #[error("{} was not written by stepback. Nothing was changed; move it away and try again", .0.display())]
    NotOurs(PathBuf),
    /// The settings changed between planning and carrying out.
    #[error("{} was changed by someone else just now. Nothing was changed; try again", .0.display())]
    Changed(PathBuf),
    /// The settings may not be written.
    #[error("{} is read-only. Nothing was changed; make it writable and try again", .0.display())]
    ReadOnly(PathBuf),
    /// The settings are a symbolic link that leads nowhere, or something else than a file.
    #[error("{} is not a file that can be written. Nothing was changed", .0.display())]
    NotAFile(PathBuf),
    /// The path of the stepback program cannot stand in a settings file: it is relative, or not UTF-8.
    #[error("the path of stepback, {}, must be absolute and UTF-8 to stand in an agent's settings", .0.display())]
    Binary(PathBuf),
    /// A command to run has a setting that cannot be read.
    #[error("the settings given with {option} cannot be read: {what}")]
    Option {
        /// The option.
        option: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The machine said no.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl InstallError {
    fn io(file: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { file: file.to_owned(), source }
    }
}

/// The command that the agents are to call.
struct Hook<'a> {
    agent: Agent,
    binary: &'a str,
    strict: bool,
}

impl<'a> Hook<'a> {
    fn new(agent: Agent, binary: &'a Path, strict: bool) -> Result<Self, InstallError> {
        let text = binary.to_str().filter(|_| binary.is_absolute());
        let Some(binary) = text else { return Err(InstallError::Binary(binary.to_owned())) };
        Ok(Self { agent, binary, strict })
    }

    fn args(&self) -> Vec<String> {
        let mut args = vec!["hook".to_owned(), self.agent.name().to_owned()];
        args.extend(self.strict.then(|| "--strict".to_owned()));
        args
    }
}
