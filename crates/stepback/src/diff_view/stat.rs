//! Summaries: the table of `git diff --stat` for people, counts and hunks for programs.

use std::io::{self, Write};

use anstyle::AnsiColor;
use serde_json::{Value, json};
use similar::DiffTag;
use stepback_model::quantity;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::compare::{Body, parts};
use super::paint::write_styled;
use super::safe;
use super::unified::hunk_place;
use super::{FileDiff, Style};

/// Unchanged lines around each change in JSON.
const JSON_CONTEXT: usize = 3;

/// What the table shows about one file.
enum Row {
    /// Lines added and removed.
    Lines(usize, usize),
    /// A description, for anything that is not lines.
    Words(String),
}

/// Lines added and removed; zero for what is not text.
pub fn summary_counts(diff: &FileDiff) -> (usize, usize) {
    let mut total = (0, 0);
    for part in parts(diff).1 {
        if let Body::Text(text) = part.body(diff.old_path.is_some()) {
            let (added, removed) = text.counts();
            total = (total.0 + added, total.1 + removed);
        }
    }
    total
}

/// The hunks for `--json`.
///
/// `{"binary", "lossy", "hunks": [{"old_start", "old_lines", "new_start", "new_lines", "lines": [{"kind", "text"}]}]}`.
/// `kind` is `context`, `added` or `removed`; `text` has no line end, and `"no_newline": true` is added to a last line
/// that has none. `binary` says that contents differ and are not shown as lines; `lossy` that some bytes were not UTF-8
/// and stand as U+FFFD.
pub fn hunks_json(diff: &FileDiff) -> Value {
    let (mut binary, mut lossy, mut hunks) = (false, false, Vec::new());
    for part in parts(diff).1 {
        let text = match part.body(diff.old_path.is_some()) {
            Body::Same => continue,
            Body::Opaque => {
                binary = true;
                continue;
            }
            Body::Text(text) => text,
        };
        let mut line = |kind: &str, bytes: &[u8]| {
            let body = bytes.strip_suffix(b"\n");
            let shown = String::from_utf8_lossy(body.unwrap_or(bytes));
            lossy |= matches!(shown, std::borrow::Cow::Owned(_));
            match body {
                Some(_) => json!({ "kind": kind, "text": shown }),
                None => json!({ "kind": kind, "text": shown, "no_newline": true }),
            }
        };
        for hunk in text.hunks(JSON_CONTEXT) {
            let (old_start, old_lines, new_start, new_lines) = hunk_place(&hunk);
            let mut lines = Vec::new();
            for op in &hunk {
                if op.tag() == DiffTag::Equal {
                    lines.extend(text.new[op.new_range()].iter().map(|bytes| line("context", bytes)));
                    continue;
                }
                lines.extend(text.old[op.old_range()].iter().map(|bytes| line("removed", bytes)));
                lines.extend(text.new[op.new_range()].iter().map(|bytes| line("added", bytes)));
            }
            hunks.push(json!({
                "old_start": old_start,
                "old_lines": old_lines,
                "new_start": new_start,
                "new_lines": new_lines,
                "lines": lines,
            }));
        }
    }
    json!({ "binary": binary, "lossy": lossy, "hunks": hunks })
}

