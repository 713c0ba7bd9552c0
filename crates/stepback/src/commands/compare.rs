//! The command `stepback compare`: two sessions, branches or points side by side.

mod table;

use serde_json::{Value, json};
use stepback_engine::Workspace;
use stepback_history::compare::{self, ComparedRun, Comparison, Ending, Totals};
use stepback_model::change::PathChange;
use stepback_model::point::is_number;

use super::{CommandResult, DONE, documents, sessions, titles};
use crate::args::viewers::CompareArgs;
use crate::context::Context;
use crate::diff_view;
use crate::failure::CommandFailure;
use crate::output::{self, Paint};

/// The most changed paths, and the most parts of a value, that are listed.
const MAX_LISTED_ITEMS: usize = 20;
/// The fewest characters of an abbreviated session id, so that `12` still means a step.
const MIN_ID_PREFIX_CHARS: usize = 4;
/// From so many digits on, a number is a session if there is one with that id: ids are shown with this length, and by chance
/// some have digits only.
const SHORT_ID_CHARS: usize = 8;

/// Runs `stepback compare`.
pub fn compare(context: &Context, arguments: &CompareArgs) -> CommandResult {
    let a = resolve_side(context, &arguments.a)?;
    let b = resolve_side(context, &arguments.b)?;
    let found = compare::compare(context.store(), &a, &b)?;
    match context.json {
        true => output::print_document(&comparison_document(&found)),
        false => print_comparison(&found, ShownSteps::from_arguments(arguments)),
    }
    DONE
}

/// Returns a comparison as JSON.
pub fn comparison_document(found: &Comparison) -> Value {
    let mut document = json!(found);
    // Changes have the same form as in every other document.
    if let Some(changes) = &found.ends.files {
        document["files"] = changes.iter().map(documents::change).collect();
    }
    document
}

/// Resolves `text` to a branch, a session of any workspace, or a point.
fn resolve_side(context: &Context, text: &str) -> Result<ComparedRun, CommandFailure> {
    if let Some(named) = text.strip_prefix("session:") {
        let (workspace, session) = sessions::find(context, Some(named))?;
        return Ok(ComparedRun::from_session(&workspace, &session)?);
    }
    let here = context.open_workspace();
    if is_number(text) {
        if text.len() >= SHORT_ID_CHARS
            && let Ok((workspace, session)) = sessions::find_by_id(context, text)
        {
            return Ok(ComparedRun::from_session(&workspace, &session)?);
        }
        let here = here?;
        return Ok(ComparedRun::from_point(&here, &context.resolve(&here, text)?)?);
    }
    let name = text.strip_prefix("branch:").unwrap_or(text);
    if let Ok(here) = &here
        && let Some(tip) = here.branch_tip(name)?
    {
        return Ok(ComparedRun::from_branch(here, name, &tip)?);
    }
    let is_id = text.len() >= MIN_ID_PREFIX_CHARS && !text.contains(['#', '@', ':']);
    if (is_id || here.as_ref().is_ok_and(|here| is_agent_session_id(here, text)))
        && let Ok((workspace, session)) = sessions::find_by_id(context, text)
    {
        return Ok(ComparedRun::from_session(&workspace, &session)?);
    }
    let here = here?;
    let stored = context.resolve(&here, text).map_err(|failure| match is_id {
        true => failure.with_hint(
            "\"stepback sessions\", \"stepback branch list\" and \"stepback log\" list sessions, branches and steps",
        ),
        false => failure,
    })?;
    Ok(ComparedRun::from_point(&here, &stored)?)
}

/// Whether `text` is exactly an agent's own id of a session, however short.
fn is_agent_session_id(workspace: &Workspace, text: &str) -> bool {
    let sessions = workspace.agent_sessions().unwrap_or_default();
    sessions.iter().any(|session| session.info.external.as_deref() == Some(text))
}

/// Which steps are shown.
pub enum ShownSteps {
    /// No steps.
    Hidden,
    /// Steps that differ, with a few equal ones around them.
    Different,
    /// All steps.
    All,
}

impl ShownSteps {
    fn from_arguments(arguments: &CompareArgs) -> Self {
        match (arguments.summary, arguments.all) {
            (true, _) => Self::Hidden,
            (false, true) => Self::All,
            (false, false) => Self::Different,
        }
    }
}

