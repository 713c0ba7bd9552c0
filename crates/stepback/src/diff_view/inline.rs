//! Finds the words that changed inside changed lines.
//!
//! Lines of a replaced block are compared as one stream of words, so that text moved to the next line is still
//! recognised. If too little stays the same, nothing is emphasised: when everything is marked, nothing is.

use std::ops::Range;

use similar::{Algorithm, DiffOp};

/// Blocks with more bytes on a side are not searched, because they are not read word by word.
const MAX_BYTES: usize = 8 << 10;

/// For each line, the byte ranges that changed.
pub(super) type ChangedRanges = Vec<Vec<Range<usize>>>;

/// A word, a run of blanks, or one other character of a line.
#[derive(Clone, Copy)]
struct Token<'a> {
    line: usize,
    start: usize,
    text: &'a [u8],
}

/// The changed ranges of the lines of a replaced block, before and after.
pub(super) fn find_changed_words(old: &[&[u8]], new: &[&[u8]]) -> (ChangedRanges, ChangedRanges) {
    let mut marks = (vec![vec![]; old.len()], vec![vec![]; new.len()]);
    let size = |lines: &[&[u8]]| lines.iter().map(|line| line.len()).sum::<usize>();
    if size(old) > MAX_BYTES || size(new) > MAX_BYTES {
        return marks;
    }
    let (old_lines, new_lines) = (old, new);
    let (old, new) = (tokenize(old), tokenize(new));
    let text = |tokens: &[Token<'_>]| tokens.iter().map(|token| token.text.to_vec()).collect::<Vec<_>>();
    let ops = similar::capture_diff_slices(Algorithm::Myers, &text(&old), &text(&new));
    let weight = |tokens: &[Token<'_>]| -> usize {
        tokens.iter().filter(|token| !token.text[0].is_ascii_whitespace()).map(|token| token.text.len()).sum()
    };
    let kept: usize = ops
        .iter()
        .filter(|op| matches!(op, DiffOp::Equal { .. }))
        .map(|op| weight(&old[op.old_range()]))
        .sum();
    if kept * 5 < weight(&old) + weight(&new) {
        return marks;
    }
    for op in ops.iter().filter(|op| !matches!(op, DiffOp::Equal { .. })) {
        mark_tokens(&mut marks.0, &old[op.old_range()]);
        mark_tokens(&mut marks.1, &new[op.new_range()]);
    }
    drop_whole_lines(&mut marks.0, old_lines);
    drop_whole_lines(&mut marks.1, new_lines);
    marks
}

/// Removes the emphasis from lines that would be emphasised completely: their sign is enough.
fn drop_whole_lines(marks: &mut ChangedRanges, lines: &[&[u8]]) {
    for (ranges, line) in marks.iter_mut().zip(lines) {
        let rest = (0..line.trim_ascii_end().len()).filter(|at| !line[*at].is_ascii_whitespace());
        if rest.into_iter().all(|at| ranges.iter().any(|range| range.contains(&at))) {
            ranges.clear();
        }
    }
}

fn mark_tokens(marks: &mut ChangedRanges, tokens: &[Token<'_>]) {
    for token in tokens.iter().filter(|token| token.text != b"\n") {
        let ranges = &mut marks[token.line];
        let end = token.start + token.text.len();
        match ranges.last_mut() {
            Some(last) if last.end == token.start => last.end = end,
            _ => ranges.push(token.start..end),
        }
    }
}

fn tokenize<'a>(lines: &[&'a [u8]]) -> Vec<Token<'a>> {
    let class = |byte: u8| match byte {
        b'\n' => 0,
        byte if byte.is_ascii_whitespace() => 1,
        // Bytes of other scripts and of text that is not UTF-8 stay together, so no character is cut.
        byte if byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii() => 2,
        _ => 3,
    };
    let mut tokens = Vec::new();
    for (line, bytes) in lines.iter().enumerate() {
        let mut start = 0;
        for run in bytes.chunk_by(|a, b| class(*a) == class(*b) && class(*a) != 3) {
            tokens.push(Token { line, start, text: run });
            start += run.len();
        }
    }
    tokens
}
