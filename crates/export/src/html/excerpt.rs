//! How much of long texts is shown, so that a page stays small: each text up to a limit, which is lower the more text there is.
//!
//! What is left out is in the middle, and the page says how much it is.

use crate::file_changes::ChangedLines;
use crate::line_diff::DiffLine;
use crate::recording::{ItemContent, RecordedItem};

/// How much recorded text a page may have, in bytes.
const PAGE_BYTES: usize = 2_600_000;
/// The limits of a short session.
const MAX_FOLDED: usize = 24_000;
/// The limits of a session that is longer than any page.
const MIN_FOLDED: usize = 400;
/// How much more is shown of what the user and the model say than of inputs, outputs and files.
const PROSE_FACTOR: usize = 4;
/// What the markup of a line of a difference takes.
const LINE_BYTES: usize = 16;

/// The limits of one page, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExcerptLimits {
    /// For an input, an output, or the changed lines of a file.
    pub folded: usize,
    /// For a text of the user or the model.
    pub prose: usize,
    is_shortening: bool,
}

impl ExcerptLimits {
    /// Chooses limits for these items.
    pub fn of<'r>(items: impl Iterator<Item = &'r RecordedItem>) -> Self {
        // The sizes of folded texts, and of prose as if it were folded.
        let mut sizes: Vec<(usize, usize)> = Vec::new();
        for item in items {
            add_sizes(item, &mut sizes);
        }
        let cost = |limit: usize| -> usize {
            let shown = sizes.iter().map(|(size, factor)| (*size).min(limit.saturating_mul(*factor)));
            shown.fold(0, usize::saturating_add)
        };
        let (mut low, mut high) = (MIN_FOLDED, MAX_FOLDED);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            match cost(middle) <= PAGE_BYTES {
                true => low = middle,
                false => high = middle - 1,
            }
        }
        let is_shortening = sizes.iter().any(|(size, factor)| *size > low.saturating_mul(*factor));
        Self { folded: low, prose: low * PROSE_FACTOR, is_shortening }
    }

    /// Whether any text is longer than its limit.
    pub fn is_shortening(&self) -> bool {
        self.is_shortening
    }
}

fn add_sizes(item: &RecordedItem, sizes: &mut Vec<(usize, usize)>) {
    match &item.content {
        ItemContent::Prompt(text) => sizes.push((text.len(), PROSE_FACTOR)),
        ItemContent::Answer(answer) => {
            sizes.push((answer.text().len(), PROSE_FACTOR));
            sizes.push((answer.thoughts().len(), PROSE_FACTOR));
        }
        ItemContent::Call(call) => {
            sizes.push((value_size(&call.input), 1));
            sizes.push((value_size(&call.output), 1));
        }
        ItemContent::Event(event) => sizes.push((event.text.as_ref().map_or(0, String::len), 1)),
    }
    for change in &item.changes {
        if let ChangedLines::Text(lines) = &change.lines {
            sizes.push((lines.iter().map(line_size).sum(), 1));
        }
    }
}

fn value_size(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| value_size(item) + 2).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + value_size(value) + 4).sum(),
        _ => 8,
    }
}

/// What a line of a difference takes on the page.
fn line_size(line: &DiffLine) -> usize {
    LINE_BYTES
        + match line {
            DiffLine::Hunk(..) => 0,
            DiffLine::Equal(text) | DiffLine::Removed(text) | DiffLine::Added(text) => text.len(),
        }
}

/// The beginning and the end of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextExcerpt<'t> {
    /// The beginning; the whole text if it is short enough.
    pub head: &'t str,
    /// How many bytes are left out.
    pub left_out: usize,
    /// The end; empty if nothing is left out.
    pub tail: &'t str,
}

/// Shortens a text to about `limit` bytes, at line breaks if there are some near.
pub fn shorten(text: &str, limit: usize) -> TextExcerpt<'_> {
    if text.len() <= limit {
        return TextExcerpt { head: text, left_out: 0, tail: "" };
    }
    let mut head = text.floor_char_boundary(limit / 3 * 2);
    let mut tail = text.ceil_char_boundary(text.len() - limit / 3);
    if let Some(line) = text[..head].rfind('\n').filter(|line| *line > head / 2) {
        head = line + 1;
    }
    if let Some(line) = text[tail..].find('\n').filter(|line| *line < (text.len() - tail) / 2) {
        tail += line + 1;
    }
    TextExcerpt { head: &text[..head], left_out: tail - head, tail: &text[tail..] }
}

/// How many of the first lines of a difference are shown.
pub fn shown_lines(lines: &[DiffLine], limit: usize) -> usize {
    let mut size = 0usize;
    let fits = |line: &&DiffLine| {
        size = size.saturating_add(line_size(line));
        size <= limit
    };
    let fitting = lines.iter().take_while(fits).count();
    // One line that is longer than the limit is shortened instead.
    fitting.max(1).min(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shortened_in_the_middle_at_line_breaks() {
        let text: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        let excerpt = shorten(&text, 300);
        assert!(excerpt.head.starts_with("line 0\n") && excerpt.head.ends_with('\n'));
        assert!(excerpt.tail.starts_with("line ") && excerpt.tail.ends_with("line 999\n"));
        assert_eq!(excerpt.head.len() + excerpt.left_out + excerpt.tail.len(), text.len());
        assert_eq!(shorten("short", 300), TextExcerpt { head: "short", left_out: 0, tail: "" });
        let one = "ä".repeat(1000);
        let excerpt = shorten(&one, 301);
        assert_eq!(excerpt.head.len() + excerpt.left_out + excerpt.tail.len(), 2000);
    }

    #[test]
    fn the_more_text_there_is_the_less_of_each_is_shown() {
        use stepback_model::time::Timestamp;
        let item = |size: usize| {
            RecordedItem::new(ItemContent::Prompt("x".repeat(size)), Some(Timestamp::from_micros(0)))
        };
        let few = [item(50_000)];
        let limits = ExcerptLimits::of(few.iter());
        assert_eq!((limits.folded, limits.is_shortening()), (MAX_FOLDED, false));
        let many: Vec<_> = (0..1000).map(|_| item(50_000)).collect();
        let limits = ExcerptLimits::of(many.iter());
        assert!(limits.is_shortening() && limits.prose * 1000 <= PAGE_BYTES, "{limits:?}");
        assert!(limits.prose * 1000 > PAGE_BYTES * 9 / 10, "{limits:?}");
    }
}
