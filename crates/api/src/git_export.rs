//! Sessions and authorship in the user's git repository.

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// A session that was written as commits.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SessionCommitsDocument {
    /// The id of the session.
    pub session: String,
    /// The full name of the reference.
    pub reference: String,
    /// The id of its last commit.
    pub commit: String,
    /// The commit that was checked out before the session, on which the new ones are; none if none is known.
    pub base: Option<String>,
    /// The commits, oldest first.
    pub commits: Vec<SessionCommitDocument>,
    /// The number of objects that were added to the repository.
    pub objects: u64,
    /// Whether the reference is new or was moved; `false` if it had this commit already.
    pub changed: bool,
    /// Checkpoints whose files were freed, and that are therefore not exported.
    pub freed: u64,
    /// What was left out; the first paths, if there are many.
    pub left_out: Vec<LeftOutPathDocument>,
    /// How many paths were left out.
    pub left_out_count: u64,
    /// The command that takes the export back.
    pub undo: String,
}

/// A commit of an exported session.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SessionCommitDocument {
    /// Its id.
    pub id: String,
    /// The number of the checkpoint whose files it has.
    pub step: u64,
    /// The first line of its message.
    pub subject: String,
}

/// A path that was left out of an export.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LeftOutPathDocument {
    /// The path.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// Authorship notes that were written.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct NotesWrittenDocument {
    /// The reference with the notes.
    pub reference: String,
    /// The commit of the notes; none if nothing changed, or in a dry run.
    pub commit: Option<String>,
    /// What was found out about each commit.
    pub commits: Vec<CommitNoteDocument>,
    /// The command that takes the notes back; none if nothing changed.
    pub undo: Option<String>,
}

/// The authorship of the lines that a commit added.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CommitNoteDocument {
    /// The id of the commit.
    pub commit: String,
    /// `written`, `merged` (with entries of another program), `unchanged`, `nothing` (no line is known), `refused` (an
    /// existing note has an unknown format, and stays as it is).
    pub result: String,
    /// Why it was refused.
    pub reason: Option<String>,
    /// Lines that sessions wrote.
    pub session_lines: u64,
    /// Lines that no call of an agent wrote: a person's, as far as the record tells.
    pub human_lines: u64,
    /// Added lines whose origin is not known.
    pub unknown_lines: u64,
    /// Lines that entries of another program cover, which stay as they are.
    pub foreign_lines: u64,
    /// Files that are not in the note, with the reason.
    pub left_out: Vec<LeftOutPathDocument>,
    /// The note, as it is or would be written.
    pub note: Option<String>,
}

/// The authorship note of a commit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CommitAuthorshipDocument {
    /// The id of the commit.
    pub commit: String,
    /// The ranges of lines, in the order of the note.
    pub ranges: Vec<AuthorshipRangeDocument>,
}

/// Lines of a file with one author.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AuthorshipRangeDocument {
    /// The file.
    pub path: String,
    /// The first line, counted from 1.
    pub first: u64,
    /// The last line.
    pub last: u64,
    /// The key in the note.
    pub key: String,
    /// `session`, `human` or `unknown`.
    pub kind: String,
    /// The agent, for a session.
    pub agent: Option<String>,
    /// The agent's own id of the session.
    pub agent_session: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The person.
    pub human: Option<String>,
    /// The id of the recorded session, if it is in this store.
    pub session: Option<String>,
    /// When the recorded session began.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
}
