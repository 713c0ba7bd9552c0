//! Two columns: before on the left, after on the right.
//!
//! Columns are measured in terminal cells, not characters or bytes. A long line wraps inside its column; beyond
//! [`MAX_ROWS`] rows it is cut with `…`, so that minified files stay readable.

use std::io::{self, Write};
use std::ops::Range;

use similar::DiffTag;

use super::compare::LineDiff;
use super::paint::{Glyph, GlyphText, LineKind, Palette, to_glyphs, write_glyphs, write_styled};
use super::syntax::HighlightBudget;
use super::unified::{SyntaxColors, emphasized_words, hunk_header, write_each};
use super::{DiffStyle, FileDiff};

/// Rows that one line may take.
const MAX_ROWS: usize = 12;

/// Columns between tab stops.
const TAB_WIDTH: usize = 4;

/// The narrowest column for text; on a narrower terminal the terminal wraps.
const MIN_TEXT_WIDTH: usize = 8;

/// What separates the columns.
const GAP: &str = " │ ";

/// Writes differences in two columns that together fit `style.width`.
///
/// This is for reading only, so control characters are always escaped.
pub fn write_side_by_side(diffs: &[FileDiff], style: &DiffStyle, out: &mut dyn Write) -> io::Result<()> {
    let style = &DiffStyle { escape: true, ..*style };
    write_each(diffs, style, out, |text, diff, budget, out| write_columns(text, diff, style, budget, out))
}

fn write_columns(
    text: &LineDiff<'_>,
    diff: &FileDiff,
    style: &DiffStyle,
    budget: &mut HighlightBudget,
    out: &mut dyn Write,
) -> io::Result<()> {
    let hunks = text.hunks(style.context);
    let looks = SyntaxColors::highlight(text, &hunks, diff, budget);
    let page = ColumnLayout::new(text, style);
    for hunk in &hunks {
        write_styled(out, &hunk_header(hunk), Palette::hunk(style))?;
        out.write_all(b"\n")?;
        for op in hunk {
            let words = emphasized_words(op, text, style);
            let (left_kind, right_kind) = match op.tag() {
                DiffTag::Equal => (LineKind::Context, LineKind::Context),
                _ => (LineKind::Removed, LineKind::Added),
            };
            let (old, new) = (op.old_range(), op.new_range());
            for number in 0..old.len().max(new.len()) {
                let left = line_at(&old, number).map(|at| {
                    // Context is coloured from the new side, where its text is the same.
                    let shown = if left_kind == LineKind::Context { new.start + number } else { at };
                    let marks = looks.line_marks(left_kind, shown, words_at(&words.0, number));
                    (at, to_glyphs(text.old[at], left_kind, marks, style), text.old[at])
                });
                let right = line_at(&new, number).map(|at| {
                    let marks = looks.line_marks(right_kind, at, words_at(&words.1, number));
                    (at, to_glyphs(text.new[at], right_kind, marks, style), text.new[at])
                });
                let left = page.layout_cell(left, left_kind, style);
                let right = page.layout_cell(right, right_kind, style);
                page.write_row(&left, &right, style, out)?;
            }
        }
    }
    Ok(())
}

fn line_at(range: &Range<usize>, number: usize) -> Option<usize> {
    (number < range.len()).then_some(range.start + number)
}

fn words_at(words: &[Vec<Range<usize>>], number: usize) -> &[Range<usize>] {
    words.get(number).map_or(&[], Vec::as_slice)
}

/// The measures of the two columns.
struct ColumnLayout {
    number_width: usize,
    text_width: usize,
}

/// A line in its column: rows of bytes, each with the columns of text it fills.
type Cell = Vec<(Vec<u8>, usize)>;

impl ColumnLayout {
    fn new(text: &LineDiff<'_>, style: &DiffStyle) -> Self {
        let number = text.old.len().max(text.new.len()).to_string().len();
        let column = style.width.saturating_sub(GAP.chars().count()) / 2;
        // A number, a blank, a sign, the text.
        Self { number_width: number, text_width: column.saturating_sub(number + 2).max(MIN_TEXT_WIDTH) }
    }

