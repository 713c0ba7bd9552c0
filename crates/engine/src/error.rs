//! Errors of the engine. [`crate::diagnostics`] says what to do about each.

use std::path::PathBuf;

use stepback_model::object::ObjectError;
use stepback_reasoning::MindError;
use stepback_store::StoreError;
use stepback_worktree::WorktreeError;

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The work tree failed.
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    /// A point was not found, is ambiguous, or is malformed.
    #[error("{0}")]
    Point(String),
    /// The workspace has no checkpoint yet.
    #[error("{root} has no checkpoint yet")]
    NothingRecorded {
        /// Root of the workspace.
        root: PathBuf,
    },
    /// A prune freed the state of a checkpoint.
    #[error("the files of {what} were freed by a prune")]
    Purged {
        /// Description of the checkpoint.
        what: String,
    },
    /// The step was recorded before the first scan of the files.
    #[error("the files had not been scanned yet at {what}")]
    NoFiles {
        /// Description of the step.
        what: String,
    },
    /// The workspace is not on this machine, so its files cannot be scanned; remote agents report to it.
    #[error("{root} is not a directory on this machine; it is known only from what agents reported")]
    NoDirectory {
        /// Root of the workspace.
        root: PathBuf,
    },
    /// There is no operation to undo or redo.
    #[error("there is nothing to {0}")]
    NothingTo(&'static str),
    /// An operation cannot be undone or redone.
    #[error("{0}")]
    CannotUndo(String),
    /// The session is not running, so nothing can be delivered to it; the text says what is running instead.
    #[error("{0}")]
    NotRunning(String),
    /// A change of an agent's reasoning was refused, or it cannot be read.
    #[error(transparent)]
    Mind(#[from] MindError),
    /// An input of the caller is invalid.
    #[error("{0}")]
    Input(String),
    /// Other processes committed at the same time, in every attempt.
    #[error("cannot {what}: another process committed first, {attempts} times ({cause})")]
    GaveUp {
        /// What was tried, as a verb phrase.
        what: &'static str,
        /// How often it was tried.
        attempts: usize,
        /// The error of the last attempt.
        cause: StoreError,
    },
    /// Another process is changing this workspace.
    #[error("another process is changing {root}")]
    Busy {
        /// Root of the workspace.
        root: PathBuf,
    },
    /// Git is working in a repository that should be changed.
    #[error("git is at work in {path}: {lock} exists")]
    GitBusy {
        /// Path of the git directory.
        path: String,
        /// Path of the lock file.
        lock: String,
    },
    /// A rewind failed part-way, and all its changes were taken back.
    #[error("{cause}; everything was restored")]
    RolledBack {
        /// The error that caused it.
        cause: Box<EngineError>,
    },
    /// A rewind changed all files but could not record it; the next command will.
    #[error(
        "{cause}; the files are as planned, but not recorded yet; the next stepback command will record them"
    )]
    Unrecorded {
        /// The error that caused it.
        cause: Box<EngineError>,
    },
    /// A rewind failed part-way and could not be taken back now; the next command will finish or revert it.
    #[error("{cause}; it could not be reverted yet ({revert}); the next stepback command will finish this")]
    Unfinished {
        /// The error that caused it.
        cause: Box<EngineError>,
        /// Why it could not be reverted.
        revert: Box<EngineError>,
    },
}

impl From<ObjectError> for EngineError {
    fn from(error: ObjectError) -> Self {
        Self::Store(error.into())
    }
}
