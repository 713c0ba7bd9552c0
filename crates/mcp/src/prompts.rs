//! Prompts: tasks that a user can give to an agent by name, filled in with the context they need.

use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use stepback_engine::board::BoardMoment;
use stepback_model::clip;
use stepback_model::record::StepKind;
use stepback_store::port::StepQuery;

use crate::rpc::Refusal;
use crate::tool_error::ToolError;
use crate::tools::{first_line, step_line};
use crate::toolset::ToolContext;

/// How many steps around a failure are included.
const STEPS_AROUND_FAILURE: u64 = 12;
/// The most bytes of each text of a step.
const DETAIL: usize = 2000;

/// A prompt: name, title, description, and its arguments with their descriptions.
type Prompt = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const PROMPTS: [Prompt; 3] = [
    (
        "recover-after-compaction",
        "Recover after a compaction",
        "Where you left off before the conversation was compacted",
        &[("budget", "Limit in tokens")],
    ),
    (
        "explain-failure",
        "Explain a failure",
        "Why a step failed, and what led to it",
        &[("point", "The step (default: the last failed one)"), ("session", "The session (default: yours)")],
    ),
    (
        "post-mortem",
        "Post-mortem of a session",
        "What a session did, what failed, how it reasoned, and what to learn from it",
        &[("session", "The session (default: yours)")],
    ),
];

/// All prompts, as they are listed.
pub fn list_prompts() -> Vec<Value> {
    PROMPTS
        .iter()
        .map(|(name, title, description, arguments)| {
            let arguments: Vec<Value> = arguments
                .iter()
                .map(|(name, purpose)| json!({ "name": name, "description": purpose, "required": false }))
                .collect();
            json!({ "name": name, "title": title, "description": description, "arguments": arguments })
        })
        .collect()
}

/// Checks that the prompt exists and takes these arguments.
pub fn check_arguments(name: &str, arguments: &Map<String, Value>) -> Result<(), Refusal> {
    let Some((_, _, _, known_arguments)) =
        PROMPTS.iter().find(|(known_arguments, ..)| *known_arguments == name)
    else {
        let clipped: String = name.chars().take(80).collect();
        return Err(Refusal::invalid_params(format!("unknown prompt \"{clipped}\"; prompts/list lists all")));
    };
    for (argument, value) in arguments {
        if !known_arguments.iter().any(|(name, _)| name == argument) || !value.is_string() {
            let argument: String = argument.chars().take(80).collect();
            return Err(Refusal::invalid_params(format!(
                "\"{argument}\" is not an argument of {name}, or not a text"
            )));
        }
    }
    if arguments.get("budget").and_then(Value::as_str).is_some_and(|text| text.parse::<usize>().is_err()) {
        return Err(Refusal::invalid_params("\"budget\" must be a whole number"));
    }
    Ok(())
}

/// Returns a prompt, filled in.
pub fn get_prompt(
    context: &ToolContext<'_>,
    name: &str,
    arguments: &Map<String, Value>,
) -> Result<Value, ToolError> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let filled = match name {
        "recover-after-compaction" => {
            let budget = text("budget").and_then(|text| text.parse().ok()).unwrap_or(1500);
            recovery_text(context, budget)?
        }
        "explain-failure" => failure_text(context, text("point"))?,
        _ => post_mortem_text(context)?,
    };
    let description =
        PROMPTS.iter().find(|(prompt_name, ..)| *prompt_name == name).map(|(_, _, what, _)| *what);
    Ok(json!({
        "description": description,
        "messages": [{ "role": "user", "content": { "type": "text", "text": filled } }],
    }))
}

fn recovery_text(context: &ToolContext<'_>, budget: usize) -> Result<String, ToolError> {
    let page = stepback_board::build_recovery_page(
        context.workspace,
        &context.target_session()?,
        &BoardMoment::Now,
        budget,
        context.now,
    )?
    .page;
    Ok(format!(
        "The conversation was compacted. This is where you left off; continue from there and do not investigate settled questions again. \
         The tools mind, timeline and show have the details.\n\n{page}"
    ))
}

fn failure_text(context: &ToolContext<'_>, point: Option<&str>) -> Result<String, ToolError> {
    let workspace = context.workspace;
    let stored = workspace.resolve(point.unwrap_or("error:last"), context.now, &TimeZone::system)?;
    let step = &stored.step;
    let mut text =
        format!("Explain why this failed, and how to fix it.\n\n{}\n", step_line(&stored, context.now));
    let mut detail = workspace.load_detail(step)?.unwrap_or_default();
    clip::value(&mut detail, DETAIL);
    for part in ["input", "output", "error"] {
        if let Some(value) = detail.get(part).filter(|value| !value.is_null()) {
            let shown_text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.push_str(&format!("\n{part}:\n{shown_text}\n"));
        }
    }
    let query = StepQuery {
        session: Some(step.session),
        before: Some(step.number),
        limit: Some(STEPS_AROUND_FAILURE),
        hidden: Some(false),
        ..StepQuery::default()
    };
    text.push_str("\nBefore that, newest first:\n");
    for earlier in workspace.store().steps(workspace.record.id, &query)? {
        text.push_str(&format!("{}\n", step_line(&earlier, context.now)));
    }
    text.push_str(&board_text(context, &BoardMoment::Step(step.number))?);
    text.push_str(
        "\nLook further with show, diff and why. Put what you suspect on the board with hypothesis, and what you find with evidence.",
    );
    Ok(text)
}

fn post_mortem_text(context: &ToolContext<'_>) -> Result<String, ToolError> {
    let (workspace, session) = (context.workspace, context.target_session()?);
    let title = session.info.title.as_deref().unwrap_or("no prompt is recorded");
    let mut text = format!(
        "Write a post-mortem of the session {} of {}: what was requested, what was done, what failed and why, what was \
         learned, what to do differently. Be brief, name steps by their numbers (#42).\n\nIt started with: {}\n",
        session.id.short(),
        session.agent,
        first_line(title, 500)
    );
    let steps = |query: StepQuery| workspace.store().steps(workspace.record.id, &query);
    let failure_query = StepQuery { session: Some(session.id), hidden: Some(false), ..StepQuery::default() };
    let parts = [
        ("Failures", StepQuery { failed: Some(true), limit: Some(15), ..failure_query.clone() }),
        (
            "Reasoning",
            StepQuery { kinds: vec![StepKind::Reasoning], limit: Some(25), ..failure_query.clone() },
        ),
        ("Checkpoints", StepQuery { checkpoint: Some(true), limit: Some(15), ..failure_query.clone() }),
        ("The last steps", StepQuery { limit: Some(STEPS_AROUND_FAILURE), ..failure_query }),
    ];
    for (title, query) in parts {
        let steps_found = steps(query)?;
        if !steps_found.is_empty() {
            text.push_str(&format!("\n{title}, newest first:\n"));
            for stored in &steps_found {
                text.push_str(&format!("{}\n", step_line(stored, context.now)));
            }
        }
    }
    text.push_str(&board_text(context, &BoardMoment::Now)?);
    Ok(text)
}

/// The board as text; empty if there is nothing on it.
fn board_text(context: &ToolContext<'_>, moment: &BoardMoment) -> Result<String, ToolError> {
    let sections = context.workspace.board_at(&context.target_session()?, moment)?.board.board(false);
    let mut text = String::new();
    for section in sections {
        text.push_str(&format!("\n{}:\n", section.title));
        for line in section.lines.iter().take(20) {
            text.push_str(&format!("  {line}\n"));
        }
    }
    Ok(text)
}
