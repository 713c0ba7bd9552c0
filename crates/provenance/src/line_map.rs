//! Maps the lines of a newer text to those of an older one: unchanged lines, lines that only a formatter touched, and blocks
//! that moved within the text.
//!
//! A line that was edited is a new line. A formatter is recognised by what it keeps: the changed part has the same characters
//! in the same order, apart from white space and trailing commas. A moved block is recognised by its length: it has at least
//! [`MIN_MOVED_CHARS`] letters and digits, so that closing braces and blank lines are not.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

/// The fewest letters and digits of a block that is recognised as moved within a file.
pub const MIN_MOVED_CHARS: usize = 20;
/// How long to search for the shortest difference of two texts; after that a longer one is used.
const PATIENCE: Duration = Duration::from_millis(500);

/// How a line of the newer text is related to a line of the older one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The same line at the same place.
    Same,
    /// The same content with other white space or line breaks.
    Reformatted,
    /// The same line at another place.
    Moved,
}

/// The line of the older text that a line of the newer one was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// Its index in the older text.
    pub line: usize,
    /// What happened to it.
    pub relation: Relation,
}

/// Splits a text into lines, each with its line break.
pub fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The number of letters and digits.
pub fn count_alphanumeric<'l>(lines: impl IntoIterator<Item = &'l [u8]>) -> usize {
    lines.into_iter().flatten().filter(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii()).count()
}

/// The lines of two versions of a text, of which mostly the same parts surround a small change. Only the part between the
/// first and the last difference is split into lines and compared.
#[derive(Debug)]
pub struct TextDiff<'t> {
    /// The number of equal lines at the beginning.
    head: usize,
    /// The lines in between.
    old_middle: Vec<&'t [u8]>,
    new_middle: Vec<&'t [u8]>,
    /// For each line of `new_middle`, the line of `old_middle` that it was.
    sources: Vec<Option<Source>>,
}

impl<'t> TextDiff<'t> {
    /// Compares two texts.
    pub fn new(old: &'t [u8], new: &'t [u8]) -> Self {
        let head_bytes = common_prefix(old, new);
        let head_bytes = memchr::memrchr(b'\n', &new[..head_bytes]).map_or(0, |end| end + 1);
        let (old_rest, new_rest) = (&old[head_bytes..], &new[head_bytes..]);
        let tail_bytes = common_suffix(old_rest, new_rest);
        // A line that the suffix only ends belongs to the middle.
        let tail = &new_rest[new_rest.len() - tail_bytes..];
        let tail_bytes = memchr::memchr(b'\n', tail).map_or(0, |end| tail.len() - end - 1);
        let old_middle = split_lines(&old_rest[..old_rest.len() - tail_bytes]);
        let new_middle = split_lines(&new_rest[..new_rest.len() - tail_bytes]);
        let sources = map_lines(&old_middle, &new_middle);
        let head = memchr::memchr_iter(b'\n', &new[..head_bytes]).count();
        Self { head, old_middle, new_middle, sources }
    }

    /// The line of the older text that a line of the newer one was; `None` if it is new.
    pub fn source(&self, line: usize) -> Option<Source> {
        let Some(index) = line.checked_sub(self.head) else {
            return Some(Source { line, relation: Relation::Same });
        };
        match self.sources.get(index) {
            Some(source) => source.map(|source| Source { line: source.line + self.head, ..source }),
            None => {
                let line = line - self.new_middle.len() + self.old_middle.len();
                Some(Source { line, relation: Relation::Same })
            }
        }
    }

    /// The content of a line of the newer text that is not in an equal part; every new line is such a line.
    pub fn changed_line(&self, line: usize) -> Option<&'t [u8]> {
        self.new_middle.get(line.checked_sub(self.head)?).copied()
    }

    /// The lines of the older text that are not in the newer one, with their indexes.
    pub fn removed_lines(&self) -> Vec<(usize, &'t [u8])> {
        let mut is_kept = vec![false; self.old_middle.len()];
        for source in self.sources.iter().flatten() {
            is_kept[source.line] = true;
        }
        let removed = self.old_middle.iter().enumerate().filter(|(index, _)| !is_kept[*index]);
        removed.map(|(index, line)| (index + self.head, *line)).collect()
    }
}

/// How many bytes are compared at once.
const BLOCK: usize = 256;

/// The number of equal bytes at the beginning.
fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let blocks = one.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK));
    let equal = blocks.take_while(|(one, other)| one == other).count() * BLOCK;
    equal + one[equal..].iter().zip(&other[equal..]).take_while(|(one, other)| one == other).count()
}

