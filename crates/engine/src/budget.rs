//! The disk budget: how large the store may become, and which checkpoints go so that it stays below.
//!
//! Other than a prune that a user asks for, this concerns the whole store: the oldest automatic checkpoints go first, whatever
//! workspace they are in, and their bytes are freed at once. What a user would miss stays: manual and significant checkpoints,
//! those with a label, a note or a tag, heads and tips of branches, and what an undo of the last 24 hours needs.
//!
//! Pruning begins below the budget ([`starts_at`]), so that the store stays within it while hooks go on recording. How much
//! goes is estimated from the sizes of objects, and measured afterwards: unlike an exact preview, this keeps no other process
//! from writing.

mod estimate;

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use stepback_model::ids::{StepId, WorkspaceId};
use stepback_model::quantity;
use stepback_model::record::OperationAction;
use stepback_model::time::Timestamp;
use stepback_store::port::StepRow;
use stepback_store::{Mutation, StoreError};

use self::estimate::SizeEstimate;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::prune::{is_kept_by_size, moves_since, undo_window_start};
use crate::workspace::Workspace;

/// At which share of the budget a pruning begins, in percent.
const START_PERCENT: u64 = 80;
/// The shares of the budget that a pruning tries to reach, in percent: the first one that can be reached.
const GOAL_PERCENTS: [u64; 3] = [70, 80, 95];
/// How often a pruning removes more because the estimate was wrong.
const MAX_ROUNDS: usize = 12;

/// The size at which a pruning begins.
pub fn starts_at(budget: u64) -> u64 {
    share(budget, START_PERCENT)
}

/// The size that a pruning tries to reach, if it can reach any.
fn find_goal(budget: u64, smallest: u64) -> Option<u64> {
    GOAL_PERCENTS.into_iter().map(|percent| share(budget, percent)).find(|goal| smallest <= *goal)
}

fn share(budget: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(budget) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// A checkpoint that goes.
#[derive(Clone, Debug)]
pub struct Removal {
    /// The workspace it is in.
    pub workspace: WorkspaceId,
    /// The checkpoint.
    pub stored: StepRow,
}

/// What a pruning would take.
#[derive(Debug)]
pub struct BudgetPlan {
    /// The budget in bytes.
    pub budget: u64,
    /// Bytes of the store now.
    pub size_before: u64,
    /// Bytes of the store afterwards, as far as it can be estimated.
    pub size_after: u64,
    /// The checkpoints that go, the oldest first.
    pub removals: Vec<Removal>,
    /// The checkpoints that were hidden so long ago that undo cannot bring them back; their bytes are freed too.
    pub expired: Vec<StepId>,
    /// Whether the store will be within its budget.
    pub fits: bool,
    /// The smallest size that can be reached, estimated.
    pub smallest: u64,
}

/// What a pruning did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BudgetReport {
    /// The budget in bytes.
    pub budget: u64,
    /// Bytes of the store before.
    pub size_before: u64,
    /// Bytes of the store now.
    pub size_after: u64,
    /// How many checkpoints were removed.
    pub checkpoints: u64,
    /// How many objects were freed.
    pub objects: u64,
    /// Whether the store is within its budget.
    pub fits: bool,
    /// The size at which the next pruning is worth while.
    pub next_at: u64,
}

/// The checkpoints of a store by what the budget does to them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct BudgetOutlook {
    /// Automatic checkpoints that may go.
    pub removable: u64,
    /// Checkpoints that never go by size.
    pub kept: u64,
    /// The one that goes first.
    pub first: Option<StepId>,
    /// When it was made.
    pub first_at: Option<Timestamp>,
}

/// What may go, the oldest first, and what each of it needs.
struct Choice {
    removals: Vec<Removal>,
    expired: Vec<StepId>,
    estimate: SizeEstimate,
}

/// A workspace with what the budget may take from it.
struct Place {
    workspace: Workspace,
    /// Visible checkpoints that may go, newest first.
    removable: Vec<StepRow>,
    /// Hidden checkpoints whose bytes may be freed.
    expired: Vec<StepId>,
    /// How many visible checkpoints there are.
    visible: u64,
}

impl Engine {
    /// Plans what a pruning for `budget` bytes would take. Changes nothing. If the store is so small that no pruning would
    /// begin, it is planned as if the store had the size at which one does.
    pub fn plan_budget(&self, budget: u64) -> Result<BudgetPlan, EngineError> {
        self.plan_again_after_races(|| {
            let choice = self.budget_choice()?;
            let size_before = self.store.usage()?.total_bytes;
            // A pruning frees what nothing needs before it removes anything.
            let collected = self.store.usage_after(&[], choice.estimate.needed())?.total_bytes;
            let from = if size_before < starts_at(budget) { starts_at(budget) } else { collected };
            let plan = self.plan_removals(choice, budget, from)?;
            Ok(BudgetPlan { size_before, ..plan })
        })
    }

