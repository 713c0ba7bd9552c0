//! The command `stepback import`, and what commands about agents and their settings share.

use std::path::{Path, PathBuf};

use serde_json::json;
use stepback_agents::install::{self, SettingsPaths};
use stepback_agents::transcript::{self, TranscriptCursor};
use stepback_agents::{Agent, import};

use super::share::ImportFormat;
use super::{CommandResult, DONE};
use crate::context::{self, Context};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

pub(super) fn parse_agent(name: &str) -> Result<Agent, CommandFailure> {
    Agent::parse(name).ok_or_else(|| {
        let known: Vec<&str> = Agent::ALL.iter().map(|agent| agent.name()).collect();
        CommandFailure::new(FailureKind::Usage, format!("\"{name}\" is not an agent stepback knows"))
            .with_hint(format!("known agents are {}", known.join(", ")))
    })
}

/// Returns where the agents' settings are, according to the agents' own environment variables.
pub fn find_settings_paths(workspace: &Path) -> Result<SettingsPaths, CommandFailure> {
    let home = context::home_dir().ok_or_else(|| {
        CommandFailure::new(FailureKind::System, "HOME is not set, so the agents' settings cannot be found")
    })?;
    let mut place = SettingsPaths::from_home(&home, workspace);
    if let Some(dir) = context::path_variable("CLAUDE_CONFIG_DIR") {
        place.claude_dir = dir;
    }
    if let Some(dir) = context::path_variable("CODEX_HOME") {
        place.codex_home = dir;
    }
    if let Some(dir) = context::path_variable("GEMINI_CLI_HOME") {
        place.gemini_dir = dir.join(".gemini");
    }
    if let Some(dir) = context::path_variable("XDG_CONFIG_HOME") {
        place.opencode_config_dir = dir.join("opencode");
    }
    Ok(place)
}

/// Returns the path of this program.
pub fn current_exe_path() -> Result<PathBuf, CommandFailure> {
    Ok(std::env::current_exe().and_then(|path| path.canonicalize())?)
}

/// Turns an error about settings that cannot be changed into a failure.
pub fn install_failure(error: install::InstallError) -> CommandFailure {
    CommandFailure::new(FailureKind::Refused, error.to_string())
}

/// Runs `stepback import`.
pub fn import(context: &Context, path: &Path, agent: Option<&str>) -> CommandResult {
    let path = context.directory.join(path);
    if !path.exists() {
        return Err(CommandFailure::new(FailureKind::System, format!("{} does not exist", path.display())));
    }
    let agent = agent.map(parse_agent).transpose()?;
    match super::share::detect_format(&path)? {
        ImportFormat::Bundle(file) => return super::share::import_bundle(context, &path, file),
        ImportFormat::Lines(file) => return super::share::import_lines(context, &path, file),
        ImportFormat::Other => {}
    }
    let found = transcript::find_transcripts_at(&path, agent);
    if found.is_empty() {
        return Err(CommandFailure::new(
            FailureKind::Nothing,
            format!("{} contains no conversation of a known agent", path.display()),
        )
        .with_hint("specify the agent with --agent, or another file"));
    }
    let engine = context.engine();
    let mut items = Vec::new();
    for found in &found {
        let root =
            found.head.cwd.clone().filter(|dir| dir.is_dir()).unwrap_or_else(|| context.directory.clone());
        let root = context.find_root(&root)?;
        let workspace = engine.open_workspace_root(&root)?;
        let fresh = match transcript::read(&found.location, &TranscriptCursor::default()) {
            Ok(fresh) => fresh,
            Err(error) => {
                output::print_status(format!("Skipped {}: {error}", found.location.path.display()));
                continue;
            }
        };
        let events = import::build_events(&found.location, &fresh.lines);
        let recorded = stepback_agents::record::record_import(&workspace, &found.location, events)?;
        items.push(json!({
            "id": recorded.session,
            "agent": found.location.agent.name(),
            "agent_session": found.location.session,
            "file": found.location.path,
            "workspace": root,
            "steps": recorded.steps,
            "new": recorded.new,
            "watched": recorded.recorded_by_hooks,
        }));
        if recorded.recorded_by_hooks {
            output::print_unless_json(
                context.json,
                &format!("{} was recorded live; nothing to import.", found.location.session),
            );
        }
    }
    if context.json {
        output::print_document(&json!({ "items": items }));
        return DONE;
    }
    let sum = |field: &str| items.iter().filter_map(|item| item[field].as_u64()).sum::<u64>();
    output::print_line(format!(
        "Imported {} with {}, {} of them new.",
        output::count(items.len() as u64, "conversation"),
        output::count(sum("steps"), "step"),
        sum("new")
    ));
    output::print_status(Paint::stderr().dim("\"stepback sessions\" lists them."));
    DONE
}
