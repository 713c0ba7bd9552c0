//! The plans that were shown to a client and may be applied, kept for a while.
//!
//! They are cheap to make again, so they live in memory only: a restarted server knows none, and says so. What is kept is the
//! request and the plan that was shown, never a lock; applying computes the plan again.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stepback_engine::rewind::RewindRequest;
use stepback_model::ids::{OpId, WorkspaceId};

use crate::documents::plans::PlanDocument;

/// How long a plan is kept.
const LIFE: Duration = Duration::from_secs(60 * 60);
/// Most plans that are kept.
const MOST: usize = 100;
/// Most paths in all plans together.
const MOST_PATHS: usize = 500_000;

/// The request that a plan answers.
#[derive(Clone, Debug)]
pub enum Question {
    /// Rewind to a point or by changes.
    Rewind(Box<RewindRequest>),
    /// Undo an operation; the newest in force if `None`.
    Undo(Option<OpId>),
    /// Redo what was undone last.
    Redo,
    /// Switch to this branch.
    Switch(String),
}

impl Question {
    /// The kind of the plan.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Rewind(_) => Kind::Rewind,
            Self::Undo(_) => Kind::Undo,
            Self::Redo => Kind::Redo,
            Self::Switch(_) => Kind::Switch,
        }
    }
}

/// The kind of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A rewind.
    Rewind,
    /// An undo of an operation.
    Undo,
    /// A redo of what was undone.
    Redo,
    /// A switch to another branch.
    Switch,
}

impl Kind {
    /// The stable name, used in URLs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rewind => "rewind",
            Self::Undo => "undo",
            Self::Redo => "redo",
            Self::Switch => "switch",
        }
    }
}

/// A plan that was shown to a client.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The workspace it changes.
    pub workspace: WorkspaceId,
    /// The request.
    pub question: Question,
    /// Whether databases are replaced although a process has them open.
    pub force: bool,
    /// The plan as it was shown.
    pub document: PlanDocument,
}

/// The kept plans, oldest first.
#[derive(Debug, Default)]
pub struct Plans {
    kept: Mutex<VecDeque<(Instant, Shown)>>,
}

impl Plans {
    fn kept(&self) -> MutexGuard<'_, VecDeque<(Instant, Shown)>> {
        // No operation leaves the list half changed, so a poisoned lock is safe to use.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(since, _)| since.elapsed() < LIFE);
        kept
    }

    /// Keeps a plan, and drops the oldest if there are too many.
    pub fn keep(&self, shown: Shown) {
        let mut kept = self.kept();
        kept.retain(|(_, other)| other.document.id != shown.document.id);
        kept.push_back((Instant::now(), shown));
        let paths = |kept: &VecDeque<(Instant, Shown)>| -> usize {
            kept.iter().map(|(_, shown)| shown.document.items.len()).sum()
        };
        while kept.len() > MOST || (kept.len() > 1 && paths(&kept) > MOST_PATHS) {
            kept.pop_front();
        }
    }

    /// Returns the plan of this kind with this id.
    pub fn get(&self, kind: Kind, id: &str) -> Option<Shown> {
        let kept = self.kept();
        let found = kept.iter().find(|(_, shown)| shown.question.kind() == kind && shown.document.id == id);
        found.map(|(_, shown)| shown.clone())
    }

    /// Drops a plan.
    pub fn forget(&self, id: &str) {
        self.kept().retain(|(_, shown)| shown.document.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_plans_are_forgotten_first() {
        let plans = Plans::default();
        for number in 0..=MOST {
            let document = PlanDocument { id: number.to_string(), ..PlanDocument::default() };
            let workspace = WorkspaceId::from_bytes([0; 16]);
            plans.keep(Shown { workspace, question: Question::Redo, force: false, document });
        }
        assert!(plans.get(Kind::Redo, "0").is_none());
        assert!(plans.get(Kind::Redo, "1").is_some());
        assert!(plans.get(Kind::Undo, "1").is_none(), "it is no plan of that kind");
        plans.forget("1");
        assert!(plans.get(Kind::Redo, "1").is_none());
    }
}
