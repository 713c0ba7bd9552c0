//! `stepback workspace`: listing, creating, moving and forgetting workspaces.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stepback_engine::Workspace;
use stepback_engine::session::not_running_reason;
use stepback_model::path::display_bytes;
use stepback_model::record::WorkspaceRecord;
use stepback_store::port::StepQuery;

use super::confirmation::ask_user;
use super::{CommandResult, DONE};
use crate::args::Arguments;
use crate::args::workspace::WorkspaceCommand;
use crate::context::{Context, CreateStore};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};
use crate::store_location::StoreLocation;

/// Runs `stepback workspace …`.
pub fn run(arguments: &Arguments, command: &WorkspaceCommand) -> CommandResult {
    let create_store = match command {
        WorkspaceCommand::Create { .. } => CreateStore::Yes,
        _ => CreateStore::No,
    };
    let context = &Context::open(arguments, create_store, "")?;
    match command {
        WorkspaceCommand::List { forgotten } => list(context, *forgotten),
        WorkspaceCommand::Create { place } => create(context, place.as_deref()),
        WorkspaceCommand::Move { named, to, yes } => move_to(context, named, to, *yes),
        WorkspaceCommand::Forget { named, yes } => forget(context, named, *yes),
        WorkspaceCommand::Restore { named } => restore(context, named),
    }
}

fn list(context: &Context, forgotten: bool) -> CommandResult {
    let store = context.store();
    let mut records = if forgotten { store.forgotten_workspaces()? } else { store.workspaces()? };
    records.retain(|record| !record.is_rerun());
    // Newest first, as in every list.
    records.reverse();
    let items = records.iter().map(|record| describe(context, record)).collect::<Result<Vec<_>, _>>()?;
    if context.json {
        output::print_document(&json!({ "items": items }));
        return DONE;
    }
    let paint = Paint::stdout();
    for (record, item) in records.iter().zip(&items) {
        let mut notes = Vec::new();
        if item["exists"] == false {
            notes.push("the directory does not exist".to_owned());
        }
        if record.is_freed() {
            notes.push("freed, it cannot come back".to_owned());
        }
        let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
        let number = |name: &str| item[name].as_u64().unwrap_or_default();
        output::print_line(format!(
            "{}  {}: {}, {}, {}{}",
            paint.name(record.id.short()),
            display_bytes(record.former_root()),
            output::count(number("checkpoints"), "checkpoint"),
            output::count(number("steps"), "step"),
            output::count(number("sessions"), "session"),
            paint.note(&notes),
        ));
    }
    if items.is_empty() {
        output::print_status(if forgotten {
            "No workspace is forgotten."
        } else {
            "There is no workspace yet."
        });
    }
    DONE
}

/// A workspace as an item of a list.
fn describe(context: &Context, record: &WorkspaceRecord) -> Result<Value, CommandFailure> {
    let store = context.store();
    let visible = StepQuery {
        checkpoint: Some(true),
        hidden: Some(false),
        limit: Some(0),
        count_all: true,
        ..StepQuery::default()
    };
    let newest = store.steps(record.id, &StepQuery { limit: Some(1), ..StepQuery::default() })?;
    let sessions = store.sessions(record.id)?;
    let root = record.former_root();
    let is_remote = root.starts_with(WorkspaceRecord::REMOTE);
    Ok(json!({
        "id": record.id,
        "root": String::from_utf8_lossy(root),
        "exists": if is_remote { Value::Null } else { json!(to_path(root).is_dir()) },
        "created_at": record.created_at,
        "last_step_at": newest.first().map(|stored| stored.step.at),
        "checkpoints": store.find(Some(record.id), &visible)?.total,
        "steps": newest.first().map_or(0, |stored| stored.step.number),
        "sessions": sessions.iter().filter(|session| session.agent != stepback_model::record::Session::PERSON).count(),
        "forgotten": record.is_forgotten(),
        "freed": record.is_freed(),
    }))
}

fn to_path(root: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(root.to_vec()))
}

