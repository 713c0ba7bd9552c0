//! Plans to move the workspace that were shown to an agent and can be confirmed by id.
//!
//! A plan keeps the question, never a lock: applying it plans again and compares the results.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use stepback_engine::rewind::RewindRequest;
use stepback_model::ids::{OpId, SessionId, WorkspaceId};

/// The most plans that are kept; the oldest is dropped first.
const MOST: usize = 50;

/// What the agent asked to do.
#[derive(Clone, Debug)]
pub enum AgentRequest {
    /// Rewind.
    Rewind {
        /// The target of the rewind, or the changes to take back.
        request: Box<RewindRequest>,
        /// Whether the board is rewound too.
        reasoning: bool,
    },
    /// Switch to another branch.
    Switch {
        /// The name of the branch.
        branch: String,
        /// Whether the board is replaced by the board of that branch.
        reasoning: bool,
    },
    /// Undo this operation.
    Undo(OpId),
    /// Redo the operation that was undone last.
    Redo,
}

/// A plan that was shown.
#[derive(Clone, Debug)]
pub struct AgentPlan {
    /// The id with which the agent confirms it.
    pub id: String,
    /// The workspace it would move.
    pub workspace: WorkspaceId,
    /// The session it was made for.
    pub session: SessionId,
    /// What was asked.
    pub question: AgentRequest,
}

/// Plans that were shown, oldest first.
#[derive(Debug, Default)]
pub struct AgentPlans(Mutex<VecDeque<AgentPlan>>);

impl AgentPlans {
    /// Adds a plan.
    pub fn keep(&self, shown: AgentPlan) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|other| other.id != shown.id);
        kept.push_back(shown);
        while kept.len() > MOST {
            kept.pop_front();
        }
    }

    /// Returns the plan with this id.
    pub fn get(&self, id: &str) -> Option<AgentPlan> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|shown| shown.id == id).cloned()
    }

    /// Drops a plan.
    pub fn forget(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|shown| shown.id != id);
    }
}
