//! Plans: exactly what a rewind will do, as a value that can be shown, stored and applied.

use minicbor::{Decode, Encode};

use crate::hash::{Hash, ObjectKind};
use crate::object::{ObjectError, ObjectSource};
use crate::path::RelPath;
use crate::tree::{Content, TreeNode};

/// Where the content to be written comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum How {
    /// A past state, unchanged.
    #[n(0)]
    Restored,
    /// A three-way merge of a past state with later edits.
    #[n(1)]
    Merged,
    /// Both versions, with conflict markers around the lines that do not fit together.
    #[n(2)]
    Marked,
}

/// One path that will change.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct PlannedChange {
    /// The path that changes.
    #[n(0)]
    pub path: RelPath,
    /// What must be there when the plan is applied; anything else means that another process changed it first, and the path
    /// is skipped.
    #[n(1)]
    pub now: Option<TreeNode>,
    /// What will be there; `None` if the path is removed. If it equals `now`, the file is replaced by another one with the
    /// same content.
    #[n(2)]
    pub then: Option<TreeNode>,
    /// Where the content of `then` comes from.
    #[n(3)]
    pub how: How,
}

impl PlannedChange {
    /// The change that reverts this one.
    pub fn inverted(&self) -> Self {
        Self { now: self.then.clone(), then: self.now.clone(), ..self.clone() }
    }

    /// The verb that listings show.
    pub fn verb(&self) -> &'static str {
        match (&self.now, &self.then, self.how) {
            (_, _, How::Merged) => "merge",
            (_, _, How::Marked) => "mark conflicts in",
            (None, _, _) => "create",
            (_, None, _) => "delete",
            (Some(TreeNode::File { content: a, .. }), Some(TreeNode::File { content: b, .. }), _)
                if a == b && *a != Content::Vaulted && self.now != self.then =>
            {
                "set mode of"
            }
            (Some(TreeNode::Dir { .. }), Some(TreeNode::Dir { .. }), _) => "set mode of",
            _ => "restore",
        }
    }
}

/// Whether skipping a path was to be expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum SkipCause {
    /// The path is not covered, so it was not expected to change.
    #[n(0)]
    Uncovered,
    /// Another process changed it, or is changing it right now.
    #[n(1)]
    Conflict,
}

/// A path that the plan skips although the target differs, and why.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct SkippedPath {
    /// The path that is skipped.
    #[n(0)]
    pub path: RelPath,
    /// The reason, as a phrase.
    #[n(1)]
    pub reason: String,
    /// Whether that was to be expected.
    #[n(2)]
    pub cause: SkipCause,
}

impl SkippedPath {
    /// Creates an entry for a path that is not covered.
    pub fn uncovered(path: RelPath, reason: impl Into<String>) -> Self {
        Self { path, reason: reason.into(), cause: SkipCause::Uncovered }
    }

    /// Creates an entry for a path that another process changed.
    pub fn conflict(path: RelPath, reason: impl Into<String>) -> Self {
        Self { path, reason: reason.into(), cause: SkipCause::Conflict }
    }

    /// Whether a change by another process kept the path from being restored.
    pub fn is_conflict(&self) -> bool {
        self.cause == SkipCause::Conflict
    }
}

/// Everything that a rewind will do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(array)]
pub struct RewindPlan {
    /// Paths that will change, sorted. A directory stands before its contents.
    #[n(0)]
    pub changes: Vec<PlannedChange>,
    /// Paths that differ from the target and stay unchanged.
    #[n(1)]
    pub left_alone: Vec<SkippedPath>,
}

impl RewindPlan {
    /// Whether applying it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Canonical bytes, for the journal.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Writing into a Vec cannot fail.
        let _ = minicbor::encode(self, &mut bytes);
        bytes
    }

    /// Reads the plan stored under `hash`.
    pub fn load(source: &(impl ObjectSource + ?Sized), hash: Hash) -> Result<Self, ObjectError> {
        let bytes = source.read(ObjectKind::Plan, hash)?;
        minicbor::decode(&bytes).map_err(|error| ObjectError::corrupt(ObjectKind::Plan, hash, error))
    }
}
