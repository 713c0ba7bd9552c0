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
    /// Paths that were staged: their version in the index is not the one of HEAD. None if it is not known.
    #[serde(default)]
    pub staged: Option<Vec<String>>,
    /// Paths of tracked files that differed from the index.
    #[serde(default)]
    pub changed: Vec<String>,
    /// Whether there were uncommitted changes, staged or not, of files that git tracks. None if it is not known.
    #[serde(default)]
    pub uncommitted: Option<bool>,
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
            ..Self::default()
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
    /// The git repositories; only on the first page, without `path`.
    pub git: Vec<RepositoryDocument>,
    /// What every session at work had then, that of the step first; only on the first page, without `path`.
    #[serde(default)]
    pub sessions: Vec<SessionStateDocument>,
    /// The size of all files that the state names, in bytes; only on the first page, without `path`.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Files; a directory comes before its contents.
    pub items: Vec<FileDocument>,
    /// Where the next page of files begins; none after the last.
    pub next_cursor: Option<String>,
}

/// A file that a session read or wrote.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkingFileDocument {
    /// The path, relative to the workspace; one outside of it as the call named it.
    pub path: String,
    /// Whether a call that only reads named it.
    pub read: bool,
    /// Whether a call that can change files named it, or a call of the session changed it.
    pub written: bool,
}

/// What a session had at a step.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SessionStateDocument {
    /// The session.
    pub session: String,
    /// The name of the agent.
    pub agent: String,
    /// The model, as last reported.
    pub model: Option<String>,
    /// The number of the session's newest step by then; 0 if it had none.
    pub step: u64,
    /// The model turn it was in.
    pub iteration: u64,
    /// The message index: how many messages the conversation had.
    pub messages: u64,
    /// How many lines of the agent's own record these are.
    pub lines: u64,
    /// The agent's id of the newest call that had begun; none if there was none.
    pub call: Option<String>,
    /// The tool of that call.
    pub tool: Option<String>,
    /// The summary that replaced the earlier conversation last; none if it was not compacted.
    pub summary: Option<String>,
    /// How many tokens the context had after the model's last answer; none if none were reported.
    pub tokens: Option<u64>,
    /// The files that it read or wrote up to there.
    pub working_set: Vec<WorkingFileDocument>,
    /// How many of its calls were shell commands.
    pub commands: u64,
    /// The names of the tools it has, where the agent or a recorded model call tells them.
    pub tools: Vec<String>,
    /// The names of its environment variables, never their values.
    pub variables: Vec<String>,
    /// Its key-value memory; none if it was never recorded.
    #[schema(value_type = Option<Object>)]
    pub memory: Option<Value>,
    /// Its task list; none if it was never recorded.
    #[schema(value_type = Option<Object>)]
    pub task: Option<Value>,
    /// Its parts by hash; files and git belong to the workspace.
    pub slots: StateSlotsDocument,
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
