//! A tool call as a card: one line that tells what it did, and how it ended, over its input, its output and what it changed.

use std::time::Duration;

use serde_json::Value;
use stepback_model::clip;
use stepback_model::quantity::{bytes, count, duration, grouped};

use super::escape::{push_text, strip_terminal_sequences};
use super::excerpt::{ExcerptLimits, shorten, shown_lines};
use super::tool_view::{ToolInput, ToolResultView};
use crate::file_changes::{ChangedLines, FileChange};
use crate::line_diff::{self, DiffLine};
use crate::recording::{CallEnding, ToolCallRecord};

/// The most characters of a card's title.
const TITLE_CHARS: usize = 160;

/// Adds the card of a call, without its end tag.
pub fn push_call(out: &mut String, call: &ToolCallRecord, limits: &ExcerptLimits) {
    let output = ToolResultView::of(call);
    let (class, status) = match call.status {
        CallEnding::Done => ("done", "done"),
        CallEnding::Failed => ("bad", "failed"),
        CallEnding::Open => ("open", "no end recorded"),
    };
    out.push_str(&format!("<details class=\"call {class}\"><summary><b>"));
    push_text(out, clip::first(&call.tool, TITLE_CHARS).to_string().trim());
    out.push_str("</b> <span class=\"title\" dir=\"auto\">");
    push_text(out, &title(call));
    out.push_str("</span> <span class=\"status\">");
    out.push_str(status);
    if let Some(code) = output.exit_code {
        out.push_str(&format!(", exit code {code}"));
    }
    if let Some(took) = call.duration {
        out.push_str(&format!(" · {}", duration(Duration::from_micros(took))));
    }
    out.push_str("</span></summary>\n");
    push_input(out, call, limits);
    push_cut_notice(out, "input", call.cut_from.0);
    push_output(out, call, &output, limits);
    push_cut_notice(out, "output", call.cut_from.1);
    out.push_str("</details>\n");
}

/// The summary of a call without the name of its tool, which stands before it.
fn title(call: &ToolCallRecord) -> String {
    let summary = call.summary.strip_prefix(call.tool.as_str()).unwrap_or(&call.summary);
    let summary = summary.trim_start_matches([':', ' ']);
    clip::first(summary, TITLE_CHARS).to_string()
}

fn push_input(out: &mut String, call: &ToolCallRecord, limits: &ExcerptLimits) {
    match ToolInput::of(call) {
        ToolInput::Command(command) => {
            push_block(out, "terminal command", None, &command, limits.folded);
        }
        ToolInput::Edit { path, replacements } => {
            push_path(out, &path);
            let room = limits.folded / replacements.len().max(1);
            for (old, new) in &replacements {
                push_diff(out, &line_diff::compare(old, new), room);
            }
        }
        ToolInput::Write { path, content } => {
            push_path(out, &path);
            push_block(out, "code", None, &content, limits.folded);
        }
        ToolInput::Patch(patch) => push_diff(out, &line_diff::parse_patch(&patch), limits.folded),
        ToolInput::Read(path) => push_path(out, &path),
        ToolInput::Other(Value::Null) => {}
        ToolInput::Other(Value::Object(fields)) => push_fields(out, &fields, limits),
        ToolInput::Other(Value::String(text)) => push_block(out, "code", Some("Input"), &text, limits.folded),
        ToolInput::Other(other) => push_block(out, "code", Some("Input"), &other.to_string(), limits.folded),
    }
}

fn push_fields(out: &mut String, fields: &serde_json::Map<String, Value>, limits: &ExcerptLimits) {
    if fields.is_empty() {
        return;
    }
    let room = limits.folded / fields.len();
    out.push_str("<dl class=\"fields\">\n");
    for (name, value) in fields {
        out.push_str("<dt>");
        push_text(out, clip::first(name, TITLE_CHARS).to_string().trim());
        out.push_str("</dt><dd>");
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Array(_) | Value::Object(_) => serde_json::to_string_pretty(value).unwrap_or_default(),
            other => other.to_string(),
        };
        push_shortened(out, &text, room);
        out.push_str("</dd>\n");
    }
    out.push_str("</dl>\n");
}

fn push_output(out: &mut String, call: &ToolCallRecord, output: &ToolResultView, limits: &ExcerptLimits) {
    let is_command = matches!(ToolInput::of(call), ToolInput::Command(_));
    let class = if is_command { "terminal" } else { "code" };
    let repeats_error = call.error.as_ref().is_some_and(|error| error.trim() == output.text.trim());
    if !output.text.trim().is_empty() && !repeats_error {
        push_block(out, class, Some("Output"), &output.text, limits.folded);
    }
    if !output.stderr.trim().is_empty() {
        push_block(out, class, Some("Standard error"), &output.stderr, limits.folded);
    }
    if let Some(error) = &call.error {
        push_block(out, "code bad", Some("Error"), error, limits.folded);
    }
}

