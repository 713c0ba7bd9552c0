//! The errors of a store, with messages that a user interface can show as they are.
//!
//! They name no database driver: a backend translates the errors of its driver into what a caller can act on.

use std::io;
use std::path::PathBuf;

use stepback_model::object::ObjectError;

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store's format is newer than this program; neither reading nor writing is safe.
    #[error(
        "the store at {path} has format {found}, but this version of stepback supports formats up to {known}"
    )]
    Newer {
        /// Where the store is.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format this program knows.
        known: u32,
    },
    /// The directory holds something that is not a stepback store.
    #[error("{path} is not a stepback store: {reason}")]
    NotAStore {
        /// The path that was opened.
        path: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// There is no store at the path, and the caller asked not to create one.
    #[error("there is no stepback store at {path}")]
    Absent {
        /// The path that was checked.
        path: PathBuf,
    },
    /// A file of the store could not be read or written.
    #[error("cannot {what} {path}: {error}")]
    Io {
        /// What was tried, as a verb phrase such as "write to".
        what: &'static str,
        /// The file it was tried on.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The store's database failed, and it is neither damaged, nor locked, nor out of space.
    #[error("the store's database failed: {what}")]
    Database {
        /// The message of the database.
        what: String,
    },
    /// The database or a pack is damaged.
    #[error("the store is damaged: {what}")]
    Corrupt {
        /// What is damaged, and how.
        what: String,
    },
    /// The log lacks commits that were acknowledged. Nothing is written until they are brought back or given up.
    #[error("the store is damaged: the log lacks {commits} acknowledged commit{}", if *commits == 1 { "" } else { "s" })]
    Lost {
        /// How many commits are known to be missing.
        commits: u64,
    },
    /// The store cannot be written to: it is on a file system that is mounted read-only. Reading works.
    #[error("the store at {path} is read-only")]
    ReadOnly {
        /// Where the store is.
        path: PathBuf,
    },
    /// Files of the store were deleted or replaced while this process had them open: what it writes would be lost.
    #[error("the store at {path} was deleted or replaced while it was in use; nothing was recorded")]
    Replaced {
        /// Where the store was.
        path: PathBuf,
    },
    /// A reference was moved between reading and writing it; the caller reads again and retries.
    #[error("{name} was changed by another process")]
    Moved {
        /// Name of the reference.
        name: String,
    },
    /// A record with this id, or a workspace with this root, already exists; another process may have added it first.
    #[error("the store already has {what}")]
    Exists {
        /// What was to be added.
        what: &'static str,
    },
    /// A garbage collection ran since the objects were looked up; the caller looks them up again and retries.
    #[error("objects were garbage-collected meanwhile")]
    Collected,
    /// Something was committed since the collector scanned the log; the collector scans again and retries.
    #[error("the log grew meanwhile")]
    Grew,
    /// The store reached its size limit.
    #[error("the store is full: its limit is {limit} bytes")]
    Full {
        /// The limit, in bytes.
        limit: u64,
    },
    /// Another process kept the store locked for too long.
    #[error("the store is locked by another process")]
    Locked,
    /// A database server cannot be reached, or cannot run the request.
    #[error("{what}: {why}")]
    Server {
        /// What failed, naming the server.
        what: String,
        /// The error from the server or the network.
        why: String,
        /// What the user can do about it.
        remedy: &'static str,
    },
    /// The server that holds the store accepts this only from its owner: a client of an agent can append and read.
    #[error("the server of the store refused {what}: this connection can only append and read")]
    Forbidden {
        /// What was refused, as a noun phrase.
        what: String,
    },
    /// An object is missing or damaged.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl StoreError {
    /// Wraps an I/O error with what was tried.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { what, path, error }
    }
}

impl From<StoreError> for ObjectError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Object(error) => error,
            other => ObjectError::Backend(Box::new(other)),
        }
    }
}
