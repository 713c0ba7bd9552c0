//! What can go wrong in the engine, each with what to do about it.

use std::path::PathBuf;

use stepback_mind::MindError;
use stepback_model::object::ObjectError;
use stepback_store::StoreError;
use stepback_worktree::WorktreeError;

use crate::bundle::BundleError;

/// Why the engine could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The work tree failed.
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    /// A bundle is not taken in, or cannot be written.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A point names nothing, or more than one thing, or is not a point.
    #[error("{0}")]
    Point(String),
    /// The workspace has no checkpoint yet.
    #[error("{root} has no checkpoint yet")]
    NothingRecorded {
        /// The workspace.
        root: PathBuf,
    },
    /// The state of a checkpoint was given up by a prune.
    #[error("the files of {what} were freed by a prune")]
    Purged {
        /// Which checkpoint.
        what: String,
    },
    /// A step came before the first look at the files.
    #[error("the files were not looked at yet at {what}")]
    NoFiles {
        /// Which step.
        what: String,
    },
    /// A workspace that agents elsewhere report to has no files that could be looked at.
    #[error("{root} is no directory of this machine: only what agents reported is known of it")]
    NoDirectory {
        /// The workspace.
        root: PathBuf,
    },
    /// There is no operation to undo or redo.
    #[error("there is nothing to {0}")]
    NothingTo(&'static str),
    /// An operation cannot be undone or redone.
    #[error("{0}")]
    CannotUndo(String),
    /// A session that nothing can be delivered to, with what is running instead.
    #[error("{0}")]
    NotRunning(String),
    /// A change of what an agent thinks was refused, or it cannot be read.
    #[error(transparent)]
    Mind(#[from] MindError),
    /// Something given on the command line does not fit.
    #[error("{0}")]
    Input(String),
    /// Another process is changing this workspace.
    #[error("another stepback is changing {root} right now")]
    Busy {
        /// The workspace.
        root: PathBuf,
    },
    /// Git is working in a repository that should be changed.
    #[error("git is at work in {path}: {lock} exists")]
    GitBusy {
        /// The git directory.
        path: String,
        /// The lock file found.
        lock: String,
    },
    /// A rewind failed part-way, and everything it had done was taken back.
    #[error("{cause}; everything was put back as it was")]
    RolledBack {
        /// What went wrong.
        cause: Box<EngineError>,
    },
    /// A rewind did everything but write down that it did; the next command will.
    #[error(
        "{cause}; the files are as planned, but that is not recorded yet: the next stepback command will do it"
    )]
    Unrecorded {
        /// What went wrong.
        cause: Box<EngineError>,
    },
    /// A rewind failed part-way and could not be taken back now; the next command will finish or revert it.
    #[error("{cause}; it could not be put back yet ({revert}): the next stepback command will finish it")]
    Unfinished {
        /// What went wrong.
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
