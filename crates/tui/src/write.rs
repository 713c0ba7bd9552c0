//! Renders documents as rows of text. It runs off the screen's thread, so that large documents do not delay a key.

use std::time::Duration;

use serde_json::Value;
use stepback_api::blame::{BlameDocument, LineOriginDocument};
use stepback_api::files::{ChangeDocument, ChangedFileDocument};
use stepback_api::state::MessageDocument;
use stepback_api::steps::StepDetailDocument;
use stepback_model::quantity;

use crate::app::pager::{LineGutter, PagerRow, RowBuilder, RowStyle};

/// Returns a step with everything that is recorded about it, and what it changed.
pub fn step_rows(detail: &StepDetailDocument, changes: &[ChangedFileDocument]) -> Vec<PagerRow> {
    let step = &detail.step;
    let mut rows = RowBuilder::default();
    rows.add_line("", &format!("#{} {}", step.number, step.kind), RowStyle::Heading);
    rows.add_text("", &step.summary, if step.is_error() { RowStyle::Error } else { RowStyle::Plain });
    let mut facts = vec![step.at.to_string()];
    if step.failed {
        facts.push("failed".into());
    }
    facts.extend(step.tool.clone());
    facts.extend(step.duration_us.map(Duration::from_micros).map(quantity::duration));
    facts.push(format!("turn {}", step.iteration));
    facts.extend(step.worker.as_ref().map(|worker| format!("by {worker}")));
    if step.checkpoint {
        facts.push("checkpoint".into());
    }
    rows.add_line("", &facts.join(", "), RowStyle::Quiet);
    if let Some(label) = &step.label {
        rows.add_line("", &format!("label {label}"), RowStyle::Plain);
    }
    let ids = [
        ("task", &step.task),
        ("trace", &step.trace_id),
        ("span", &step.span_id),
        ("in span", &step.parent_span_id),
    ];
    let ids: Vec<String> =
        (ids.into_iter()).filter_map(|(name, id)| Some(format!("{name} {}", id.as_ref()?))).collect();
    if !ids.is_empty() {
        rows.add_text("", &ids.join(", "), RowStyle::Quiet);
    }
    if !step.tags.is_empty() {
        rows.add_line("", &format!("tags {}", step.tags.join(", ")), RowStyle::Plain);
    }
    if let Some(note) = &step.note {
        rows.add_text("", note, RowStyle::Plain);
    }
    if !changes.is_empty() {
        rows.add_heading("Changed");
        changes.iter().for_each(|change| rows.add_line("  ", &change_line(&change.change), RowStyle::Plain));
    }
    if let Some(message) = &detail.message {
        rows.add_heading("Message");
        let name = |agent: &Option<String>| agent.clone().unwrap_or_else(|| "main".into());
        let line =
            format!("{} → {}: {}", name(&message.sender), name(&message.receiver), message.performative);
        rows.add_text("  ", &line, RowStyle::Plain);
        add_value(&mut rows, "  ", &message.content, RowStyle::Plain);
    }
    for (part, title, mood) in [
        (&detail.error, "Error", RowStyle::Error),
        (&detail.input, "Input", RowStyle::Plain),
        (&detail.output, "Output", RowStyle::Plain),
        (&detail.metadata, "More", RowStyle::Plain),
    ] {
        if let Some(part) = part {
            rows.add_heading(title);
            add_value(&mut rows, "  ", part, mood);
        }
    }
    rows.finish()
}

/// Returns a change on one line.
fn change_line(change: &ChangeDocument) -> String {
    let from = change.from.as_ref().map(|from| format!(" (was {from})")).unwrap_or_default();
    format!("{:<12} {}{from}", change.kind, change.path)
}

