//! Plans how to restore a past state, wherever that is possible and safe.

use std::collections::BTreeSet;

use stepback_model::change::PathChange;
use stepback_model::path::RelPath;
use stepback_model::plan::{How, PlannedChange, RewindPlan, SkippedPath};
use stepback_model::tree::{SkipReason, TreeNode};

use crate::git_restore::{add_ancestors, removes_newer_object};

/// Returns a plan that restores the target of `changes` (`after`), wherever that is possible and safe.
pub(crate) fn plan_restore(changes: Vec<PathChange>) -> RewindPlan {
    let mut plan = RewindPlan::default();
    // Directories that hold something not stored must not be removed or replaced.
    let mut protected = BTreeSet::new();
    // Those that hold git objects which stay are not removed either.
    let mut with_objects = BTreeSet::new();
    for change in &changes {
        if matches!(change.before, Some(TreeNode::Skipped { .. })) {
            add_ancestors(&change.path, &mut protected);
        }
        if removes_newer_object(&change.path, change.before.as_ref(), change.after.as_ref()) {
            add_ancestors(&change.path, &mut with_objects);
        }
    }
    // If a directory is or was not covered, nothing is known about its content on that side.
    let uncovered: BTreeSet<RelPath> = (changes.iter())
        .filter(|change| {
            let skipped = |node: &Option<TreeNode>| matches!(node, Some(TreeNode::Skipped { .. }));
            (skipped(&change.before) || skipped(&change.after))
                && change.before.is_some()
                && change.after.is_some()
        })
        .map(|change| change.path.clone())
        .collect();
    let is_inside_uncovered = |path: &RelPath| {
        let mut ancestor = path.split_last().map(|(parent, _)| parent);
        while let Some(dir) = ancestor {
            if uncovered.contains(&dir) {
                return true;
            }
            ancestor = dir.split_last().map(|(parent, _)| parent);
        }
        false
    };
    for change in changes {
        let PathChange { path, before: now, after: then, .. } = change;
        if is_inside_uncovered(&path) {
            continue;
        }
        let leave = |skipped: SkipReason, explanation: &str| {
            let reason = format!("{explanation} ({})", skipped.describe());
            // Pipes and sockets are created and removed by the processes that use them.
            let is_expected = skipped.is_by_rule() || (now.is_none() && skipped != SkipReason::Unstable);
            match is_expected {
                true => SkippedPath::uncovered(path.clone(), reason),
                false => SkippedPath::conflict(path.clone(), reason),
            }
        };
        match (&now, &then) {
            // The marker of a git directory: the directory itself is restored separately.
            (Some(TreeNode::Skipped { reason: SkipReason::GitDir }), None)
            | (None, Some(TreeNode::Skipped { reason: SkipReason::GitDir })) => {}
            (Some(TreeNode::Skipped { .. }), None | Some(TreeNode::Skipped { .. })) => {}
            (Some(TreeNode::Skipped { reason }), Some(_)) => {
                plan.left_alone.push(leave(*reason, "its current content is not covered"));
            }
            (None, Some(TreeNode::Skipped { reason })) => {
                plan.left_alone.push(leave(*reason, "it was not covered at that point"));
            }
            (Some(_), Some(TreeNode::Skipped { reason })) => {
                plan.left_alone.push(leave(*reason, "its content was not covered at that point"));
            }
            (Some(TreeNode::Dir { .. }), None) if with_objects.contains(&path) => {}
            (Some(TreeNode::Dir { .. }), then)
                if !then.as_ref().is_some_and(TreeNode::is_dir) && protected.contains(&path) =>
            {
                plan.left_alone.push(SkippedPath::uncovered(path, "it contains files that are not covered"));
            }
            // Later git objects do no harm and may be needed.
            (Some(_), None) if removes_newer_object(&path, now.as_ref(), None) => {}
            _ => plan.changes.push(PlannedChange { path, now, then, how: How::Restored }),
        }
    }
    plan
}

/// Returns the changes that match, and those that restore the directories they need.
pub(crate) fn filter_changes(
    changes: Vec<PathChange>,
    matches: &dyn Fn(&PathChange) -> bool,
) -> Vec<PathChange> {
    let mut needed = std::collections::HashSet::new();
    for change in changes.iter().filter(|change| change.after.is_some() && matches(change)) {
        let mut ancestor = change.path.split_last().map(|(parent, _)| parent);
        while let Some(dir) = ancestor.filter(|dir| !dir.is_root()) {
            ancestor = dir.split_last().map(|(parent, _)| parent);
            needed.insert(dir);
        }
    }
    let comes_back = |change: &PathChange| change.before.is_none() && needed.contains(&change.path);
    changes.into_iter().filter(|change| matches(change) || comes_back(change)).collect()
}

/// Whether `path` is a git directory itself.
pub(crate) fn is_git_dir(path: &RelPath) -> bool {
    path.components().position(|name| name == b".git") == path.depth().checked_sub(1)
}

/// Returns a warning for every link about to be restored that leads out of the workspace.
pub(crate) fn outside_link_warnings(plan: &RewindPlan) -> Vec<String> {
    let leads_out = |path: &RelPath, target: &[u8]| {
        let mut depth = path.depth() as i64 - 1;
        target.starts_with(b"/")
            || target.split(|byte| *byte == b'/').any(|part| {
                match part {
                    b".." => depth -= 1,
                    b"" | b"." => {}
                    _ => depth += 1,
                }
                depth < 0
            })
    };
    let links = plan.changes.iter().filter_map(|change| match &change.then {
        Some(TreeNode::Symlink { target }) if leads_out(&change.path, target) => {
            let target = stepback_model::path::display_bytes(target);
            Some(format!("the link {} points outside the workspace, to {target}", change.path))
        }
        _ => None,
    });
    links.collect()
}
