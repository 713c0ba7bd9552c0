//! Renders documents as rows of text. It runs off the screen's thread, so that large documents do not delay a key.

use std::time::Duration;

use serde_json::Value;
use stepback_api::files::{ChangeDocument, ChangedFileDocument};
use stepback_api::state::MessageDocument;
use stepback_api::steps::StepDetailDocument;
use stepback_model::quantity;

use crate::app::pager::{Mood, PagerRow, RowBuilder};

/// Returns a step with everything that is recorded about it, and what it changed.
pub fn step(detail: &StepDetailDocument, changes: &[ChangedFileDocument]) -> Vec<PagerRow> {
    let step = &detail.step;
    let mut rows = RowBuilder::default();
    rows.line("", &format!("#{} {}", step.number, step.kind), Mood::Head);
    rows.text("", &step.summary, if step.is_error() { Mood::Bad } else { Mood::Plain });
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
    rows.line("", &facts.join(", "), Mood::Quiet);
    if let Some(label) = &step.label {
        rows.line("", &format!("label {label}"), Mood::Plain);
    }
    if !step.tags.is_empty() {
        rows.line("", &format!("tags {}", step.tags.join(", ")), Mood::Plain);
    }
    if let Some(note) = &step.note {
        rows.text("", note, Mood::Plain);
    }
    if !changes.is_empty() {
        rows.head("Changed");
        changes.iter().for_each(|change| rows.line("  ", &changed(&change.change), Mood::Plain));
    }
    for (part, title, mood) in [
        (&detail.error, "Error", Mood::Bad),
        (&detail.input, "Input", Mood::Plain),
        (&detail.output, "Output", Mood::Plain),
        (&detail.metadata, "More", Mood::Plain),
    ] {
        if let Some(part) = part {
            rows.head(title);
            value(&mut rows, "  ", part, mood);
        }
    }
    rows.done()
}

/// Returns a change on one line.
fn changed(change: &ChangeDocument) -> String {
    let from = change.from.as_ref().map(|from| format!(" (was {from})")).unwrap_or_default();
    format!("{:<12} {}{from}", change.kind, change.path)
}

