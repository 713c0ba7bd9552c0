//! Pruning: which checkpoints are removed, and when their bytes are freed.
//!
//! A prune hides checkpoints, which can be undone. Their bytes are freed by the next prune, or at once if the caller wants
//! space now. Objects that a kept checkpoint needs are never freed: collecting starts from what is kept.

use std::collections::HashSet;

use stepback_model::ids::StepId;
use stepback_model::record::{Operation, OperationAction, Trigger};
use stepback_model::time::Timestamp;
use stepback_store::Mutation;
use stepback_store::port::{StepRow, Swept};

use crate::error::EngineError;
use crate::workspace::Workspace;

/// How many of the newest manual checkpoints are kept when no rule is given; older ones follow the same rules as automatic
/// ones.
pub const KEPT_MANUAL: usize = 50;

/// Microseconds in an hour.
const HOUR: i64 = 3_600_000_000;

/// Which checkpoints to keep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Keep this many of the newest.
    pub keep_last: Option<usize>,
    /// Keep those younger than this many days.
    pub keep_days: Option<u64>,
    /// Keep the newest manual ones ([`KEPT_MANUAL`]) in addition to the other rules. Without other rules they are kept anyway.
    pub keep_manual: bool,
    /// Remove checkpoints until the store has at most this many bytes.
    pub max_size: Option<u64>,
    /// Free the bytes at once instead of with the next prune.
    pub now: bool,
}

/// A planned prune.
#[derive(Debug)]
pub struct PrunePlan {
    /// Checkpoints that will be hidden, newest first.
    pub hide: Vec<StepRow>,
    /// Checkpoints hidden earlier whose bytes will be freed.
    pub purge: Vec<StepId>,
    /// How many checkpoints stay.
    pub keep: usize,
    rules: Rules,
}

/// The result of a prune.
#[derive(Debug)]
pub struct Pruned {
    /// The operation, if checkpoints were hidden.
    pub operation: Option<Operation>,
    /// How many checkpoints were hidden.
    pub hidden: usize,
    /// How many checkpoints are left.
    pub kept: usize,
    /// How many reruns had the states of their own workspaces freed; their branches stay.
    pub reruns: usize,
    /// The objects and bytes that were freed.
    pub swept: Swept,
}

impl Workspace {
    /// Plans a prune and changes nothing.
    pub fn plan_prune(&self, rules: Rules) -> Result<PrunePlan, EngineError> {
        let all = self.store().checkpoints(self.record.id)?;
        let protected = self.protected()?;
        let manual = newest_manual(&all);
        let now = self.engine.env.now();
        let visible: Vec<&StepRow> = all.iter().filter(|stored| stored.hidden_by.is_none()).collect();
        let only_size = rules.max_size.is_some() && rules.keep_last.is_none() && rules.keep_days.is_none();
        let mut hide = Vec::new();
        let mut hours: HashSet<i64> = HashSet::new();
        for (index, stored) in visible.iter().enumerate() {
            let step = &stored.step;
            let first_of_hour = hours.insert(step.at.as_micros() / HOUR);
            let kept = match (rules.keep_last, rules.keep_days) {
                // The default rules: keep manual checkpoints, everything of the last hour, then one per hour.
                (None, None) => {
                    only_size
                        || manual.contains(&step.id)
                        || first_of_hour
                        || now.as_micros() - step.at.as_micros() < HOUR
                }
                (last, days) => {
                    last.is_some_and(|count| index < count)
                        || (rules.keep_manual && manual.contains(&step.id))
                        || days.is_some_and(|days| age_in_days(step.at, now) < days)
                }
            };
            if !kept && !protected.contains(&step.id) {
                hide.push((*stored).clone());
            }
        }
        let purge = all
            .iter()
            .filter(|stored| stored.hidden_by.is_some() && !stored.purged)
            .map(|stored| stored.step.id)
            .filter(|id| !protected.contains(id))
            .collect();
        Ok(PrunePlan { keep: visible.len() - hide.len(), hide, purge, rules })
    }

    /// Returns the checkpoints that no rule may hide: the head, the tips of branches, and what the next undo needs.
    fn protected(&self) -> Result<HashSet<StepId>, EngineError> {
        let mut protected: HashSet<StepId> = self.head_id()?.into_iter().collect();
        protected.extend(self.branches()?.into_iter().map(|branch| branch.tip.step.id));
        let last_move =
            self.operations()?.into_iter().find_map(|operation| operation.action.moved().cloned());
        if let Some(moved) = last_move {
            protected.extend([moved.before, moved.after]);
        }
        Ok(protected)
    }

