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
pub enum PlanRequest {
    /// Rewind to a point or by changes.
    Rewind(Box<RewindRequest>),
    /// Undo an operation; the newest in force if `None`.
    Undo(Option<OpId>),
    /// Redo what was undone last.
    Redo,
    /// Switch to this branch.
    Switch(String),
}

impl PlanRequest {
    /// The kind of the plan.
    pub fn kind(&self) -> PlanKind {
        match self {
            Self::Rewind(_) => PlanKind::Rewind,
            Self::Undo(_) => PlanKind::Undo,
            Self::Redo => PlanKind::Redo,
            Self::Switch(_) => PlanKind::Switch,
        }
    }
}

/// The kind of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanKind {
    /// A rewind.
    Rewind,
    /// An undo of an operation.
    Undo,
    /// A redo of what was undone.
    Redo,
    /// A switch to another branch.
    Switch,
}

impl PlanKind {
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
pub struct KeptPlan {
    /// The workspace it changes.
    pub workspace: WorkspaceId,
    /// The request.
    pub question: PlanRequest,
    /// Whether databases are replaced although a process has them open.
    pub force: bool,
    /// The plan as it was shown.
    pub document: PlanDocument,
}

/// The kept plans, oldest first.
#[derive(Debug, Default)]
pub struct ServerPlans {
    kept: Mutex<VecDeque<(Instant, KeptPlan)>>,
}

impl ServerPlans {
    fn kept(&self) -> MutexGuard<'_, VecDeque<(Instant, KeptPlan)>> {
        // No operation leaves the list half changed, so a poisoned lock is safe to use.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(since, _)| since.elapsed() < LIFE);
        kept
    }

    /// Keeps a plan, and drops the oldest if there are too many.
    pub fn keep(&self, shown: KeptPlan) {
        let mut kept = self.kept();
        kept.retain(|(_, other)| other.document.id != shown.document.id);
        kept.push_back((Instant::now(), shown));
        let paths = |kept: &VecDeque<(Instant, KeptPlan)>| -> usize {
            kept.iter().map(|(_, shown)| shown.document.items.len()).sum()
        };
        while kept.len() > MOST || (kept.len() > 1 && paths(&kept) > MOST_PATHS) {
            kept.pop_front();
        }
    }

    /// Returns the plan of this kind with this id.
    pub fn get(&self, kind: PlanKind, id: &str) -> Option<KeptPlan> {
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
        let plans = ServerPlans::default();
        for number in 0..=MOST {
            let document = PlanDocument { id: number.to_string(), ..PlanDocument::default() };
            let workspace = WorkspaceId::from_bytes([0; 16]);
            plans.keep(KeptPlan { workspace, question: PlanRequest::Redo, force: false, document });
        }
        assert!(plans.get(PlanKind::Redo, "0").is_none());
        assert!(plans.get(PlanKind::Redo, "1").is_some());
        assert!(plans.get(PlanKind::Undo, "1").is_none(), "it is no plan of that kind");
        plans.forget("1");
        assert!(plans.get(PlanKind::Redo, "1").is_none());
    }
}
