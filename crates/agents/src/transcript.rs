//! Reads the conversation that an agent keeps itself: finds it, follows it as it grows, parses it into messages, and finds
//! where to cut it.
//!
//! For every step the engine keeps the conversation as a chain of the agent's own raw lines, one JSON text each. This module
//! is the only place that knows where those lines come from and what they mean. It never writes; [`crate::fork`] makes
//! another conversation out of a chain.
//!
//! Raw lines are the source of truth, and [`TranscriptMessage`]s are derived from them: what does not parse is left out of the
//! messages, never out of the chain.

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
pub use cut::{
    RequestingAnswer, align_cut, cut_before_call, cut_before_later_call, cut_before_prompt,
    find_requesting_answer,
};
pub use find::{
    AgentDirs, ConversationHead, FoundTranscript, discover_transcripts, find_transcripts_at, locate,
    parse_conversation_head, worker_transcripts,
};
pub use lines::{LINE_LIMIT, is_omitted_line};
pub use message::{
    MessagePart, MessageRole, MessageUsage, TranscriptMessage, parse_agent_messages, parse_messages,
};
pub(crate) use opencode_db::find_session as opencode_session;
pub(crate) use value::{clip_line, get_str};

/// Where a conversation is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TranscriptLocation {
    /// The agent that writes it.
    pub agent: Agent,
    /// The transcript file, or opencode's database.
    pub path: PathBuf,
    /// The agent's own id of the session.
    pub session: String,
}

/// How far a conversation has been read. The default is the beginning.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TranscriptCursor {
    /// How many lines were read, which is the length of the chain.
    pub lines: usize,
    /// Byte offset in the file at which the next line begins.
    offset: u64,
    /// Device and inode of the file.
    file: (u64, u64),
    /// What the first and last bytes read looked like, to detect a rewritten file.
    seen: String,
    /// For a database: a mark of the state of each message.
    marks: Vec<String>,
}

/// The lines that are new since a cursor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewLines {
    /// How many of the lines read before are still valid. All of them if the transcript only grew; none if the file was
    /// truncated, replaced or rewritten; some if the last message of a database grew.
    pub keep: usize,
    /// The lines that follow the kept ones.
    pub lines: Vec<String>,
    /// The cursor to continue from.
    pub cursor: TranscriptCursor,
}

/// Why a conversation could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// There is no such file, or no such session in the database: it is still empty, or it was deleted.
    #[error("no conversation at {}", .0.display())]
    NotFound(PathBuf),
    /// The file exists and cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The database exists and cannot be read, or does not have the expected schema.
    #[error("cannot read {}: {source}", .path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
}

impl TranscriptError {
    fn from_io(path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::NotFound {
            Self::NotFound(path.into())
        } else {
            Self::Io { path: path.into(), source }
        }
    }
}

/// Reads what is new since `cursor`.
///
/// Only complete lines count: one that is still being written is read the next time. Memory is bounded by what is new.
pub fn read(location: &TranscriptLocation, cursor: &TranscriptCursor) -> Result<NewLines, TranscriptError> {
    read_until(location, cursor, None)
}

/// Like [`read`], but reads only the first `limit` bytes of a file: what was there at some earlier time. A database has no
/// such order and is read as it is.
pub fn read_until(
    location: &TranscriptLocation,
    cursor: &TranscriptCursor,
    limit: Option<u64>,
) -> Result<NewLines, TranscriptError> {
    match location.agent {
        Agent::Opencode => opencode_db::read_new_lines(&location.path, &location.session, cursor),
        Agent::Claude | Agent::Codex | Agent::Gemini => {
            lines::read_new_lines(&location.path, cursor, limit.unwrap_or(u64::MAX))
        }
    }
}