    /// Determines what may go and what each of it needs.
    fn budget_choice(&self) -> Result<Choice, EngineError> {
        let mut removals: Vec<Removal> = Vec::new();
        let mut expired = Vec::new();
        for place in self.budget_places()? {
            let workspace = place.workspace.record.id;
            removals.extend(place.removable.into_iter().map(|stored| Removal { workspace, stored }));
            expired.extend(place.expired);
        }
        removals
            .sort_by_key(|removal| (removal.stored.step.at, removal.workspace, removal.stored.step.number));
        let mut freed: HashSet<StepId> = expired.iter().copied().collect();
        for (_, steps) in self.discardable_reruns(false)? {
            freed.extend(steps);
        }
        let candidates: Vec<&StepRow> = removals.iter().map(|removal| &removal.stored).collect();
        let estimate = SizeEstimate::new(self, &freed, &candidates)?;
        Ok(Choice { removals, expired, estimate })
    }

    /// Plans for a store that has `from` bytes when the plan is carried out, without what nothing needs.
    fn plan_removals(&self, choice: Choice, budget: u64, from: u64) -> Result<BudgetPlan, EngineError> {
        let Choice { mut removals, expired, estimate } = choice;
        let size_after =
            |count| -> Result<u64, EngineError> { Ok(from.saturating_sub(estimate.freed(count)?)) };
        let smallest = size_after(removals.len())?;
        let goal = find_goal(budget, smallest);
        let count = match goal {
            Some(goal) => first_that(removals.len(), |count| Ok(size_after(count)? <= goal))?,
            // It cannot be reached, so the latest work is not given up for it.
            None => {
                let start = undo_window_start(self.env.now());
                removals.partition_point(|removal| removal.stored.step.at < start)
            }
        };
        let size_after = size_after(count)?;
        removals.truncate(count);
        let fits = goal.is_some();
        Ok(BudgetPlan { budget, size_before: from, size_after, removals, expired, fits, smallest })
    }

    /// Repeats a plan that read what another process freed meanwhile.
    fn plan_again_after_races<T>(&self, plan: impl Fn() -> Result<T, EngineError>) -> Result<T, EngineError> {
        let mut generation = self.store.gc_generation()?;
        loop {
            let error = match plan() {
                Err(error @ EngineError::Store(StoreError::Corrupt { .. } | StoreError::Object(_))) => error,
                planned => return planned,
            };
            let now = self.store.gc_generation()?;
            if now == generation {
                return Err(error);
            }
            generation = now;
        }
    }

    /// Says which checkpoints may go and which are kept, without looking at their content.
    pub fn budget_outlook(&self) -> Result<BudgetOutlook, EngineError> {
        let mut outlook = BudgetOutlook::default();
        let mut first: Option<StepRow> = None;
        for place in self.budget_places()? {
            outlook.removable += place.removable.len() as u64;
            outlook.kept += place.visible - place.removable.len() as u64;
            if let Some(oldest) = place.removable.last()
                && first.as_ref().is_none_or(|first| oldest.step.at < first.step.at)
            {
                first = Some(oldest.clone());
            }
        }
        outlook.first = first.as_ref().map(|stored| stored.step.id);
        outlook.first_at = first.map(|stored| stored.step.at);
        Ok(outlook)
    }

    /// Removes checkpoints until the store is within `budget` bytes, if it has reached [`starts_at`]. What nothing needs is
    /// freed first. If the store cannot be within its budget, only what is older than the undo window goes, and the report
    /// says so.
    pub fn enforce_budget(&self, budget: u64) -> Result<BudgetReport, EngineError> {
        let size_before = self.store.usage()?.total_bytes;
        let mut report =
            BudgetReport { budget, size_before, size_after: size_before, ..BudgetReport::default() };
        let mut goal = share(budget, GOAL_PERCENTS[0]);
        if size_before >= starts_at(budget) {
            self.discard_reruns(false)?;
            report.objects += self.collect_garbage()?.objects;
            report.size_after = self.store.usage()?.total_bytes;
            for _ in 0..MAX_ROUNDS {
                if report.size_after <= goal {
                    break;
                }
                let from = report.size_after;
                let plan =
                    self.plan_again_after_races(|| self.plan_removals(self.budget_choice()?, budget, from))?;
                goal = find_goal(budget, plan.smallest).unwrap_or(budget);
                let (removed, purged) = self.apply_budget(plan)?;
                report.checkpoints += removed;
                if purged == 0 {
                    break;
                }
                report.objects += self.collect_garbage()?.objects;
                report.size_after = self.store.usage()?.total_bytes;
            }
        }
        report.fits = report.size_after <= budget;
        // Not again before the store has grown by a tenth.
        let room = share(budget, 10).max(report.size_after / 10).max(1);
        report.next_at = match report.fits {
            true => report.size_after.max(goal).saturating_add(room).clamp(starts_at(budget), budget),
            false => report.size_after.saturating_add(room),
        };
        Ok(report)
    }

