//! Errors of the engine: one variant for each thing that a caller may want to handle.

use std::io;
use std::path::PathBuf;

use stepback_model::json::JsonError;
use stepback_model::object::ObjectError;
use stepback_reasoning::MindError;
use stepback_store::StoreError;
use stepback_worktree::WorktreeError;

use crate::branch::BranchError;
use crate::changes::SelectionError;
use crate::checkpoint::AnnotationError;
use crate::path_filter::PathPatternError;

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
    /// A prune cannot make the store as small as it should be.
    #[error(
        "the store cannot be pruned to {limit} bytes: {smallest} bytes are left when everything that may go has gone"
    )]
    CannotFit {
        /// The wanted size in bytes.
        limit: u64,
        /// The smallest size that can be reached, in bytes.
        smallest: u64,
        /// Whether checkpoints within the undo window were allowed to go.
        freed_at_once: bool,
    },
    /// A session has as many manual checkpoints as it may have.
    #[error("{who} has {count} manual checkpoints, and at most {limit} are allowed")]
    TooManyManual {
        /// Whose checkpoints they are: a session, or the user.
        who: String,
        /// How many there are.
        count: usize,
        /// The largest number allowed.
        limit: usize,
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
    NothingToUndo(&'static str),
    /// An operation cannot be undone or redone.
    #[error("{0}")]
    CannotUndo(String),
    /// The session is not running, so nothing can be delivered to it; the text says what is running instead.
    #[error("{0}")]
    NotRunning(String),
    /// A change of an agent's reasoning was refused, or it cannot be read.
    #[error(transparent)]
    Mind(#[from] MindError),
    /// Something cannot be done with a branch.
    #[error(transparent)]
    Branch(#[from] BranchError),
    /// Changes cannot be listed or selected.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// A path pattern cannot be used.
    #[error(transparent)]
    Pattern(#[from] PathPatternError),
    /// A label, a note or a tag is not valid.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// A rewind was requested without a point and without changes.
    #[error("specify a point to rewind to, or changes to take back")]
    NoTarget,
    /// A rewind of paths that exist neither now nor then.
    #[error("nothing in the workspace or in {what} matches {}", patterns.join(", "))]
    NothingMatches {
        /// Description of the target.
        what: String,
        /// The patterns.
        patterns: Vec<String>,
    },
    /// Only checkpoints can be deleted.
    #[error("{what} is a step without its own files, not a checkpoint; there is nothing to delete")]
    NotACheckpoint {
        /// Description of the step.
        what: String,
    },
    /// What the plan needs may have been freed since.
    #[error("the store was pruned since the plan was made; plan again")]
    PlanOutdated,
    /// A state is written only into a new or empty directory.
    #[error("{path} exists and is not an empty directory; choose a new one")]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The store has no directory on this machine for the files that stop an agent.
    #[error("this store does not support breakpoints")]
    NoLocalDirectory,
    /// A JSON value cannot be stored, for example because it is too large.
    #[error(transparent)]
    Json(JsonError),
    /// A file that is neither in the workspace nor in the store's database failed.
    #[error("{what}: {error}")]
    Io {
        /// What was tried, such as `cannot read the inbox`.
        what: String,
        /// The error of the system.
        error: io::Error,
    },
    /// A step is not a change of the board of a session.
    #[error("step #{number} is not a board change of this session")]
    NotABoardChange {
        /// The number of the step.
        number: u64,
    },
    /// A change of a board is not valid any more after its secrets were removed.
    #[error("with secrets removed, the change is invalid: {0}")]
    InvalidWhenRedacted(serde_json::Error),
    /// An event that requires a scan of the files was passed to a batch, which cannot scan.
    #[error("an event that requires a scan of the files cannot be recorded in a batch")]
    ScanInBatch,
    /// Other processes committed at the same time, in every attempt.
    #[error("cannot {what}: another process committed first, {attempts} times ({cause})")]
    RetriesExhausted {
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

impl From<JsonError> for EngineError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Object(error) => error.into(),
            error => Self::Json(error),
        }
    }
}

impl From<ObjectError> for EngineError {
    fn from(error: ObjectError) -> Self {
        Self::Store(error.into())
    }
}
