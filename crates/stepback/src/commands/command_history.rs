//! The command `stepback commands`: the shell commands that agents called.

use std::time::Duration;

use serde_json::json;
use stepback_api::commands::CommandDocument;
use stepback_board::{CommandFilter, CommandRun, CommandStatus, command_history};
use stepback_model::escape::safe;
use stepback_model::point;

use super::{CommandResult, DONE};
use crate::args::find::CommandsArgs;
use crate::context::Context;
use crate::output::{self, Paint};

/// Most lines of output that are shown of a command that failed or was refused.
const MAX_SHOWN_LINES: usize = 3;

/// Runs `stepback commands`.
pub fn commands(context: &Context, arguments: &CommandsArgs) -> CommandResult {
    let workspace = context.open_workspace()?;
    let session = arguments.session.as_ref().map(|text| workspace.find_session(text)).transpose()?;
    let at = match (&arguments.at, &session) {
        (Some(text), Some(session)) => {
            Some(context.resolve(&workspace, &point::in_session(text, &session.id.to_string()))?)
        }
        (Some(text), None) => Some(context.resolve(&workspace, text)?),
        (None, _) => None,
    };
    let filter = CommandFilter {
        session: session.map(|session| session.id),
        failed: arguments.failed,
        until: at.map(|stored| stored.step.number),
        before: arguments.before,
        most: arguments.limit,
        max_steps: None,
    };
    let page = command_history(&workspace, &filter)?;
    if context.json {
        let items: Vec<_> = page.commands.iter().map(CommandDocument::from_run).collect();
        output::print_document(&json!({ "items": items, "next": page.next }));
        return DONE;
    }
    let paint = Paint::stdout();
    let root = workspace.root.display().to_string();
    for run in &page.commands {
        print_command(context, paint, run, &root);
    }
    let shown = output::count(page.commands.len() as u64, "command");
    let more = match page.next {
        Some(next) => format!("; --before {next} shows earlier ones"),
        None => String::new(),
    };
    output::print_unless_json(context.json, &format!("{shown}{more}."));
    DONE
}

fn print_command(context: &Context, paint: Paint, run: &CommandRun, root: &str) {
    let ending = match (run.status, run.exit) {
        (CommandStatus::NotRun, _) => paint.note("not run"),
        (CommandStatus::Running, _) => paint.note("running"),
        (CommandStatus::Unknown, _) => paint.dim("end unknown"),
        (CommandStatus::Ran, Some(0)) => paint.good("exit 0"),
        (CommandStatus::Ran, Some(code)) => paint.bad(format!("exit {code}")),
        (CommandStatus::Ran, None) if run.failed => paint.bad("failed"),
        (CommandStatus::Ran, None) => paint.dim("exit unknown"),
    };
    let took = match run.duration_us {
        Some(micros) => format!("  {}", output::duration(Duration::from_micros(micros))),
        None => String::new(),
    };
    let elsewhere = run.directory.as_deref().filter(|directory| *directory != root);
    let inside = elsewhere.map_or(String::new(), |directory| format!("  in {}", safe(directory)));
    let command = run.command.lines().next().unwrap_or_default();
    let cut = if run.command.lines().nth(1).is_some() { " …" } else { "" };
    output::print_line(format!(
        "{:>6}  {ending}  {}{cut}  {}{}{}",
        paint.strong(format!("#{}", run.step)),
        safe(command),
        paint.dim(run.at.ago(context.now())),
        paint.dim(took),
        paint.dim(inside),
    ));
    if run.is_failure() || run.status == CommandStatus::NotRun {
        for line in run.output.lines().filter(|line| !line.trim().is_empty()).take(MAX_SHOWN_LINES) {
            output::print_line(format!("        {}", paint.dim(safe(line))));
        }
    }
}
