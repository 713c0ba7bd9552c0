//! Turns a [`FileDiff`] into parts that every rendering shares: what appeared, what went, and which lines changed.
//!
//! A part is what git calls a file pair. A file that became a link is two parts, a removal and a creation, as in git;
//! directories and special files, which git does not know, become notes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag};

use super::{FileDiff, PathSide};

/// How long to search for a small edit before accepting a coarse one. Only the appearance of a diff depends on it: any
/// edit script is correct.
const DIFF_TIMEOUT: Duration = Duration::from_millis(1500);

/// How many leading bytes decide whether content is text, as in git.
const TEXT_PROBE_BYTES: usize = 8000;

/// One side of a part: something that has bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blob<'a> {
    /// The mode as git writes it: type and permission bits.
    pub mode: u32,
    /// The bytes; `None` if they were not loaded.
    pub bytes: Option<&'a [u8]>,
    /// Length in bytes.
    pub size: u64,
}

/// A pair of blobs of the same type, or one that was created or removed.
pub(super) struct BlobPair<'a> {
    /// The blob before; `None` if it was created.
    pub old: Option<Blob<'a>>,
    /// The blob after; `None` if it was removed.
    pub new: Option<Blob<'a>>,
}

/// What happened to the content of a part.
pub(super) enum ContentChange<'a> {
    /// The content is unchanged.
    Unchanged,
    /// It changed and cannot be shown as lines.
    Opaque,
    /// It changed by lines.
    Text(LineDiff<'a>),
}

/// Two lists of lines and the edits between them. A line includes its `\n`.
pub(super) struct LineDiff<'a> {
    /// Lines before.
    pub old: Vec<&'a [u8]>,
    /// Lines after.
    pub new: Vec<&'a [u8]>,
    /// Edits in order, with the equal runs between them.
    pub ops: Vec<DiffOp>,
}

/// Splits a difference into notes about items without content, and parts.
pub(super) fn split_parts(diff: &FileDiff) -> (Vec<String>, Vec<BlobPair<'_>>) {
    let notes = describe_special_change(&diff.old, &diff.new).into_iter().collect();
    let parts = match (to_blob(&diff.old), to_blob(&diff.new)) {
        (None, None) => vec![],
        (Some(old), Some(new)) if is_link(old.mode) != is_link(new.mode) => {
            vec![BlobPair { old: Some(old), new: None }, BlobPair { old: None, new: Some(new) }]
        }
        (old, new) => vec![BlobPair { old, new }],
    };
    (notes, parts)
}

fn is_link(mode: u32) -> bool {
    mode & 0o170_000 == 0o120_000
}

fn to_blob(side: &PathSide) -> Option<Blob<'_>> {
    match side {
        PathSide::File { mode, bytes } => {
            Some(Blob { mode: 0o100_000 | mode, bytes: Some(bytes), size: bytes.len() as u64 })
        }
        PathSide::TooLarge { mode, size } => Some(Blob { mode: 0o100_000 | mode, bytes: None, size: *size }),
        PathSide::Symlink { target } => {
            Some(Blob { mode: 0o120_000, bytes: Some(target), size: target.len() as u64 })
        }
        PathSide::Absent | PathSide::Dir { .. } | PathSide::Other(_) => None,
    }
}

/// Describes a change of something that has no content.
fn describe_special_change(old: &PathSide, new: &PathSide) -> Option<String> {
    let name = |side: &PathSide| match side {
        PathSide::Dir { mode } => Some(format!("directory (mode {mode:o})")),
        PathSide::Other(what) => Some(what.clone()),
        _ => None,
    };
    match (old, new) {
        (PathSide::Dir { mode: old }, PathSide::Dir { mode: new }) if old == new => None,
        (PathSide::Dir { mode: old }, PathSide::Dir { mode: new }) => {
            Some(format!("directory mode changed from {old:o} to {new:o}"))
        }
        _ => match (name(old), name(new)) {
            (None, None) => None,
            (None, Some(new)) => Some(format!("{new} created")),
            (Some(old), None) => Some(format!("{old} removed")),
            (Some(old), Some(new)) if old == new => Some(format!("{new} changed")),
            (Some(old), Some(new)) => Some(format!("{old} replaced by {new}")),
        },
    }
}

impl<'a> BlobPair<'a> {
    /// Compares the contents.
    ///
    /// `renamed` says that the part comes from a rename. Two contents of a rename that were not loaded are assumed to be
    /// equal if their lengths are, because only exact renames are detected.
    pub fn compare_contents(&self, renamed: bool) -> ContentChange<'a> {
        const EMPTY: Blob<'static> = Blob { mode: 0, bytes: Some(&[]), size: 0 };
        let (old, new) = (self.old.unwrap_or(EMPTY), self.new.unwrap_or(EMPTY));
        match (old.bytes, new.bytes) {
            (Some(a), Some(b)) if a == b => ContentChange::Unchanged,
            (Some(a), Some(b)) if !is_binary(a) && !is_binary(b) => {
                ContentChange::Text(LineDiff::compare(a, b))
            }
            (None, None) if renamed && old.size == new.size => ContentChange::Unchanged,
            _ => ContentChange::Opaque,
        }
    }
}

/// Whether content is not worth showing as lines: a NUL byte near the start, or mostly not UTF-8.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(TEXT_PROBE_BYTES)];
    if head.contains(&0) {
        return true;
    }
    let invalid: usize = head.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    invalid * 10 > head.len() * 3
}

impl<'a> LineDiff<'a> {
    fn compare(old: &'a [u8], new: &'a [u8]) -> Self {
        let split = |bytes: &'a [u8]| bytes.split_inclusive(|byte| *byte == b'\n').collect::<Vec<_>>();
        let (old, new) = (split(old), split(new));
        let mut numbers: HashMap<&[u8], usize> = HashMap::with_capacity(old.len());
        let mut number = |lines: &[&'a [u8]]| -> Vec<usize> {
            lines
                .iter()
                .map(|line| {
                    let next = numbers.len();
                    *numbers.entry(line).or_insert(next)
                })
                .collect()
        };
        let (a, b) = (number(&old), number(&new));
        let deadline = Instant::now().checked_add(DIFF_TIMEOUT);
        let ops = similar::capture_diff_slices_deadline(Algorithm::Myers, &a, &b, deadline);
        Self { old, new, ops }
    }

    /// The edits in groups that are shown together, each with `context` unchanged lines around.
    pub fn hunks(&self, context: usize) -> Vec<Vec<DiffOp>> {
        // `group_diff_ops` doubles the number.
        similar::group_diff_ops(self.ops.clone(), context.min(usize::MAX / 2))
    }

    /// Lines added and removed.
    pub fn count_changes(&self) -> (usize, usize) {
        self.ops.iter().filter(|op| op.tag() != DiffTag::Equal).fold((0, 0), |(added, removed), op| {
            (added + op.new_range().len(), removed + op.old_range().len())
        })
    }
}