    /// Carries out a plan, except for freeing the bytes. Returns how many checkpoints were removed, and how many can be freed.
    fn apply_budget(&self, plan: BudgetPlan) -> Result<(u64, usize), EngineError> {
        let mut by_workspace: HashMap<WorkspaceId, HashSet<StepId>> = HashMap::new();
        for removal in &plan.removals {
            by_workspace.entry(removal.workspace).or_default().insert(removal.stored.step.id);
        }
        let expired: HashSet<StepId> = plan.expired.into_iter().collect();
        let (mut removed, mut purged) = (0, 0);
        for workspace in self.budget_workspaces()? {
            let planned = by_workspace.remove(&workspace.record.id).unwrap_or_default();
            // A workspace whose files are being changed is left for the next time.
            let _lock = match workspace.lock_exclusive() {
                Err(EngineError::Busy { .. }) => continue,
                lock => lock?,
            };
            // Other processes may have recorded, marked or moved more since the plan was made.
            let place = workspace.budget_place()?;
            let steps: Vec<StepId> = place.removable.iter().map(|stored| stored.step.id).collect();
            let steps: Vec<StepId> = steps.into_iter().filter(|step| planned.contains(step)).collect();
            let freed = place.expired.into_iter().filter(|step| expired.contains(step));
            let purge: Vec<StepId> = steps.iter().copied().chain(freed).collect();
            if purge.is_empty() {
                continue;
            }
            let mut mutations = Vec::new();
            if !steps.is_empty() {
                let summary = format!(
                    "prune {} for the disk budget",
                    quantity::count(steps.len() as u64, "checkpoint")
                );
                let action = OperationAction::Prune { steps: steps.clone(), freed: true };
                let operation = workspace.new_operation(summary, action);
                removed += steps.len() as u64;
                mutations.push(Mutation::SetHidden { steps, by: Some(operation.id) });
                mutations.push(Mutation::AppendOp(operation));
            }
            purged += purge.len();
            mutations.push(Mutation::Purge { steps: purge });
            self.store.commit(None, &mutations)?;
        }
        Ok((removed, purged))
    }

    /// The workspaces that the budget takes from: those of users, with files on this machine.
    fn budget_workspaces(&self) -> Result<Vec<Workspace>, EngineError> {
        let mut workspaces = self.all_workspaces()?;
        workspaces
            .retain(|workspace| !workspace.record.is_rerun() && workspace.record.remote_name().is_none());
        Ok(workspaces)
    }

    fn budget_places(&self) -> Result<Vec<Place>, EngineError> {
        self.budget_workspaces()?.iter().map(Workspace::budget_place).collect()
    }
}

impl Workspace {
    fn budget_place(&self) -> Result<Place, EngineError> {
        let checkpoints = self.store().checkpoints(self.record.id)?;
        let operations = self.operations()?;
        let start = undo_window_start(self.engine.env.now());
        let mut stays = self.protected_checkpoints(&operations)?;
        stays.extend(moves_since(&operations, start));
        let expired = self.find_expired(&checkpoints, &operations, &stays, start);
        let visible = checkpoints.iter().filter(|stored| stored.hidden_by.is_none()).count() as u64;
        let mut removable = checkpoints;
        removable.retain(|stored| {
            stored.hidden_by.is_none() && !is_kept_by_size(stored) && !stays.contains(&stored.step.id)
        });
        Ok(Place { workspace: self.clone(), removable, expired, visible })
    }
}

/// The smallest number up to `most` for which `holds`, which holds for all larger ones too; `most` if it holds for none.
fn first_that(
    most: usize,
    mut holds: impl FnMut(usize) -> Result<bool, EngineError>,
) -> Result<usize, EngineError> {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}
