//! History: lists of steps, one step in full, and full-text search.

use serde_json::{Value, json};
use stepback_api::state::SessionStateDocument;
use stepback_engine::{EngineError, diff};
use stepback_model::clip;
use stepback_model::record::{Session, StepKind};
use stepback_model::search::Pattern;
use stepback_store::port::{SearchRequest, StepQuery};

use super::{
    Args, READ_ONLY, Tool, ToolReply, cursor_schema, first_line, limit_schema, page_limit, parse_time,
    point_schema, resolve_step, step_line, step_summary, step_summary_schema,
};
use crate::schema::{
    any_value, array, boolean, bounded_integer, integer, object, string, string_array, string_enum,
};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The most steps indexed before a search, so that a search is never delayed for long.
const MAX_INDEXED_STEPS: u64 = 2000;
/// The most characters of a search hit.
const MAX_SNIPPET_CHARS: usize = 240;
/// The most changed paths of a step listed.
const MAX_LISTED_PATHS: usize = 20;

pub(super) fn timeline_tool() -> Tool {
    let kinds = StepKind::ALL.map(StepKind::as_str);
    Tool {
        name: "timeline",
        title: "What happened",
        description: "Recorded steps, newest first: tool calls, prompts, errors, checkpoints, board changes. Of your session, or of all sessions (everyone).",
        input: object(
            &[
                ("kinds", array("Only these kinds", json!({ "type": "string", "enum": kinds }))),
                ("tool", string("Only about this tool")),
                ("failed", boolean("Only failed steps (or, with false, only successful ones)")),
                ("checkpoints", boolean("Only checkpoints")),
                ("since", string("Only since then: 2 hours ago, 2026-01-23T12:00")),
                ("until", string("Only until then")),
                ("everyone", boolean("Steps of all sessions in this workspace")),
                ("order", string_enum("Sort order (default newest)", &["newest", "oldest"])),
                ("limit", limit_schema(20, 200)),
                ("cursor", cursor_schema()),
            ],
            &[],
        ),
        output: object(
            &[
                ("steps", array("In order", step_summary_schema())),
                ("total", integer("At least")),
                ("next_cursor", string("")),
            ],
            &["steps", "total"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: list_steps,
    }
}

fn list_steps(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let session = match (args.flag("everyone"), context.named_session()?) {
        (true, _) => None,
        (false, Some(named)) => Some(named),
        // The user's own session has only what the user did; a client that is not recorded wants to see all sessions.
        (false, None) => {
            Some(context.own_session()?).filter(|own_session| own_session.agent != Session::PERSON)
        }
    };
    let query = StepQuery {
        session: session.map(|session| session.id),
        kinds: args.texts("kinds").iter().filter_map(|kind| StepKind::parse(kind)).collect(),
        tool: args.owned_text("tool"),
        failed: args.value("failed").and_then(Value::as_bool),
        checkpoint: args.flag("checkpoints").then_some(true),
        hidden: Some(false),
        since: parse_time(context, args, "since")?,
        until: parse_time(context, args, "until")?,
        oldest_first: args.text("order") == Some("oldest"),
        from: args.page_start()?,
        limit: Some(page_limit(args, 20) as u64),
        ..StepQuery::default()
    };
    let page = context.workspace.store().find(Some(context.workspace.record.id), &query)?;
    let steps: Vec<Value> = page.steps.iter().map(|placed| step_summary(&placed.stored)).collect();
    let mut lines: Vec<String> =
        page.steps.iter().map(|placed| step_line(&placed.stored, context.now)).collect();
    if lines.is_empty() {
        lines.push("No step matches.".to_owned());
    }
    let mut structured = json!({ "steps": steps, "total": page.total });
    if let Some(next) = page.next {
        structured["next_cursor"] = json!(args.cursor(next));
        lines.push(format!("… of {}", page.total));
    }
    Ok(ToolReply { text: lines.join("\n"), structured })
}

pub(super) fn show_tool() -> Tool {
    Tool {
        name: "show",
        title: "One step in full",
        description: "One step with its input, output, error and the files that changed at it. Long texts are truncated to max_chars.",
        input: object(
            &[
                ("point", point_schema("Which one: #42, @-3, a label, tool:Bash:last, error:last")),
                (
                    "max_chars",
                    bounded_integer("Maximum characters of each text (default 1500)", 256, 200_000),
                ),
            ],
            &["point"],
        ),
        output: object(
            &[
                ("step", step_summary_schema()),
                ("iteration", integer("The model turn it belongs to")),
                ("input", any_value("")),
                ("output", any_value("")),
                ("error", any_value("")),
                ("changed", string_array("Paths")),
                ("changed_more", integer("Not listed")),
                ("sessions", any_value("")),
            ],
            &["step", "iteration"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: show_step,
    }
}

fn show_step(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let stored = resolve_step(context, args.require_text("point")?)?;
    let step = &stored.step;
    let max_chars = usize::try_from(args.count("max_chars").unwrap_or(1500)).unwrap_or(usize::MAX);
    let mut structured = json!({ "step": step_summary(&stored), "iteration": step.meta.iteration });
    let mut lines = vec![step_line(&stored, context.now)];
    let mut detail = context.workspace.load_detail(step)?.unwrap_or_default();
    for part in ["input", "output", "error"] {
        let Some(value) = detail.get_mut(part).filter(|value| !value.is_null()).map(Value::take) else {
            continue;
        };
        let value = clip_value(value, max_chars);
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        lines.push(format!("{part}: {text}"));
        structured[part] = value;
    }
    if step.kind == StepKind::Checkpoint {
        let mut sessions = Vec::new();
        for session in context.workspace.sessions_at_work(&stored)? {
            let document = SessionStateDocument::from_record(context.workspace, &session, &stored)?;
            lines.push(format!(
                "at work: {} {} at #{}, iteration {}, {} messages",
                session.agent,
                session.id.short(),
                document.step,
                document.iteration,
                document.messages
            ));
            sessions.push(clip_value(json!(document), max_chars));
        }
        structured["sessions"] = json!(sessions);
    }
    let changed = changed_paths_at(context, &stored)?;
    if !changed.is_empty() {
        let hidden = changed.len().saturating_sub(MAX_LISTED_PATHS);
        let text = &changed[..changed.len() - hidden];
        structured["changed"] = json!(text);
        lines.push(format!("changed: {}", text.join(", ")));
        if hidden > 0 {
            structured["changed_more"] = json!(hidden);
            lines.push(format!("… and {hidden} more"));
        }
    }
    Ok(ToolReply { text: lines.join("\n"), structured })
}

/// Cuts the texts of a value; if it is still too large, returns it as cut text.
fn clip_value(mut value: Value, max_chars: usize) -> Value {
    clip::value(&mut value, max_chars);
    if value.to_string().len() > max_chars.saturating_mul(2) {
        let mut text = value.to_string();
        clip::text(&mut text, max_chars);
        return Value::String(text);
    }
    value
}

/// Paths that differ between a checkpoint and its parent.
fn changed_paths_at(
    context: &ToolContext<'_>,
    stored: &stepback_store::port::StepRow,
) -> Result<Vec<String>, ToolError> {
    let (Some(parent), Some(_)) = (stored.step.parent, stored.trigger) else {
        return Ok(Vec::new());
    };
    let Some(parent_row) = context.workspace.store().step(parent)? else { return Ok(Vec::new()) };
    let states = [context.workspace.load_state(&parent_row), context.workspace.load_state(stored)];
    let [Ok(parent_row), Ok(after)] = states else {
        // The files were freed by a prune, or never recorded: the changes are unknown.
        return match states.into_iter().find_map(Result::err) {
            Some(EngineError::Purged { .. } | EngineError::NoFiles { .. }) | None => Ok(Vec::new()),
            Some(error) => Err(error.into()),
        };
    };
    let changes = diff::compare_visible_files(context.workspace.store(), &parent_row, &after)?;
    Ok(changes.iter().map(|change| format!("{} {}", change.kind().as_str(), change.path)).collect())
}

pub(super) fn search_tool() -> Tool {
    Tool {
        name: "search",
        title: "Search the record",
        description: "Search the text of steps: commands, outputs, errors, messages, board changes, paths. Words, \"a phrase\", begin*, -not; or exact characters (substring).",
        input: object(
            &[
                ("query", string("The query")),
                ("substring", boolean("Match this exact text, including punctuation")),
                (
                    "kinds",
                    array(
                        "Only in these kinds",
                        json!({ "type": "string", "enum": StepKind::ALL.map(StepKind::as_str) }),
                    ),
                ),
                ("newest", boolean("Newest first instead of best match first")),
                ("limit", limit_schema(8, 100)),
                ("cursor", cursor_schema()),
            ],
            &["query"],
        ),
        output: object(
            &[
                (
                    "hits",
                    array(
                        "In order",
                        object(
                            &[
                                ("step", step_summary_schema()),
                                ("field", string("Where it was found")),
                                ("found", string("What is there")),
                            ],
                            &["step"],
                        ),
                    ),
                ),
                ("total", integer("At least")),
                ("complete", boolean("Whether every step was searched; if not, a later search finds more")),
                ("next_cursor", string("")),
            ],
            &["hits", "total", "complete"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: search_steps,
    }
}

fn search_steps(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let query_text = args.require_text("query")?;
    let pattern = match args.flag("substring") {
        true => Pattern::substring(query_text),
        false => Pattern::words(query_text),
    };
    let pattern = pattern.map_err(|error| {
        ToolError::new(format!("query: {}", first_line(&error.to_string(), 300)))
            .with_hint("use word, \"a phrase\", begin* or -not; substring: true also matches punctuation")
    })?;
    let engine = &context.workspace.engine;
    let (_, complete) = engine.update_index_partially(MAX_INDEXED_STEPS)?;
    let results = engine.store.search(&SearchRequest {
        pattern,
        workspace: Some(context.workspace.record.id),
        among: StepQuery {
            session: context.named_session()?.map(|session| session.id),
            kinds: args.texts("kinds").iter().filter_map(|kind| StepKind::parse(kind)).collect(),
            hidden: Some(false),
            ..StepQuery::default()
        },
        ranked: !args.flag("newest"),
        skip: args.page_offset()? as u64,
        limit: page_limit(args, 8) as u64,
    })?;
    let (mut hits, mut lines) = (Vec::new(), Vec::new());
    for hit in &results.hits {
        let mut document = json!({ "step": step_summary(&hit.stored) });
        lines.push(step_line(&hit.stored, context.now));
        if let Some(snippet) = hit.snippets.first() {
            let text: String = snippet.text.split_whitespace().collect::<Vec<_>>().join(" ");
            let text = first_line(&text, MAX_SNIPPET_CHARS);
            lines.push(format!("  {}: {text}", snippet.field.as_str()));
            document["field"] = json!(snippet.field.as_str());
            document["found"] = json!(text);
        }
        hits.push(document);
    }
    if lines.is_empty() {
        lines.push("Nothing was found.".to_owned());
    }
    let mut structured = json!({ "hits": hits, "total": results.total, "complete": complete });
    if let Some(next) = results.next {
        structured["next_cursor"] = json!(args.cursor(next));
    }
    Ok(ToolReply { text: lines.join("\n"), structured })
}
