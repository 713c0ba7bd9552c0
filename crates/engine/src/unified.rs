//! Shows the changed lines of a text file as a unified diff, for reading rather than for patching.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline, group_diff_ops};
use stepback_model::change::PathChange;
use stepback_model::tree::{Content, TreeNode};

use crate::error::EngineError;
use crate::workspace::Workspace;

/// The largest file whose lines are compared, in bytes.
const MAX_FILE_BYTES: usize = 8 << 20;
/// The maximum number of lines that are compared.
const MAX_LINES: usize = 200_000;
/// How long to search for the shortest diff; after that a longer one is used.
const PATIENCE: Duration = Duration::from_secs(2);
/// The number of context lines around a change.
const CONTEXT: usize = 3;

impl Workspace {
    /// Returns the changed lines of a text file; `None` if it is not text or is too large.
    pub fn unified_diff(&self, change: &PathChange) -> Result<Option<String>, EngineError> {
        let side = |node: &Option<TreeNode>| -> Result<Option<Vec<u8>>, EngineError> {
            match node {
                None => Ok(Some(Vec::new())),
                Some(
                    node @ TreeNode::File { size, content: Content::Whole(_) | Content::Chunked(_), .. },
                ) if *size <= MAX_FILE_BYTES as u64 => Ok(Some(self.read_node(node)?)),
                Some(_) => Ok(None),
            }
        };
        let (old_text, new_text) = (side(&change.before)?, side(&change.after)?);
        let (Some(old_text), Some(new_text)) = (old_text, new_text) else { return Ok(None) };
        Ok(format_unified_diff(&change.path.display(), &old_text, &new_text))
    }
}

/// Returns the unified diff of two contents; `None` if they are not text or too long.
fn format_unified_diff(path: &str, before: &[u8], after: &[u8]) -> Option<String> {
    let (before, after) = (parse_text(before)?, parse_text(after)?);
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    if old.len() > MAX_LINES || new.len() > MAX_LINES {
        return None;
    }
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(Instant::now() + PATIENCE));
    let mut out = format!("--- a/{path}\n+++ b/{path}\n");
    for group in group_diff_ops(ops, CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let range = |start: usize, end: usize| match end - start {
            0 => format!("{start},0"),
            count => format!("{},{count}", start + 1),
        };
        out.push_str(&format!(
            "@@ -{} +{} @@\n",
            range(first.old_range().start, last.old_range().end),
            range(first.new_range().start, last.new_range().end)
        ));
        for op in &group {
            let (removed, added) = (old.get(op.old_range()), new.get(op.new_range()));
            match op.tag() {
                DiffTag::Equal => push_lines(&mut out, ' ', removed),
                DiffTag::Delete => push_lines(&mut out, '-', removed),
                DiffTag::Insert => push_lines(&mut out, '+', added),
                DiffTag::Replace => {
                    push_lines(&mut out, '-', removed);
                    push_lines(&mut out, '+', added);
                }
            }
        }
    }
    Some(out)
}

fn parse_text(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > MAX_FILE_BYTES || bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

fn push_lines(out: &mut String, mark: char, lines: Option<&[&str]>) {
    for line in lines.unwrap_or_default() {
        out.push(mark);
        out.push_str(line);
        if !line.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_shown_with_what_is_around_them() {
        let before = b"1\n2\n3\n4\n5\n6\n7\n8\n9";
        let after = b"1\n2\n3\n4\nfive\n6\n7\n8\n9";
        assert_eq!(
            format_unified_diff("f", before, after).unwrap(),
            "--- a/f\n+++ b/f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        );
        assert_eq!(
            format_unified_diff("f", b"", b"new").unwrap(),
            "--- a/f\n+++ b/f\n@@ -0,0 +1,1 @@\n+new\n\\ No newline at end of file\n"
        );
        assert_eq!(format_unified_diff("f", b"\0", b"x"), None);
        assert_eq!(format_unified_diff("f", b"\xff", b"x"), None);
    }
}