/// Finds the workspace that a path or the beginning of an id names.
fn find(
    context: &Context,
    named: &str,
    records: Vec<WorkspaceRecord>,
) -> Result<WorkspaceRecord, CommandFailure> {
    let absolute = std::path::absolute(context.directory.join(named))?;
    let canonical = absolute.canonicalize().unwrap_or_else(|_| absolute.clone());
    let by_path = |record: &&WorkspaceRecord| {
        let root = record.former_root();
        root == named.as_bytes()
            || [&absolute, &canonical].iter().any(|path| path.as_os_str().as_bytes() == root)
    };
    let mut at_path: Vec<_> =
        records.iter().rev().filter(|record| !named.is_empty() && by_path(record)).collect();
    // Of several forgotten ones, those that were freed cannot be meant.
    if at_path.iter().any(|record| !record.is_freed()) {
        at_path.retain(|record| !record.is_freed());
    }
    match at_path.as_slice() {
        [] => {}
        [record] => return Ok((*record).clone()),
        [newest, ..] if newest.is_freed() => return Ok((*newest).clone()),
        several => {
            let ids: Vec<_> = several.iter().map(|record| record.id.short().to_string()).collect();
            return Err(CommandFailure::new(
                FailureKind::Usage,
                format!("{} forgotten workspaces had the path {named}: {}", several.len(), ids.join(", ")),
            )
            .with_hint("name one by its id; \"stepback workspace list --forgotten\" shows what each holds"));
        }
    }
    let wanted = named.to_ascii_lowercase();
    let is_id = wanted.len() >= 4 && wanted.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut found = records.iter().filter(|record| is_id && record.id.to_string().starts_with(&wanted));
    match (found.next(), found.next()) {
        (Some(record), None) => Ok(record.clone()),
        (Some(_), Some(_)) => Err(CommandFailure::new(
            FailureKind::Usage,
            format!("more than one workspace begins with {named}"),
        )
        .with_hint("write more of its id")),
        (None, _) => Err(CommandFailure::new(
            FailureKind::Nothing,
            format!("{named} is neither the path nor the id of a workspace"),
        )
        .with_hint("\"stepback workspace list\" lists them, with --forgotten forgotten ones")),
    }
}

fn open(context: &Context, record: &WorkspaceRecord) -> Result<Workspace, CommandFailure> {
    let found = context.engine().find_workspace(&to_path(&record.root))?;
    found.ok_or_else(|| CommandFailure::new(FailureKind::Nothing, "the workspace is gone"))
}

fn create(context: &Context, directory: Option<&Path>) -> CommandResult {
    let directory =
        directory.map_or_else(|| context.directory.clone(), |given| context.directory.join(given));
    let root = directory.canonicalize().map_err(|error| {
        CommandFailure::new(FailureKind::System, format!("cannot open {}: {error}", directory.display()))
            .with_hint("check that the directory exists")
    })?;
    if !root.is_dir() {
        return Err(CommandFailure::new(
            FailureKind::Usage,
            format!("{} is not a directory", root.display()),
        ));
    }
    let store = context.store();
    if let Some(known) = store.workspace_at(root.as_os_str().as_bytes())? {
        return Err(CommandFailure::new(
            FailureKind::Refused,
            format!("{} is workspace {} already", root.display(), known.id.short()),
        )
        .with_hint("nothing has to be done"));
    }
    context.check_broad_root(&root)?;
    let around = root
        .ancestors()
        .skip(1)
        .map(|dir| Ok((dir, store.workspace_at(dir.as_os_str().as_bytes())?)))
        .collect::<Result<Vec<_>, CommandFailure>>()?
        .into_iter()
        .find(|(_, known)| known.is_some())
        .map(|(dir, _)| dir.to_path_buf());
    let workspace = context.engine().open_workspace_root(&root)?;
    let id = workspace.record.id;
    if context.json {
        output::print_document(&json!({ "id": id, "root": root, "inside": around }));
        return DONE;
    }
    let paint = Paint::stdout();
    output::print_line(format!("Created workspace {} {}", root.display(), paint.name(id.short())));
    if let Some(around) = around {
        output::print_status(format!(
            "What happens in it is recorded there from now on; checkpoints of {} still cover its files.",
            around.display()
        ));
    }
    output::print_status(
        paint.dim(format!("\"stepback workspace forget {}\" forgets it again.", id.short())),
    );
    DONE
}

