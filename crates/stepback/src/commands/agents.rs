//! The commands `stepback init`, `stepback import` and `stepback settings`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stepback_agents::install::{self, InstallDirection, InstallPlan, InstallScope, SettingsPaths};
use stepback_agents::transcript::{self, TranscriptCursor};
use stepback_agents::{Agent, import};

use super::share::ImportFormat;
use super::{CommandResult, DONE, budget, mirror};
use crate::args::Arguments;
use crate::args::live::InitArgs;
use crate::context::{self, Context};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};
use crate::protection::{ProtectionLevel, describe_protection};
use crate::settings::{SETTINGS, Settings};
use crate::store_location::StoreLocation;

fn parse_agent(name: &str) -> Result<Agent, CommandFailure> {
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

/// Runs `stepback init`.
pub fn init(global: &Arguments, arguments: &InitArgs) -> CommandResult {
    let (directory, json) = (global.working_directory()?, global.json);
    let root = context::natural_root(&directory);
    let place = find_settings_paths(&root)?;
    let path: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    let agents = match arguments.agents.as_slice() {
        [] => install::detect_agents(&place, &path),
        named => named.iter().map(|name| parse_agent(name)).collect::<Result<_, _>>()?,
    };
    if agents.is_empty() {
        return Err(CommandFailure::new(FailureKind::Nothing, "no agent that stepback knows is in use here")
            .with_hint("choose one: stepback init --agent claude (or codex, gemini, opencode)"));
    }
    let scope = if arguments.user { InstallScope::User } else { InstallScope::Project };
    let direction = if arguments.uninstall { InstallDirection::Uninstall } else { InstallDirection::Install };
    let binary = current_exe_path()?;
    let mut plans: Vec<(String, InstallPlan)> = Vec::new();
    for agent in agents {
        // Plan everything first: unreadable settings must not leave half of the agents set up.
        let hooks = install::plan(agent, scope, &place, &binary, arguments.strict, direction)
            .map_err(install_failure)?;
        let server = (arguments.mcp || arguments.uninstall)
            .then(|| install::plan_server(agent, scope, &place, &binary, direction, Some(&hooks)));
        let server = server.transpose().map_err(install_failure)?;
        plans.push((agent.name().to_owned(), hooks));
        // When everything is removed, a server that was never installed is not worth mentioning.
        let server = server.filter(|server| arguments.mcp || !server.is_unchanged());
        plans.extend(server.map(|server| (format!("{}-mcp", agent.name()), server)));
    }
    let mut items = Vec::new();
    for (id, plan) in &plans {
        if !arguments.dry_run && !plan.is_unchanged() {
            install::apply_plan(plan).map_err(install_failure)?;
        }
        items.push(json!({
            "id": id,
            "agent": plan.agent.name(),
            "file": plan.file,
            "changed": !plan.is_unchanged(),
            "applied": !arguments.dry_run,
            "changes": plan.changes,
            "follow_up": plan.follow_up,
        }));
        if !json {
            print_install_plan(plan, &place, arguments);
        }
    }
    let protection = (!arguments.uninstall).then(|| protect(global, arguments)).transpose()?;
    if json {
        output::print_document(&json!({ "items": items, "protection": protection }));
    } else if !arguments.dry_run && plans.iter().any(|(_, plan)| !plan.is_unchanged()) && !arguments.uninstall
    {
        let user = if arguments.user { " --user" } else { "" };
        output::print_status(Paint::stderr().dim(format!("\"stepback init{user} --uninstall\" removes it.")));
    }
    DONE
}

/// Protects the store as the user chose, and says how it is protected. Returns that as a document.
fn protect(global: &Arguments, arguments: &InitArgs) -> Result<Value, CommandFailure> {
    let added = match &arguments.mirror {
        Some(place) if !arguments.dry_run => mirror::add_at_init(global, place)?,
        Some(place) if !global.json => {
            output::print_line(format!("would: copy every commit to {place}, append-only"));
            None
        }
        _ => None,
    };
    let location = StoreLocation::find(global.store.as_deref())?;
    let protection = describe_protection(&location);
    if !global.json {
        output::print_status(format!("The store is {}.", protection.text));
        if protection.level == Some(ProtectionLevel::Local) && arguments.mirror.is_none() {
            output::print_status(Paint::stderr().dim(
                "For more, use a store that a server guards (--store unix:/run/stepback/store.sock), or --mirror PLACE; docs/guide/protection.md compares them.",
            ));
        }
    }
    // Hooks find the store by the environment of the agent, not by the arguments of this command.
    let for_hooks = StoreLocation::parse(&context::default_store()?)?;
    if for_hooks != location {
        output::print_status(format!(
            "Warning: hooks record into {}; where agents start, set STEPBACK_HOME={}",
            for_hooks.display_text(),
            location.display_text()
        ));
    }
    Ok(json!({
        "level": protection.level.map(ProtectionLevel::as_str),
        "text": protection.text,
        "mirror": added,
    }))
}

/// Turns an error about settings that cannot be changed into a failure.
pub fn install_failure(error: install::InstallError) -> CommandFailure {
    CommandFailure::new(FailureKind::Refused, error.to_string())
}

fn print_install_plan(plan: &InstallPlan, place: &SettingsPaths, arguments: &InitArgs) {
    let paint = Paint::stdout();
    let title = paint.strong(plan.agent.title());
    if plan.is_unchanged() {
        let state = if arguments.uninstall { "has no stepback hooks" } else { "is set up already" };
        output::print_line(format!("{title}: {state} ({})", place.display_path(&plan.file)));
    }
    let would = if arguments.dry_run && !plan.is_unchanged() { "would: " } else { "" };
    for change in &plan.changes {
        output::print_line(format!("{title}: {would}{change}"));
    }
    for line in &plan.follow_up {
        output::print_line(format!("  {} {line}", paint.note("→")));
    }
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

/// Runs `stepback settings`.
pub fn settings(context: &Context, key: Option<&str>, value: Option<&str>) -> CommandResult {
    if key == Some(crate::disk_budget::setting::KEY) {
        return budget::set(context, value);
    }
    let mut settings = Settings::load(context.store_location().local_dir())?;
    let known = |key: &str| {
        SETTINGS.iter().find(|known| known.key == key).ok_or_else(|| {
            let names = SETTINGS.iter().map(|known| known.key);
            let names: Vec<&str> = names.chain([crate::disk_budget::setting::KEY]).collect();
            CommandFailure::new(FailureKind::Usage, format!("unknown setting {key}"))
                .with_hint(format!("known settings are {}", names.join(", ")))
        })
    };
    if let Some(key) = key {
        known(key)?;
    }
    if let (Some(key), Some(value)) = (key, value) {
        let number = match value {
            "default" => None,
            text => Some(text.parse::<i64>().ok().filter(|number| *number >= 0).ok_or_else(|| {
                CommandFailure::new(FailureKind::Usage, format!("\"{text}\" is not a number"))
                    .with_hint("use a non-negative number, or \"default\"")
            })?),
        };
        settings.set(key, number)?;
        if key == crate::watcher::SETTING && number == Some(0) {
            // A running watcher ends too; if it cannot be reached, it ends when it gets no more requests.
            let _ = super::watcher::stop_watcher(context.store_location().local_dir());
        }
    }
    let shown = SETTINGS.iter().filter(|known| key.is_none_or(|key| key == known.key));
    if context.json {
        let items: Vec<_> = shown
            .map(|known| {
                json!({
                    "id": known.key,
                    "value": settings.get(known.key),
                    "default": known.default,
                    "set": settings.is_set(known.key),
                    "meaning": known.description,
                })
            })
            .chain(key.is_none().then(|| budget::setting_document(&settings)))
            .collect();
        output::print_document(&json!({ "items": items }));
        return DONE;
    }
    if key.is_none() {
        budget::print_setting(&settings);
    }
    let paint = Paint::stdout();
    for known in shown {
        let mark = if settings.is_set(known.key) { "" } else { " (default)" };
        output::print_line(format!(
            "{:<22} {:>6}{}  {}",
            paint.strong(known.key),
            settings.get(known.key),
            paint.dim(mark),
            paint.dim(known.description)
        ));
    }
    DONE
}
