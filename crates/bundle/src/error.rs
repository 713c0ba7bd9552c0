//! Why a bundle is rejected or cannot be written.

use std::io;

use stepback_engine::EngineError;
use stepback_model::json::JsonError;
use stepback_model::object::ObjectError;
use stepback_store::StoreError;
use stepback_worktree::WorktreeError;

/// An error of an export or import.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file is not a bundle.
    #[error("this is not a stepback bundle")]
    NotABundle,
    /// A later version of stepback made it.
    #[error("the bundle has format {found}, but this version of stepback supports formats up to {known}")]
    Newer {
        /// Format version of the file.
        found: u32,
        /// Newest format version that this program reads.
        known: u32,
    },
    /// The file was truncated or changed after it was written.
    #[error("the bundle is damaged: {0}")]
    Damaged(String),
    /// The file is intact, but stepback never writes such content.
    #[error("the bundle is inconsistent: {0}")]
    Inconsistent(String),
    /// It contradicts records that the store already has.
    #[error("the bundle contradicts the store: {0}")]
    Conflict(String),
    /// The file cannot be read or written.
    #[error("cannot {what}: {error}")]
    Io {
        /// The action that failed, as a verb phrase.
        what: &'static str,
        /// The error of the system.
        error: io::Error,
    },
    /// The session to export is a user's.
    #[error("the changes of a user belong to no agent session and cannot be exported on their own")]
    UserSession,
    /// The bundle has git files, and the store keeps no files of its own.
    #[error("the bundle contains git files, and this store has no directory for them")]
    NoDirectoryForGit,
    /// The detail of a step cannot be decoded.
    #[error(transparent)]
    Value(JsonError),
    /// The store or the vault failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl BundleError {
    /// Wraps an I/O error with the action that failed.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { what, error }
    }

    /// An error for content that stepback never writes.
    pub(crate) fn inconsistent(what: impl Into<String>) -> Self {
        Self::Inconsistent(what.into())
    }
}

impl From<StoreError> for BundleError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<ObjectError> for BundleError {
    fn from(error: ObjectError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<WorktreeError> for BundleError {
    fn from(error: WorktreeError) -> Self {
        Self::Engine(error.into())
    }
}
