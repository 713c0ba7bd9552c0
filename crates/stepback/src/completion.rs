//! Completion in shells: commands and options, and what is in the store: points, labels, branches, sessions, settings.
//!
//! The script that `stepback completions` prints starts this program for every completion, with [`VARIABLE`] set. Whatever goes
//! wrong then, such as a store that is missing or busy, gives no candidates and no message: the user is typing.

use std::collections::HashSet;
use std::ffi::OsStr;

use clap::{Arg, Command, CommandFactory, Parser};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter};
use clap_complete::env::{CompleteEnv, Shells};
use stepback_engine::Workspace;
use stepback_model::clip;
use stepback_model::record::StepRow;

use crate::args::Arguments;
use crate::context::{Context, CreateStore};
use crate::settings::setting_keys;

/// The environment variable by which the scripts ask for candidates. It names the shell.
const VARIABLE: &str = "STEPBACK_COMPLETE";
/// How many steps are offered by number.
const MAX_STEPS: usize = 20;
/// How many characters a candidate is explained with.
const MAX_HELP_CHARS: usize = 60;
/// What always names a point.
const FIXED_POINTS: [(&str, &str); 6] = [
    ("@", "now"),
    ("@-1", "one state before"),
    ("error:last", "the last error"),
    ("tool:bash:last", "before the last shell command"),
    ("yesterday", "the state at that time"),
    ("1 hour ago", "the state at that time"),
];

/// Prints candidates and exits, if a shell asks for them.
pub fn run_if_asked() {
    // Set only by the scripts of `write_script`.
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(completed_command).var(VARIABLE).complete();
    }
}

/// Returns the script for a shell; `None` if there is none for it.
pub fn write_script(shell: &str) -> std::io::Result<Option<Vec<u8>>> {
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(shell) else { return Ok(None) };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "stepback", "stepback", "stepback", &mut script)?;
    Ok(Some(script))
}

/// The command line with candidates for the values of its arguments.
fn completed_command() -> Command {
    let mut command = Arguments::command();
    // Before that, commands have no arguments.
    command.build();
    add_candidates(command)
}

fn add_candidates(command: Command) -> Command {
    let parent = command.get_name().to_owned();
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let command = command.mut_args(|argument| add_argument_candidates(&parent, argument));
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, add_candidates))
}

/// Adds the candidates of one argument, which its name tells.
fn add_argument_candidates(command: &str, argument: Arg) -> Arg {
    let value = argument.get_value_names().and_then(<[_]>::first).map(|name| name.as_str().to_owned());
    match (command, argument.get_id().as_str(), value.as_deref()) {
        ("settings", "key", _) => argument.add(ArgValueCompleter::new(complete_settings)),
        ("switch" | "rename" | "delete" | "abandon" | "archive" | "activate" | "merge", "name", _) => {
            argument.add(ArgValueCompleter::new(complete_branches))
        }
        (_, "session" | "sessions", _) | (_, _, Some("SESSION")) => {
            argument.add(ArgValueCompleter::new(complete_sessions))
        }
        (_, "point" | "points" | "from" | "at" | "good" | "bad" | "between" | "a" | "b", _)
        | (_, _, Some("POINT")) => argument.add(ArgValueCompleter::new(complete_points)),
        (_, "path" | "paths" | "file" | "files", _) | (_, _, Some("PATH" | "FILE")) => {
            argument.add(ArgValueCompleter::new(PathCompleter::any()))
        }
        _ => argument,
    }
}

/// Opens the workspace that the user is in. The hooks' pending reports are left to other commands.
fn open_workspace() -> Option<Workspace> {
    let arguments = Arguments::try_parse_from(["stepback", "log"]).ok()?;
    let context = Context::open(&arguments, CreateStore::No, "").ok()?;
    let root = context.find_workspace_root().ok()?;
    context.engine().open_known_workspace(&root).ok()
}

/// Returns the candidates that begin with what was typed, each once.
fn candidates(current: &OsStr, all: Vec<(String, String)>) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let mut seen = HashSet::new();
    all.into_iter()
        .filter(|(value, _)| value.starts_with(current) && seen.insert(value.clone()))
        // What a shell cannot show in one line is no candidate.
        .filter(|(value, _)| !value.chars().any(char::is_control))
        .map(|(value, help)| {
            let help = stepback_model::escape::safe(&clip::first(&help, MAX_HELP_CHARS)).to_string();
            CompletionCandidate::new(value).help((!help.is_empty()).then(|| help.into()))
        })
        .collect()
}

fn complete_points(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, list_points().unwrap_or_default())
}

fn list_points() -> Option<Vec<(String, String)>> {
    let workspace = open_workspace()?;
    let checkpoints = workspace.checkpoints().ok()?;
    let mut points = Vec::new();
    let title = |stored: &StepRow| format!("#{} {}", stored.step.number, stored.step.summary);
    for stored in &checkpoints {
        points.extend(stored.annotation.label.clone().map(|label| (label, title(stored))));
    }
    for name in workspace.branch_names().unwrap_or_default() {
        points.push((name, "branch".to_owned()));
    }
    points.extend(FIXED_POINTS.map(|(point, help)| (point.to_owned(), help.to_owned())));
    for stored in &checkpoints {
        points.extend(stored.annotation.tags.iter().map(|tag| (format!("tag:{tag}"), title(stored))));
    }
    for stored in checkpoints.iter().take(MAX_STEPS) {
        points.push((format!("#{}", stored.step.number), stored.step.summary.clone()));
    }
    Some(points)
}

fn complete_branches(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = open_workspace().and_then(|workspace| workspace.branch_names().ok()).unwrap_or_default();
    candidates(current, names.into_iter().map(|name| (name, String::new())).collect())
}

fn complete_sessions(current: &OsStr) -> Vec<CompletionCandidate> {
    let sessions = open_workspace().and_then(|workspace| workspace.agent_sessions().ok()).unwrap_or_default();
    let named = sessions.into_iter().map(|session| (session.id.short().to_string(), session.agent)).collect();
    candidates(current, named)
}

fn complete_settings(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, setting_keys().map(|key| (key.to_owned(), String::new())).collect())
}
