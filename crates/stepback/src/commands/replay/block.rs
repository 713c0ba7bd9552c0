//! Renders one step as a few readable lines.

use std::time::Duration;

use serde_json::Value;
use stepback_llm_wire::recorded_call::{CallUsage, parse_answer};
use stepback_llm_wire::semantics::ContentPart;
use stepback_model::change::PathChange;
use stepback_model::record::StepKind;
use stepback_model::record::StepRow;

use super::super::titles;
use crate::diff_view;
use crate::output::{self, Paint};

/// The most lines shown of an input or an output.
const MAX_VALUE_LINES: usize = 6;
/// The most lines shown of a user's message.
const MAX_MESSAGE_LINES: usize = 40;
/// The most changed paths shown.
const MAX_LISTED_PATHS: usize = 12;
/// The indentation of lines that belong to a step.
const INDENT: &str = "                  ";

/// A step with everything that is shown of it.
pub struct StepBlock<'s> {
    /// The step itself.
    pub stored: &'s StepRow,
    /// The input, output and other recorded details of the step.
    pub detail: Option<Value>,
    /// The file changes that came with the step.
    pub changes: Vec<PathChange>,
    /// The time between the session's first step and this one.
    pub since_start: Duration,
}

/// Returns the lines, each at most `width` columns wide.
pub fn render_lines(shown: &StepBlock<'_>, paint: Paint, width: usize) -> Vec<String> {
    let step = &shown.stored.step;
    let room = width.saturating_sub(INDENT.len()).max(10);
    let (clock, number) = (format_clock(shown.since_start), format!("#{}", step.number));
    let kind = format!("{:<12}", step.kind.as_str());
    let kind = if step.is_error() { paint.bad(kind) } else { color_by_kind(step.kind, kind, paint) };
    let failed = if step.meta.failed { "  failed" } else { "" };
    let took = match (step.kind, step.meta.duration) {
        (StepKind::ToolEnd | StepKind::ModelEnd, Some(micros)) => {
            format!("  {}", output::duration(Duration::from_micros(micros)))
        }
        _ => String::new(),
    };
    let title = diff_view::safe(&titles::step_title(shown.stored));
    let title =
        output::truncate_to_width(&title, room.saturating_sub(14 + failed.len() + took.len()).max(10));
    let mut lines = vec![format!(
        "{}  {}  {kind}  {title}{}{}",
        paint.dim(format!("{clock:>8}")),
        paint.strong(format!("{number:<6}")),
        paint.bad(failed),
        paint.dim(took)
    )];
    for (line, mood) in body_lines(shown) {
        let line = format!(
            "{INDENT}{}",
            output::truncate_to_width(&diff_view::safe(&line.replace('\t', "    ")), room)
        );
        lines.push(match mood {
            LineStyle::Normal => line,
            LineStyle::Dim => paint.dim(line),
            LineStyle::Error => paint.bad(line),
        });
    }
    for change in shown.changes.iter().take(MAX_LISTED_PATHS) {
        let path = output::truncate_to_width(&titles::change_path(change), room.saturating_sub(13));
        lines.push(format!(
            "{INDENT}{}{} {path}",
            paint.change_kind(change),
            padding(change.kind().as_str(), 12)
        ));
    }
    if let Some(more) = shown.changes.len().checked_sub(MAX_LISTED_PATHS).filter(|more| *more > 0) {
        lines.push(paint.dim(format!("{INDENT}… {}", output::count(more as u64, "more path"))));
    }
    lines
}

/// Returns the spaces that pad a painted word to the width of others.
fn padding(word: &str, columns: usize) -> String {
    " ".repeat(columns.saturating_sub(word.len()))
}

/// How a line is styled.
#[derive(Clone, Copy)]
enum LineStyle {
    Normal,
    Dim,
    Error,
}

fn color_by_kind(kind: StepKind, text: String, paint: Paint) -> String {
    match kind {
        StepKind::UserInput => paint.name(text),
        StepKind::ToolStart | StepKind::ToolEnd => paint.good(text),
        StepKind::ModelStart | StepKind::ModelEnd => paint.note(text),
        StepKind::Checkpoint | StepKind::Rewind => paint.strong(text),
        _ => paint.dim(text),
    }
}

