//! Files, differences between them, and paths that are left alone.

use serde::{Deserialize, Serialize};
use stepback_model::change::PathChange;
use stepback_model::path::{RelPath, display_bytes};
use stepback_model::plan::SkippedPath;
use stepback_model::tree::{Content, TreeNode};
use utoipa::ToSchema;

use crate::address::encode_path;
use crate::steps::StepDocument;

/// The file, directory or link at a path.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct NodeDocument {
    /// `file`, `directory`, `symlink` or `excluded`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Permission bits of a file or directory, in octal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Size of a file in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The content hash: equal files have equal hashes; git's own files have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The target of a symlink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Why it is not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl NodeDocument {
    /// The document of a node.
    pub fn from_node(node: &TreeNode) -> Self {
        let octal = |mode: u32| Some(format!("{mode:04o}"));
        let kind = |kind: &str| Self { kind: kind.to_owned(), ..Self::default() };
        match node {
            TreeNode::File { mode, size, content } => {
                let hash = match content {
                    Content::Whole(hash) | Content::Chunked(hash) => Some(hash.to_string()),
                    Content::Vaulted => None,
                };
                Self { mode: octal(*mode), size: Some(*size), hash, ..kind("file") }
            }
            TreeNode::Dir { mode, .. } => Self { mode: octal(*mode), ..kind("directory") },
            TreeNode::Symlink { target } => {
                Self { target: Some(display_bytes(target).into_owned()), ..kind("symlink") }
            }
            TreeNode::Skipped { reason } => {
                Self { reason: Some(reason.describe().to_owned()), ..kind("excluded") }
            }
        }
    }
}

/// A path in a state.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FileDocument {
    /// The path, for display.
    pub path: String,
    /// The path, percent-encoded for URLs: exact for every byte of the name.
    pub address: String,
    /// What is at the path.
    #[serde(flatten)]
    pub node: NodeDocument,
}

impl FileDocument {
    /// The document of a path.
    pub fn from_node(path: &RelPath, node: &TreeNode) -> Self {
        Self {
            path: path.display().into_owned(),
            address: encode_path(path.as_bytes()),
            node: NodeDocument::from_node(node),
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.node.kind == "directory"
    }
}

/// A change of a path.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ChangeDocument {
    /// The path, for display.
    pub path: String,
    /// `created`, `modified`, `deleted`, `renamed`, `mode-changed` or `type-changed`.
    pub kind: String,
    /// The path before it was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What was there before; none if it was created.
    pub before: Option<NodeDocument>,
    /// What is there after it; none if it was deleted.
    pub after: Option<NodeDocument>,
}

impl ChangeDocument {
    /// The document of a change.
    pub fn from_change(change: &PathChange) -> Self {
        Self {
            path: change.path.display().into_owned(),
            kind: change.kind().as_str().to_owned(),
            from: change.from.as_ref().map(|from| from.display().into_owned()),
            before: change.before.as_ref().map(NodeDocument::from_node),
            after: change.after.as_ref().map(NodeDocument::from_node),
        }
    }
}

/// A change with its lines.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ChangedFileDocument {
    /// The change.
    #[serde(flatten)]
    pub change: ChangeDocument,
    /// The changed lines of a text file as a unified diff, if requested and not too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The difference between two moments.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DiffDocument {
    /// The step of the earlier side.
    pub from: StepDocument,
    /// The step of the later side; none if it is the workspace as it is now.
    pub to: Option<StepDocument>,
    /// The changes, by path.
    pub items: Vec<ChangedFileDocument>,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
}

/// A path that a plan leaves alone.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SkippedPathDocument {
    /// The path, for display.
    pub path: String,
    /// The reason, as a phrase.
    pub reason: String,
    /// Whether the reason is a later change, and not that the path is not covered.
    pub conflict: bool,
}

impl SkippedPathDocument {
    /// The document of a path that a plan leaves alone.
    pub fn from_skipped_path(item: &SkippedPath) -> Self {
        Self {
            path: item.path.display().into_owned(),
            reason: item.reason.clone(),
            conflict: item.is_conflict(),
        }
    }
}
