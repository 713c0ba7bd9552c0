//! Pruning: which checkpoints are removed, when their bytes are freed, and how large the store is then.
//!
//! A prune hides checkpoints, which can be undone. The bytes of a hidden checkpoint are freed once it has been hidden for
//! [`UNDO_WINDOW`], or at once if the caller wants space now. Objects that a kept checkpoint needs are never freed:
//! collecting starts from what is kept. Every plan says what size results; `fit` chooses what goes for a given size.

mod fit;
mod kept;
mod needs;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use stepback_model::ids::{OpId, StepId};
use stepback_model::record::{Operation, OperationAction, WorkspaceRecord};
use stepback_model::time::Timestamp;
use stepback_store::Mutation;
use stepback_store::port::{StepRow, Swept};

use self::kept::newest_manual_checkpoints;
pub use self::kept::{is_kept_by_size, is_significant};
pub(crate) use self::kept::{moves_since, undo_window_start};
use crate::branch::MAIN;
use crate::error::EngineError;
use crate::workspace::Workspace;

/// How many of the newest manual checkpoints are kept when no rule is given; older ones follow the same rules as automatic
/// ones.
pub const KEPT_MANUAL: usize = 50;

/// How long a checkpoint that was hidden can be brought back by undo, and how long the states that an undo needs are kept.
pub const UNDO_WINDOW: Duration = Duration::from_secs(24 * 3600);

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
    /// Keep significant ones ([`is_significant`]) in addition to the other rules. Without other rules they are kept anyway.
    pub keep_significant: bool,
    /// Delete the branches whose tips are oldest until the workspace has this many. The current branch and `main` stay.
    pub max_branches: Option<usize>,
    /// Remove automatic checkpoints, the oldest first, until the store has at most this many bytes. What the rules above keep
    /// stays. Only checkpoints older than [`UNDO_WINDOW`] are removed, unless `now` is set.
    pub max_size: Option<u64>,
    /// Free the bytes of everything hidden at once, so that it cannot be undone.
    pub now: bool,
}

/// A planned prune.
#[derive(Debug)]
pub struct PrunePlan {
    /// Checkpoints that will be hidden, newest first.
    pub hide: Vec<StepRow>,
    /// Checkpoints whose bytes will be freed: hidden earlier, or now.
    pub purge: Vec<StepId>,
    /// Branches that will be deleted, the one with the oldest tip first.
    pub branches: Vec<String>,
    /// Forgotten workspaces that can come back now, and not after it.
    pub forgotten: Vec<WorkspaceRecord>,
    /// How many checkpoints stay.
    pub keep: usize,
    /// Bytes of the store now.
    pub size_before: u64,
    /// Bytes of the store when the plan has been carried out.
    pub size_after: u64,
    now: bool,
}

/// The result of a prune.
#[derive(Debug)]
pub struct Pruned {
    /// The operation, if checkpoints were hidden.
    pub operation: Option<Operation>,
    /// How many checkpoints were hidden.
    pub hidden: usize,
    /// How many of these can be brought back by undo.
    pub undoable: usize,
    /// How many checkpoints are left.
    pub kept: usize,
    /// The branches that were deleted, each by an operation that can be undone.
    pub branches: Vec<String>,
    /// Forgotten workspaces that it freed: they cannot come back.
    pub forgotten: Vec<WorkspaceRecord>,
    /// How many reruns had the states of their own workspaces freed; their branches stay.
    pub reruns: usize,
    /// The objects and bytes that were freed.
    pub swept: Swept,
    /// Bytes of the store now.
    pub size_after: u64,
}

