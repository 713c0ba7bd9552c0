//! Merges a branch into the present one: what changed on the branch since the two diverged is applied to the workspace, three
//! ways. It is planned, shown, saved and undone like a rewind.
//!
//! A path that both sides changed in ways that do not fit together stays as it is here and is listed with the reason: a merge
//! never writes conflict markers into a file.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::json;
use stepback_model::ids::StepId;
use stepback_model::record::{OpStatus, Operation, StepRow};

use crate::branch::BranchError;
use crate::diff;
use crate::error::EngineError;
use crate::restore_plan::outside_link_warnings;
use crate::revert::{Reverter, TreeLookup};
use crate::rewind::PreparedRewind;
use crate::workspace::{StoreSource, Workspace, describe_checkpoint};

/// A merge that is in force.
struct BranchMerge {
    branch: String,
    /// The newest step that was merged.
    tip: StepId,
    /// The step that the merge created.
    after: StepId,
}

/// How the summary of a merge begins; its detail says what was merged.
const SUMMARY: &str = "merge branch ";

/// Whether this is the summary of a merge, and of the step that it created.
pub(crate) fn is_merge_summary(summary: &str) -> bool {
    summary.starts_with(SUMMARY)
}

impl Workspace {
    /// Plans to merge a branch into the present one. Changes nothing.
    pub(crate) fn prepare_merge(&self, name: &str) -> Result<PreparedRewind, EngineError> {
        let tip = self.require_branch_tip(name)?;
        let current = self.present_branch()?;
        if current == name {
            return Err(BranchError::MergeIntoItself(current).into());
        }
        let lock = self.lock_exclusive()?;
        let present = self.scan_and_commit(false)?;
        let Some(fork) = self.find_merge_base(name, &self.head()?, &tip)? else {
            return Err(BranchError::Unrelated { name: name.to_owned(), current }.into());
        };
        let (base, theirs) = (self.load_state(&fork)?, self.load_state(&tip)?);
        let source = StoreSource(self.store());
        let batch = self.store().begin()?;
        let mut reverter = Reverter::new(&source, &*batch, present.state.files);
        // To apply what led from the fork to the branch is to take back what would lead from the branch to the fork.
        for change in diff::compare_visible_files(self.store(), &theirs, &base)? {
            reverter.take_back_visible(&change, &mut TreeLookup::new(&source, theirs.files))?;
        }
        let mut plan = reverter.finish(&mut TreeLookup::new(&source, theirs.files))?;
        self.store().commit(Some(batch.finish()?), &[])?;
        self.complete_databases(&mut plan, present.state.files, &|_| theirs.files, &|_| false)?;
        for left in plan.left_alone.iter_mut().filter(|left| left.is_conflict()) {
            left.reason = match left.reason.as_str() {
                "later edits touch the same lines" => "both branches changed the same lines".into(),
                "it was deleted since" => format!("it was deleted here and changed on {name}"),
                "it was edited since" => format!("it was changed here and deleted on {name}"),
                "it is something else now" => "both branches created it, with different content".into(),
                other => other.into(),
            };
        }
        let unchanged_because = plan.is_empty().then(|| match plan.left_alone.is_empty() {
            true => format!("everything that changed on {name} since {} is here", describe_checkpoint(&fork)),
            false => format!("what changed on {name} is skipped for the reasons listed"),
        });
        let detail = self.store_detail(&json!({ "merged": { "branch": name, "tip": tip.step.id } }))?;
        let warnings = outside_link_warnings(&plan);
        let summary = format!("{SUMMARY}{name}");
        let prepared = self.new_prepared_rewind(plan, warnings, summary, false, None, Some(detail))?;
        Ok(PreparedRewind { present, lock: Some(lock), unchanged_because, ..prepared })
    }

    /// Returns the checkpoint from which the changes of a branch are merged: what was merged into the present line last, else
    /// the newest checkpoint that both lines have.
    fn find_merge_base(
        &self,
        name: &str,
        head: &StepRow,
        tip: &StepRow,
    ) -> Result<Option<StepRow>, EngineError> {
        let (ours, theirs) = (self.ancestry(head)?, self.ancestry(tip)?);
        let is_ours = |id: StepId| ours.iter().any(|stored| stored.step.id == id);
        let merges = self.merges()?;
        let merged = merges.iter().filter(|merge| merge.branch == name && is_ours(merge.after));
        for merge in merged {
            if let Some(base) = theirs.iter().find(|stored| stored.step.id == merge.tip) {
                return Ok(Some(base.clone()));
            }
        }
        let theirs: HashSet<StepId> = theirs.iter().map(|stored| stored.step.id).collect();
        Ok(ours.into_iter().find(|stored| theirs.contains(&stored.step.id)))
    }

    /// Returns the branches that were merged, each with the newest step that was merged. A merge that was undone does not
    /// count.
    pub fn merged_branches(&self) -> Result<HashMap<String, StepId>, EngineError> {
        let mut merged = HashMap::new();
        for merge in self.merges()? {
            merged.entry(merge.branch).or_insert(merge.tip);
        }
        Ok(merged)
    }

    /// Returns the merges that were not undone, newest first.
    fn merges(&self) -> Result<Vec<BranchMerge>, EngineError> {
        let is_merge = |operation: &&Operation| {
            operation.status == OpStatus::Done && !operation.undone && operation.summary.starts_with(SUMMARY)
        };
        let mut merges = Vec::new();
        for operation in self.operations()?.iter().filter(is_merge) {
            let Some(after) = operation.action.moved().map(|moved| moved.after) else { continue };
            let Some(step) = self.store().step(after)? else { continue };
            let detail = self.load_detail(&step.step)?.unwrap_or_default();
            let branch = detail["merged"]["branch"].as_str();
            if let (Some(branch), Ok(tip)) = (branch, StepId::deserialize(&detail["merged"]["tip"])) {
                merges.push(BranchMerge { branch: branch.to_owned(), tip, after });
            }
        }
        Ok(merges)
    }
}
