//! Documents of files, differences between them, and paths that are left alone.

use serde::Serialize;
use stepback_model::change::PathChange;
use stepback_model::path::{RelPath, display_bytes};
use stepback_model::plan::SkippedPath;
use stepback_model::state::{GitSummary, WorkspaceState};
use stepback_model::tree::{Content, TreeNode};
use utoipa::ToSchema;

use crate::documents::StepDocument;
use crate::extract::percent_encoded;

/// The file, directory or link at a path.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
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
    pub fn of(node: &TreeNode) -> Self {
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
#[derive(Clone, Debug, Serialize, ToSchema)]
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
    pub fn of(path: &RelPath, node: &TreeNode) -> Self {
        Self {
            path: path.display().into_owned(),
            address: percent_encoded(path.as_bytes()),
            node: NodeDocument::of(node),
        }
    }
}

/// A change of a path.
#[derive(Clone, Debug, Serialize, ToSchema)]
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
    pub fn of(change: &PathChange) -> Self {
        Self {
            path: change.path.display().into_owned(),
            kind: change.kind().as_str().to_owned(),
            from: change.from.as_ref().map(|from| from.display().into_owned()),
            before: change.before.as_ref().map(NodeDocument::of),
            after: change.after.as_ref().map(NodeDocument::of),
        }
    }
}

/// A change with its lines.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChangedFileDocument {
    /// The change.
    #[serde(flatten)]
    pub change: ChangeDocument,
    /// The changed lines of a text file as a unified diff, if requested and not too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The difference between two moments.
#[derive(Clone, Debug, Serialize, ToSchema)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct LeftAloneDocument {
    /// The path, for display.
    pub path: String,
    /// The reason, as a phrase.
    pub reason: String,
    /// Whether the reason is a later change, and not that the path is not covered.
    pub conflict: bool,
}

impl LeftAloneDocument {
    /// The document of a path that a plan leaves alone.
    pub fn of(item: &SkippedPath) -> Self {
        Self {
            path: item.path.display().into_owned(),
            reason: item.reason.clone(),
            conflict: item.is_conflict(),
        }
    }
}

/// The parts of a state, each by its hash; none if it is not known. Equal parts have equal hashes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SlotsDocument {
    /// The files.
    pub files: Option<String>,
    /// The git directories.
    pub git: Option<String>,
    /// The conversation.
    pub conversation: Option<String>,
    /// The agent's reasoning.
    pub reasoning: Option<String>,
    /// The agent's memory.
    pub memory: Option<String>,
    /// The task list.
    pub task: Option<String>,
    /// The environment.
    pub env: Option<String>,
}

impl SlotsDocument {
    /// The document of a state.
    pub fn of(state: &WorkspaceState) -> Self {
        let text = |hash: Option<stepback_model::Hash>| hash.map(|hash| hash.to_string());
        Self {
            files: text(state.files),
            git: text(state.git),
            conversation: text(state.conversation),
            reasoning: text(state.reasoning),
            memory: text(state.memory),
            task: text(state.task),
            env: text(state.env),
        }
    }
}

/// The head of a git repository.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RepositoryDocument {
    /// The path of its git directory.
    pub path: String,
    /// The branch; none if the head is detached.
    pub branch: Option<String>,
    /// The commit; none before the first.
    pub commit: Option<String>,
    /// A merge, rebase or the like that was in progress.
    pub in_progress: Option<String>,
    /// Number of stashes.
    pub stashes: u32,
}

impl RepositoryDocument {
    /// The document of a repository.
    pub fn of(repository: &GitSummary) -> Self {
        let head = &repository.summary;
        Self {
            path: display_bytes(&repository.path).into_owned(),
            branch: head.branch.clone(),
            commit: head.commit.clone(),
            in_progress: head.in_progress.clone(),
            stashes: head.stashes,
        }
    }
}

/// The state at a step.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct StateDocument {
    /// The step.
    pub step: StepDocument,
    /// The parts that are known.
    pub slots: SlotsDocument,
    /// The heads of git repositories.
    pub git: Vec<RepositoryDocument>,
    /// Files; a directory comes before its contents.
    pub items: Vec<FileDocument>,
    /// Where the next page of files begins; none after the last.
    pub next_cursor: Option<String>,
}