impl Workspace {
    /// Plans a prune and changes nothing. Fails with [`EngineError::CannotFit`] if the size of the rules cannot be reached.
    pub fn plan_prune(&self, rules: Rules) -> Result<PrunePlan, EngineError> {
        let checkpoints = self.store().checkpoints(self.record.id)?;
        let operations = self.operations()?;
        let branches = self.find_excess_branches(rules.max_branches)?;
        let protected = self.protected_checkpoints(&operations)?;
        let window_start = undo_window_start(self.engine.env.now());
        // What is hidden within the window is not freed, so hiding it harms no undo; freeing it would.
        let needed_by_undo =
            moves_since(&operations, if rules.now { Timestamp::from_micros(i64::MAX) } else { window_start });
        let hide: Vec<&StepRow> = self
            .find_removable(&rules, &checkpoints)
            .into_iter()
            .filter(|stored| !protected.contains(&stored.step.id))
            .collect();
        let stays: HashSet<StepId> = protected.union(&needed_by_undo).copied().collect();
        let past = if rules.now { Timestamp::from_micros(i64::MAX) } else { window_start };
        let mut purge = self.find_expired(&checkpoints, &operations, &stays, past);
        if rules.now {
            purge.extend(hide.iter().map(|stored| stored.step.id));
        }
        let candidates = match rules.max_size {
            Some(_) => size_candidates(&rules, &checkpoints, &hide, |id| stays.contains(id), window_start),
            None => Vec::new(),
        };
        let sizes = fit::PruneSizes::measure(self, &hide, &purge, &candidates, rules.now)?;
        let size_before = self.store().usage()?.total_bytes;
        let (count, size_after) = match rules.max_size {
            Some(limit) => sizes.smallest_removal(limit)?,
            None => (0, sizes.size_after(0)?),
        };
        let removed: HashSet<StepId> = candidates[..count].iter().map(|stored| stored.step.id).collect();
        let hidden: HashSet<StepId> =
            hide.iter().map(|stored| stored.step.id).chain(removed.iter().copied()).collect();
        purge.extend(removed);
        let is_visible = |stored: &&StepRow| stored.hidden_by.is_none();
        let hide: Vec<StepRow> = checkpoints
            .iter()
            .filter(is_visible)
            .filter(|row| hidden.contains(&row.step.id))
            .cloned()
            .collect();
        let keep = checkpoints.iter().filter(is_visible).count() - hide.len();
        let forgotten = self.engine.restorable_workspaces()?;
        Ok(PrunePlan { branches, forgotten, keep, hide, purge, size_before, size_after, now: rules.now })
    }

    /// The checkpoints that were hidden before `start` and whose bytes were not freed yet, except those that stay.
    pub(crate) fn find_expired(
        &self,
        checkpoints: &[StepRow],
        operations: &[Operation],
        stays: &HashSet<StepId>,
        start: Timestamp,
    ) -> Vec<StepId> {
        let hidden_at: HashMap<OpId, Timestamp> = operations.iter().map(|op| (op.id, op.at)).collect();
        let is_expired = |stored: &StepRow| {
            let hidden_by = stored.hidden_by.filter(|_| !stored.purged);
            hidden_by.is_some_and(|op| hidden_at.get(&op).is_none_or(|time| *time < start))
        };
        let hidden = checkpoints.iter().filter(|stored| is_expired(stored));
        hidden.map(|stored| stored.step.id).filter(|id| !stays.contains(id)).collect()
    }

    /// The branches beyond `most`, the one with the oldest tip first. The current branch and `main` are not among them.
    fn find_excess_branches(&self, most: Option<usize>) -> Result<Vec<String>, EngineError> {
        let Some(most) = most else { return Ok(Vec::new()) };
        let mut branches = self.branches()?;
        let excess = branches.len().saturating_sub(most);
        branches.retain(|branch| !branch.present && branch.name != MAIN);
        branches.sort_by_key(|branch| (branch.tip.step.at, branch.tip.step.number));
        Ok(branches.into_iter().take(excess).map(|branch| branch.name).collect())
    }

