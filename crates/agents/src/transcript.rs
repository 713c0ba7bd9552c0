//! The conversation as the agent itself keeps it: read as it grows, understood, cut, and found again.
//!
//! For every step the engine keeps the conversation as a chain of the agent's own raw lines, one JSON text each. This module
//! is the only place that knows where those lines come from and what they say. It never writes; making another conversation
//! out of a chain is [`crate::fork`]'s job.
//!
//! Raw lines are the truth and [`Message`]s are a reading of them: whatever is not understood is left out of the messages,
//! never out of the chain.

mod claude;
mod codex;
mod cut;
mod find;
mod gemini;
mod lines;
mod message;
mod opencode;
mod opencode_db;
mod plain;
mod value;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::agent::Agent;

pub use claude::project_folder as claude_project_folder;
pub use cut::{Asked, asked, before_call, before_call_since, before_prompt, settled};
pub use find::{About, Found, Home, about, discover, found_at, locate, workers};
pub use lines::{LINE_LIMIT, left_out};
pub use message::{Message, Part, Role, Usage, messages, messages_of};
pub(crate) use opencode_db::row as opencode_session;
pub(crate) use value::{clip, text};

/// Where a conversation is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TranscriptLocation {
    /// Whose it is.
    pub agent: Agent,
    /// The transcript file, or opencode's database.
    pub path: PathBuf,
    /// The agent's own id of the session.
    pub session: String,
}

/// How far a conversation has been read. The default is "not at all".
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cursor {
    /// How many lines were read, which is the length of the chain.
    pub lines: usize,
    /// Where in the file the next line begins.
    offset: u64,
    /// Which file it was: device and inode.
    file: (u64, u64),
    /// What the beginning and the end of what was read looked like.
    seen: String,
    /// For a database: what each message looked like.
    marks: Vec<String>,
}

/// What is new since a cursor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fresh {
    /// How many of the lines read before still stand. All of them where the transcript only grew; none where the file was
    /// truncated, replaced or rewritten; some where the last message of a database grew.
    pub keep: usize,
    /// The lines that follow those.
    pub lines: Vec<String>,
    /// From where to go on.
    pub cursor: Cursor,
}

/// Why a conversation could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// There is no such file, or no such session in the database: nothing has been said yet, or it was deleted.
    #[error("no conversation at {}", .0.display())]
    NotFound(PathBuf),
    /// It is there and cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database is there and cannot be read, or is not laid out as expected.
    #[error("cannot read {}: {source}", .path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

impl TranscriptError {
    fn io(path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::NotFound {
            Self::NotFound(path.into())
        } else {
            Self::Io { path: path.into(), source }
        }
    }
}

/// Reads what is new since `cursor`.
///
/// Only complete lines count: one that is being written waits for the next time. Memory is bounded by what is new.
pub fn read(place: &TranscriptLocation, cursor: &Cursor) -> Result<Fresh, TranscriptError> {
    read_until(place, cursor, None)
}

/// Like [`read`], but of a file only the first `limit` bytes: what was there at some earlier moment. A database has no such
/// order and is read as it is.
pub fn read_until(
    place: &TranscriptLocation,
    cursor: &Cursor,
    limit: Option<u64>,
) -> Result<Fresh, TranscriptError> {
    match place.agent {
        Agent::Opencode => opencode_db::read(&place.path, &place.session, cursor),
        Agent::Claude | Agent::Codex | Agent::Gemini => {
            lines::read(&place.path, cursor, limit.unwrap_or(u64::MAX))
        }
    }
}
