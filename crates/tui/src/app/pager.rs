//! Scrollable text of any length.

use stepback_model::escape;

/// The longest row, in characters; longer lines continue in another row.
const MAX_ROW_CHARS: usize = 400;
/// The most rows of one text.
const MOST: usize = 200_000;
/// The most bytes of one text.
const MAX_BYTES: usize = 16 << 20;

/// The style of a row. The text also shows the meaning, never the colour alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RowStyle {
    /// Normal text.
    #[default]
    Plain,
    /// Less important text.
    Quiet,
    /// A heading.
    Heading,
    /// An error.
    Error,
    /// A line that was added.
    Added,
    /// A line that was removed.
    Removed,
    /// A position in a file.
    Location,
}

/// What is shown beside a row: who wrote it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LineGutter {
    /// The step and the author; empty where the row above has the same.
    pub text: String,
    /// The number of the author, which has a colour; `None` for the user and for lines of unknown origin.
    pub author: Option<usize>,
}

/// A row of text that is safe to print.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PagerRow {
    /// What is shown beside it; `None` if nothing is.
    pub gutter: Option<LineGutter>,
    /// The text of the row.
    pub text: String,
    /// The style of the row.
    pub style: RowStyle,
}

/// Builds rows. What exceeds the limits is left out, and the last row says so.
#[derive(Debug, Default)]
pub struct RowBuilder {
    rows: Vec<PagerRow>,
    bytes: usize,
    /// The number of lines that were left out.
    skipped_lines: usize,
}

impl RowBuilder {
    /// Adds the lines of a text.
    pub fn add_text(&mut self, indent: &str, text: &str, style: RowStyle) {
        let text = text.strip_suffix('\n').unwrap_or(text);
        for line in text.split('\n') {
            self.add_line(indent, line.strip_suffix('\r').unwrap_or(line), style);
        }
    }

    /// Adds one line.
    pub fn add_line(&mut self, indent: &str, line: &str, style: RowStyle) {
        if self.is_full() {
            self.skipped_lines += 1;
            return;
        }
        // The part that does not fit is not processed: a line may have tens of megabytes.
        let room = MAX_BYTES - self.bytes;
        let end = line.char_indices().map(|(offset, _)| offset).take_while(|offset| *offset <= room).last();
        let kept_part = if line.len() > room { line.split_at(end.unwrap_or(0)).0 } else { line };
        self.skipped_lines += usize::from(kept_part.len() < line.len());
        let safe = escape::safe(&kept_part.replace('\t', "    "));
        let mut rest = safe.as_str();
        loop {
            let end = rest.char_indices().nth(MAX_ROW_CHARS).map_or(rest.len(), |(offset, _)| offset);
            let (part, remaining) = rest.split_at(end);
            self.bytes += part.len() + indent.len();
            self.rows.push(PagerRow { text: format!("{indent}{part}"), style, gutter: None });
            if remaining.is_empty() {
                return;
            }
            if self.is_full() {
                self.skipped_lines += 1;
                return;
            }
            rest = remaining;
        }
    }

    /// Adds one line with something beside it, which the rows that continue the line have too.
    pub fn add_line_with_gutter(&mut self, line: &str, gutter: &LineGutter) {
        let before = self.rows.len();
        self.add_line("", line, RowStyle::Plain);
        for (index, row) in self.rows[before..].iter_mut().enumerate() {
            let text = if index == 0 { escape::safe(&gutter.text) } else { String::new() };
            row.gutter = Some(LineGutter { text, author: gutter.author });
        }
    }

    /// Adds a heading, after an empty row unless it is the first.
    pub fn add_heading(&mut self, text: &str) {
        if !self.rows.is_empty() {
            self.add_line("", "", RowStyle::Plain);
        }
        self.add_line("", text, RowStyle::Heading);
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= MOST || self.bytes >= MAX_BYTES
    }

    /// Returns the rows; the last one says how much was left out.
    pub fn finish(mut self) -> Vec<PagerRow> {
        if self.skipped_lines > 0 {
            let text = format!("… and {} more lines, too many to be shown here", self.skipped_lines);
            self.rows.push(PagerRow { text, style: RowStyle::Quiet, gutter: None });
        }
        self.rows
    }
}

/// A text and its scroll position.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pager {
    /// All rows.
    pub rows: Vec<PagerRow>,
    /// The index of the first row that is shown.
    pub top: usize,
}

impl Pager {
    /// Creates a pager at the beginning of the text.
    pub fn new(rows: Vec<PagerRow>) -> Self {
        Self { rows, top: 0 }
    }

    /// Scrolls down by a number of rows, or up if it is negative.
    pub fn scroll(&mut self, by: i64) {
        let last = self.rows.len().saturating_sub(1) as i64;
        self.top = (self.top as i64).saturating_add(by).clamp(0, last) as usize;
    }

    /// Scrolls to the next or the previous heading.
    pub fn scroll_to_heading(&mut self, forward: bool) {
        let is_head = |row: &PagerRow| row.style == RowStyle::Heading;
        let target = match forward {
            true => self.rows.iter().skip(self.top + 1).position(is_head).map(|index| index + self.top + 1),
            false => self.rows.iter().take(self.top).rposition(is_head),
        };
        self.top = target.unwrap_or(self.top);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_and_control_characters_are_written_out() {
        let mut rows = RowBuilder::default();
        rows.add_text("  ", &format!("a\x1b[2J\tb\r\n{}", "ä".repeat(900)), RowStyle::Plain);
        let rows = rows.finish();
        assert_eq!(rows[0].text, "  a\\u{1b}[2J    b");
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[3].text, format!("  {}", "ä".repeat(100)));
    }

    #[test]
    fn fifty_megabytes_are_cut_and_it_is_said() {
        let mut rows = RowBuilder::default();
        rows.add_text("", &"x".repeat(50 << 20), RowStyle::Plain);
        let rows = rows.finish();
        assert!(rows.len() < 50_000, "{}", rows.len());
        assert!(rows.last().is_some_and(|row| row.text.contains("more lines")));
        let mut many = RowBuilder::default();
        many.add_text("", &"y\n".repeat(300_000), RowStyle::Plain);
        let rows = many.finish();
        assert_eq!(rows.len(), MOST + 1);
        assert_eq!(rows[MOST].text, "… and 100000 more lines, too many to be shown here");
    }

    #[test]
    fn headings_are_gone_to() {
        let mut rows = RowBuilder::default();
        for name in ["a", "b"] {
            rows.add_heading(name);
            rows.add_text("", "1\n2\n3", RowStyle::Plain);
        }
        let mut pager = Pager::new(rows.finish());
        pager.scroll_to_heading(true);
        assert_eq!(pager.rows[pager.top].text, "b");
        pager.scroll_to_heading(true);
        assert_eq!(pager.rows[pager.top].text, "b");
        pager.scroll_to_heading(false);
        assert_eq!(pager.top, 0);
        pager.scroll(1000);
        assert_eq!(pager.top, pager.rows.len() - 1);
    }
}