    /// The visible checkpoints that no rule keeps.
    fn find_removable<'a>(&self, rules: &Rules, checkpoints: &'a [StepRow]) -> Vec<&'a StepRow> {
        let manual = newest_manual_checkpoints(checkpoints);
        let now = self.engine.env.now();
        let only_size = rules.max_size.is_some() && rules.keep_last.is_none() && rules.keep_days.is_none();
        let mut hours: HashSet<i64> = HashSet::new();
        let visible = checkpoints.iter().filter(|stored| stored.hidden_by.is_none());
        let mut is_kept = |(index, stored): &(usize, &StepRow)| {
            let step = &stored.step;
            let first_of_hour = hours.insert(step.at.as_micros() / HOUR);
            match (rules.keep_last, rules.keep_days) {
                // The default rules: keep manual and significant checkpoints, everything of the last hour, then one per hour.
                (None, None) => {
                    only_size
                        || manual.contains(&step.id)
                        || is_significant(stored)
                        || first_of_hour
                        || now.as_micros() - step.at.as_micros() < HOUR
                }
                (last, days) => {
                    last.is_some_and(|count| *index < count)
                        || (rules.keep_manual && manual.contains(&step.id))
                        || (rules.keep_significant && is_significant(stored))
                        || days.is_some_and(|days| age_in_days(step.at, now) < days)
                }
            }
        };
        visible.enumerate().filter(|item| !is_kept(item)).map(|(_, stored)| stored).collect()
    }

    /// Carries out a planned prune.
    pub fn prune(&self, plan: PrunePlan) -> Result<Pruned, EngineError> {
        // Other processes may have recorded more since the plan was made: what they need now stays.
        let lock = self.lock_exclusive()?;
        let size_before = self.store().usage()?.total_bytes;
        let checkpoints = self.store().checkpoints(self.record.id)?;
        let protected = self.protected_checkpoints(&self.operations()?)?;
        let mut purge = plan.purge;
        purge.retain(|step| !protected.contains(step));
        let planned: HashSet<StepId> = plan.hide.iter().map(|stored| stored.step.id).collect();
        let steps: Vec<StepId> = checkpoints
            .iter()
            .filter(|stored| stored.hidden_by.is_none())
            .map(|stored| stored.step.id)
            .filter(|step| planned.contains(step) && !protected.contains(step))
            .collect();
        let freed: HashSet<&StepId> = purge.iter().collect();
        let undoable = steps.iter().filter(|step| !freed.contains(step)).count();
        let hidden = steps.len();
        let (mutations, operation) = self.prune_mutations(steps, purge);
        self.store().commit(None, &mutations)?;
        drop(lock);
        let mut branches = Vec::new();
        for name in plan.branches {
            // Switched to or deleted since the plan was made.
            match self.delete_branch(&name) {
                Err(EngineError::Branch(_)) => {}
                deleted => {
                    deleted?;
                    branches.push(name);
                }
            }
        }
        let reruns = self.engine.discard_reruns(plan.now)?;
        let mut forgotten = self.engine.restorable_workspaces()?;
        let mut swept = self.engine.collect_garbage()?;
        // Brought back meanwhile.
        let all = self.store().forgotten_workspaces()?;
        forgotten.retain(|record| all.iter().any(|known| known.id == record.id && known.is_freed()));
        let size_after = self.store().usage()?.total_bytes;
        swept.bytes = size_before.saturating_sub(size_after);
        let kept = self.checkpoints()?.len();
        Ok(Pruned { operation, hidden, undoable, branches, forgotten, kept, reruns, swept, size_after })
    }

    /// The changes of the log that hide `steps` and free `purge`, and the operation that is recorded.
    fn prune_mutations(&self, steps: Vec<StepId>, purge: Vec<StepId>) -> (Vec<Mutation>, Option<Operation>) {
        let mut mutations = Vec::new();
        let mut operation = None;
        if !steps.is_empty() {
            let count = steps.len();
            let record = self.new_operation(
                format!("prune {count} checkpoint{}", if count == 1 { "" } else { "s" }),
                OperationAction::Prune { steps: steps.clone(), freed: false },
            );
            mutations.push(Mutation::SetHidden { steps, by: Some(record.id) });
            mutations.push(Mutation::AppendOp(record.clone()));
            operation = Some(record);
        }
        mutations.push(Mutation::Purge { steps: purge });
        (mutations, operation)
    }
}

/// The checkpoints that may go to reach a size, in the order in which they go: automatic ones without label, note or tag,
/// the oldest first.
fn size_candidates<'a>(
    rules: &Rules,
    checkpoints: &'a [StepRow],
    hide: &[&'a StepRow],
    stays: impl Fn(&StepId) -> bool,
    window_start: Timestamp,
) -> Vec<&'a StepRow> {
    let has_rules = rules.keep_last.is_some() || rules.keep_days.is_some();
    let not_kept: HashSet<StepId> = hide.iter().map(|stored| stored.step.id).collect();
    let is_candidate = |stored: &&StepRow| {
        let id = stored.step.id;
        stored.hidden_by.is_none()
            && !is_kept_by_size(stored)
            && !stays(&id)
            && (!has_rules || not_kept.contains(&id))
            && (rules.now || stored.step.at < window_start)
    };
    checkpoints.iter().rev().filter(is_candidate).collect()
}

fn age_in_days(time: Timestamp, now: Timestamp) -> u64 {
    u64::try_from((now.as_micros() - time.as_micros()) / 86_400_000_000).unwrap_or(0)
}