fn move_to(context: &Context, named: &str, to: &Path, yes: bool) -> CommandResult {
    let record = find(context, named, context.store().workspaces()?)?;
    let workspace = open(context, &record)?;
    let from = display_bytes(&record.root).to_string();
    let is_remote = |root: &[u8]| root.starts_with(WorkspaceRecord::REMOTE);
    let root = match (is_remote(&record.root), is_remote(to.as_os_str().as_bytes())) {
        (true, true) => to.as_os_str().as_bytes().to_vec(),
        (true, false) | (false, true) => {
            return Err(CommandFailure::new(
                FailureKind::Usage,
                "a remote workspace has no directory, and another one is not remote",
            )
            .with_hint("rename a remote workspace to remote:NAME, move any other one to a directory"));
        }
        (false, false) => {
            let given = context.directory.join(to);
            let root = given.canonicalize().map_err(|error| {
                CommandFailure::new(FailureKind::System, format!("cannot open {}: {error}", given.display()))
                    .with_hint("move the directory first, then tell stepback where it is")
            })?;
            if !root.is_dir() {
                return Err(CommandFailure::new(
                    FailureKind::Usage,
                    format!("{} is not a directory", root.display()),
                ));
            }
            if root.as_os_str().as_bytes() == record.root {
                return Err(CommandFailure::new(FailureKind::Usage, format!("{from} is there already")));
            }
            let old = to_path(&record.root);
            if old.is_dir() && !yes {
                return Err(CommandFailure::new(
                    FailureKind::Refused,
                    format!("{} still exists; its history would continue in {}", old.display(), root.display()),
                )
                .with_hint("add --yes if that is meant; for a copy, \"stepback workspace create\" begins a history of its own"));
            }
            context.check_broad_root(&root)?;
            root.into_os_string().into_vec()
        }
    };
    // Pending reports belong to what was recorded before.
    stepback_agents::record::record_inbox(&workspace)?;
    let moved = context.engine().move_workspace(&workspace, &root)?;
    let now = display_bytes(&moved.root).to_string();
    if context.json {
        output::print_document(&json!({ "id": moved.id, "from": from, "root": now }));
        return DONE;
    }
    output::print_line(format!("Moved workspace {} from {from} to {now}", moved.id.short()));
    let paint = Paint::stdout();
    output::print_status(paint.dim(format!(
        "To reverse it, move the directory back and run \"stepback workspace move {} {from}\"",
        moved.id.short()
    )));
    DONE
}

fn forget(context: &Context, named: &str, yes: bool) -> CommandResult {
    let record = find(context, named, context.store().workspaces()?)?;
    if !matches!(context.store_location(), StoreLocation::Directory(_)) {
        return Err(CommandFailure::new(
            FailureKind::Refused,
            "only a workspace of a store in a directory on this machine can be forgotten",
        )
        .with_hint(
            "a database is shared by a team; for a guarded store, run it where the store is, as its user",
        ));
    }
    let workspace = open(context, &record)?;
    stepback_agents::record::record_inbox(&workspace)?;
    let root = display_bytes(&record.root).to_string();
    let item = describe(context, &record)?;
    let number = |name: &str| item[name].as_u64().unwrap_or_default();
    let what = format!(
        "{root}: {}, {}, {}",
        output::count(number("checkpoints"), "checkpoint"),
        output::count(number("steps"), "step"),
        output::count(number("sessions"), "session")
    );
    let running = workspace.running_sessions()?;
    if running.iter().any(|session| not_running_reason(session, context.now()).is_none()) {
        output::print_status(format!(
            "{} {}.",
            Paint::stderr().note("Warning:"),
            workspace.describe_running_sessions()?
        ));
    }
    if !yes {
        let question = format!("{what}. Forget it? The next prune frees it, and then it cannot come back.");
        let refusal = CommandFailure::new(
            FailureKind::Refused,
            format!("{what}: forgetting it is final after the next prune"),
        )
        .with_hint("add --yes to forget it; \"stepback export\" or a mirror keeps a copy");
        if !ask_user(context.json, &question, refusal)? {
            return DONE;
        }
    }
    let reruns = context.engine().forget_workspace(&workspace)?;
    let id = record.id;
    if context.json {
        output::print_document(&json!({ "id": id, "root": root, "reruns": reruns }));
        return DONE;
    }
    output::print_line(format!("Forgot {what}"));
    if reruns > 0 {
        output::print_line(format!("Forgot {} of it", output::count(reruns as u64, "rerun")));
    }
    let paint = Paint::stdout();
    output::print_status(paint.dim(format!(
        "\"stepback workspace restore {}\" brings it back until the next prune. Its files were not changed. If hooks are installed there, the next event begins a new workspace; \"stepback init --uninstall\" removes them.",
        id.short()
    )));
    DONE
}

fn restore(context: &Context, named: &str) -> CommandResult {
    let record = find(context, named, context.store().forgotten_workspaces()?)?;
    let restored = context.engine().restore_workspace(&record)?;
    let root = display_bytes(&restored.root).to_string();
    if context.json {
        output::print_document(&json!({ "id": restored.id, "root": root }));
        return DONE;
    }
    output::print_line(format!("Restored workspace {root} with all of its history"));
    output::print_status(
        Paint::stdout()
            .dim(format!("\"stepback workspace forget {}\" forgets it again.", restored.id.short())),
    );
    DONE
}
