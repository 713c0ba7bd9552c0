//! Operations: what stepback itself did, with the data needed to undo it.

use serde::{Deserialize, Serialize};

use super::step::Annotation;
use crate::hash::Hash;
use crate::ids::{OpId, SessionId, StepId, WorkspaceId};
use crate::time::Timestamp;

/// The states before and after an operation that changed files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StateTransition {
    /// The step that holds the state before.
    pub before: StepId,
    /// The step that holds the state after.
    pub after: StepId,
    /// The step that `after` is based on: the target of a rewind, or `before` when only some changes were undone.
    pub onto: StepId,
    /// Whether git directories were changed too.
    pub git: bool,
    /// Which changes of which session were undone, if not all: a [`crate::json`] value, the detail of `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Hash>,
    /// The branch that was left and the one that was entered; `None` if the branch stayed the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<(String, String)>,
    /// The session that asked for it, if an agent did so on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<SessionId>,
    /// The step whose conversation, memory and task list `after` has; `None` if they stayed as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_from: Option<StepId>,
}

/// What an operation did, with the data needed to undo it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum OperationAction {
    /// A checkpoint was created.
    CheckpointCreate {
        /// The new checkpoint.
        step: StepId,
    },
    /// Label, note or tags changed.
    CheckpointAnnotate {
        /// The checkpoint.
        step: StepId,
        /// The annotation before the change.
        before: Annotation,
        /// The annotation after the change.
        after: Annotation,
    },
    /// Checkpoints were hidden because the user deleted them.
    CheckpointDelete {
        /// The checkpoints that were hidden.
        steps: Vec<StepId>,
    },
    /// Checkpoints were hidden by a retention rule.
    Prune {
        /// The checkpoints that were hidden.
        steps: Vec<StepId>,
        /// Whether their bytes were freed at once, so that it can never be undone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        freed: bool,
    },
    /// A branch was made.
    BranchCreate {
        /// Name of the branch.
        name: String,
        /// The step it begins at.
        step: StepId,
        /// The number of the newest step after that one, without files of its own, that is still on the branch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        upto: Option<u64>,
    },
    /// A branch was deleted.
    BranchDelete {
        /// Name of the branch.
        name: String,
        /// Its newest step.
        step: StepId,
    },
    /// A branch was renamed.
    BranchRename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
        /// Its newest step.
        step: StepId,
    },
    /// The list of changes was cleared.
    ChangesClear {
        /// Number of the step up to which changes were hidden from the list before; `None` if all were listed.
        before: Option<u64>,
        /// Number of the step up to which changes are hidden from the list now.
        after: u64,
    },
    /// The workspace was rewound to another state.
    Rewind {
        /// The states before and after.
        moved: StateTransition,
    },
    /// Another operation was undone.
    Undo {
        /// The operation that was undone.
        op: OpId,
        /// The states before and after, if files changed.
        moved: Option<StateTransition>,
    },
    /// An undo was itself undone.
    Redo {
        /// The operation that is in effect again.
        op: OpId,
        /// The states before and after, if files changed.
        moved: Option<StateTransition>,
    },
}

impl OperationAction {
    /// The stable name of the kind, as stored and shown.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::CheckpointCreate { .. } => "checkpoint-create",
            Self::CheckpointAnnotate { .. } => "checkpoint-annotate",
            Self::CheckpointDelete { .. } => "checkpoint-delete",
            Self::Prune { .. } => "prune",
            Self::BranchCreate { .. } => "branch-create",
            Self::BranchDelete { .. } => "branch-delete",
            Self::BranchRename { .. } => "branch-rename",
            Self::ChangesClear { .. } => "changes-clear",
            Self::Rewind { .. } => "rewind",
            Self::Undo { .. } => "undo",
            Self::Redo { .. } => "redo",
        }
    }

    /// The states before and after; `None` if the operation changed no files.
    pub fn moved(&self) -> Option<&StateTransition> {
        match self {
            Self::Rewind { moved } => Some(moved),
            Self::Undo { moved, .. } | Self::Redo { moved, .. } => moved.as_ref(),
            _ => None,
        }
    }
}

/// Status of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpStatus {
    /// Files are being written. If no process holds the workspace, the operation crashed and must be recovered.
    Applying,
    /// It took effect.
    Done,
    /// It failed, and its changes were reverted.
    Reverted,
}

impl OpStatus {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applying => "applying",
            Self::Done => "done",
            Self::Reverted => "reverted",
        }
    }

    /// Parses the stable name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Applying, Self::Done, Self::Reverted].into_iter().find(|status| status.as_str() == text)
    }
}

/// One action of stepback itself, as recorded in the operation log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Id of the operation.
    pub id: OpId,
    /// The workspace it ran in.
    pub workspace: WorkspaceId,
    /// Counts up within the workspace. Zero until the store has assigned it.
    pub number: u64,
    /// The time at which it began.
    pub at: Timestamp,
    /// One line for display.
    pub summary: String,
    /// What it did.
    pub action: OperationAction,
    /// Whether it is still applying, done or reverted.
    pub status: OpStatus,
    /// Whether an undo has reverted it.
    pub undone: bool,
    /// While applying: the stored plan by which it can be finished or reverted.
    pub journal: Option<Hash>,
}
