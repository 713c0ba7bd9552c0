//! The command `stepback init`: hooks in the settings of agents, and what a new user wants to know and decide then.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stepback_agents::install::{self, InstallDirection, InstallPlan, InstallScope, SettingsPaths};

use super::agents::{current_exe_path, find_settings_paths, install_failure, parse_agent};
use super::{CommandResult, DONE, checkpoint, mirror};
use crate::args::Arguments;
use crate::args::live::InitArgs;
use crate::context::{self, Context, CreateStore};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};
use crate::protection::{ProtectionLevel, describe_protection};
use crate::store_location::StoreLocation;

/// The label of the checkpoint that is made with the hooks.
const FIRST_LABEL: &str = "before the agent";

/// Runs `stepback init`.
pub fn init(global: &Arguments, arguments: &InitArgs) -> CommandResult {
    let (directory, json) = (global.working_directory()?, global.json);
    let root = context::natural_root(&directory);
    if !arguments.user && !arguments.uninstall && !global.allow_broad {
        refuse_broad_root(&root)?;
    }
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
    let wants_server = arguments.mcp || offer_server(global, arguments);
    let scope = if arguments.user { InstallScope::User } else { InstallScope::Project };
    let direction = if arguments.uninstall { InstallDirection::Uninstall } else { InstallDirection::Install };
    let binary = current_exe_path()?;
    let mut plans: Vec<(String, InstallPlan)> = Vec::new();
    for agent in agents {
        // Plan everything first: unreadable settings must not leave half of the agents set up.
        let hooks = install::plan(agent, scope, &place, &binary, arguments.strict, direction)
            .map_err(install_failure)?;
        let server = (wants_server || arguments.uninstall)
            .then(|| install::plan_server(agent, scope, &place, &binary, direction, Some(&hooks)));
        let server = server.transpose().map_err(install_failure)?;
        plans.push((agent.name().to_owned(), hooks));
        // When everything is removed, a server that was never installed is not worth mentioning.
        let server = server.filter(|server| wants_server || !server.is_unchanged());
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
    let is_installed = !arguments.dry_run && !arguments.uninstall;
    if is_installed && !json {
        print_coverage();
    }
    let protection = (!arguments.uninstall).then(|| protect(global, arguments)).transpose()?;
    if json {
        output::print_document(&json!({ "items": items, "protection": protection }));
    } else if !arguments.dry_run && plans.iter().any(|(_, plan)| !plan.is_unchanged()) && !arguments.uninstall
    {
        let user = if arguments.user { " --user" } else { "" };
        output::print_status(Paint::stderr().dim(format!("\"stepback init{user} --uninstall\" removes it.")));
    }
    if is_installed && !json && !arguments.user && output::can_ask() {
        offer_first_checkpoint(global)?;
    }
    DONE
}

/// Refuses a home directory or file system: hooks record nothing there, because everything below it would be covered.
fn refuse_broad_root(root: &Path) -> Result<(), CommandFailure> {
    if !context::is_broad(root) {
        return Ok(());
    }
    let what = format!("{} is the root or a home directory, not a project", root.display());
    Err(CommandFailure::new(FailureKind::Refused, what).with_hint(
        "change to a project directory, or use \"stepback init --user\" to record agents in all of your projects",
    ))
}

/// Asks whether the agents also get stepback's tools, if there is a terminal to ask on.
fn offer_server(global: &Arguments, arguments: &InitArgs) -> bool {
    let asks = !(global.json || arguments.dry_run || arguments.uninstall);
    asks && output::confirm(
        "Also give the agents stepback's tools (an MCP server), so that they can look back and rewind by themselves?",
    ) == Some(true)
}

/// Says what checkpoints cover, because most users expect what git covers.
fn print_coverage() {
    output::print_status(
        "Checkpoints also cover files that git does not track or that .gitignore names, such as .env; caches such as node_modules are left out. \"stepback status --excluded\" lists what is left out, and .stepbackignore adds to it.",
    );
}

/// Asks whether to save everything now, if there is a terminal to ask on and nothing is saved yet. Otherwise the agent's first
/// hook would do it, and the agent would wait for that.
fn offer_first_checkpoint(global: &Arguments) -> Result<(), CommandFailure> {
    let context = Context::open(global, CreateStore::Yes, "files scanned")?;
    let root = context.find_workspace_root()?;
    let is_saved = match context.engine().open_known_workspace(&root) {
        Ok(workspace) => workspace.head_id()?.is_some(),
        Err(_) => false,
    };
    if !is_saved
        && output::confirm("Save everything as it is now, so that the agent need not wait for it?")
            == Some(true)
    {
        checkpoint::create(&context, Some(FIRST_LABEL.to_owned()), None, Vec::new())?;
    }
    Ok(())
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