/// Adds a JSON value in readable form: names before their values, texts as they are.
pub fn value(rows: &mut RowBuilder, indent: &str, of: &Value, mood: Mood) {
    match of {
        Value::Object(fields) => {
            for (name, field) in fields {
                named(rows, indent, &format!("{name}:"), field, mood);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| named(rows, indent, "-", item, mood)),
        Value::String(text) => rows.text(indent, text, mood),
        other => rows.line(indent, &other.to_string(), mood),
    }
}

fn named(rows: &mut RowBuilder, indent: &str, name: &str, of: &Value, mood: Mood) {
    let is_short = |text: &str| text.len() <= 200 && !text.contains('\n');
    match of {
        Value::String(text) if is_short(text) => rows.line(indent, &format!("{name} {text}"), mood),
        Value::Object(fields) if fields.is_empty() => rows.line(indent, &format!("{name} {{}}"), mood),
        Value::Array(items) if items.is_empty() => rows.line(indent, &format!("{name} []"), mood),
        Value::Object(_) | Value::Array(_) | Value::String(_) => {
            rows.line(indent, name, mood);
            // Nested values are indented for as long as there is room.
            let deeper = if indent.len() < 40 { format!("{indent}  ") } else { indent.to_owned() };
            value(rows, &deeper, of, mood);
        }
        other => rows.line(indent, &format!("{name} {other}"), mood),
    }
}

/// Returns a part of a state, or a note that there is none.
pub fn part(of: &Value) -> Vec<PagerRow> {
    let mut rows = RowBuilder::default();
    match of {
        Value::Null => rows.line("", "it is unknown at this step", Mood::Quiet),
        Value::Object(fields) if fields.is_empty() => rows.line("", "it is empty", Mood::Quiet),
        Value::Array(items) if items.is_empty() => rows.line("", "it is empty", Mood::Quiet),
        of => value(&mut rows, "", of, Mood::Plain),
    }
    rows.done()
}

/// Returns a conversation as rows.
pub fn conversation(said: &[MessageDocument], more: bool) -> Vec<PagerRow> {
    let mut rows = RowBuilder::default();
    if said.is_empty() {
        rows.line("", "the conversation is empty", Mood::Quiet);
    }
    for one in said {
        rows.head(one.role.as_deref().unwrap_or("message"));
        rows.text("  ", &one.text, Mood::Plain);
    }
    if more {
        rows.line("", "… there is more; \"stepback conversation\" shows all of it", Mood::Quiet);
    }
    rows.done()
}

/// Returns the content of a file, or its beginning.
pub fn file(bytes: &[u8], cut: bool) -> Vec<PagerRow> {
    let mut rows = RowBuilder::default();
    if bytes.is_empty() {
        rows.line("", "the file is empty", Mood::Quiet);
    } else if bytes.iter().take(8192).any(|byte| *byte == 0) {
        rows.line("", "binary file; its first bytes are", Mood::Quiet);
        for line in bytes.chunks(16).take(256) {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let text: String = line
                .iter()
                .map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' })
                .collect();
            rows.line("", &format!("{:<48} {text}", hex.join(" ")), Mood::Plain);
        }
    } else {
        rows.text("", &String::from_utf8_lossy(bytes), Mood::Plain);
        if cut {
            rows.line("", "… the file continues; \"stepback cat POINT PATH\" prints all of it", Mood::Quiet);
        }
    }
    rows.done()
}

/// The most lines of one file that are shown in a diff, so that the next file can be seen too.
const MAX_LINES_PER_FILE: usize = 20_000;

/// Returns the differences between two moments.
pub fn diff(title: &str, changes: &[ChangedFileDocument], more: bool) -> Vec<PagerRow> {
    let mut rows = RowBuilder::default();
    rows.line("", title, Mood::Quiet);
    if changes.is_empty() {
        rows.line("", "no file differs", Mood::Plain);
    }
    for change in changes {
        rows.head(&changed(&change.change));
        let Some(text) = &change.text else {
            if change.change.kind == "modified" {
                let why = "binary or too large to compare here; \"stepback diff\" shows it";
                rows.line("  ", why, Mood::Quiet);
            }
            continue;
        };
        // The first two lines name the file, as the heading does.
        let mut lines = text.split_terminator('\n').skip(2);
        for line in lines.by_ref().take(MAX_LINES_PER_FILE) {
            let mood = match line.as_bytes().first() {
                Some(b'+') => Mood::Added,
                Some(b'-') => Mood::Removed,
                Some(b'@') => Mood::Place,
                Some(b'\\') => Mood::Quiet,
                _ => Mood::Plain,
            };
            rows.line("", line, mood);
        }
        let rest = lines.count();
        if rest > 0 {
            let what = format!("… and {rest} more lines of this file; \"stepback diff\" shows all");
            rows.line("", &what, Mood::Quiet);
        }
    }
    if more {
        rows.line("", "… there are more files; \"stepback diff\" shows all", Mood::Quiet);
    }
    rows.done()
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
        value(&mut rows, "", &of, Mood::Plain);
        assert_eq!(
            text(&rows.done()),
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
        let rows = diff("since #1", &changes, false);
        let moods: Vec<Mood> = rows.iter().map(|row| row.mood).collect();
        assert!(moods.contains(&Mood::Added) && moods.contains(&Mood::Removed));
        assert!(text(&rows).contains("too large to compare here"), "{}", text(&rows));
        assert!(text(&diff("", &[], false)).contains("no file differs"));
        let long = Some(format!("--- a/a\n+++ b/a\n{}", "+x\n".repeat(MAX_LINES_PER_FILE + 5)));
        let shown = text(&diff("", &[modified("long", long), changes[0].clone()], false));
        assert!(shown.contains("… and 5 more lines of this file") && shown.contains("+y"));
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_such() {
        assert!(text(&file(b"\0\x01ELF", false)).contains("00 01 45 4c 46"));
        assert!(text(&file(b"x", true)).contains("the file continues"));
        assert!(text(&file(b"\xff\x1b", false)).contains("\\u{1b}"));
    }
}
