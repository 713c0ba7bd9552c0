//! Terminal rendering of differences between two states of files.
//!
//! Everything here is pure: contents come in as bytes, text goes out to a writer. Loading objects, choosing a pager and
//! asking whether standard output is a terminal are for the caller.
//!
//! Output has two audiences. *A program* (`color` and `escape` off) gets a patch with exact bytes that `git apply`
//! accepts. *A user at a terminal* gets colours, emphasis on changed words and syntax highlighting, and control
//! characters shown as visible escapes, so that no file content can move the cursor, retitle the window or hide a line.
//!
//! [`write_unified`], [`write_side_by_side`] and [`write_stat`] are for people and patches, [`count_changed_lines`] and
//! [`hunks_json`] for `--json`. All of them build on `compare`, which turns a [`FileDiff`] into parts with lines and edits.

mod compare;
mod header;
mod inline;
mod paint;
mod side_by_side;
mod stat;
mod syntax;
#[cfg(test)]
mod tests;
mod unified;

pub use side_by_side::write_side_by_side;
pub use stat::{count_changed_lines, hunks_json, write_stat};
pub use stepback_model::escape::safe;
pub use unified::write_unified;

/// What to compare: one path before and after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileDiff {
    /// The path in the form of `RelPath::display`, which is safe on a terminal and from which the exact bytes for a
    /// patch are recovered.
    pub path: String,
    /// For a rename: the path before, in the same form.
    pub old_path: Option<String>,
    /// What was there before.
    pub old: PathSide,
    /// What is there after.
    pub new: PathSide,
}

/// What is at a path on one side of a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathSide {
    /// Nothing is there.
    Absent,
    /// A regular file with its content.
    File {
        /// Permission bits.
        mode: u32,
        /// The content.
        bytes: Vec<u8>,
    },
    /// A regular file whose content was not loaded because of its size.
    TooLarge {
        /// Permission bits.
        mode: u32,
        /// Length in bytes.
        size: u64,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points.
        target: Vec<u8>,
    },
    /// A directory.
    Dir {
        /// Permission bits.
        mode: u32,
    },
    /// Anything else, with a short description.
    Other(String),
}

/// How to render.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiffStyle {
    /// Whether to use colours. Implies `escape`.
    pub color: bool,
    /// Whether to show control characters as visible escapes. Must be on if the output goes to a terminal, with or
    /// without colours; must be off for a patch.
    pub escape: bool,
    /// Columns available.
    pub width: usize,
    /// Whether to highlight syntax. Needs `color`.
    pub highlight: bool,
    /// Unchanged lines to show around each change.
    pub context: usize,
}

impl Default for DiffStyle {
    /// A patch: no colours, exact bytes, three lines of context.
    fn default() -> Self {
        Self { color: false, escape: false, width: 80, highlight: false, context: 3 }
    }
}

impl DiffStyle {
    /// Whether the output is for a terminal rather than a patch.
    fn is_for_terminal(&self) -> bool {
        self.color || self.escape
    }
}