/// The number of equal bytes at the end.
fn common_suffix(one: &[u8], other: &[u8]) -> usize {
    let blocks = one.rchunks_exact(BLOCK).zip(other.rchunks_exact(BLOCK));
    let equal = blocks.take_while(|(one, other)| one == other).count() * BLOCK;
    let (one, other) = (&one[..one.len() - equal], &other[..other.len() - equal]);
    equal + one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

/// For each line of `new`, the line of `old` that it was; `None` for a line that is new.
pub fn map_lines(old: &[&[u8]], new: &[&[u8]]) -> Vec<Option<Source>> {
    let mut sources = vec![None; new.len()];
    let same = |line| Some(Source { line, relation: Relation::Same });
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let tail =
        old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(old, new)| old == new).count();
    for (index, source) in sources.iter_mut().enumerate().take(head) {
        *source = same(index);
    }
    for index in 1..=tail {
        sources[new.len() - index] = same(old.len() - index);
    }
    let (old_middle, new_middle) = (head..old.len() - tail, head..new.len() - tail);
    if new_middle.is_empty() {
        return sources;
    }
    let mut removed: Vec<Range<usize>> = Vec::new();
    let mut added: Vec<Range<usize>> = Vec::new();
    let deadline = Some(Instant::now() + PATIENCE);
    let (old_part, new_part) = (&old[old_middle], &new[new_middle]);
    for op in capture_diff_slices_deadline(Algorithm::Myers, old_part, new_part, deadline) {
        let shift = |range: Range<usize>| range.start + head..range.end + head;
        let (old_range, new_range) = (shift(op.old_range()), shift(op.new_range()));
        match op {
            DiffOp::Equal { .. } => {
                for (new_index, old_index) in new_range.zip(old_range) {
                    sources[new_index] = same(old_index);
                }
            }
            DiffOp::Delete { .. } => removed.push(old_range),
            DiffOp::Insert { .. } => added.push(new_range),
            DiffOp::Replace { .. } => {
                if !map_formatted(old, new, &old_range, &new_range, &mut sources) {
                    removed.push(old_range);
                    added.push(new_range);
                }
            }
        }
    }
    map_moved(old, new, &removed, &added, &mut sources);
    sources
}

/// Maps a replaced part in which only white space changed, or nothing. Returns whether all of it is mapped.
fn map_formatted(
    old: &[&[u8]],
    new: &[&[u8]],
    old_range: &Range<usize>,
    new_range: &Range<usize>,
    sources: &mut [Option<Source>],
) -> bool {
    let (old_chars, new_chars) = (essential(old, old_range), essential(new, new_range));
    let is_same = old_chars.len() == new_chars.len()
        && old_chars.iter().zip(&new_chars).all(|((old, _), (new, _))| old == new);
    let formatted = |line| Some(Source { line, relation: Relation::Reformatted });
    if is_same && !new_chars.is_empty() {
        // A line is the one from which its first character comes.
        for ((_, old_line), (_, new_line)) in old_chars.iter().zip(&new_chars) {
            sources[*new_line].get_or_insert(Source { line: *old_line, relation: Relation::Reformatted });
        }
        // Blank lines go with the line before them.
        let mut before = old_range.start;
        for source in &mut sources[new_range.clone()] {
            before = source.map_or(before, |source| source.line);
            source.get_or_insert(Source { line: before, relation: Relation::Reformatted });
        }
        return true;
    }
    // Only some of the lines were formatted: those that are the same but for white space, in the same order.
    let stripped = |lines: &[&[u8]]| -> Vec<Vec<u8>> {
        lines
            .iter()
            .map(|line| line.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect())
            .collect()
    };
    let (old_lines, new_lines) = (stripped(&old[old_range.clone()]), stripped(&new[new_range.clone()]));
    let deadline = Some(Instant::now() + PATIENCE);
    for op in capture_diff_slices_deadline(Algorithm::Myers, &old_lines, &new_lines, deadline) {
        if let DiffOp::Equal { old_index, new_index, len } = op {
            for offset in 0..len {
                if !new_lines[new_index + offset].is_empty() {
                    sources[new_range.start + new_index + offset] =
                        formatted(old_range.start + old_index + offset);
                }
            }
        }
    }
    sources[new_range.clone()].iter().all(Option::is_some)
}

/// The characters of some lines that a formatter keeps, each with the index of its line.
fn essential(lines: &[&[u8]], range: &Range<usize>) -> Vec<(u8, usize)> {
    let mut found: Vec<(u8, usize)> = Vec::new();
    for index in range.clone() {
        for byte in lines[index].iter().filter(|byte| !byte.is_ascii_whitespace()) {
            // A comma before a closing bracket comes and goes with the line break.
            if matches!(byte, b')' | b']' | b'}') && found.last().is_some_and(|(last, _)| *last == b',') {
                found.pop();
            }
            found.push((*byte, index));
        }
    }
    found
}

