//! What restoring a git directory needs beyond restoring files: newer objects stay, directories that are no longer needed go,
//! and an object that is damaged does not keep the others from being restored.

use std::collections::{BTreeSet, HashSet};

use stepback_model::hash::ObjectKind;
use stepback_model::list;
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::path::RelPath;
use stepback_model::plan::{PlannedChange, RewindPlan, SkippedPath};
use stepback_model::tree::{Content, TreeNode};
use stepback_worktree::vault::{object_key, stays_if_newer};

use crate::diff;
use crate::error::EngineError;
use crate::workspace::{StoreSource, Workspace};

/// Whether a planned change would remove a file that belongs to git's objects, which stays.
pub(crate) fn removes_newer_object(path: &RelPath, now: Option<&TreeNode>, then: Option<&TreeNode>) -> bool {
    then.is_none() && now.is_some_and(|now| !now.is_dir()) && stays_if_newer(path)
}

/// Adds all directories above `path` to `dirs`.
pub(crate) fn add_ancestors(path: &RelPath, dirs: &mut BTreeSet<RelPath>) {
    let mut ancestor = path.split_last().map(|(parent, _)| parent);
    while let Some(dir) = ancestor {
        ancestor = dir.split_last().map(|(parent, _)| parent);
        if !dirs.insert(dir) {
            // Those above it were added together with it.
            return;
        }
    }
}

/// Drops from `plan` the removal of directories below the git directory `root` that contain something which stays.
pub(crate) fn keep_filled_dirs(
    source: &StoreSource<'_>,
    root: &RelPath,
    plan: &mut RewindPlan,
) -> Result<(), ObjectError> {
    let is_gone = |change: &&PlannedChange| change.then.as_ref().is_none_or(|then| !then.is_dir());
    let removed_paths: HashSet<&RelPath> =
        plan.changes.iter().filter(is_gone).map(|change| &change.path).collect();
    let mut filled = BTreeSet::new();
    for change in plan.changes.iter().filter(is_gone) {
        let Some(TreeNode::Dir { tree, .. }) = &change.now else { continue };
        if !change.path.starts_with(root) || change.path == *root || filled.contains(&change.path) {
            continue;
        }
        for inside in diff::compare_trees(source, Some(*tree), None)? {
            let path = inside.path.components().fold(change.path.clone(), |path, name| path.join(name));
            if !removed_paths.contains(&path) {
                add_ancestors(&path, &mut filled);
            }
        }
    }
    let RewindPlan { changes, left_alone } = plan;
    changes.retain(|change| {
        let stays = filled.contains(&change.path) && is_gone(&change);
        if stays && change.then.is_some() {
            let reason = "a directory is in its place, with files that were created since";
            left_alone.push(SkippedPath::conflict(change.path.clone(), reason));
        }
        !stays
    });
    Ok(())
}

/// Returns a warning about git objects that were damaged when they were stored.
fn describe_damaged(objects: &[String], what_happens: &str) -> Option<String> {
    const MAX_NAMES: usize = 20;
    let names = objects.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    let hidden_count = match objects.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        hidden_count => format!(" and {hidden_count} more"),
    };
    let count = if objects.len() == 1 { "a git object was" } else { "git objects were" };
    (!objects.is_empty())
        .then(|| format!("{count} damaged at that point already, {what_happens}: {names}{hidden_count}"))
}

/// What is wrong with the stored form of a git object.
enum ObjectProblem {
    /// Its bytes are not available.
    Lost(String),
    /// Its bytes are available, and are those of a damaged file.
    WasDamaged(String),
}

impl Workspace {
    /// Checks the git objects that `plan` would write. Those whose bytes are lost are left out and listed, so that everything
    /// else is restored; those that were damaged when they were stored replace nothing, and a warning names them.
    pub(crate) fn check_git_objects(
        &self,
        plan: &mut RewindPlan,
        warnings: &mut Vec<String>,
    ) -> Result<(), EngineError> {
        let vault = self.vault()?;
        let RewindPlan { changes, left_alone } = plan;
        let (mut as_it_was, mut replaced) = (Vec::new(), Vec::new());
        changes.retain(|change| {
            let PlannedChange { path, now, then, .. } = change;
            let (Some(key), Some(TreeNode::File { content, size, .. })) = (object_key(path), then) else {
                return true;
            };
            let is_other = |now: &TreeNode| match now {
                TreeNode::File { content: old, size: old_size, .. } => (old, old_size) != (content, size),
                _ => true,
            };
            if now.as_ref().is_some_and(|now| !is_other(now)) {
                // Only its permission bits change.
                return true;
            }
            let checked = match content {
                Content::Vaulted => match &vault {
                    Some(vault) => vault.verify(&key).map_err(ObjectProblem::Lost),
                    None => Err(ObjectProblem::Lost("the store has no vault".into())),
                },
                stored => self.check_stored(&key, stored),
            };
            match (checked, now) {
                (Ok(()), _) => true,
                (Err(ObjectProblem::Lost(problem)), _) => {
                    let reason = format!("its copy in the store is damaged ({problem})");
                    left_alone.push(SkippedPath::conflict(path.clone(), reason));
                    false
                }
                (Err(ObjectProblem::WasDamaged(problem)), None) => {
                    as_it_was.push(format!("{path} ({problem})"));
                    true
                }
                (Err(ObjectProblem::WasDamaged(problem)), Some(_)) => {
                    replaced.push(format!("{path} ({problem})"));
                    false
                }
            }
        });
        warnings.extend(describe_damaged(&as_it_was, "restored as it was"));
        warnings.extend(describe_damaged(&replaced, "not restored, because the present one may be intact"));
        Ok(())
    }

    /// Checks a git object that is stored by content.
    fn check_stored(&self, key: &[u8], content: &Content) -> Result<(), ObjectProblem> {
        let source = StoreSource(self.store());
        let lost_object = |error: ObjectError| ObjectProblem::Lost(error.to_string());
        let blobs = match content {
            Content::Whole(hash) => vec![*hash],
            Content::Chunked(hash) => list::iter(&source, *hash)
                .map(|item| item.map(|item| item.hash))
                .collect::<Result<_, _>>()
                .map_err(lost_object)?,
            Content::Vaulted => Vec::new(),
        };
        let mut check = stepback_store::GitFileCheck::new(key);
        for hash in blobs {
            check.update(&source.read(ObjectKind::Blob, hash).map_err(lost_object)?);
        }
        check.finish().map_err(ObjectProblem::WasDamaged)
    }
}
