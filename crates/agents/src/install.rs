//! Adds stepback's hooks to an agent's own settings, and removes them again.
//!
//! [`plan()`] reads and decides, [`apply_plan`] writes: what would change can be shown first. A plan holds the whole file before
//! and after, and is carried out only if the file still is the one it was made for. Everything else in the file stays the
//! same to the byte; installing twice changes nothing; uninstalling restores the previous file. [`plan_run`] gives one run
//! of an agent the same hooks without a lasting change.
//!
//! Nothing here reads the environment, looks for a home or prints: [`SettingsPaths`] says where things are.

mod claude;
mod codex;
mod gemini;
mod hooks;
mod inspect;
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

pub use self::inspect::{
    DisablingSetting, HookCondition, HookInspection, are_reviewed, find_disabling_setting, find_moved_hooks,
    inspect, plan_repair,
};
pub use self::parse::Position;
pub use self::plan::{InstallPlan, plan};
pub use self::route::{
    PROXY_BLOCKING_VARIABLES, Route, find_blocking_variable, find_routes, route_through_proxy,
};
pub use self::run::{HookedCommand, RunPlan, detect_agent, launcher_words, plan_run};
pub use self::server::plan_server;
pub use self::write::{WriteResult, apply_plan, plan_undo};
use crate::Agent;

/// The directories in which agents' settings are looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsPaths {
    /// The user's home.
    pub home: PathBuf,
    /// The directory the agent works in.
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
    /// Returns the default paths.
    pub fn from_home(home: &Path, workspace: &Path) -> Self {
        Self {
            home: home.to_owned(),
            workspace: workspace.to_owned(),
            claude_dir: home.join(".claude"),
            codex_home: home.join(".codex"),
            gemini_dir: home.join(".gemini"),
            opencode_config_dir: home.join(".config/opencode"),
        }
    }

    /// Returns `path` for display, with a tilde for the home.
    pub fn display_path(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) if !rest.as_os_str().is_empty() => format!("~/{}", rest.display()),
            _ => path.display().to_string(),
        }
    }

    fn agent_dirs(&self, agent: Agent) -> [PathBuf; 2] {
        match agent {
            Agent::Claude => [self.claude_dir.clone(), self.workspace.join(".claude")],
            Agent::Codex => [self.codex_home.clone(), self.workspace.join(".codex")],
            Agent::Gemini => [self.gemini_dir.clone(), self.workspace.join(".gemini")],
            Agent::Opencode => [self.opencode_config_dir.clone(), self.workspace.join(".opencode")],
        }
    }
}

/// Where hooks apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstallScope {
    /// In this workspace only.
    Project,
    /// In everything the user does.
    User,
}

/// Whether to install or uninstall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstallDirection {
    /// Add the hooks, or update them.
    Install,
    /// Remove the hooks.
    Uninstall,
}

/// Returns the agents in use: those with a directory of their own in the home or the workspace, and those with a program in
/// `path`, the directories of the `PATH` variable.
pub fn detect_agents(paths: &SettingsPaths, path: &[PathBuf]) -> Vec<Agent> {
    let has_program = |agent: Agent| path.iter().any(|dir| dir.join(agent.name()).is_file());
    let has_dir = |agent| paths.agent_dirs(agent).iter().any(|dir| dir.is_dir());
    Agent::ALL.into_iter().filter(|&agent| has_dir(agent) || has_program(agent)).collect()
}

/// Why hooks could not be installed or removed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The settings do not parse.
    #[error(
        "{file} is invalid: {what} at {position}. Nothing was changed; fix the file and try again",
        file = file.display()
    )]
    InvalidSettings {
        /// The settings file.
        file: PathBuf,
        /// Where the error is in the file.
        position: Position,
        /// What is wrong.
        what: String,
    },
    /// The settings contain something that makes the agent ignore or refuse them, including the hooks.
    #[error(
        "{file} has {what} at {position}, which {agent} does not support. Nothing was changed; remove it and try again",
        file = file.display(), agent = agent.title()
    )]
    UnsupportedSyntax {
        /// The settings file.
        file: PathBuf,
        /// The agent that owns the settings.
        agent: Agent,
        /// Where it is in the file.
        position: Position,
        /// What the agent does not accept.
        what: &'static str,
    },
    /// The settings are not UTF-8.
    #[error("{} is not UTF-8 text. Nothing was changed; save it as UTF-8 and try again", .0.display())]
    NotText(PathBuf),
    /// A file with the name of stepback's own was not written by stepback.
    #[error("{} was not written by stepback. Nothing was changed; move it and try again", .0.display())]
    NotOwnFile(PathBuf),
    /// The settings changed between planning and carrying out.
    #[error("{} was changed by another process meanwhile. Nothing was changed; try again", .0.display())]
    Changed(PathBuf),
    /// The settings file is read-only.
    #[error("{} is read-only. Nothing was changed; make it writable and try again", .0.display())]
    ReadOnly(PathBuf),
    /// The settings are a dangling symbolic link, or not a regular file.
    #[error("{} is not a file that can be written. Nothing was changed", .0.display())]
    NotAFile(PathBuf),
    /// A link in the workspace leads out of it.
    #[error(
        "{} is outside the workspace, through a symbolic link. Nothing was changed; replace the link by a file and try \
         again",
        .0.display()
    )]
    Outside(PathBuf),
    /// The path of the stepback program cannot be written to a settings file: it is relative, or not UTF-8.
    #[error("the path of stepback, {}, must be absolute and UTF-8 to be used in an agent's settings", .0.display())]
    InvalidBinaryPath(PathBuf),
    /// Settings given as an option of the command to run do not parse.
    #[error("the settings given with {option} cannot be read: {what}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// What is wrong.
        what: String,
    },
    /// An I/O error.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl InstallError {
    fn io_error(file: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { file: file.to_owned(), source }
    }
}

/// The hook command that is installed.
struct HookCommand<'a> {
    agent: Agent,
    binary: &'a str,
    strict: bool,
}

impl<'a> HookCommand<'a> {
    fn new(agent: Agent, binary: &'a Path, strict: bool) -> Result<Self, InstallError> {
        let text = binary.to_str().filter(|_| binary.is_absolute());
        let Some(binary) = text else { return Err(InstallError::InvalidBinaryPath(binary.to_owned())) };
        Ok(Self { agent, binary, strict })
    }

    fn args(&self) -> Vec<String> {
        let mut args = vec!["hook".to_owned(), self.agent.name().to_owned()];
        args.extend(self.strict.then(|| "--strict".to_owned()));
        args
    }
}
