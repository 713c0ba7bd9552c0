//! Summaries: the table of `git diff --stat` for people, counts and hunks for programs.

use std::io::{self, Write};

use anstyle::AnsiColor;
use serde_json::{Value, json};
use similar::DiffTag;
use stepback_model::quantity;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::compare::{ContentChange, split_parts};
use super::paint::write_styled;
use super::safe;
use super::unified::hunk_position;
use super::{DiffStyle, FileDiff};

/// Unchanged lines around each change in JSON.
const JSON_CONTEXT: usize = 3;

/// What the table shows about one file.
enum StatRow {
    /// Lines added and removed.
    Lines(usize, usize),
    /// A description, for anything that is not lines.
    Description(String),
}

/// Lines added and removed; zero for what is not text.
pub fn count_changed_lines(diff: &FileDiff) -> (usize, usize) {
    let mut total = (0, 0);
    for part in split_parts(diff).1 {
        if let ContentChange::Text(text) = part.compare_contents(diff.old_path.is_some()) {
            let (added, removed) = text.count_changes();
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
    for part in split_parts(diff).1 {
        let text = match part.compare_contents(diff.old_path.is_some()) {
            ContentChange::Unchanged => continue,
            ContentChange::Opaque => {
                binary = true;
                continue;
            }
            ContentChange::Text(text) => text,
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
            let (old_start, old_lines, new_start, new_lines) = hunk_position(&hunk);
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
pub fn write_stat(diffs: &[FileDiff], style: &DiffStyle, out: &mut dyn Write) -> io::Result<()> {
    if diffs.is_empty() {
        return Ok(());
    }
    let rows: Vec<(String, StatRow)> =
        diffs.iter().map(|diff| (display_name(diff), build_row(diff))).collect();
    let longest = rows.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let most = rows.iter().map(|(_, row)| row.changed_lines()).max().unwrap_or(0);
    let digits = most.to_string().len();
    // A leading blank, ` | `, the number, a blank.
    let room = style.width.saturating_sub(digits + 5);
    // Names may take what the bars leave, and at least five eighths.
    let names = longest.min(room.saturating_sub(most.min(room * 3 / 8)).max(8));
    let bars = room.saturating_sub(names).max(1);
    let (mut added, mut removed) = (0, 0);
    for (name, row) in &rows {
        let name = truncate_left(name, names);
        let pad = names - name.width();
        write!(out, " {name}{:pad$} | ", "")?;
        match row {
            StatRow::Description(words) => writeln!(out, "{words}")?,
            StatRow::Lines(plus, minus) => {
                added += plus;
                removed += minus;
                write!(out, "{:>digits$}", plus + minus)?;
                let (plus, minus) = scale_bars(*plus, *minus, most, bars);
                if plus + minus > 0 {
                    out.write_all(b" ")?;
                }
                write_bar(out, "+", plus, AnsiColor::Green, style)?;
                write_bar(out, "-", minus, AnsiColor::Red, style)?;
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

impl StatRow {
    fn changed_lines(&self) -> usize {
        match self {
            Self::Lines(added, removed) => added + removed,
            Self::Description(_) => 0,
        }
    }
}

fn display_name(diff: &FileDiff) -> String {
    match &diff.old_path {
        Some(from) => format!("{from} => {}", diff.path),
        None => diff.path.clone(),
    }
}

fn build_row(diff: &FileDiff) -> StatRow {
    let (notes, parts) = split_parts(diff);
    let (mut added, mut removed, mut words) = (0, 0, Vec::new());
    words.extend(notes.iter().map(|note| safe(note)));
    for part in &parts {
        match part.compare_contents(diff.old_path.is_some()) {
            ContentChange::Unchanged => {
                if let (Some(old), Some(new)) = (&part.old, &part.new)
                    && old.mode != new.mode
                {
                    words.push(format!("mode {:o} → {:o}", old.mode & 0o7777, new.mode & 0o7777));
                }
            }
            ContentChange::Opaque => {
                let [old, new] = [&part.old, &part.new].map(|blob| blob.map_or(0, |blob| blob.size));
                words.push(format!("Bin {} → {}", quantity::bytes(old), quantity::bytes(new)));
            }
            ContentChange::Text(text) => {
                let counts = text.count_changes();
                added += counts.0;
                removed += counts.1;
            }
        }
    }
    if added + removed > 0 || words.is_empty() {
        StatRow::Lines(added, removed)
    } else {
        StatRow::Description(words.join(", "))
    }
}

/// Cuts a name from the left, because the end of a path is more informative.
fn truncate_left(name: &str, width: usize) -> String {
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
fn scale_bars(added: usize, removed: usize, most: usize, width: usize) -> (usize, usize) {
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

fn write_bar(
    out: &mut dyn Write,
    sign: &str,
    length: usize,
    color: AnsiColor,
    style: &DiffStyle,
) -> io::Result<()> {
    let paint = if style.color { color.on_default() } else { anstyle::Style::new() };
    if length == 0 { Ok(()) } else { write_styled(out, &sign.repeat(length), paint) }
}