fn push_cut_notice(out: &mut String, part: &str, size: Option<u64>) {
    if let Some(size) = size {
        out.push_str(&format!(
            "<p class=\"left-out\">Of this {part} of {}, only a part was recorded.</p>\n",
            bytes(size)
        ));
    }
}

fn push_path(out: &mut String, path: &str) {
    out.push_str("<p class=\"path\"><bdi>");
    push_text(out, path);
    out.push_str("</bdi></p>\n");
}

/// Adds a text as it is, up to a limit.
pub fn push_block(out: &mut String, class: &str, heading: Option<&str>, text: &str, limit: usize) {
    if let Some(heading) = heading {
        out.push_str(&format!("<p class=\"heading\">{heading}</p>\n"));
    }
    out.push_str(&format!("<pre class=\"{class}\" tabindex=\"0\">"));
    push_shortened(out, strip_terminal_sequences(text).trim_end(), limit);
    out.push_str("</pre>\n");
}

/// Adds a text up to a limit, and says how much is left out.
pub fn push_shortened(out: &mut String, text: &str, limit: usize) {
    let excerpt = shorten(text, limit);
    push_text(out, excerpt.head);
    if excerpt.left_out > 0 {
        out.push_str(&format!(
            "<span class=\"left-out\">… {} of {} left out …</span>",
            bytes(excerpt.left_out as u64),
            bytes(text.len() as u64)
        ));
        out.push('\n');
        push_text(out, excerpt.tail);
    }
}

/// Adds the files that a checkpoint found changed.
pub fn push_changes(out: &mut String, changes: &[FileChange], limits: &ExcerptLimits) {
    for change in changes {
        let (added, removed) = match &change.lines {
            ChangedLines::Text(lines) => (
                lines.iter().filter(|line| matches!(line, DiffLine::Added(_))).count(),
                lines.iter().filter(|line| matches!(line, DiffLine::Removed(_))).count(),
            ),
            ChangedLines::NotShown(_) => (0, 0),
        };
        out.push_str("<details class=\"change\"><summary><b>");
        out.push_str(change.kind.as_str());
        out.push_str("</b> <span class=\"title\"><bdi>");
        if let Some(from) = &change.from {
            push_text(out, from);
            out.push_str("</bdi> → <bdi>");
        }
        push_text(out, &change.path);
        out.push_str("</bdi></span>");
        if added + removed > 0 {
            out.push_str(&format!(
                " <span class=\"status\"><ins>+{}</ins> <del>−{}</del></span>",
                grouped(added as u64),
                grouped(removed as u64)
            ));
        }
        out.push_str("</summary>\n");
        match &change.lines {
            ChangedLines::Text(lines) if lines.is_empty() => {
                out.push_str("<p class=\"left-out\">The content is the same.</p>\n");
            }
            ChangedLines::Text(lines) => push_diff(out, lines, limits.folded),
            ChangedLines::NotShown(reason) => {
                out.push_str(&format!(
                    "<p class=\"left-out\">The changed lines are not shown: {reason}.</p>\n"
                ));
            }
        }
        out.push_str("</details>\n");
    }
}

fn push_diff(out: &mut String, lines: &[DiffLine], limit: usize) {
    if lines.is_empty() {
        return;
    }
    let shown = shown_lines(lines, limit);
    out.push_str("<pre class=\"diff\" tabindex=\"0\">");
    for line in &lines[..shown] {
        let (tag, sign, text) = match line {
            DiffLine::Hunk(old, new) => {
                out.push_str(&format!("<i>@@ −{old} +{new}</i>\n"));
                continue;
            }
            DiffLine::Equal(text) => ("", " ", text),
            DiffLine::Removed(text) => ("del", "−", text),
            DiffLine::Added(text) => ("ins", "+", text),
        };
        if !tag.is_empty() {
            out.push_str(&format!("<{tag}>"));
        }
        out.push_str(sign);
        push_shortened(out, text, limit);
        if !tag.is_empty() {
            out.push_str(&format!("</{tag}>"));
        }
        out.push('\n');
    }
    if shown < lines.len() {
        let left_out = count((lines.len() - shown) as u64, "more line");
        out.push_str(&format!(
            "<span class=\"left-out\">… {left_out} of {} left out …</span>\n",
            grouped(lines.len() as u64)
        ));
    }
    out.push_str("</pre>\n");
}
