//! The state at a step: its parts, git repositories, files and messages.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_model::Hash;
use stepback_model::path::display_bytes;
use stepback_model::state::{GitSummary, WorkspaceState};
use utoipa::ToSchema;

use crate::files::FileDocument;
use crate::steps::StepDocument;

/// The parts of a state, each by its hash; none if it is not known. Equal parts have equal hashes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StateSlotsDocument {
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

impl StateSlotsDocument {
    /// The document of a state.
    pub fn from_state(state: &WorkspaceState) -> Self {
        let text = |hash: Option<Hash>| hash.map(|hash| hash.to_string());
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
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
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
    pub fn from_repository(repository: &GitSummary) -> Self {
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
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StateDocument {
    /// The step.
    pub step: StepDocument,
    /// The parts that are known.
    pub slots: StateSlotsDocument,
    /// The heads of git repositories.
    pub git: Vec<RepositoryDocument>,
    /// Files; a directory comes before its contents.
    pub items: Vec<FileDocument>,
    /// Where the next page of files begins; none after the last.
    pub next_cursor: Option<String>,
}

/// A message of a conversation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MessageDocument {
    /// The number of the message, from 1.
    pub number: u64,
    /// `user`, `assistant`, `tool` or `system`; none if the message has no role.
    pub role: Option<String>,
    /// The text of the message.
    pub text: String,
    /// The whole message: parts, model, times; or the line as the agent wrote it.
    #[schema(value_type = Object)]
    pub message: Value,
}