    /// Carries out a planned prune.
    pub fn prune(&self, plan: PrunePlan) -> Result<Pruned, EngineError> {
        // Other processes may have recorded more since the plan was made: what they need now stays.
        let lock = self.lock_exclusive()?;
        let all = self.store().checkpoints(self.record.id)?;
        let protected = self.protected()?;
        let visible: HashSet<StepId> =
            all.iter().filter(|stored| stored.hidden_by.is_none()).map(|stored| stored.step.id).collect();
        let mut purge = plan.purge;
        purge.retain(|step| !protected.contains(step));
        let mut steps: Vec<StepId> = plan.hide.iter().map(|stored| stored.step.id).collect();
        steps.retain(|step| visible.contains(step) && !protected.contains(step));
        let mut operation = None;
        let mut mutations = Vec::new();
        if !steps.is_empty() {
            let count = steps.len();
            let record = self.operation(
                format!("prune {count} checkpoint{}", if count == 1 { "" } else { "s" }),
                OperationAction::Prune { steps: steps.clone() },
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
        drop(lock);
        let is_over = |limit: u64| Ok::<_, EngineError>(self.store().usage()?.total_bytes > limit);
        let now = plan.rules.now || plan.rules.max_size.map_or(Ok(false), is_over)?;
        let reruns = self.engine.give_up_reruns(now)?;
        let mut swept = self.engine.collect()?;
        let mut hidden = steps.len();
        if let Some(limit) = plan.rules.max_size {
            let (more, freed) = self.shrink_to(limit, plan.rules.keep_manual)?;
            hidden += more;
            swept.objects += freed.objects;
            swept.bytes += freed.bytes;
        }
        let kept = self.checkpoints()?.len();
        Ok(Pruned { operation, hidden, kept, reruns, swept })
    }

    /// Purges checkpoints until the store has at most `limit` bytes: automatic ones before manual ones, oldest first, an
    /// eighth at a time.
    fn shrink_to(&self, limit: u64, keep_manual: bool) -> Result<(usize, Swept), EngineError> {
        let mut total = Swept::default();
        let mut hidden = 0;
        while self.store().usage()?.total_bytes > limit {
            let lock = self.lock_exclusive()?;
            let all = self.store().checkpoints(self.record.id)?;
            let protected = self.protected()?;
            let candidates: Vec<&StepRow> = all
                .iter()
                .rev()
                .filter(|stored| !stored.purged && !protected.contains(&stored.step.id))
                .collect();
            let (automatic, manual): (Vec<_>, Vec<_>) =
                candidates.into_iter().partition(|stored| stored.trigger != Some(Trigger::Manual));
            let group = match (automatic.is_empty(), keep_manual) {
                (true, false) => manual,
                _ => automatic,
            };
            let share = group.len().div_ceil(8);
            let steps: Vec<StepId> = group.into_iter().take(share).map(|stored| stored.step.id).collect();
            if steps.is_empty() {
                break;
            }
            hidden += steps.len();
            let record = self.operation(
                format!("prune {} checkpoints to fit {limit} bytes", steps.len()),
                OperationAction::Prune { steps: steps.clone() },
            );
            let mutations = [
                Mutation::SetHidden { steps: steps.clone(), by: Some(record.id) },
                Mutation::Purge { steps },
                Mutation::AppendOp(record),
            ];
            self.store().commit(None, &mutations)?;
            drop(lock);
            let swept = self.engine.collect()?;
            total.objects += swept.objects;
            total.bytes += swept.bytes;
        }
        Ok((hidden, total))
    }
}

/// Returns the newest manual checkpoints, which stay when no rule is given.
fn newest_manual(all: &[StepRow]) -> HashSet<StepId> {
    let manual =
        all.iter().filter(|stored| stored.trigger == Some(Trigger::Manual) && stored.hidden_by.is_none());
    manual.take(KEPT_MANUAL).map(|stored| stored.step.id).collect()
}

fn age_in_days(at: Timestamp, now: Timestamp) -> u64 {
    u64::try_from((now.as_micros() - at.as_micros()) / 86_400_000_000).unwrap_or(0)
}
