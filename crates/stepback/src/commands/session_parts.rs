//! What sessions had at a point, and how plans and results name the parts of them that move: conversation, memory, task list
//! and board.

use stepback_api::state::SessionStateDocument;
use stepback_engine::moves::{MovedPart, PlannedMove, PlannedPart, SessionPart};
use stepback_engine::rewind::PreparedRewind;
use stepback_engine::workspace::describe_checkpoint;
use stepback_model::clip;
use stepback_model::escape::safe;
use stepback_model::record::StepRow;
use stepback_model::shell::quote_word;

use crate::context::Context;
use crate::output;

/// The most changes of one part that are printed.
const MAX_CHANGES: usize = 12;
/// Longest text that is printed of a summary, a memory or a task list, in characters.
const MAX_TEXT: usize = 120;

/// Returns the lines of a plan about the parts of sessions.
pub fn planned_lines(prepared: &PreparedRewind) -> Vec<String> {
    let mut lines = Vec::new();
    for planned in &prepared.parts {
        let PlannedPart { part, session, changes, .. } = planned;
        let name = format!("{} of {} {}", part.noun(), session.agent, session.id.short());
        match changes.is_empty() {
            true => lines.push(format!("  {name}: already as it was")),
            false => lines.extend(list(&name, changes)),
        }
    }
    lines
}

/// Returns the lines of a result about the memory and the task list of sessions. The board has lines of its own.
pub fn moved_lines(parts: &[MovedPart]) -> Vec<String> {
    let mut lines = Vec::new();
    for MovedPart { part, session, changes, kept, step } in parts {
        let name = format!("{} of {} {} (step #{step})", part.noun(), session.agent, session.id.short());
        lines.extend(list(&name, changes));
        lines.extend(kept.iter().map(|kept| format!("  kept: {}", safe(kept))));
    }
    lines
}

fn list(name: &str, changes: &[String]) -> Vec<String> {
    let mut lines: Vec<String> =
        changes.iter().take(MAX_CHANGES).map(|change| format!("  {name}: {}", safe(change))).collect();
    if changes.len() > MAX_CHANGES {
        lines.push(format!("  {name}: {} more changes", changes.len() - MAX_CHANGES));
    }
    lines
}

/// Returns the lines about what a session had at a step.
pub fn state_lines(state: &SessionStateDocument) -> Vec<String> {
    let short: String = state.session.chars().take(8).collect();
    let mut facts = vec![format!("iteration {}", state.iteration), output::count(state.messages, "message")];
    facts.extend(state.tokens.map(|tokens| format!("{} tokens of context", output::grouped(tokens))));
    if let Some(call) = &state.call {
        let tool = state.tool.as_deref().unwrap_or("a tool");
        facts.push(format!("last call {} ({})", safe(tool), safe(call)));
    }
    let at = if state.step == 0 { String::new() } else { format!(" at #{}", state.step) };
    let mut lines = vec![format!("  session  {} {short}{at}: {}", state.agent, facts.join(", "))];
    lines.extend(detail_lines(state).into_iter().map(|line| format!("  {line}")));
    lines
}

/// Returns the lines about what a session had at a step, without its position.
pub fn detail_lines(state: &SessionStateDocument) -> Vec<String> {
    let short: String = state.session.chars().take(8).collect();
    let mut lines = Vec::new();
    let mut add = |name: &str, text: String| lines.push(format!("  {name:<9}  {text}"));
    if let Some(summary) = &state.summary {
        add("summary", safe(&clip::first(summary.lines().next().unwrap_or_default(), MAX_TEXT)));
    }
    let files = &state.working_set;
    if !files.is_empty() {
        let names = files.iter().map(|file| {
            let access = match (file.read, file.written) {
                (true, true) => "read, written",
                (_, true) => "written",
                _ => "read",
            };
            format!("{} ({access})", safe(&file.path))
        });
        add("files", list_some(names, files.len()));
    }
    if state.commands > 0 {
        add(
            "commands",
            format!("{} (stepback commands --session {short} --at '#{}')", state.commands, state.step),
        );
    }
    if !state.tools.is_empty() {
        add("tools", list_some(state.tools.iter().map(|tool| safe(tool)), state.tools.len()));
    }
    if !state.variables.is_empty() {
        add("variables", output::count(state.variables.len() as u64, "name"));
    }
    for (name, value) in [("memory", &state.memory), ("tasks", &state.task)] {
        if let Some(value) = value {
            add(name, safe(&clip::first(&value.to_string(), MAX_TEXT)));
        }
    }
    lines
}

fn list_some(names: impl Iterator<Item = String>, count: usize) -> String {
    let shown = names.take(MAX_CHANGES).collect::<Vec<_>>().join(", ");
    let more = count.saturating_sub(MAX_CHANGES);
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// Returns the parts of a plan whose agent may be running: it has a copy of its own, which stepback cannot change.
pub fn live_parts(planned: &PlannedMove) -> Vec<PlannedPart> {
    let is_live = |part: &&PlannedPart| {
        // A conversation continues as a session of its own, and a board is kept by stepback alone.
        part.is_live
            && !part.changes.is_empty()
            && matches!(part.part, SessionPart::Memory | SessionPart::Task)
    };
    planned.parts().iter().filter(is_live).cloned().collect()
}

/// Prints the command that tells a running agent what went back.
pub fn print_live_hints(context: &Context, live: &[PlannedPart], target: Option<&StepRow>) {
    let Some(target) = target else { return };
    for PlannedPart { part, session, changes, .. } in live {
        let changes =
            changes.iter().take(MAX_CHANGES).map(|change| safe(change)).collect::<Vec<_>>().join("; ");
        let told = format!(
            "The user took your {} back to how it was at {}: {changes}.",
            part.noun(),
            describe_checkpoint(target)
        );
        output::print_unless_json(
            context.json,
            &format!(
                "{} {short} may still be running with a {} of its own; this tells it:\n  stepback inject {} --session {short}",
                session.agent,
                part.noun(),
                quote_word(&told),
                short = session.id.short(),
            ),
        );
    }
}