/// Adds a JSON value in readable form: names before their values, texts as they are.
pub fn add_value(rows: &mut RowBuilder, indent: &str, json: &Value, style: RowStyle) {
    match json {
        Value::Object(fields) => {
            for (name, field) in fields {
                add_named_value(rows, indent, &format!("{name}:"), field, style);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_named_value(rows, indent, "-", item, style)),
        Value::String(text) => rows.add_text(indent, text, style),
        other => rows.add_line(indent, &other.to_string(), style),
    }
}

fn add_named_value(rows: &mut RowBuilder, indent: &str, name: &str, json: &Value, style: RowStyle) {
    let is_short = |text: &str| text.len() <= 200 && !text.contains('\n');
    match json {
        Value::String(text) if is_short(text) => rows.add_line(indent, &format!("{name} {text}"), style),
        Value::Object(fields) if fields.is_empty() => rows.add_line(indent, &format!("{name} {{}}"), style),
        Value::Array(items) if items.is_empty() => rows.add_line(indent, &format!("{name} []"), style),
        Value::Object(_) | Value::Array(_) | Value::String(_) => {
            rows.add_line(indent, name, style);
            // Nested values are indented for as long as there is room.
            let deeper = if indent.len() < 40 { format!("{indent}  ") } else { indent.to_owned() };
            add_value(rows, &deeper, json, style);
        }
        other => rows.add_line(indent, &format!("{name} {other}"), style),
    }
}

/// Returns a part of a state, or a note that there is none.
pub fn state_part_rows(json: &Value) -> Vec<PagerRow> {
    let mut rows = RowBuilder::default();
    match json {
        Value::Null => rows.add_line("", "it is unknown at this step", RowStyle::Quiet),
        Value::Object(fields) if fields.is_empty() => rows.add_line("", "it is empty", RowStyle::Quiet),
        Value::Array(items) if items.is_empty() => rows.add_line("", "it is empty", RowStyle::Quiet),
        scalar => add_value(&mut rows, "", scalar, RowStyle::Plain),
    }
    rows.finish()
}

/// Returns a conversation as rows.
pub fn conversation_rows(messages: &[MessageDocument], has_more: bool) -> Vec<PagerRow> {
    let mut rows = RowBuilder::default();
    if messages.is_empty() {
        rows.add_line("", "the conversation is empty", RowStyle::Quiet);
    }
    for one in messages {
        rows.add_heading(one.role.as_deref().unwrap_or("message"));
        rows.add_text("  ", &one.text, RowStyle::Plain);
    }
    if has_more {
        rows.add_line("", "… there is more; \"stepback conversation\" shows all of it", RowStyle::Quiet);
    }
    rows.finish()
}

/// Returns the lines of a file, each with the step and the author that it comes from.
pub fn origin_rows(blame: &BlameDocument) -> Vec<PagerRow> {
    let mut rows = RowBuilder::default();
    if blame.lines.is_empty() {
        rows.add_line("", "the file is empty", RowStyle::Quiet);
    }
    let mut sessions: Vec<&str> = Vec::new();
    let mut before = None;
    for line in &blame.lines {
        let Some(origin) = usize::try_from(line.origin).ok().and_then(|index| blame.origins.get(index))
        else {
            continue;
        };
        let author = origin.author.as_ref().map(|author| {
            let known = sessions.iter().position(|session| *session == author.session);
            known.unwrap_or_else(|| {
                sessions.push(&author.session);
                sessions.len() - 1
            })
        });
        let is_new = before != Some(line.origin);
        before = Some(line.origin);
        let text = if is_new { describe_origin(origin) } else { String::new() };
        rows.add_line_with_gutter(&line.text, &LineGutter { text, author });
    }
    rows.finish()
}

/// The step and the author in a few words.
fn describe_origin(origin: &LineOriginDocument) -> String {
    let step = origin.step.map_or_else(|| "now".to_owned(), |step| format!("#{step}"));
    let short = |id: &str, length: usize| -> String { id.chars().take(length).collect() };
    let who = match (&origin.commit, &origin.author, origin.kind.as_str()) {
        (Some(commit), ..) => format!("{} {}", short(&commit.id, 7), commit.author),
        (None, Some(author), _) => {
            let mark = if origin.basis == "inferred" { "~" } else { "" };
            format!("{mark}{} {}", author.agent, short(&author.session, 8))
        }
        (None, None, "before-recording") => "before the recording".to_owned(),
        (None, None, "restored") => "brought back".to_owned(),
        (None, None, _) if !origin.candidates.is_empty() => "one of several".to_owned(),
        _ => "you".to_owned(),
    };
    format!("{step:>6} {who}")
}

/// Returns the content of a file, or its beginning.
pub fn file_rows(bytes: &[u8], is_truncated: bool) -> Vec<PagerRow> {
    let mut rows = RowBuilder::default();
    if bytes.is_empty() {
        rows.add_line("", "the file is empty", RowStyle::Quiet);
    } else if bytes.iter().take(8192).any(|byte| *byte == 0) {
        rows.add_line("", "binary file; its first bytes are", RowStyle::Quiet);
        for line in bytes.chunks(16).take(256) {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let text: String = line
                .iter()
                .map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' })
                .collect();
            rows.add_line("", &format!("{:<48} {text}", hex.join(" ")), RowStyle::Plain);
        }
    } else {
        rows.add_text("", &String::from_utf8_lossy(bytes), RowStyle::Plain);
        if is_truncated {
            rows.add_line(
                "",
                "… the file continues; \"stepback cat POINT PATH\" prints all of it",
                RowStyle::Quiet,
            );
        }
    }
    rows.finish()
}

/// The most lines of one file that are shown in a diff, so that the next file can be seen too.
const MAX_LINES_PER_FILE: usize = 20_000;

/// Returns the differences between two moments.
pub fn diff_rows(title: &str, changes: &[ChangedFileDocument], has_more: bool) -> Vec<PagerRow> {
    let mut rows = RowBuilder::default();
    rows.add_line("", title, RowStyle::Quiet);
    if changes.is_empty() {
        rows.add_line("", "no file differs", RowStyle::Plain);
    }
    for change in changes {
        rows.add_heading(&change_line(&change.change));
        let Some(text) = &change.text else {
            if change.change.kind == "modified" {
                let note = "binary or too large to compare here; \"stepback diff\" shows it";
                rows.add_line("  ", note, RowStyle::Quiet);
            }
            continue;
        };
        // The first two lines name the file, as the heading does.
        let mut lines = text.split_terminator('\n').skip(2);
        for line in lines.by_ref().take(MAX_LINES_PER_FILE) {
            let mood = match line.as_bytes().first() {
                Some(b'+') => RowStyle::Added,
                Some(b'-') => RowStyle::Removed,
                Some(b'@') => RowStyle::Location,
                Some(b'\\') => RowStyle::Quiet,
                _ => RowStyle::Plain,
            };
            rows.add_line("", line, mood);
        }
        let rest = lines.count();
        if rest > 0 {
            let what = format!("… and {rest} more lines of this file; \"stepback diff\" shows all");
            rows.add_line("", &what, RowStyle::Quiet);
        }
    }
    if has_more {
        rows.add_line("", "… there are more files; \"stepback diff\" shows all", RowStyle::Quiet);
    }
    rows.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(rows: &[PagerRow]) -> String {
        rows.iter().map(|row| format!("{}\n", row.text)).collect()
    }

    #[test]
    fn values_read_like_notes_and_hidden_characters_are_seen() {
        let mut rows = RowBuilder::default();
        let of =
            json!({ "command": "ls\x1b[31m", "list": [1, { "a": null }], "none": {}, "text": "one\ntwo" });
        add_value(&mut rows, "", &of, RowStyle::Plain);
        assert_eq!(
            text(&rows.finish()),
            "command: ls\\u{1b}[31m\nlist:\n  - 1\n  -\n    a: null\nnone: {}\ntext:\n  one\n  two\n"
        );
    }

    #[test]
    fn a_diff_says_what_it_cannot_show() {
        let modified = |path: &str, text: Option<String>| {
            let (path, kind) = (path.to_owned(), "modified".to_owned());
            ChangedFileDocument { change: ChangeDocument { path, kind, ..ChangeDocument::default() }, text }
        };
        let lines = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n".to_owned();
        let changes = [modified("a", Some(lines)), modified("b", None)];
        let rows = diff_rows("since #1", &changes, false);
        let moods: Vec<RowStyle> = rows.iter().map(|row| row.style).collect();
        assert!(moods.contains(&RowStyle::Added) && moods.contains(&RowStyle::Removed));
        assert!(text(&rows).contains("too large to compare here"), "{}", text(&rows));
        assert!(text(&diff_rows("", &[], false)).contains("no file differs"));
        let long = Some(format!("--- a/a\n+++ b/a\n{}", "+x\n".repeat(MAX_LINES_PER_FILE + 5)));
        let shown = text(&diff_rows("", &[modified("long", long), changes[0].clone()], false));
        assert!(shown.contains("… and 5 more lines of this file") && shown.contains("+y"));
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_such() {
        assert!(text(&file_rows(b"\0\x01ELF", false)).contains("00 01 45 4c 46"));
        assert!(text(&file_rows(b"x", true)).contains("the file continues"));
        assert!(text(&file_rows(b"\xff\x1b", false)).contains("\\u{1b}"));
    }
}
