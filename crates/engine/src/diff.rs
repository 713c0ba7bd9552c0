//! Differences between two trees, in time proportional to the number of changes.

use stepback_model::change::PathChange;
use stepback_model::hash::Hash;
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::path::RelPath;
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::{SkipReason, Tree, TreeNode};
use stepback_store::Store;

use crate::workspace::StoreSource;

/// Returns the changes from tree `a` to tree `b`, sorted by path. Directories are listed too, before their content; nodes
/// without stored content ([`TreeNode::Skipped`]) are listed where the other side differs, for the caller to judge.
pub fn compare_trees(
    source: &dyn ObjectSource,
    a: Option<Hash>,
    b: Option<Hash>,
) -> Result<Vec<PathChange>, ObjectError> {
    let mut changes = Vec::new();
    walk_trees(source, RelPath::root(), a, b, &mut changes)?;
    changes.sort_by(|x, y| x.path.cmp_by_components(&y.path));
    Ok(changes)
}

/// How much a tree holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FilesSize {
    /// How many files and links.
    pub files: u64,
    /// How many paths were not covered.
    pub not_covered: u64,
    /// The size of the files, in bytes.
    pub bytes: u64,
}

/// Returns how many files a tree names, and their size.
pub fn files_size(source: &dyn Store, tree: Hash) -> Result<FilesSize, ObjectError> {
    let mut size = FilesSize::default();
    let mut stack = vec![tree];
    while let Some(tree) = stack.pop() {
        for entry in Tree::load(&StoreSource(source), tree)?.into_entries() {
            match entry.node {
                TreeNode::Dir { tree, .. } => stack.push(tree),
                TreeNode::File { size: bytes, .. } => {
                    size.files += 1;
                    size.bytes += bytes;
                }
                TreeNode::Symlink { .. } => size.files += 1,
                TreeNode::Skipped { .. } => size.not_covered += 1,
            }
        }
    }
    Ok(size)
}

/// Walks two trees side by side. Uses an explicit stack, because the depth is up to the user.
fn walk_trees(
    source: &dyn ObjectSource,
    root: RelPath,
    a: Option<Hash>,
    b: Option<Hash>,
    changes: &mut Vec<PathChange>,
) -> Result<(), ObjectError> {
    let mut stack = vec![(root, a, b)];
    while let Some((path, a, b)) = stack.pop() {
        if a == b {
            continue;
        }
        let load = |hash: Option<Hash>| hash.map_or(Ok(Tree::default()), |hash| Tree::load(source, hash));
        let (old_entries, new_entries) = (load(a)?.into_entries(), load(b)?.into_entries());
        let (mut old_entries, mut new_entries) =
            (old_entries.into_iter().peekable(), new_entries.into_iter().peekable());
        loop {
            let (old, new) = match (old_entries.peek(), new_entries.peek()) {
                (None, None) => break,
                (Some(x), Some(y)) if x.name == y.name => (old_entries.next(), new_entries.next()),
                (Some(x), Some(y)) if x.name < y.name => (old_entries.next(), None),
                (Some(_), None) => (old_entries.next(), None),
                _ => (None, new_entries.next()),
            };
            let name = match (&old, &new) {
                (Some(entry), _) | (None, Some(entry)) => entry.name.clone(),
                (None, None) => break,
            };
            let (old, new) = (old.map(|entry| entry.node), new.map(|entry| entry.node));
            if old == new {
                continue;
            }
            let child = path.join(&name);
            let listing = |node: &Option<TreeNode>| match node {
                Some(TreeNode::Dir { tree, .. }) => Some(*tree),
                _ => None,
            };
            let (inside_old, inside_new) = (listing(&old), listing(&new));
            if inside_old.is_some() || inside_new.is_some() {
                stack.push((child.clone(), inside_old, inside_new));
            }
            let only_inside = matches!(
                (&old, &new),
                (Some(TreeNode::Dir { mode: x, .. }), Some(TreeNode::Dir { mode: y, .. })) if x == y
            );
            if !only_inside {
                changes.push(PathChange { path: child, from: None, before: old, after: new });
            }
        }
    }
    Ok(())
}

