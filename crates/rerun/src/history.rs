//! Restores the conversation before a prompt in the home of an agent that is rerun from that prompt.
//!
//! An agent that begins in the middle of a session, or at the beginning of one that continues another, needs the conversation
//! so far. It is forked as a user would fork it, only into the home of the rerun.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use stepback_agents::Agent;
use stepback_agents::fork::{self, ForkMode, ForkSource};
use stepback_agents::transcript::{AgentDirs, MessageRole, TranscriptLocation, parse_messages};
use stepback_engine::{EngineError, Workspace};
use stepback_model::conversation;
use stepback_model::record::StepRow;
use stepback_model::state::WorkspaceState;

use crate::RerunError;
use crate::run::{RerunRequest, RunEnv, io_error};

/// Whether there is an answer of the model before the prompt at `from`. A session that was forked or resumed begins with the
/// conversation that it continues.
pub(crate) fn has_history(
    agent: Agent,
    request: &RerunRequest<'_>,
    from: &StepRow,
    original: &Workspace,
) -> Result<bool, RerunError> {
    // opencode keeps conversations in a database, which may have the answer already when the prompt is recorded.
    if agent == Agent::Opencode && request.recorded.session.info.forked_from.is_none() {
        return Ok(false);
    }
    let state = WorkspaceState::load(original.store(), from.step.state).map_err(EngineError::from)?;
    let lines = conversation::texts(original.store(), state.conversation).map_err(EngineError::from)?;
    Ok(parse_messages(agent, &lines)
        .iter()
        .any(|message| message.role == MessageRole::Assistant && message.worker.is_none()))
}

/// Writes the conversation as it was at `from` into `home`; returns the session, or the file, to continue.
pub(crate) fn write_history(
    agent: Agent,
    request: &RerunRequest<'_>,
    from: &StepRow,
    original: &Workspace,
    run_env: &RunEnv<'_>,
    home: &Path,
    directory: &Path,
) -> Result<String, RerunError> {
    let info = &request.recorded.session.info;
    let cannot_restore = |reason: String| {
        RerunError::NotApplicable(format!(
            "the conversation cannot continue from that prompt: {reason}; start with an earlier one"
        ))
    };
    let state = WorkspaceState::load(original.store(), from.step.state).map_err(EngineError::from)?;
    let lines = conversation::texts(original.store(), state.conversation).map_err(EngineError::from)?;
    let home = AgentDirs::from_home(home);
    let transcript =
        info.transcript.as_ref().map(Path::new).ok_or_else(|| cannot_restore("it was not stored".into()))?;
    // Forks are written beside the original if an agent has no better place; so the original is copied into this home first.
    let path = match agent {
        Agent::Opencode => home.opencode_db(),
        _ => {
            let name = transcript.file_name().unwrap_or_default();
            let copy = home.gemini.join("tmp/rerun/chats").join(name);
            if let Some(dir) = copy.parent() {
                fs::create_dir_all(dir).map_err(io_error("make a directory for the conversation"))?;
            }
            match fs::copy(transcript, &copy) {
                Ok(_) => copy,
                Err(_) => transcript.to_path_buf(),
            }
        }
    };
    let location = TranscriptLocation { agent, path, session: info.external.clone().unwrap_or_default() };
    let recorded_dir = info.directory.as_ref().map_or(run_env.original_root, Path::new);
    let source = ForkSource { location: &location, cwd: recorded_dir, home: &home, lines: &lines };
    let fork = fork::plan(
        &source,
        &fork::ForkOptions {
            keep: lines.len(),
            cwd: directory,
            id: run_env.scratch.engine.env.fresh_id(),
            now: run_env.scratch.engine.env.now(),
            mode: ForkMode::Interactive,
        },
    )
    .map_err(|error| cannot_restore(error.to_string()))?;
    for write in &fork.writes {
        if let Some(dir) = write.path.parent() {
            fs::create_dir_all(dir).map_err(io_error("make a directory for the conversation"))?;
        }
        fs::write(&write.path, &write.bytes).map_err(io_error("write the conversation"))?;
    }
    if let Some(prepare) = &fork.prepare {
        run_import(&prepare.command, run_env, directory).map_err(cannot_restore)?;
    }
    // Gemini CLI finds a conversation by its file if it does not know the directory.
    let by_file = fork.command.iter().position(|word| word == "--session-file");
    let file = by_file.and_then(|index| fork.command.get(index + 1));
    Ok(file.cloned().unwrap_or(fork.session))
}

/// Runs the agent's own import of a conversation, in the home of the rerun.
fn run_import(command: &[String], run_env: &RunEnv<'_>, directory: &Path) -> Result<(), String> {
    let home = run_env.host.dir.join("home");
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .envs(run_env.host.environment.iter().map(|(name, value)| (name, value)))
        .env("HOME", &home)
        .env("XDG_DATA_HOME", home.join(".local/share"))
        .env("XDG_CONFIG_HOME", home.join(".config"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
