//! Which steps a rewind has left behind: they are on record, and on no line that goes on.

use std::collections::HashSet;

use stepback_model::ids::StepId;
use stepback_model::record::{Action, Step, StepKind};
use stepback_store::port::StoredCheckpoint;

use crate::error::EngineError;
use crate::workspace::Workspace;

/// Which steps a rewind has left behind.
#[derive(Debug)]
pub struct LeftBehind {
    /// Steps of the present line and of every other branch.
    lines: HashSet<StepId>,
    /// Rewinds on the line: the step each grew from, and the numbers of its target and of itself; what lies between was left.
    rewinds: Vec<(StepId, u64, u64)>,
}

impl Workspace<'_> {
    /// Which steps rewinds have left behind.
    pub fn left_behind(&self) -> Result<LeftBehind, EngineError> {
        let line = match self.head_id()? {
            Some(_) => self.ancestry(&self.head()?)?,
            None => Vec::new(),
        };
        let mut lines: HashSet<StepId> = line.iter().map(|stored| stored.checkpoint.step.id).collect();
        for branch in self.branches()?.iter().filter(|branch| !branch.present) {
            lines.extend(self.ancestry(&branch.tip)?.iter().map(|stored| stored.checkpoint.step.id));
        }
        let operations = self.operations()?;
        // An undo goes back to where it was before; it leaves nothing behind but what it undoes.
        let undone = |step: &Step| {
            let by =
                operations.iter().find(|op| op.action.moved().is_some_and(|moved| moved.after == step.id));
            by.is_some_and(|op| matches!(op.action, Action::Undo { .. }))
        };
        let mut rewinds = Vec::new();
        for step in line.iter().map(|stored| &stored.checkpoint.step) {
            if step.kind == StepKind::Rewind
                && !undone(step)
                && let Some(onto) = step.parent
            {
                let detail = self.detail_of(step)?;
                let target = detail.as_ref().and_then(|detail| detail.get("target")?.as_u64());
                rewinds.push((onto, target.unwrap_or(0), step.number));
            }
        }
        Ok(LeftBehind { lines, rewinds })
    }
}

impl LeftBehind {
    /// Whether a step is one of them.
    pub fn has(&self, stored: &StoredCheckpoint) -> bool {
        let step = &stored.checkpoint.step;
        if stored.checkpoint.trigger.is_some() {
            return !self.lines.contains(&step.id);
        }
        // A step without files of its own went with the step it grew from, or stood between that and a rewind to it.
        let Some(parent) = step.parent else { return false };
        !self.lines.contains(&parent)
            || self.rewinds.iter().any(|(onto, target, rewind)| {
                *onto == parent && *target < step.number && step.number < *rewind
            })
    }
}
