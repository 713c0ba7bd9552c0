//! Merges a branch into the present one: what changed on the branch since the two diverged is applied to the workspace, three
//! ways. It is planned, shown, saved and undone like a rewind.
//!
//! A path that both sides changed in ways that do not fit together is a conflict. Conflicts are data: the plan lists each with
//! its three versions, the file stays as it is here, and the step of the merge keeps the list. Only a user who asks for them gets
//! conflict markers in text files.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::{Value, json};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::StepId;
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::path::RelPath;
use stepback_model::plan::{How, RewindPlan};
use stepback_model::quantity;
use stepback_model::record::{OpStatus, Operation, StepRow};
use stepback_model::tree::{Content, TreeNode};

use crate::branch::BranchError;
use crate::diff;
use crate::error::EngineError;
use crate::restore_plan::outside_link_warnings;
use crate::revert::{Reverter, TreeLookup};
use crate::rewind::PreparedRewind;
use crate::workspace::{StoreSource, Workspace, describe_checkpoint};

/// A path that both branches changed in ways that do not fit together.
#[derive(Clone, PartialEq, Debug)]
pub struct MergeConflict {
    /// The path.
    pub path: RelPath,
    /// Why the versions do not fit together, as a phrase.
    pub reason: String,
    /// What was there where the branches diverged.
    pub base: Option<TreeNode>,
    /// What is there on the present branch.
    pub ours: Option<TreeNode>,
    /// What is there on the branch that is merged.
    pub theirs: Option<TreeNode>,
    /// Whether conflict markers show both versions in the file; otherwise it stays as it is.
    pub is_marked: bool,
}

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
    pub(crate) fn prepare_merge(&self, name: &str, markers: bool) -> Result<PreparedRewind, EngineError> {
        self.save_branch_directory(name)?;
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
        if markers {
            reverter = reverter.with_markers(current, format!("branch {name}"));
        }
        // To apply what led from the fork to the branch is to take back what would lead from the branch to the fork.
        for change in diff::compare_visible_files(self.store(), &theirs, &base)? {
            reverter.take_back_visible(&change, &mut TreeLookup::new(&source, theirs.files))?;
        }
        let mut plan = reverter.finish(&mut TreeLookup::new(&source, theirs.files))?;
        self.store().commit(Some(batch.finish()?), &[])?;
        self.complete_databases(&mut plan, present.state.files, &|_| theirs.files, &|_| false)?;
        let mut lookups = [present.state.files, theirs.files].map(|tree| TreeLookup::new(&source, tree));
        for left in plan.left_alone.iter_mut().filter(|left| left.is_conflict()) {
            left.reason = match left.reason.as_str() {
                "later edits touch the same lines" => {
                    let mut is_text = true;
                    for lookup in &mut lookups {
                        is_text &= is_text_file(&source, lookup.get(&left.path)?.as_ref())?;
                    }
                    let what = if is_text { "the same lines" } else { "it, and it has no lines to merge" };
                    format!("both branches changed {what}")
                }
                "it was deleted since" => format!("it was deleted here and changed on {name}"),
                "it was edited since" => format!("it was changed here and deleted on {name}"),
                "it is something else now" => "both branches created it, with different content".into(),
                other => other.into(),
            };
        }
        let conflicts = list_conflicts(&source, &plan, [base.files, present.state.files, theirs.files])?;
        let unchanged_because = plan.is_empty().then(|| match plan.left_alone.is_empty() {
            true => format!("everything that changed on {name} since {} is here", describe_checkpoint(&fork)),
            false => format!("what changed on {name} is skipped for the reasons listed"),
        });
        let listed: Vec<_> = conflicts.iter().map(describe_conflict).collect();
        let detail = self.store_detail(
            &json!({ "merged": { "branch": name, "tip": tip.step.id, "conflicts": listed } }),
        )?;
        let mut warnings = outside_link_warnings(&plan);
        let marked = conflicts.iter().filter(|conflict| conflict.is_marked).count() as u64;
        if marked > 0 {
            let files = quantity::count(marked, "file");
            warnings.push(format!("{files} will have conflict markers, which you have to resolve"));
        }
        let summary = format!("{SUMMARY}{name}");
        let prepared = self.new_prepared_rewind(plan, warnings, summary, false, None, Some(detail))?;
        Ok(PreparedRewind { present, lock: Some(lock), unchanged_because, conflicts, ..prepared })
    }

    /// Returns the checkpoint from which the changes of a branch are merged: what was merged into the present line last, else
    /// the newest checkpoint that both lines have.
    pub(crate) fn find_merge_base(
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

/// Whether a node is a file of text that can be merged line by line.
fn is_text_file(source: &StoreSource<'_>, node: Option<&TreeNode>) -> Result<bool, ObjectError> {
    let Some(TreeNode::File { content: Content::Whole(hash), .. }) = node else { return Ok(false) };
    Ok(!source.read(ObjectKind::Blob, *hash)?.contains(&0))
}

/// Returns the conflicts of a merge, with the versions that each path has in the three trees: where the branches diverged, here,
/// and on the branch.
fn list_conflicts(
    source: &StoreSource<'_>,
    plan: &RewindPlan,
    trees: [Option<Hash>; 3],
) -> Result<Vec<MergeConflict>, ObjectError> {
    let [mut base, mut ours, mut theirs] = trees.map(|tree| TreeLookup::new(source, tree));
    let left = plan.left_alone.iter().filter(|left| left.is_conflict());
    let left = left.map(|left| (&left.path, left.reason.as_str(), false));
    let marked = plan.changes.iter().filter(|change| change.how == How::Marked);
    let marked = marked.map(|change| (&change.path, "both branches changed the same lines", true));
    left.chain(marked)
        .map(|(path, reason, is_marked)| {
            Ok(MergeConflict {
                base: base.get(path)?,
                ours: ours.get(path)?,
                theirs: theirs.get(path)?,
                path: path.clone(),
                reason: reason.to_owned(),
                is_marked,
            })
        })
        .collect()
}

/// Describes a conflict for the record of the merge. The versions themselves are in the states on both sides.
fn describe_conflict(conflict: &MergeConflict) -> Value {
    json!({ "path": conflict.path, "reason": conflict.reason, "marked": conflict.is_marked })
}
