//! Where the lines of a file come from.

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// The lines of a file with their origins.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BlameDocument {
    /// The file.
    pub path: String,
    /// The number of lines of the whole file.
    pub count: u64,
    /// The lines that were asked for.
    pub lines: Vec<BlamedLineDocument>,
    /// Their origins, each once.
    pub origins: Vec<LineOriginDocument>,
}

/// A line and its origin.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BlamedLineDocument {
    /// Its number, counted from 1.
    pub number: u64,
    /// Its number in the version that first contains it.
    pub original: u64,
    /// Its text, without the line break; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The index of its origin in `origins`.
    pub origin: u64,
    /// The last step that only formatted it.
    pub formatted: Option<u64>,
    /// The last step that moved it.
    pub moved: Option<u64>,
}

/// Where some lines come from.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LineOriginDocument {
    /// `change`, `restored` (a rewind, undo, switch or merge brought them back), `before-recording`, or `not-recorded` (they
    /// are newer than the last checkpoint).
    pub kind: String,
    /// `recorded`, or `inferred` from which calls were running.
    pub basis: String,
    /// The rule by which the author was found.
    pub rule: String,
    /// The number of the checkpoint that first contains them; none if none does yet.
    pub step: Option<u64>,
    /// When that was; the current time if they are in no checkpoint.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The file they were written into.
    pub path: String,
    /// The call that wrote them; none if they are the user's, or older than the recording.
    pub author: Option<LineAuthorDocument>,
    /// The calls of several sessions that may have written them, if it is not known which one did.
    pub candidates: Vec<LineAuthorDocument>,
    /// Git's commit of lines that are older than the recording, or that came in with a commit.
    #[serde(default)]
    pub commit: Option<LineCommitDocument>,
    /// How the commit was found, or why none is known; none if none was searched.
    #[serde(default)]
    pub commit_rule: Option<String>,
}

/// The commit of a git repository in which lines appeared.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LineCommitDocument {
    /// Its id.
    pub id: String,
    /// The name of its author.
    pub author: String,
    /// The author's address.
    pub email: String,
    /// When the author wrote it.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The first line of its message.
    pub subject: String,
    /// The path of the file in that commit, from the root of the repository.
    pub path: String,
    /// Why the lines may be from an older commit; none if they are certainly from this one.
    pub or_older: Option<String>,
}

/// A tool call that wrote lines, and what led to it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LineAuthorDocument {
    /// The id of the session.
    pub session: String,
    /// The agent.
    pub agent: String,
    /// The agent's own id of the session.
    pub agent_session: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// The number of the step at which the call began.
    pub call: Option<u64>,
    /// The model turn in which it was asked for, counted from 1.
    pub turn: Option<u64>,
    /// The number of the step with the model's answer, if model calls were recorded.
    pub model: Option<u64>,
    /// The number of the step with the prompt.
    pub prompt: Option<u64>,
    /// The beginning of the prompt.
    pub prompt_text: Option<String>,
}
