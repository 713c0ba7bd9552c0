//! What a session needs to go on after a crash or on another machine, as steps that a program can apply one by one: the code of
//! the last checkpoint, the environment, a command to run again, and what only a person can do.

use serde::Serialize;
use stepback_engine::{EngineError, Workspace, diff};
use stepback_model::record::{Session, StepRow};
use stepback_model::state::{GitState, WorkspaceState};

use crate::command_history::list_commands;

/// The most paths that a step lists.
const MAX_LISTED_PATHS: usize = 50;
/// How many of the last commands are searched for one that failed.
const MAX_SEARCHED_COMMANDS: usize = 20;

/// One step of a recovery.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum RecoveryStep {
    /// Restore the code: the commit that was checked out, and what differed from the present.
    RestoreCode {
        /// The number of the checkpoint.
        checkpoint: u64,
        /// The commit of the workspace's own repository then; `None` without a repository.
        commit: Option<String>,
        /// The branch that was checked out.
        branch: Option<String>,
        /// The paths that differ from the checkpoint now, the first fifty.
        patches: Vec<String>,
        /// How many paths differ.
        differing: usize,
    },
    /// Restore the environment: names of variables, because stepback never stores values.
    RestoreEnvironment {
        /// The names.
        names: Vec<String>,
    },
    /// Run a command again: the last one that failed, else the last one.
    ReplayCommand {
        /// The command line.
        command: String,
        /// The directory it ran in, if known.
        directory: Option<String>,
        /// The number of the step at which it ended.
        step: u64,
    },
    /// What only a person or the agent can do.
    ManualInstruction {
        /// What to do.
        instruction: String,
    },
}

/// Returns the steps of a recovery to a checkpoint, in the order in which they are to be applied. `until` limits the session to
/// steps up to this number.
pub fn plan_recovery_steps(
    workspace: &Workspace,
    session: &Session,
    checkpoint: &StepRow,
    until: Option<u64>,
) -> Result<Vec<RecoveryStep>, EngineError> {
    let state = workspace.load_state(checkpoint)?;
    let mut steps = vec![restore_code(workspace, checkpoint, &state)?];
    let env = match state.env.or(session.info.slots.env) {
        Some(hash) => stepback_model::json::load(workspace.store(), hash)?,
        None => serde_json::Value::Null,
    };
    let names = ["variables", "env", "environment"].iter().find_map(|field| env[field].as_array());
    let names: Vec<String> =
        names.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    if !names.is_empty() {
        steps.push(RecoveryStep::RestoreEnvironment { names });
    }
    let commands = list_commands(workspace, session, until, MAX_SEARCHED_COMMANDS)?;
    if let Some(ran) = commands.iter().find(|ran| ran.is_failure()).or(commands.first()) {
        let (command, directory, step) = (ran.command.clone(), ran.directory.clone(), ran.step);
        steps.push(RecoveryStep::ReplayCommand { command, directory, step });
    }
    let number = checkpoint.step.number;
    let instruction = match state.conversation {
        Some(_) => format!(
            "continue the conversation of {} {}: stepback rewind '#{number}' --conversation",
            session.agent,
            session.id.short()
        ),
        None => "read the page of stepback board recover, and go on from there".to_owned(),
    };
    steps.push(RecoveryStep::ManualInstruction { instruction });
    Ok(steps)
}

fn restore_code(
    workspace: &Workspace,
    checkpoint: &StepRow,
    state: &WorkspaceState,
) -> Result<RecoveryStep, EngineError> {
    let present = workspace.scan_for_display()?.state;
    let changes = diff::compare_visible_files(workspace.store(), &present, state)?;
    let summary = match state.git {
        Some(hash) => {
            let git = GitState::load(workspace.store(), hash)?;
            git.get(b".git").map(|repository| repository.summary.clone())
        }
        None => None,
    };
    let patches = changes.iter().take(MAX_LISTED_PATHS).map(|change| change.path.display().into_owned());
    Ok(RecoveryStep::RestoreCode {
        checkpoint: checkpoint.step.number,
        commit: summary.as_ref().and_then(|summary| summary.commit.clone()),
        branch: summary.and_then(|summary| summary.branch),
        patches: patches.collect(),
        differing: changes.len(),
    })
}
