//! Operations: what stepback itself did, with what is needed to undo it.

use serde::{Deserialize, Serialize};

use super::step::Annotation;
use crate::hash::Hash;
use crate::ids::{OpId, SessionId, StepId, WorkspaceId};
use crate::time::Timestamp;

/// The two states a file-changing operation went between.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StateTransition {
    /// The step that holds what was there before.
    pub before: StepId,
    /// The step that holds what was there after.
    pub after: StepId,
    /// The step that `after` grows from: the target of a rewind, or `before` when only some changes were undone.
    pub onto: StepId,
    /// Whether git directories were part of it.
    pub git: bool,
    /// What it took back of which session, if not everything: a [`crate::json`] value, the detail of `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Hash>,
    /// The branch that was left and the one that was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<(String, String)>,
    /// The session that asked for it, if an agent did so by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<SessionId>,
    /// The step whose conversation, memory and task list `after` has; `None` if they stayed as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_from: Option<StepId>,
}

/// What an operation did, with what is needed to take it back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Action {
    /// A checkpoint was created.
    CheckpointCreate {
        /// It.
        step: StepId,
    },
    /// Label, note or tags changed.
    CheckpointAnnotate {
        /// Of this checkpoint.
        step: StepId,
        /// From these.
        before: Annotation,
        /// To these.
        after: Annotation,
    },
    /// Checkpoints were hidden because a person deleted them.
    CheckpointDelete {
        /// These.
        steps: Vec<StepId>,
    },
    /// Checkpoints were hidden by a retention rule.
    Prune {
        /// These.
        steps: Vec<StepId>,
    },
    /// A branch was made.
    BranchCreate {
        /// Its name.
        name: String,
        /// The step it begins at.
        step: StepId,
        /// The number of the newest step after that one, without files of its own, that is still on the branch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        upto: Option<u64>,
    },
    /// A branch was forgotten.
    BranchDelete {
        /// Its name.
        name: String,
        /// Its newest step.
        step: StepId,
    },
    /// A branch got another name.
    BranchRename {
        /// The name it had.
        from: String,
        /// The name it has.
        to: String,
        /// Its newest step.
        step: StepId,
    },
    /// The list of changes began anew.
    ChangesClear {
        /// Changes up to this step were not listed before.
        before: Option<u64>,
        /// Changes up to this step are not listed now.
        after: u64,
    },
    /// The workspace was taken to another state.
    Rewind {
        /// Between these states.
        moved: StateTransition,
    },
    /// Another operation was taken back.
    Undo {
        /// That one.
        op: OpId,
        /// The states it went between, when files changed.
        moved: Option<StateTransition>,
    },
    /// An undo was taken back.
    Redo {
        /// The operation that is in force again.
        op: OpId,
        /// The states it went between, when files changed.
        moved: Option<StateTransition>,
    },
}

impl Action {
    /// The stable name of the kind.
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

    /// The move of a file-changing operation.
    pub fn moved(&self) -> Option<&StateTransition> {
        match self {
            Self::Rewind { moved } => Some(moved),
            Self::Undo { moved, .. } | Self::Redo { moved, .. } => moved.as_ref(),
            _ => None,
        }
    }
}

/// How far an operation got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpStatus {
    /// Files are being written; if no process holds the workspace, it crashed and must be recovered.
    Applying,
    /// It took effect.
    Done,
    /// It failed, and what it had done was reverted.
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

/// Something stepback itself did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Its id.
    pub id: OpId,
    /// Where.
    pub workspace: WorkspaceId,
    /// Counts up within the workspace. Zero until the store has assigned it.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// One line for people.
    pub summary: String,
    /// What it did.
    pub action: Action,
    /// How far it got.
    pub status: OpStatus,
    /// Whether an undo has taken it back.
    pub undone: bool,
    /// While applying: the stored plan to finish or revert it by.
    pub journal: Option<Hash>,
}
