//! Files, what differs between them, and what is left alone.

use serde::Serialize;
use stepback_model::change::Change;
use stepback_model::path::{RelPath, display_bytes};
use stepback_model::plan::LeftAlone;
use stepback_model::state::{Repository, State};
use stepback_model::tree::{Content, Node};
use utoipa::ToSchema;

use crate::documents::StepDocument;
use crate::extract::percent_encoded;

/// What is at a path.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
pub struct NodeDocument {
    /// `file`, `directory`, `symlink` or `excluded`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Permission bits of a file or directory, in octal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Bytes of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Equal files have equal hashes; git's own files have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Where a link points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Why something is not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl NodeDocument {
    /// Of a node.
    pub fn of(node: &Node) -> Self {
        let octal = |mode: u32| Some(format!("{mode:04o}"));
        let kind = |kind: &str| Self { kind: kind.to_owned(), ..Self::default() };
        match node {
            Node::File { mode, size, content } => {
                let hash = match content {
                    Content::Whole(hash) | Content::Chunked(hash) => Some(hash.to_string()),
                    Content::Vaulted => None,
                };
                Self { mode: octal(*mode), size: Some(*size), hash, ..kind("file") }
            }
            Node::Dir { mode, .. } => Self { mode: octal(*mode), ..kind("directory") },
            Node::Symlink { target } => {
                Self { target: Some(display_bytes(target).into_owned()), ..kind("symlink") }
            }
            Node::Skipped { reason } => {
                Self { reason: Some(reason.describe().to_owned()), ..kind("excluded") }
            }
        }
    }
}

/// A path in a state.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FileDocument {
    /// Where, for people.
    pub path: String,
    /// Where, as the end of an address: every byte of the name, however odd.
    pub address: String,
    /// What is there.
    #[serde(flatten)]
    pub node: NodeDocument,
}

impl FileDocument {
    /// Of a path.
    pub fn of(path: &RelPath, node: &Node) -> Self {
        Self {
            path: path.display().into_owned(),
            address: percent_encoded(path.as_bytes()),
            node: NodeDocument::of(node),
        }
    }
}

/// What happened to a path.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChangeDocument {
    /// Where.
    pub path: String,
    /// `created`, `modified`, `deleted`, `renamed`, `mode-changed` or `type-changed`.
    pub kind: String,
    /// Where it was before it was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What was there.
    pub before: Option<NodeDocument>,
    /// What is there.
    pub after: Option<NodeDocument>,
}

impl ChangeDocument {
    /// Of a change.
    pub fn of(change: &Change) -> Self {
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
    /// The changed lines of a text file as a unified diff, if they were asked for and are not too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What differs between two moments.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DiffDocument {
    /// The earlier side.
    pub from: StepDocument,
    /// The later side; none if it is the workspace as it is now.
    pub to: Option<StepDocument>,
    /// The changes, by path.
    pub items: Vec<ChangedFileDocument>,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
}

/// A path that is left alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct LeftAloneDocument {
    /// Where.
    pub path: String,
    /// Why, as a phrase.
    pub reason: String,
    /// Whether it is because of a later change, and not because the path is not covered.
    pub conflict: bool,
}

impl LeftAloneDocument {
    /// Of what a plan leaves alone.
    pub fn of(item: &LeftAlone) -> Self {
        Self {
            path: item.path.display().into_owned(),
            reason: item.reason.clone(),
            conflict: item.is_conflict(),
        }
    }
}

/// The parts of a state, each by its hash. What is the same has the same hash.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SlotsDocument {
    /// The files.
    pub files: Option<String>,
    /// The git directories.
    pub git: Option<String>,
    /// The conversation.
    pub conversation: Option<String>,
    /// What was thought.
    pub reasoning: Option<String>,
    /// What the agent remembers.
    pub memory: Option<String>,
    /// The task list.
    pub task: Option<String>,
    /// The environment.
    pub env: Option<String>,
}

impl SlotsDocument {
    /// Of a state.
    pub fn of(state: &State) -> Self {
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

/// Where a git repository stood.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RepositoryDocument {
    /// Its git directory.
    pub path: String,
    /// The branch; none when detached.
    pub branch: Option<String>,
    /// The commit; none before the first.
    pub commit: Option<String>,
    /// A merge, rebase or the like that was going on.
    pub in_progress: Option<String>,
    /// How many stashes there were.
    pub stashes: u32,
}

impl RepositoryDocument {
    /// Of a repository.
    pub fn of(repository: &Repository) -> Self {
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

/// What was true at a step.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct StateDocument {
    /// The step.
    pub step: StepDocument,
    /// Which parts are known.
    pub slots: SlotsDocument,
    /// Where git repositories stood.
    pub git: Vec<RepositoryDocument>,
    /// Files, directories before what they hold.
    pub items: Vec<FileDocument>,
    /// Where the next page of files begins; none after the last.
    pub next_cursor: Option<String>,
}