/// Returns the lines below the line that names the step.
fn body_lines(shown: &StepBlock<'_>) -> Vec<(String, LineStyle)> {
    let Some(detail) = &shown.detail else { return Vec::new() };
    let step = &shown.stored.step;
    let get = |name: &str| detail.get(name).filter(|value| !value.is_null());
    let mut lines = Vec::new();
    let mut push_lines = |texts: Vec<String>, most, mood| {
        lines.extend(truncate_lines(texts, most).into_iter().map(|text| (text, mood)));
    };
    match step.kind {
        StepKind::UserInput => {
            let said = get("input").and_then(|input| input.get("prompt").or(Some(input)));
            // A single line is already in the summary.
            let texts = said.map(value_lines).unwrap_or_default();
            if texts.len() > 1 || texts.iter().any(|text| *text != step.summary) {
                push_lines(texts, MAX_MESSAGE_LINES, LineStyle::Normal);
            }
        }
        StepKind::ToolStart => {
            push_lines(get("input").map(value_lines).unwrap_or_default(), MAX_VALUE_LINES, LineStyle::Dim)
        }
        StepKind::ModelStart => {
            push_lines(get("input").map(request_lines).unwrap_or_default(), MAX_VALUE_LINES, LineStyle::Dim)
        }
        StepKind::ModelEnd => {
            push_lines(
                CallUsage::of(detail).as_ref().map(format_usage).into_iter().collect(),
                1,
                LineStyle::Dim,
            );
            push_lines(
                get("output").map(answer_lines).unwrap_or_default(),
                MAX_VALUE_LINES,
                LineStyle::Normal,
            );
            push_lines(abnormal_end_lines(detail), MAX_VALUE_LINES, LineStyle::Error);
        }
        _ => {
            let texts = get("output").map(value_lines).unwrap_or_default();
            if !matches!(&texts[..], [one] if step.summary.ends_with(one.as_str())) {
                push_lines(texts, MAX_VALUE_LINES, LineStyle::Normal);
            }
        }
    }
    if let Some(error) = get("error") {
        let message = error.get("message").unwrap_or(error);
        push_lines(value_lines(message), MAX_VALUE_LINES, LineStyle::Error);
    }
    lines
}

/// Returns a summary of a model's request: the model, and how many messages and tools were sent.
fn request_lines(input: &Value) -> Vec<String> {
    let text = |pointer: &str| input.pointer(pointer).and_then(Value::as_str);
    let Some(path) = text("/path") else { return value_lines(input) };
    let count = |pointers: [&str; 3]| {
        pointers.iter().find_map(|pointer| input.pointer(pointer)?.as_array()).map(Vec::len)
    };
    let mut parts = vec![text("/body/model").unwrap_or(path).to_string()];
    if let Some(messages) = count(["/body/messages", "/body/input", "/body/contents"]) {
        parts.push(output::count(messages as u64, "message"));
    }
    if let Some(tools) = input.pointer("/body/tools").and_then(Value::as_array) {
        parts.push(output::count(tools.len() as u64, "tool"));
    }
    vec![parts.join(", ")]
}

/// Returns a model's answer, and the tools it calls.
fn answer_lines(output: &Value) -> Vec<String> {
    let Some(answered) = parse_answer(output, None) else {
        return if output.is_string() { value_lines(output) } else { Vec::new() };
    };
    let (mut lines, mut calls) = (Vec::new(), Vec::new());
    for said in answered.content {
        match said {
            ContentPart::Model(words) => lines.extend(words.trim_end().lines().map(str::to_string)),
            ContentPart::Call(call) => calls.push(call.name),
            _ => {}
        }
    }
    if !calls.is_empty() {
        lines.push(format!("calls {}", calls.join(", ")));
    }
    lines
}

/// Returns model, tokens and cost on one line.
fn format_usage(spent: &CallUsage) -> String {
    let mut parts: Vec<String> = spent.model.iter().cloned().collect();
    if let Some(tokens) = spent.tokens {
        let cached = match tokens.cache_read {
            0 => String::new(),
            read => format!(" (+{} cached)", output::grouped(read)),
        };
        parts.push(format!(
            "{}{cached} → {}",
            output::count(tokens.input, "token"),
            output::grouped(tokens.output)
        ));
    }
    parts.extend(spent.cost_usd.map(|cost| format!("${cost:.4}")));
    parts.join(", ")
}

