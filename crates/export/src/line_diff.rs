//! The lines in which two texts differ, in groups with a few equal lines around them.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline, group_diff_ops};

/// How long to search for the shortest difference; after that a longer one is used.
const PATIENCE: Duration = Duration::from_millis(200);
/// Equal lines around a change.
const CONTEXT: usize = 3;

/// A line of a difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiffLine {
    /// The lines from here on begin at these numbers, counted from 1.
    Hunk(usize, usize),
    /// In both texts.
    Equal(String),
    /// Only in the older text.
    Removed(String),
    /// Only in the newer text.
    Added(String),
}

/// Compares two texts line by line.
pub fn compare(before: &str, after: &str) -> Vec<DiffLine> {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(Instant::now() + PATIENCE));
    let mut lines = Vec::new();
    for group in group_diff_ops(ops, CONTEXT) {
        let Some(first) = group.first() else { continue };
        lines.push(DiffLine::Hunk(first.old_range().start + 1, first.new_range().start + 1));
        for op in &group {
            let (removed, added) = (&old[op.old_range()], &new[op.new_range()]);
            match op.tag() {
                DiffTag::Equal => lines.extend(removed.iter().map(|line| DiffLine::Equal(trim(line)))),
                DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => {
                    lines.extend(removed.iter().map(|line| DiffLine::Removed(trim(line))));
                    lines.extend(added.iter().map(|line| DiffLine::Added(trim(line))));
                }
            }
        }
    }
    lines
}

/// The lines of a text that is a difference already: a patch.
pub fn parse_patch(patch: &str) -> Vec<DiffLine> {
    let line = |line: &str| match line.as_bytes().first() {
        Some(b'+') if !line.starts_with("+++ ") => DiffLine::Added(line[1..].to_owned()),
        Some(b'-') if !line.starts_with("--- ") => DiffLine::Removed(line[1..].to_owned()),
        Some(b' ') => DiffLine::Equal(line[1..].to_owned()),
        _ => DiffLine::Equal(line.to_owned()),
    };
    patch.lines().map(line).collect()
}

fn trim(line: &str) -> String {
    line.strip_suffix('\n').unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_stand_between_a_few_equal_ones() {
        let before: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let after = before.replace("10\n", "ten\n");
        let lines = compare(&before, &after);
        assert_eq!(lines[0], DiffLine::Hunk(7, 7));
        assert_eq!(lines[4..6], [DiffLine::Removed("10".into()), DiffLine::Added("ten".into())]);
        assert_eq!(lines.len(), 9);
        assert!(compare("same\n", "same\n").is_empty());
        assert_eq!(compare("", "a"), [DiffLine::Hunk(1, 1), DiffLine::Added("a".into())]);
    }

    #[test]
    fn a_patch_is_read_as_it_is() {
        let lines = parse_patch("*** Update File: a\n@@\n-old\n+new\n same");
        assert_eq!(
            lines[2..],
            [DiffLine::Removed("old".into()), DiffLine::Added("new".into()), DiffLine::Equal("same".into())]
        );
    }
}
