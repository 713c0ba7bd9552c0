//! Changes: what happened to one path between two states.

use crate::path::RelPath;
use crate::tree::{Content, TreeNode};

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// The path did not exist before.
    Created,
    /// The content changed (and perhaps the mode too).
    Modified,
    /// The path does not exist any more.
    Deleted,
    /// Moved from another path with its content unchanged.
    Renamed,
    /// Only the permission bits changed.
    ModeChanged,
    /// A file became a directory, a link, or the other way round.
    TypeChanged,
}

impl ChangeKind {
    /// The stable name, as shown in listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::Renamed => "renamed",
            Self::ModeChanged => "mode changed",
            Self::TypeChanged => "type changed",
        }
    }
}

/// The difference between two states at one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathChange {
    /// The path that differs.
    pub path: RelPath,
    /// For a rename: the old path.
    pub from: Option<RelPath>,
    /// The node in the first state; `None` if the path did not exist.
    pub before: Option<TreeNode>,
    /// The node in the second state; `None` if the path does not exist.
    pub after: Option<TreeNode>,
}

impl PathChange {
    /// Classifies the change.
    pub fn kind(&self) -> ChangeKind {
        if self.from.is_some() {
            return ChangeKind::Renamed;
        }
        match (&self.before, &self.after) {
            (None, _) => ChangeKind::Created,
            (_, None) => ChangeKind::Deleted,
            (Some(TreeNode::File { content: a, .. }), Some(TreeNode::File { content: b, .. })) if a == b => {
                ChangeKind::ModeChanged
            }
            (Some(TreeNode::Dir { .. }), Some(TreeNode::Dir { .. })) => ChangeKind::ModeChanged,
            (Some(TreeNode::File { .. }), Some(TreeNode::File { .. }))
            | (Some(TreeNode::Symlink { .. }), Some(TreeNode::Symlink { .. })) => ChangeKind::Modified,
            _ => ChangeKind::TypeChanged,
        }
    }
}

/// Joins a deletion and a creation of the same non-empty content into a rename.
///
/// Only exact matches count: a guess could attribute a change to the wrong file. Each deletion is used at most once; the
/// order of `changes` is kept, with the rename in the creation's place.
pub fn join_renames(changes: Vec<PathChange>) -> Vec<PathChange> {
    use std::collections::HashMap;

    let mut deleted: HashMap<(Content, u64), Vec<usize>> = HashMap::new();
    for (index, change) in changes.iter().enumerate().rev() {
        if let (Some(TreeNode::File { content, size, .. }), None) = (&change.before, &change.after)
            && *size > 0
        {
            deleted.entry((*content, *size)).or_default().push(index);
        }
    }
    if deleted.is_empty() {
        return changes;
    }
    let mut source_of: HashMap<usize, usize> = HashMap::new();
    let mut used = vec![false; changes.len()];
    for (index, change) in changes.iter().enumerate() {
        if let (None, Some(TreeNode::File { content, size, .. })) = (&change.before, &change.after)
            && let Some(from) = deleted.get_mut(&(*content, *size)).and_then(Vec::pop)
        {
            source_of.insert(index, from);
            used[from] = true;
        }
    }
    let origin: Vec<(RelPath, Option<TreeNode>)> =
        changes.iter().map(|change| (change.path.clone(), change.before.clone())).collect();
    changes
        .into_iter()
        .enumerate()
        .filter(|(index, _)| !used[*index])
        .map(|(index, mut change)| {
            if let Some(from) = source_of.get(&index) {
                let (path, before) = origin[*from].clone();
                change.from = Some(path);
                change.before = before;
            }
            change
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{Hash, ObjectKind};

    fn file(text: &str, mode: u32) -> Option<TreeNode> {
        let content = Content::Whole(Hash::of(ObjectKind::Blob, text.as_bytes()));
        Some(TreeNode::File { mode, size: text.len() as u64, content })
    }

    fn change(path: &str, before: Option<TreeNode>, after: Option<TreeNode>) -> PathChange {
        PathChange { path: RelPath::parse(path).unwrap(), from: None, before, after }
    }

    #[test]
    fn kinds_are_what_people_call_them() {
        assert_eq!(change("a", None, file("x", 0o644)).kind(), ChangeKind::Created);
        assert_eq!(change("a", file("x", 0o644), None).kind(), ChangeKind::Deleted);
        assert_eq!(change("a", file("x", 0o644), file("y", 0o644)).kind(), ChangeKind::Modified);
        assert_eq!(change("a", file("x", 0o644), file("x", 0o755)).kind(), ChangeKind::ModeChanged);
        let link = Some(TreeNode::Symlink { target: b"t".to_vec() });
        assert_eq!(change("a", file("x", 0o644), link).kind(), ChangeKind::TypeChanged);
    }

    #[test]
    fn a_move_is_one_rename_and_empty_files_are_not_guessed() {
        let joined = join_renames(vec![
            change("new", None, file("x", 0o644)),
            change("old", file("x", 0o644), None),
            change("e1", file("", 0o644), None),
            change("e2", None, file("", 0o644)),
        ]);
        let kinds: Vec<_> = joined.iter().map(PathChange::kind).collect();
        assert_eq!(kinds, [ChangeKind::Renamed, ChangeKind::Deleted, ChangeKind::Created]);
        assert_eq!(joined[0].from, Some(RelPath::parse("old").unwrap()));
    }

    #[test]
    fn a_copy_of_a_deleted_file_uses_each_deletion_once() {
        let joined = join_renames(vec![
            change("a", None, file("x", 0o644)),
            change("b", None, file("x", 0o644)),
            change("old", file("x", 0o644), None),
        ]);
        let kinds: Vec<_> = joined.iter().map(PathChange::kind).collect();
        assert_eq!(kinds, [ChangeKind::Renamed, ChangeKind::Created]);
    }
}