/// Maps added blocks that were removed elsewhere.
fn map_moved(
    old: &[&[u8]],
    new: &[&[u8]],
    removed: &[Range<usize>],
    added: &[Range<usize>],
    sources: &mut [Option<Source>],
) {
    let mut places: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for index in removed.iter().cloned().flatten() {
        places.entry(old[index]).or_default().push(index);
    }
    if places.is_empty() {
        return;
    }
    for range in added {
        let mut index = range.start;
        while index < range.end {
            let starts = places.get(new[index]).map(Vec::as_slice).unwrap_or_default();
            // The end of the block may look like the end of what stayed, as closing braces do.
            let length_from = |start: usize| {
                let pairs = old[start..].iter().zip(&new[index..range.end]);
                pairs.take_while(|(old, new)| old == new).count()
            };
            let longest =
                starts.iter().map(|start| (length_from(*start), *start)).max_by_key(|(length, _)| *length);
            let Some((length, start)) = longest.filter(|(length, _)| {
                count_alphanumeric(new[index..index + length].iter().copied()) >= MIN_MOVED_CHARS
            }) else {
                index += 1;
                continue;
            };
            for offset in 0..length {
                sources[index + offset]
                    .get_or_insert(Source { line: start + offset, relation: Relation::Moved });
            }
            index += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(old: &str, new: &str) -> Vec<Option<(usize, Relation)>> {
        let (old, new) = (split_lines(old.as_bytes()), split_lines(new.as_bytes()));
        map_lines(&old, &new)
            .into_iter()
            .map(|source| source.map(|source| (source.line, source.relation)))
            .collect()
    }

    #[test]
    fn only_the_part_that_differs_is_compared_and_the_answer_is_the_same() {
        let numbered = |numbers: &[usize]| -> String {
            numbers.iter().map(|number| format!("    the line {number} of the text;\n")).collect()
        };
        let all: Vec<usize> = (0..200).collect();
        let old = numbered(&all);
        let mut moved = all.clone();
        moved.splice(100..100, 20..40);
        moved.drain(20..40);
        let texts = [
            old.clone(),
            String::new(),
            old.replace("line 77 ", "line x "),
            old.replace("the line 3 of", "   the line 3 of").replace("line 190 ", "no "),
            format!("new\n{old}"),
            format!("{old}new"),
            old.trim_end().to_owned(),
            numbered(&moved),
            numbered(&all[50..]),
            numbered(&all[..50]),
            old.replace('\n', "\r\n"),
            "the same\n".repeat(50),
            "the same\n".repeat(49),
        ];
        for old in &texts {
            for new in &texts {
                let (old, new) = (old.as_bytes(), new.as_bytes());
                let (old_lines, new_lines) = (split_lines(old), split_lines(new));
                let expected = map_lines(&old_lines, &new_lines);
                let diff = TextDiff::new(old, new);
                let found: Vec<_> = (0..new_lines.len()).map(|line| diff.source(line)).collect();
                assert_eq!(found, expected);
                for line in (0..new_lines.len()).filter(|line| found[*line].is_none()) {
                    assert_eq!(diff.changed_line(line), Some(new_lines[line]));
                }
                for (line, text) in diff.removed_lines() {
                    assert_eq!(text, old_lines[line]);
                    assert!(found.iter().flatten().all(|source| source.line != line));
                }
            }
        }
    }

    #[test]
    fn lines_keep_their_place_through_edits_around_them() {
        use Relation::Same;
        assert_eq!(
            map("a\nb\nc\n", "a\nx\nb\nc\ny\n"),
            [Some((0, Same)), None, Some((1, Same)), Some((2, Same)), None]
        );
        assert_eq!(map("", "a\n"), [None]);
        assert!(map("a\n", "").is_empty());
        assert_eq!(map("a\nb\nc\n", "a\nB\nc\n"), [Some((0, Same)), None, Some((2, Same))]);
    }

    #[test]
    fn a_formatter_wrote_nothing() {
        use Relation::{Reformatted, Same};
        let old = "start\nfn call(first: u8, second: u8) { first + second }\nend\n";
        let new = "start\nfn call(\n    first: u8,\n    second: u8,\n) {\n    first + second\n}\nend\n";
        let mut expected = vec![Some((0, Same))];
        expected.extend(vec![Some((1, Reformatted)); 6]);
        expected.push(Some((2, Same)));
        assert_eq!(map(old, new), expected);
        // Back again, the line is where its first character was.
        assert_eq!(map(new, old)[1], Some((1, Reformatted)));
        // Indented, and one line is different.
        let mixed = map("if x {\na = 1;\nb = 2;\n}\n", "if x {\n    a = 1;\n    b = 3;\n}\n");
        assert_eq!(mixed, [Some((0, Same)), Some((1, Reformatted)), None, Some((3, Same))]);
        // CRLF.
        assert_eq!(map("one\ntwo\n", "one\r\ntwo\r\n"), [Some((0, Reformatted)), Some((1, Reformatted))]);
    }

    #[test]
    fn a_block_that_moved_is_older_than_its_place() {
        use Relation::{Moved, Same};
        let old = "fn first() {\n    one_thing_that_is_long();\n}\nfn second() {\n    another_thing_that_is_long();\n}\n";
        let new = "fn second() {\n    another_thing_that_is_long();\n}\nfn first() {\n    one_thing_that_is_long();\n}\n";
        let mapped = map(old, new);
        assert!(mapped.iter().all(Option::is_some), "{mapped:?}");
        assert!(mapped.iter().flatten().any(|(_, relation)| *relation == Moved));
        assert!(mapped.iter().flatten().any(|(_, relation)| *relation == Same));
        // A brace alone has not moved.
        assert_eq!(map("}\na\nb\n", "a\nb\n}\n")[2], None);
    }
}
