//! Commits: all changes of the log, all or nothing.

use std::time::{Duration, Instant};

use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::record::{
    Annotation, OpStatus, Operation, Session, SessionInfo, Step, Trigger, WorkspaceRecord,
};

use super::FinishedBatch;
use crate::error::StoreError;

/// Poll interval of [`CommitLog::wait_for_commit`] in a store without notifications.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Changes the log, and says when it changed.
///
/// Any number of processes may commit at the same time. A commit takes effect as a whole, is visible to all readers when it
/// returns, and moves the sequence of commits. A commit that fails changes nothing.
pub trait CommitLog {
    /// Makes the batch's objects visible and applies `mutations`, all or nothing. The commit is durable when this returns.
    fn commit(&self, batch: Option<FinishedBatch>, mutations: &[Mutation]) -> Result<Receipt, StoreError>;
    /// The current position in the sequence of commits.
    fn commit_seq(&self) -> Result<CommitMark, StoreError>;
    /// Waits until any process commits after `after`, and returns the new position; returns `after` if nothing was
    /// committed within `patience`.
    fn wait_for_commit(&self, after: CommitMark, patience: Duration) -> Result<CommitMark, StoreError> {
        let until = Instant::now() + patience;
        loop {
            let mark = self.commit_seq()?;
            let left = until.saturating_duration_since(Instant::now());
            if mark != after || left.is_zero() {
                return Ok(mark);
            }
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
    }
}

/// One change of the log, applied by [`CommitLog::commit`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[expect(clippy::large_enum_variant, reason = "a commit has a handful of them, and they do not live long")]
pub enum Mutation {
    /// Registers a workspace. Registering the same root again is an error ([`StoreError::Exists`]), as is adding a session,
    /// step or operation whose id is taken.
    AddWorkspace(WorkspaceRecord),
    /// Gives a workspace another root: it was moved, forgotten, or came back. A root that another workspace has is an error
    /// ([`StoreError::Exists`]).
    SetWorkspaceRoot {
        /// The workspace to change.
        workspace: WorkspaceId,
        /// Its new root.
        root: Vec<u8>,
    },
    /// Adds a session.
    AddSession(Session),
    /// Replaces the mutable part of a session.
    SetSessionInfo {
        /// The session to change.
        session: SessionId,
        /// The new value; it replaces the old one entirely.
        info: Box<SessionInfo>,
    },
    /// Appends a step; the store assigns its number, which counts up within the session's workspace.
    AppendStep {
        /// The step; its number is ignored.
        step: Step,
        /// Label, note and tags.
        annotation: Annotation,
        /// What made the step a checkpoint; `None` if it is not one.
        trigger: Option<Trigger>,
    },
    /// Replaces a checkpoint's annotation.
    Annotate {
        /// The checkpoint to annotate.
        step: StepId,
        /// The new label, note and tags.
        annotation: Annotation,
    },
    /// Hides checkpoints (`by: Some`) or shows them again (`by: None`).
    SetHidden {
        /// The steps to hide or show.
        steps: Vec<StepId>,
        /// The operation that hides them; `None` shows them again.
        by: Option<OpId>,
    },
    /// Releases the states of hidden checkpoints; the next collection frees the objects only they needed. Checkpoints that
    /// are not hidden (any more) are skipped.
    Purge {
        /// The checkpoints to purge.
        steps: Vec<StepId>,
    },
    /// Moves a reference if its value is still the one that the caller read.
    SetRef {
        /// Name of the reference.
        name: String,
        /// The value it must have now; `None` if it must not exist.
        expected: Option<StepId>,
        /// The value it gets.
        value: StepId,
    },
    /// Deletes a reference, if it exists.
    DropRef {
        /// Name of the reference.
        name: String,
    },
    /// Appends an operation; the store assigns its number.
    AppendOp(Operation),
    /// Updates the status of an operation.
    SetOpStatus {
        /// The operation to update.
        op: OpId,
        /// The new status. Anything but `Applying` drops the journal.
        status: OpStatus,
    },
    /// Marks an operation as undone, or as in effect again.
    SetOpUndone {
        /// The operation to mark.
        op: OpId,
        /// Whether it is undone.
        undone: bool,
    },
}

/// The numbers that a commit assigned, in the order of the mutations that needed one.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Receipt {
    /// Numbers of the appended steps.
    pub steps: Vec<u64>,
    /// Numbers of the appended operations.
    pub ops: Vec<u64>,
}

/// A position in the store's sequence of commits, for detecting concurrent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct CommitMark(pub u64);