/// Writes a table with one row per file and a line of totals; nothing for no differences.
pub fn stat(diffs: &[FileDiff], style: &Style, out: &mut dyn Write) -> io::Result<()> {
    if diffs.is_empty() {
        return Ok(());
    }
    let rows: Vec<(String, Row)> = diffs.iter().map(|diff| (name(diff), row(diff))).collect();
    let longest = rows.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let most = rows.iter().map(|(_, row)| row.size()).max().unwrap_or(0);
    let digits = most.to_string().len();
    // A leading blank, ` | `, the number, a blank.
    let room = style.width.saturating_sub(digits + 5);
    // Names may take what the bars leave, and at least five eighths.
    let names = longest.min(room.saturating_sub(most.min(room * 3 / 8)).max(8));
    let bars = room.saturating_sub(names).max(1);
    let (mut added, mut removed) = (0, 0);
    for (name, row) in &rows {
        let name = fit(name, names);
        let pad = names - name.width();
        write!(out, " {name}{:pad$} | ", "")?;
        match row {
            Row::Words(words) => writeln!(out, "{words}")?,
            Row::Lines(plus, minus) => {
                added += plus;
                removed += minus;
                write!(out, "{:>digits$}", plus + minus)?;
                let (plus, minus) = scaled(*plus, *minus, most, bars);
                if plus + minus > 0 {
                    out.write_all(b" ")?;
                }
                bar(out, "+", plus, AnsiColor::Green, style)?;
                bar(out, "-", minus, AnsiColor::Red, style)?;
                out.write_all(b"\n")?;
            }
        }
    }
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    write!(out, " {} file{} changed", rows.len(), plural(rows.len()))?;
    if added > 0 {
        write!(out, ", {added} insertion{}(+)", plural(added))?;
    }
    if removed > 0 {
        write!(out, ", {removed} deletion{}(-)", plural(removed))?;
    }
    out.write_all(b"\n")
}

impl Row {
    fn size(&self) -> usize {
        match self {
            Self::Lines(added, removed) => added + removed,
            Self::Words(_) => 0,
        }
    }
}

fn name(diff: &FileDiff) -> String {
    match &diff.old_path {
        Some(from) => format!("{from} => {}", diff.path),
        None => diff.path.clone(),
    }
}

fn row(diff: &FileDiff) -> Row {
    let (notes, parts) = parts(diff);
    let (mut added, mut removed, mut words) = (0, 0, Vec::new());
    words.extend(notes.iter().map(|note| safe(note)));
    for part in &parts {
        match part.body(diff.old_path.is_some()) {
            Body::Same => {
                if let (Some(old), Some(new)) = (&part.old, &part.new)
                    && old.mode != new.mode
                {
                    words.push(format!("mode {:o} → {:o}", old.mode & 0o7777, new.mode & 0o7777));
                }
            }
            Body::Opaque => {
                let [old, new] = [&part.old, &part.new].map(|blob| blob.map_or(0, |blob| blob.size));
                words.push(format!("Bin {} → {}", quantity::bytes(old), quantity::bytes(new)));
            }
            Body::Text(text) => {
                let counts = text.counts();
                added += counts.0;
                removed += counts.1;
            }
        }
    }
    if added + removed > 0 || words.is_empty() {
        Row::Lines(added, removed)
    } else {
        Row::Words(words.join(", "))
    }
}

/// Cuts a name from the left, because the end of a path is more informative.
fn fit(name: &str, width: usize) -> String {
    if name.width() <= width {
        return name.to_owned();
    }
    let mut tail: Vec<char> = Vec::new();
    let mut used = 3;
    for c in name.chars().rev() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        tail.push(c);
    }
    format!("...{}", tail.into_iter().rev().collect::<String>())
}

/// The lengths of the two bars, scaled as git does: what is not zero stays visible.
fn scaled(added: usize, removed: usize, most: usize, width: usize) -> (usize, usize) {
    if most <= width {
        return (added, removed);
    }
    let scale = |count: usize| if count == 0 { 0 } else { 1 + count * width.saturating_sub(1) / most };
    let both = usize::from(added > 0) + usize::from(removed > 0);
    let total = scale(added + removed).max(both);
    if added < removed {
        let plus = scale(added);
        (plus, total - plus)
    } else {
        let minus = scale(removed);
        (total - minus, minus)
    }
}

fn bar(out: &mut dyn Write, sign: &str, length: usize, color: AnsiColor, style: &Style) -> io::Result<()> {
    let paint = if style.color { color.on_default() } else { anstyle::Style::new() };
    if length == 0 { Ok(()) } else { write_styled(out, &sign.repeat(length), paint) }
}
