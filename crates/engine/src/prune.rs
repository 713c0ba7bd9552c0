//! Pruning: which checkpoints go, and when their bytes do.
//!
//! A prune hides checkpoints, which can be undone. Their bytes go with the next prune, or at once where the caller wants
//! space now. What a kept checkpoint needs is never touched: collecting starts from what is kept.

use std::collections::HashSet;

use stepback_model::ids::{OpId, StepId};
use stepback_model::record::{Action, Operation, Trigger};
use stepback_model::time::Timestamp;
use stepback_store::Mutation;
use stepback_store::port::{StoredCheckpoint, Swept};

use crate::error::EngineError;
use crate::workspace::Workspace;

/// Newest manual checkpoints that are kept for good; older ones follow the same rules as automatic ones.
pub const KEPT_MANUAL: usize = 50;

/// What to keep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// The newest so many.
    pub keep_last: Option<usize>,
    /// What is younger than so many days.
    pub keep_days: Option<u64>,
    /// As much as fits into so many bytes.
    pub max_size: Option<u64>,
    /// Free the bytes at once instead of with the next prune.
    pub now: bool,
}

/// What a prune will do.
#[derive(Debug)]
pub struct PrunePlan {
    /// Checkpoints that will be hidden, newest first.
    pub hide: Vec<StoredCheckpoint>,
    /// Checkpoints hidden earlier whose bytes will go.
    pub purge: Vec<StepId>,
    /// Checkpoints that stay.
    pub keep: usize,
    rules: Rules,
}

/// What a prune did.
#[derive(Debug)]
pub struct Pruned {
    /// The operation, if checkpoints were hidden.
    pub operation: Option<Operation>,
    /// Checkpoints hidden.
    pub hidden: usize,
    /// What was freed.
    pub swept: Swept,
}

impl Workspace<'_> {
    /// Plans a prune.
    pub fn plan_prune(&self, rules: Rules) -> Result<PrunePlan, EngineError> {
        let all = self.store().checkpoints(self.record.id)?;
        let protected = self.protected(&all)?;
        let now = self.engine.env.now();
        let visible: Vec<&StoredCheckpoint> =
            all.iter().filter(|stored| stored.checkpoint.hidden_by.is_none()).collect();
        let default = rules.keep_last.is_none() && rules.keep_days.is_none() && rules.max_size.is_none();
        let mut hide = Vec::new();
        let mut newest_in_hour: HashSet<i64> = HashSet::new();
        for (index, stored) in visible.iter().enumerate() {
            let step = &stored.checkpoint.step;
            let first_of_hour = newest_in_hour.insert(step.at.as_micros() / 3_600_000_000);
            let kept = protected.contains(&step.id)
                || rules.keep_last.is_some_and(|count| index < count)
                || rules.keep_days.is_some_and(|days| age_in_days(step.at, now) < days)
                // Without rules of one's own: everything of the last hour, then one per hour.
                || (default && (first_of_hour || now.as_micros() - step.at.as_micros() < 3_600_000_000))
                || (rules.max_size.is_some() && rules.keep_last.is_none() && rules.keep_days.is_none());
            if !kept {
                hide.push((*stored).clone());
            }
        }
        let purge = all
            .iter()
            .filter(|stored| stored.checkpoint.hidden_by.is_some() && !stored.purged)
            .map(|stored| stored.checkpoint.step.id)
            .filter(|id| !self.is_head(*id, &all) && !protected.contains(id))
            .collect();
        Ok(PrunePlan { keep: visible.len() - hide.len(), hide, purge, rules })
    }

    fn is_head(&self, id: StepId, _all: &[StoredCheckpoint]) -> bool {
        self.head_id().ok().flatten() == Some(id)
    }

    /// Checkpoints no rule may hide: the head, what the next undo needs, and the newest manual ones.
    fn protected(&self, all: &[StoredCheckpoint]) -> Result<HashSet<StepId>, EngineError> {
        let mut protected: HashSet<StepId> = self.head_id()?.into_iter().collect();
        let last_move = self.operations()?.into_iter().find_map(|operation| operation.action.moved());
        if let Some(moved) = last_move {
            protected.extend([moved.before, moved.after]);
        }
        let manual = all.iter().filter(|stored| {
            stored.checkpoint.trigger == Trigger::Manual && stored.checkpoint.hidden_by.is_none()
        });
        protected.extend(manual.take(KEPT_MANUAL).map(|stored| stored.checkpoint.step.id));
        Ok(protected)
    }

    /// Does what was planned.
    pub fn prune(&self, plan: PrunePlan) -> Result<Pruned, EngineError> {
        let mut purge = plan.purge;
        let steps: Vec<StepId> = plan.hide.iter().map(|stored| stored.checkpoint.step.id).collect();
        let mut operation = None;
        let mut mutations = Vec::new();
        if !steps.is_empty() {
            let count = steps.len();
            let record = self.operation(
                format!("prune {count} checkpoint{}", if count == 1 { "" } else { "s" }),
                Action::Prune { steps: steps.clone() },
            );
            mutations.push(Mutation::SetHidden { steps: steps.clone(), by: Some(record.id) });
            mutations.push(Mutation::AppendOp(record.clone()));
            operation = Some(record);
        }
        if plan.rules.now {
            purge.extend(&steps);
        }
        mutations.push(Mutation::Purge { steps: purge });
        self.store().commit(None, &mutations)?;
        let mut swept = self.engine.collect()?;
        let mut hidden = steps.len();
        if let Some(limit) = plan.rules.max_size {
            let (more, freed) = self.shrink_to(limit)?;
            hidden += more;
            swept.objects += freed.objects;
            swept.bytes += freed.bytes;
        }
        Ok(Pruned { operation, hidden, swept })
    }

    /// Gives up the oldest unprotected checkpoints until the store fits, in growing steps.
    fn shrink_to(&self, limit: u64) -> Result<(usize, Swept), EngineError> {
        let mut total = Swept::default();
        let mut hidden = 0;
        loop {
            if self.store().usage()?.total_bytes <= limit {
                return Ok((hidden, total));
            }
            let all = self.store().checkpoints(self.record.id)?;
            let mut protected: HashSet<StepId> = self.head_id()?.into_iter().collect();
            let manual_too = all.iter().filter(|stored| !stored.purged).count() <= KEPT_MANUAL;
            if !manual_too {
                protected = self.protected(&all)?;
            }
            let candidates: Vec<StepId> = all
                .iter()
                .rev()
                .filter(|stored| !stored.purged)
                .map(|stored| stored.checkpoint.step.id)
                .filter(|id| !protected.contains(id))
                .collect();
            if candidates.is_empty() {
                return Ok((hidden, total));
            }
            let share = candidates.len().div_ceil(4);
            let steps: Vec<StepId> = candidates.into_iter().take(share).collect();
            hidden += steps.len();
            let record: Operation = self.operation(
                format!("prune {} checkpoints to fit {limit} bytes", steps.len()),
                Action::Prune { steps: steps.clone() },
            );
            let by: Option<OpId> = Some(record.id);
            let mutations = [
                Mutation::SetHidden { steps: steps.clone(), by },
                Mutation::Purge { steps },
                Mutation::AppendOp(record),
            ];
            self.store().commit(None, &mutations)?;
            let swept = self.engine.collect()?;
            total.objects += swept.objects;
            total.bytes += swept.bytes;
        }
    }
}

fn age_in_days(at: Timestamp, now: Timestamp) -> u64 {
    u64::try_from((now.as_micros() - at.as_micros()) / 86_400_000_000).unwrap_or(0)
}