    /// Lays out one line; an empty cell if there is none.
    fn layout_cell(
        &self,
        line: Option<(usize, Vec<Glyph>, &[u8])>,
        kind: LineKind,
        style: &DiffStyle,
    ) -> Cell {
        let Some((at, mut glyphs, bytes)) = line else {
            return vec![(vec![b' '; self.number_width + 2], 0)];
        };
        if !bytes.ends_with(b"\n") && kind != LineKind::Context {
            let paint = Palette::dimmed(style);
            glyphs.push(Glyph { text: GlyphText::Escape(" (no newline)".to_owned()), paint });
        }
        let rows = wrap_glyphs(glyphs, self.text_width, style);
        let mut cell = Vec::with_capacity(rows.len());
        for (number, (row, used)) in rows.iter().enumerate() {
            let label = if number == 0 { (at + 1).to_string() } else { String::new() };
            let mut out = Vec::new();
            // Writing into memory cannot fail.
            let _ = write_styled(
                &mut out,
                &format!("{label:>width$} ", width = self.number_width),
                Palette::dimmed(style),
            );
            let sign = kind.sign().to_string();
            let _ = write_styled(&mut out, &sign, Palette::line(kind, false, style));
            write_glyphs(&mut out, row);
            cell.push((out, *used));
        }
        cell
    }

    fn write_row(&self, left: &Cell, right: &Cell, style: &DiffStyle, out: &mut dyn Write) -> io::Result<()> {
        for at in 0..left.len().max(right.len()) {
            match left.get(at) {
                Some((bytes, used)) => {
                    out.write_all(bytes)?;
                    write!(out, "{:1$}", "", self.text_width.saturating_sub(*used))?;
                }
                None => write!(out, "{:1$}", "", self.number_width + 2 + self.text_width)?,
            }
            match right.get(at) {
                Some((bytes, _)) if !bytes.iter().all(|byte| *byte == b' ') => {
                    write_styled(out, GAP, Palette::dimmed(style))?;
                    out.write_all(bytes)?;
                }
                _ => write_styled(out, GAP.trim_end(), Palette::dimmed(style))?,
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Breaks glyphs into rows of at most `width` columns; at least one row.
fn wrap_glyphs(glyphs: Vec<Glyph>, width: usize, style: &DiffStyle) -> Vec<(Vec<Glyph>, usize)> {
    let mut rows = Vec::new();
    let (mut row, mut used, mut column) = (Vec::new(), 0, 0);
    for glyph in glyphs.into_iter().flat_map(|glyph| expand_glyph(glyph, &mut column)) {
        let wide = glyph.width();
        if used + wide > width && used > 0 {
            if rows.len() + 1 == MAX_ROWS {
                while used + 1 > width {
                    used -= row.pop().map_or(used, |last: Glyph| last.width());
                }
                row.push(Glyph { text: GlyphText::Char('…'), paint: Palette::dimmed(style) });
                rows.push((row, used + 1));
                return rows;
            }
            rows.push((std::mem::take(&mut row), used));
            used = 0;
        }
        used += wide;
        row.push(glyph);
    }
    rows.push((row, used));
    rows
}

/// Turns a tab into blanks up to the next tab stop of the line, and an escape into its characters, so that each fits
/// any row.
fn expand_glyph(glyph: Glyph, column: &mut usize) -> Vec<Glyph> {
    let paint = glyph.paint;
    let plain = |c: char| Glyph { text: GlyphText::Char(c), paint };
    let expanded = match &glyph.text {
        GlyphText::Char('\t') => vec![' '; TAB_WIDTH - *column % TAB_WIDTH].into_iter().map(plain).collect(),
        GlyphText::Escape(text) => text.chars().map(plain).collect(),
        GlyphText::Char(_) => vec![glyph],
    };
    *column += expanded.iter().map(Glyph::width).sum::<usize>();
    expanded
}