/// Prints a comparison for the user.
pub fn print_comparison(found: &Comparison, steps: ShownSteps) {
    let paint = Paint::stdout();
    for (mark, totals) in [("A", &found.a), ("B", &found.b)] {
        let (name, numbers) = (paint.name(&totals.name), paint.dim(format_totals(totals)));
        output::print_wrapped(&format!("{}  {name}{numbers}", paint.strong(mark)));
    }
    output::print_line("");
    for sentence in &found.summary {
        output::print_wrapped(&diff_view::safe(sentence));
    }
    if !found.rows.is_empty() && !matches!(steps, ShownSteps::Hidden) {
        output::print_line("");
        let all = matches!(steps, ShownSteps::All);
        table::render_lines(&found.rows, all, paint, output::terminal_width())
            .iter()
            .for_each(output::print_line);
    }
    let first = found.first_difference.as_ref().filter(|first| !first.parts.is_empty());
    if let Some(first) = first.filter(|_| !matches!(steps, ShownSteps::Hidden)) {
        output::print_line("");
        output::print_line(paint.strong("Where they diverge:"));
        print_differences(&first.parts, paint);
    }
    if let Some(changes) = found.ends.files.as_ref().filter(|changes| !changes.is_empty()) {
        output::print_line("");
        output::print_line(paint.strong("Files from A to B:"));
        print_files(changes, paint);
    }
    for slot in &found.ends.slots {
        output::print_line("");
        let counts = format!("{} added, {} removed, {} changed", slot.added, slot.removed, slot.changed);
        output::print_line(format!("{} {counts}", paint.strong(format!("The {} from A to B:", slot.slot))));
        print_differences(&slot.differences, paint);
    }
    print_last_messages(found, paint);
}

/// Returns the totals of a side, printed after its name.
fn format_totals(totals: &Totals) -> String {
    let mut parts = Vec::new();
    let mut put = |number: u64, unit: &str| {
        if number > 0 {
            parts.push(output::count(number, unit));
        }
    };
    put(totals.steps, "step");
    put(totals.tool_calls, "tool call");
    put(totals.model_calls, "model call");
    put(totals.failed, "failed step");
    put(totals.tokens.total(), "token");
    put(totals.messages, "message");
    parts.extend(totals.cost_usd.map(|cost| format!("${cost:.4}")));
    if totals.duration_us > 0 {
        parts.push(output::duration(std::time::Duration::from_micros(totals.duration_us)));
    }
    match totals.ended {
        Some(Ending::Ended) => parts.push("ended".into()),
        Some(Ending::InCall) => parts.push("in the middle of a call".into()),
        _ => {}
    }
    let parts: Vec<String> =
        parts.iter().map(|part| part.replace(' ', &output::NO_BREAK_SPACE.to_string())).collect();
    if parts.is_empty() { String::new() } else { format!("  {}", parts.join(", ")) }
}

fn print_files(changes: &[PathChange], paint: Paint) {
    for change in changes.iter().take(MAX_LISTED_ITEMS) {
        let pad = " ".repeat(12_usize.saturating_sub(change.kind().as_str().len()));
        output::print_line(format!("  {}{pad} {}", paint.change_kind(change), titles::change_path(change)));
    }
    print_omitted_count(changes.len(), paint);
}

fn print_differences(parts: &[stepback_model::json::ValueDifference], paint: Paint) {
    let width = output::terminal_width();
    for part in parts.iter().take(MAX_LISTED_ITEMS) {
        let place = if part.pointer.is_empty() { "/" } else { &part.pointer };
        output::print_line(format!("  {}", diff_view::safe(place)));
        for (sign, value) in [("-", &part.before), ("+", &part.after)] {
            let Some(value) = value else { continue };
            let text = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let line = output::truncate_to_width(&diff_view::safe(&text), width.saturating_sub(6).max(10));
            let line = format!("    {sign} {line}");
            output::print_line(if sign == "-" { paint.bad(line) } else { paint.good(line) });
        }
    }
    print_omitted_count(parts.len(), paint);
}

fn print_omitted_count(count: usize, paint: Paint) {
    if let Some(more) = count.checked_sub(MAX_LISTED_ITEMS).filter(|more| *more > 0) {
        output::print_line(paint.dim(format!("  … {more} more; --json has all of them")));
    }
}

/// Prints the last message of each side, if they differ.
fn print_last_messages(found: &Comparison, paint: Paint) {
    if found.a.last_words == found.b.last_words {
        return;
    }
    output::print_line("");
    output::print_line(paint.strong("Last message:"));
    for (mark, totals) in [("A", &found.a), ("B", &found.b)] {
        let words = totals.last_words.as_deref().unwrap_or_default();
        let line = words.lines().next().unwrap_or_default();
        output::print_line(format!(
            "  {mark}  {}",
            output::truncate_to_width(
                &diff_view::safe(line),
                output::terminal_width().saturating_sub(5).max(10)
            )
        ));
    }
}