/// Returns how an answer ended, unless it ended normally.
fn abnormal_end_lines(detail: &Value) -> Vec<String> {
    let status = detail.pointer("/output/status").and_then(Value::as_u64).filter(|status| *status >= 400);
    let ended = detail.pointer("/output/ended").filter(|ended| ended.as_str() != Some("complete"));
    let ended = ended.map(|ended| match ended {
        Value::String(word) => word.clone(),
        other => value_lines(other).join(" "),
    });
    status.map(|status| format!("status {status}")).into_iter().chain(ended).collect()
}

/// Returns a value as lines: texts as they are, fields with their names, nothing for empty values.
fn value_lines(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) => text.trim_end().lines().map(str::to_string).collect(),
        // A content part of a model's or a tool's message, as most agents record it.
        Value::Object(fields) if fields.get("type").is_some_and(|kind| kind == "text") => {
            fields.get("text").map(value_lines).unwrap_or_default()
        }
        Value::Object(fields) => fields.iter().flat_map(|(name, value)| field_lines(name, value)).collect(),
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_string()) => {
            items.iter().flat_map(value_lines).collect()
        }
        other => vec![other.to_string()],
    }
}

fn field_lines(name: &str, value: &Value) -> Vec<String> {
    let nothing = match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    if nothing {
        return Vec::new();
    }
    match value {
        Value::String(text) if text.trim_end().contains('\n') => {
            let inside = value_lines(value).into_iter().map(|line| format!("  {line}"));
            std::iter::once(format!("{name}:")).chain(inside).collect()
        }
        Value::String(text) => vec![format!("{name}: {}", text.trim_end())],
        other => vec![format!("{name}: {other}")],
    }
}

/// Returns the first lines, and how many more there are.
fn truncate_lines(mut lines: Vec<String>, most: usize) -> Vec<String> {
    if lines.len() > most {
        let more = lines.len() - (most - 1);
        lines.truncate(most - 1);
        lines.push(format!("… {}", output::count(more as u64, "more line")));
    }
    lines
}

/// Formats a time within a session: `0:07`, `12:34`, `1:02:03`.
fn format_clock(after: Duration) -> String {
    let seconds = after.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_become_a_few_lines() {
        let input = json!({ "command": "ls\nls -l", "timeout": 5, "background": false, "note": "" });
        assert_eq!(value_lines(&input), ["command:", "  ls", "  ls -l", "timeout: 5"]);
        assert_eq!(value_lines(&json!("one\ntwo\n")), ["one", "two"]);
        assert_eq!(value_lines(&json!([{ "type": "text", "text": "hello" }])), ["hello"]);
        let many = truncate_lines((1..=9).map(|n| n.to_string()).collect(), 4);
        assert_eq!(many, ["1", "2", "3", "… 6 more lines"]);
    }

    #[test]
    fn model_calls_say_what_they_used() {
        let call = json!({ "metadata": {
            "model": "m", "usage": { "input": 1200, "output": 34, "cache_read": 5 }, "cost_usd": 0.0125
        } });
        let line = CallUsage::of(&call).as_ref().map(format_usage);
        assert_eq!(line.as_deref(), Some("m, 1,200 tokens (+5 cached) → 34, $0.0125"));
        let request =
            json!({ "path": "/v1/messages", "body": { "model": "m", "messages": [1, 2], "tools": [1] } });
        assert_eq!(request_lines(&request), ["m, 2 messages, 1 tool"]);
        let body = json!({ "type": "message", "role": "assistant", "content": [
            { "type": "text", "text": "Let me look.\n" }, { "type": "tool_use", "id": "1", "name": "Bash", "input": {} }
        ] });
        let output = json!({
            "status": 200, "body": body.to_string(), "chunks": "", "ended": "complete", "took": 1
        });
        assert_eq!(answer_lines(&output), ["Let me look.", "calls Bash"]);
        assert_eq!(answer_lines(&json!("as the agent\nwrote it")), ["as the agent", "wrote it"]);
        let failed = json!({ "output": { "status": 529, "ended": { "cut-off": "reset" } } });
        assert_eq!(abnormal_end_lines(&failed), ["status 529", "cut-off: reset"]);
        assert!(abnormal_end_lines(&json!({ "output": { "status": 200, "ended": "complete" } })).is_empty());
    }

    #[test]
    fn moments_are_told_like_a_clock() {
        assert_eq!(format_clock(Duration::from_secs(7)), "0:07");
        assert_eq!(format_clock(Duration::from_secs(3723)), "1:02:03");
    }
}
