//! What callers may ask for, as plain data that can be stored.

use serde::{Deserialize, Serialize};
use stepback_model::ids::{OpId, SessionId, StepId};
use stepback_model::record::StepRow;

use crate::rewind::RewindRequest;

/// A request to move the workspace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MoveRequest {
    /// Where to move.
    pub action: MoveAction,
    /// The agent that asks; `None` if the user does.
    pub agent: Option<MovingAgent>,
    /// The session whose reasoning board moves along, for a rewind to a point or a switch. An undo or redo takes the board
    /// along if the operation changed it.
    pub board: Option<SessionId>,
    /// Whether databases are replaced although a process has them open.
    pub force: bool,
}

impl MoveRequest {
    /// Takes back what agents changed since a step. What the user changed stays.
    pub fn rewind_to(step: &StepRow) -> Self {
        Self::rewind(step, false)
    }

    /// Restores the whole workspace as it was at a step, including what the user changed since.
    pub fn restore(step: &StepRow) -> Self {
        Self::rewind(step, true)
    }

    /// Undoes the newest operation.
    pub fn undo() -> Self {
        Self::from_user(MoveAction::Undo { operation: None })
    }

    /// Merges a branch into the present one.
    pub fn merge(branch: &str, markers: bool) -> Self {
        let request = RewindRequest { merge: Some(branch.to_owned()), markers, ..RewindRequest::default() };
        Self::from_user(MoveAction::Rewind(Box::new(request)))
    }

    /// The branch that is merged, if this is a merge.
    pub fn merged_branch(&self) -> Option<&str> {
        match &self.action {
            MoveAction::Rewind(rewind) => rewind.merge.as_deref(),
            _ => None,
        }
    }

    fn rewind(step: &StepRow, everything: bool) -> Self {
        let request = RewindRequest { target: Some(step.clone()), everything, ..RewindRequest::default() };
        Self::from_user(MoveAction::Rewind(Box::new(request)))
    }

    /// A request of the user that moves no board.
    pub fn from_user(action: MoveAction) -> Self {
        Self { action, agent: None, board: None, force: false }
    }
}

impl From<MoveAction> for MoveRequest {
    fn from(action: MoveAction) -> Self {
        Self::from_user(action)
    }
}

/// Where to move the workspace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum MoveAction {
    /// Rewind to a point, or take back changes.
    Rewind(Box<RewindRequest>),
    /// Undo an operation.
    Undo {
        /// The operation; `None` for the newest in force.
        operation: Option<OpId>,
    },
    /// Redo the operation that was undone last.
    Redo,
    /// Switch to a branch.
    Switch {
        /// Name of the branch.
        branch: String,
        /// The step at which the branch is to be created; `None` if it exists.
        begin_at: Option<StepId>,
    },
}

impl MoveAction {
    /// The kind of the action.
    pub fn kind(&self) -> MoveKind {
        match self {
            Self::Rewind(_) => MoveKind::Rewind,
            Self::Undo { .. } => MoveKind::Undo,
            Self::Redo => MoveKind::Redo,
            Self::Switch { .. } => MoveKind::Switch,
        }
    }
}

/// The kind of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveKind {
    /// A rewind.
    Rewind,
    /// An undo of an operation.
    Undo,
    /// A redo of what was undone.
    Redo,
    /// A switch to another branch.
    Switch,
}

impl MoveKind {
    /// The stable name, used in URLs and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rewind => "rewind",
            Self::Undo => "undo",
            Self::Redo => "redo",
            Self::Switch => "switch",
        }
    }

    /// The command that reverses a move of this kind.
    pub fn reversal_kind(self) -> Self {
        match self {
            Self::Undo => Self::Redo,
            _ => Self::Undo,
        }
    }
}

/// An agent that asks for a move on its own.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MovingAgent {
    /// The session that the move is made for.
    pub session: SessionId,
    /// Whether it may undo and redo only what it did itself. Not stored: the process that applies a plan decides what the
    /// agent may do.
    #[serde(skip)]
    pub own_only: bool,
}
