//! Plans that were shown to somebody and may be agreed to, kept for a while.
//!
//! They are cheap to make again, so they live in memory alone: a server that is started anew knows none, and says so. What
//! is kept is the question and the answer that was shown, never a lock; applying asks the question again.

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

/// What was asked.
#[derive(Clone, Debug)]
pub enum Question {
    /// To go back.
    Rewind(Box<RewindRequest>),
    /// To take back an operation, or the newest in force.
    Undo(Option<OpId>),
    /// To bring back what was undone last.
    Redo,
    /// To stand on another branch.
    Switch(String),
}

impl Question {
    /// What such a plan is called.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Rewind(_) => Kind::Rewind,
            Self::Undo(_) => Kind::Undo,
            Self::Redo => Kind::Redo,
            Self::Switch(_) => Kind::Switch,
        }
    }
}

/// What a plan is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Going back.
    Rewind,
    /// Taking back an operation.
    Undo,
    /// Bringing back what was undone.
    Redo,
    /// Standing on another branch.
    Switch,
}

impl Kind {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rewind => "rewind",
            Self::Undo => "undo",
            Self::Redo => "redo",
            Self::Switch => "switch",
        }
    }
}

/// A plan that was shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Where.
    pub workspace: WorkspaceId,
    /// What was asked.
    pub question: Question,
    /// Whether databases are replaced although a process has them open.
    pub force: bool,
    /// What was answered.
    pub document: PlanDocument,
}

/// Plans that were shown, oldest first.
#[derive(Debug, Default)]
pub struct Plans {
    kept: Mutex<VecDeque<(Instant, Shown)>>,
}

impl Plans {
    fn kept(&self) -> MutexGuard<'_, VecDeque<(Instant, Shown)>> {
        // Nothing is half done in there, whoever panicked.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(since, _)| since.elapsed() < LIFE);
        kept
    }

    /// Keeps a plan, and forgets the oldest if there are too many.
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

    /// The plan of this kind with this id.
    pub fn get(&self, kind: Kind, id: &str) -> Option<Shown> {
        let kept = self.kept();
        let found = kept.iter().find(|(_, shown)| shown.question.kind() == kind && shown.document.id == id);
        found.map(|(_, shown)| shown.clone())
    }

    /// Forgets a plan.
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