/// Returns the changes of files between two states as users see them: without skipped nodes (unless one replaced a file or a
/// file replaced it), without directories that are implied by their content, and with moves joined.
pub fn compare_visible_files(
    source: &dyn ObjectSource,
    a: &WorkspaceState,
    b: &WorkspaceState,
) -> Result<Vec<PathChange>, ObjectError> {
    Ok(stepback_model::change::join_renames(retain_visible(compare_trees(source, a.files, b.files)?)))
}

/// Drops changes that users do not regard as changes.
pub fn retain_visible(changes: Vec<PathChange>) -> Vec<PathChange> {
    let is_dir = |node: &Option<TreeNode>| node.as_ref().is_some_and(TreeNode::is_dir);
    let stored = |node: &Option<TreeNode>| node.as_ref().is_none_or(TreeNode::is_stored);
    let special = |node: &Option<TreeNode>| {
        let reason = node.as_ref().and_then(TreeNode::skipped);
        matches!(reason, Some(SkipReason::Fifo | SkipReason::Socket | SkipReason::Device))
    };
    let is_visible =
        |before: &Option<TreeNode>, after: &Option<TreeNode>| match (stored(before), stored(after)) {
            (true, true) => true,
            (true, false) => before.is_some() && special(after),
            (false, true) => after.is_some() && special(before),
            (false, false) => false,
        };
    let keep_flags: Vec<bool> = changes
        .iter()
        .enumerate()
        .map(|(index, change)| {
            let implied = (is_dir(&change.before) != is_dir(&change.after))
                && (change.before.is_none() || change.after.is_none())
                && changes.get(index + 1).is_some_and(|next| next.path.starts_with(&change.path));
            is_visible(&change.before, &change.after) && !implied
        })
        .collect();
    changes
        .into_iter()
        .zip(keep_flags)
        .filter_map(|(change, keep_flags)| keep_flags.then_some(change))
        .collect()
}

/// Returns the changes inside git directories between two states, with paths from the workspace root (`.git/HEAD`).
pub fn compare_git(
    source: &dyn ObjectSource,
    a: &WorkspaceState,
    b: &WorkspaceState,
) -> Result<Vec<PathChange>, ObjectError> {
    if a.git == b.git {
        return Ok(Vec::new());
    }
    let load = |hash: Option<Hash>| hash.map_or(Ok(GitState::default()), |hash| GitState::load(source, hash));
    let (old_git, new_git) = (load(a.git)?, load(b.git)?);
    let mut paths: Vec<&Vec<u8>> =
        old_git.repositories.iter().chain(&new_git.repositories).map(|repository| &repository.path).collect();
    paths.sort();
    paths.dedup();
    let mut changes = Vec::new();
    for path in paths {
        let Ok(root) = RelPath::parse(path.clone()) else { continue };
        let tree = |state: &GitState| state.get(path).map(|repository| repository.tree);
        let (old, new) = (tree(&old_git), tree(&new_git));
        let dir = |tree: Option<Hash>| tree.map(|tree| TreeNode::Dir { mode: 0o755, tree });
        if old.is_none() || new.is_none() {
            changes.push(PathChange { path: root.clone(), from: None, before: dir(old), after: dir(new) });
        }
        walk_trees(source, root, old, new, &mut changes)?;
    }
    changes.sort_by(|x, y| x.path.cmp_by_components(&y.path));
    Ok(changes)
}

/// Returns the node at `path` in a tree; `None` if it does not exist.
pub fn find_node(
    source: &dyn ObjectSource,
    tree: Hash,
    path: &RelPath,
) -> Result<Option<TreeNode>, ObjectError> {
    let mut node = TreeNode::Dir { mode: 0o755, tree };
    for name in path.components() {
        let TreeNode::Dir { tree, .. } = node else { return Ok(None) };
        match Tree::load(source, tree)?.get(name) {
            Some(child) => node = child.clone(),
            None => return Ok(None),
        }
    }
    Ok(Some(node))
}
