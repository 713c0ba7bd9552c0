//! The unified format: what `git diff` prints and `git apply` reads.

use std::io::{self, Write};

use similar::{DiffOp, DiffTag};

use super::compare::{ContentChange, LineDiff, split_parts};
use super::header::{self, HeaderNames, quote_git_path, unescape_display};
use super::inline::{ChangedRanges, find_changed_words};
use super::paint::{LineKind, LineMarks, Palette, to_glyphs, write_glyphs, write_styled};
use super::safe;
use super::syntax::{FileColors, HighlightBudget};
use super::{DiffStyle, FileDiff};

/// Writes differences in the unified format.
///
/// Without `color` and `escape` this is a patch with exact bytes. Directories and special files are mentioned on lines
/// that start with `#`, which `git apply` skips. Files that cannot be shown as lines make `git apply` refuse the patch,
/// since it would be incomplete. Many small writes are made; `out` should be buffered.
pub fn write_unified(diffs: &[FileDiff], style: &DiffStyle, out: &mut dyn Write) -> io::Result<()> {
    write_each(diffs, style, out, |text, diff, budget, out| match style.is_for_terminal() {
        true => write_for_terminal(text, diff, style, budget, out),
        false => write_patch(text, style, out),
    })
}

/// Writes the notes and headers of all differences, and calls `write_text` for those of text.
pub(super) fn write_each(
    diffs: &[FileDiff],
    style: &DiffStyle,
    out: &mut dyn Write,
    write_text: impl Fn(&LineDiff<'_>, &FileDiff, &mut HighlightBudget, &mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut budget = HighlightBudget::new(style.color && style.highlight);
    for diff in diffs {
        let (notes, parts) = split_parts(diff);
        write_notes(out, diff, &notes, style)?;
        let names = HeaderNames::new(diff, style);
        for part in parts {
            let body = part.compare_contents(diff.old_path.is_some());
            header::write(out, &names, &part, &body, style)?;
            if let ContentChange::Text(text) = body {
                write_text(&text, diff, &mut budget, out)?;
            }
        }
    }
    Ok(())
}

/// Writes notes about directories and special files.
fn write_notes(out: &mut dyn Write, diff: &FileDiff, notes: &[String], style: &DiffStyle) -> io::Result<()> {
    let name = if style.is_for_terminal() {
        diff.path.clone()
    } else {
        quote_git_path("", &unescape_display(&diff.path))
    };
    for note in notes {
        write_styled(out, &format!("# {name}: {}", safe(note)), Palette::header(style))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// The `@@` line of a hunk.
pub(super) fn hunk_header(ops: &[DiffOp]) -> String {
    let (old_start, old_lines, new_start, new_lines) = hunk_position(ops);
    let range = |start: usize, lines: usize| match lines {
        1 => format!("{start}"),
        lines => format!("{start},{lines}"),
    };
    format!("@@ -{} +{} @@", range(old_start, old_lines), range(new_start, new_lines))
}

/// Where a hunk is: start and number of lines, before and after. Lines count from 1; an empty range starts at the line
/// before it.
pub(super) fn hunk_position(ops: &[DiffOp]) -> (usize, usize, usize, usize) {
    let (Some(first), Some(last)) = (ops.first(), ops.last()) else { return (0, 0, 0, 0) };
    let old = first.old_range().start..last.old_range().end;
    let new = first.new_range().start..last.new_range().end;
    let start = |range: &std::ops::Range<usize>| range.start + usize::from(!range.is_empty());
    (start(&old), old.len(), start(&new), new.len())
}

/// Hunks with exact bytes.
fn write_patch(text: &LineDiff<'_>, style: &DiffStyle, out: &mut dyn Write) -> io::Result<()> {
    let line = |kind: LineKind, bytes: &[u8], out: &mut dyn Write| -> io::Result<()> {
        out.write_all(&[kind.sign() as u8])?;
        out.write_all(bytes)?;
        if bytes.ends_with(b"\n") { Ok(()) } else { out.write_all(b"\n\\ No newline at end of file\n") }
    };
    for hunk in text.hunks(style.context) {
        writeln!(out, "{}", hunk_header(&hunk))?;
        for op in hunk {
            if op.tag() == DiffTag::Equal {
                text.old[op.old_range()].iter().try_for_each(|bytes| line(LineKind::Context, bytes, out))?;
                continue;
            }
            text.old[op.old_range()].iter().try_for_each(|bytes| line(LineKind::Removed, bytes, out))?;
            text.new[op.new_range()].iter().try_for_each(|bytes| line(LineKind::Added, bytes, out))?;
        }
    }
    Ok(())
}

/// The syntax colours of the lines of one file.
pub(super) struct SyntaxColors {
    old: FileColors,
    new: FileColors,
}

impl SyntaxColors {
    /// Highlights both sides, up to the last line that is shown.
    pub fn highlight(
        text: &LineDiff<'_>,
        hunks: &[Vec<DiffOp>],
        diff: &FileDiff,
        budget: &mut HighlightBudget,
    ) -> Self {
        let last = hunks.last().and_then(|hunk| hunk.last());
        let (old_end, new_end) = last.map_or((0, 0), |op| (op.old_range().end, op.new_range().end));
        Self {
            old: budget.highlight(diff.old_path.as_deref().unwrap_or(&diff.path), &text.old[..old_end]),
            new: budget.highlight(&diff.path, &text.new[..new_end]),
        }
    }

    /// The marks of a line: number `at` of its side; `words` of its edit.
    pub fn line_marks<'a>(
        &'a self,
        kind: LineKind,
        at: usize,
        words: &'a [std::ops::Range<usize>],
    ) -> LineMarks<'a> {
        let side = if kind == LineKind::Removed { &self.old } else { &self.new };
        LineMarks { colors: side.line_colors(at, kind), words }
    }
}

/// The changed words of an edit; none where lines were only added or only removed, or without colours to show them.
pub(super) fn emphasized_words(
    op: &DiffOp,
    text: &LineDiff<'_>,
    style: &DiffStyle,
) -> (ChangedRanges, ChangedRanges) {
    if style.color && op.tag() == DiffTag::Replace {
        return find_changed_words(&text.old[op.old_range()], &text.new[op.new_range()]);
    }
    (vec![], vec![])
}

/// Hunks for a terminal.
fn write_for_terminal(
    text: &LineDiff<'_>,
    diff: &FileDiff,
    style: &DiffStyle,
    budget: &mut HighlightBudget,
    out: &mut dyn Write,
) -> io::Result<()> {
    let hunks = text.hunks(style.context);
    let looks = SyntaxColors::highlight(text, &hunks, diff, budget);
    let mut row = Vec::new();
    let mut line =
        |kind: LineKind, bytes: &[u8], marks: LineMarks<'_>, out: &mut dyn Write| -> io::Result<()> {
            row.clear();
            write_styled(&mut row, kind.sign().encode_utf8(&mut [0; 4]), Palette::line(kind, false, style))?;
            write_glyphs(&mut row, &to_glyphs(bytes, kind, marks, style));
            row.push(b'\n');
            if !bytes.ends_with(b"\n") {
                write_styled(&mut row, "\\ No newline at end of file", Palette::dimmed(style))?;
                row.push(b'\n');
            }
            out.write_all(&row)
        };
    for hunk in &hunks {
        write_styled(out, &hunk_header(hunk), Palette::hunk(style))?;
        out.write_all(b"\n")?;
        for op in hunk {
            let (old, new) = (op.old_range(), op.new_range());
            if op.tag() == DiffTag::Equal {
                for at in new {
                    line(LineKind::Context, text.new[at], looks.line_marks(LineKind::Context, at, &[]), out)?;
                }
                continue;
            }
            let words = emphasized_words(op, text, style);
            for (number, at) in old.enumerate() {
                let words = words.0.get(number).map_or(&[][..], Vec::as_slice);
                line(LineKind::Removed, text.old[at], looks.line_marks(LineKind::Removed, at, words), out)?;
            }
            for (number, at) in new.enumerate() {
                let words = words.1.get(number).map_or(&[][..], Vec::as_slice);
                line(LineKind::Added, text.new[at], looks.line_marks(LineKind::Added, at, words), out)?;
            }
        }
    }
    Ok(())
}
