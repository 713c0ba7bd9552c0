//! Moves of the workspace that were planned and shown, and may be agreed to.
//!
//! What is kept is the question, never a lock: applying asks it again and compares the answers.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use stepback_engine::rewind::RewindRequest;
use stepback_model::ids::{OpId, SessionId, WorkspaceId};

/// Most plans that are kept; the oldest is forgotten first.
const MOST: usize = 50;

/// What was asked.
#[derive(Clone, Debug)]
pub enum Question {
    /// To go back.
    Rewind {
        /// To where, or what to take back.
        request: Box<RewindRequest>,
        /// Whether the board goes back too.
        reasoning: bool,
    },
    /// To stand on another branch.
    Switch {
        /// Its name.
        branch: String,
        /// Whether the board becomes what it was there.
        reasoning: bool,
    },
    /// To take back this operation.
    Undo(OpId),
    /// To do again what was undone last.
    Redo,
}

/// A plan that was shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// What it is called.
    pub id: String,
    /// Where.
    pub workspace: WorkspaceId,
    /// For whom.
    pub session: SessionId,
    /// What was asked.
    pub question: Question,
}

/// Plans that were shown, oldest first.
#[derive(Debug, Default)]
pub struct Plans(Mutex<VecDeque<Shown>>);

impl Plans {
    /// Keeps a plan.
    pub fn keep(&self, shown: Shown) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|other| other.id != shown.id);
        kept.push_back(shown);
        while kept.len() > MOST {
            kept.pop_front();
        }
    }

    /// The plan with this id.
    pub fn get(&self, id: &str) -> Option<Shown> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|shown| shown.id == id).cloned()
    }

    /// Forgets a plan.
    pub fn forget(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|shown| shown.id != id);
    }
}
