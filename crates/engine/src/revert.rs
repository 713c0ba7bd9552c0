//! Takes back a change that is not the last one: a three-way merge of the state before it, the state after it, and the
//! present.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stepback_model::change::PathChange;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};
use stepback_model::path::RelPath;
use stepback_model::plan::{How, PlannedChange, RewindPlan, SkippedPath};
use stepback_model::tree::{Content, Tree, TreeNode};

use crate::merge::{self, TextMerge};

/// A tree that caches the subtrees it has loaded, for many lookups.
pub(crate) struct TreeLookup<'a> {
    source: &'a dyn ObjectSource,
    root: Option<Hash>,
    loaded: HashMap<Hash, Tree>,
}

impl<'a> TreeLookup<'a> {
    pub fn new(source: &'a dyn ObjectSource, root: Option<Hash>) -> Self {
        Self { source, root, loaded: HashMap::new() }
    }

    /// Returns the node at `path`; `None` if there is none.
    pub fn get(&mut self, path: &RelPath) -> Result<Option<TreeNode>, ObjectError> {
        let Some(root) = self.root else { return Ok(None) };
        let mut node = TreeNode::Dir { mode: 0o755, tree: root };
        for name in path.components() {
            let TreeNode::Dir { tree, .. } = node else { return Ok(None) };
            if !self.loaded.contains_key(&tree) {
                self.loaded.insert(tree, Tree::load(self.source, tree)?);
            }
            match self.loaded.get(&tree).and_then(|tree| tree.get(name)) {
                Some(child) => node = child.clone(),
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }
}

/// Plans to take back changes one after the other, each against the present as the plan so far would leave it.
pub(crate) struct Reverter<'a> {
    source: &'a dyn ObjectSource,
    sink: &'a dyn ObjectSink,
    present: TreeLookup<'a>,
    /// What each planned path will be, and how that was reached; other paths stay as they are.
    planned: BTreeMap<RelPath, (Option<TreeNode>, How)>,
    left_alone: Vec<SkippedPath>,
    /// Directories created by a change that is taken back; they are removed if nothing is left in them.
    created_dirs: BTreeSet<RelPath>,
    /// What the two sides are called behind conflict markers; `None` if no markers are written.
    marker_names: Option<(String, String)>,
}

impl<'a> Reverter<'a> {
    pub fn new(source: &'a dyn ObjectSource, sink: &'a dyn ObjectSink, present: Option<Hash>) -> Self {
        let present = TreeLookup::new(source, present);
        Self {
            source,
            sink,
            present,
            planned: BTreeMap::new(),
            left_alone: Vec::new(),
            created_dirs: BTreeSet::new(),
            marker_names: None,
        }
    }

    /// Writes conflict markers into text files that both sides changed in the same lines, with these names behind them.
    pub fn with_markers(mut self, present: String, target: String) -> Self {
        self.marker_names = Some((present, target));
        self
    }

    fn planned_node(&mut self, path: &RelPath) -> Result<Option<TreeNode>, ObjectError> {
        match self.planned.get(path) {
            Some((node, _)) => Ok(node.clone()),
            None => self.present.get(path),
        }
    }

    /// Takes back `change`: its result (`after`) becomes what was there before, merged with later changes.
    pub fn take_back(&mut self, change: &PathChange) -> Result<(), ObjectError> {
        match &change.from {
            None => self.take_back_path(&change.path, &change.after, &change.before),
            Some(old_path) => {
                // A rename: the new name is removed, the old one restored.
                self.take_back_path(&change.path, &change.after, &None)?;
                self.take_back_path(old_path, &None, &change.before)
            }
        }
    }

    /// Like [`Self::take_back`], for a list of changes that omits directories created together with their content. `before` is
    /// the state before the change.
    pub fn take_back_visible(
        &mut self,
        change: &PathChange,
        before: &mut TreeLookup<'_>,
    ) -> Result<(), ObjectError> {
        self.take_back(change)?;
        let mut ancestor = change.path.split_last().map(|(parent, _)| parent);
        while let Some(dir) = ancestor.filter(|dir| !dir.is_root()) {
            if before.get(&dir)?.is_some() {
                break;
            }
            ancestor = dir.split_last().map(|(parent, _)| parent);
            self.created_dirs.insert(dir);
        }
        Ok(())
    }

    /// Plans to remove the created directories in which nothing is left, deepest first.
    fn remove_empty_created_dirs(&mut self) -> Result<(), ObjectError> {
        for dir in std::mem::take(&mut self.created_dirs).into_iter().rev() {
            let listing = match (self.planned_node(&dir)?, self.present.get(&dir)?) {
                (Some(TreeNode::Dir { .. }), Some(TreeNode::Dir { tree, .. })) => {
                    Tree::load(self.source, tree)?
                }
                _ => continue,
            };
            let mut empty = !self
                .planned
                .iter()
                .any(|(path, (node, _))| node.is_some() && *path != dir && path.starts_with(&dir));
            for entry in listing.entries() {
                empty = empty && self.planned_node(&dir.join(&entry.name))?.is_none();
            }
            if empty {
                self.planned.insert(dir, (None, How::Restored));
            }
        }
        Ok(())
    }

    fn take_back_path(
        &mut self,
        path: &RelPath,
        change_result: &Option<TreeNode>,
        target: &Option<TreeNode>,
    ) -> Result<(), ObjectError> {
        let now = self.planned_node(path)?;
        if is_same_node(&now, target) {
            return Ok(());
        }
        let skipped = |node: &Option<TreeNode>| node.as_ref().and_then(TreeNode::skipped);
        if let Some(reason) = skipped(&now).or(skipped(target)) {
            let is_expected = reason.is_by_rule() || now.is_none() || target.is_none();
            let reason = format!("its content is not covered ({})", reason.describe());
            self.left_alone.push(match is_expected {
                true => SkippedPath::uncovered(path.clone(), reason),
                false => SkippedPath::conflict(path.clone(), reason),
            });
            return Ok(());
        }
        if is_same_node(&now, change_result) {
            self.planned.insert(path.clone(), (target.clone(), How::Restored));
            return Ok(());
        }
        match (change_result, &now, target) {
            (Some(change_result), Some(ours), Some(theirs)) => {
                match self.merge_nodes(change_result, ours, theirs)? {
                    Some((node, how)) => {
                        self.planned.insert(path.clone(), (Some(node), how));
                    }
                    None => self.skip_path(path, "later edits touch the same lines"),
                }
            }
            (_, None, _) => self.skip_path(path, "it was deleted since"),
            (_, _, None) => self.skip_path(path, "it was edited since"),
            (None, Some(ours), Some(theirs)) => match self.mark_files(None, ours, theirs)? {
                Some(node) => {
                    self.planned.insert(path.clone(), (Some(node), How::Marked));
                }
                None => self.skip_path(path, "it is something else now"),
            },
        }
        Ok(())
    }

    fn skip_path(&mut self, path: &RelPath, reason: &str) {
        self.left_alone.push(SkippedPath::conflict(path.clone(), reason));
    }

    fn merge_nodes(
        &self,
        base_node: &TreeNode,
        our_node: &TreeNode,
        their_node: &TreeNode,
    ) -> Result<Option<(TreeNode, How)>, ObjectError> {
        let merged = |node: TreeNode| Ok(Some((node, How::Merged)));
        match (base_node, our_node, their_node) {
            (
                TreeNode::File { mode: left_mode, content: change_result, .. },
                TreeNode::File { mode: our_mode, content: ours, size: our_size },
                TreeNode::File { mode: their_mode, content: theirs, size: their_size },
            ) => {
                let mode = if our_mode == left_mode { *their_mode } else { *our_mode };
                if change_result == theirs {
                    return merged(TreeNode::File { mode, size: *our_size, content: *ours });
                }
                if change_result == ours {
                    return merged(TreeNode::File { mode, size: *their_size, content: *theirs });
                }
                // Only content stored as a single blob is small enough to be merged line by line.
                let (Content::Whole(change_result), Content::Whole(ours), Content::Whole(theirs)) =
                    (change_result, ours, theirs)
                else {
                    return Ok(None);
                };
                let read = |hash: &Hash| self.source.read(ObjectKind::Blob, *hash);
                match merge::three_way_merge(&read(change_result)?, &read(ours)?, &read(theirs)?) {
                    TextMerge::Conflict { .. } => {
                        let marked = self.mark_files(Some(base_node), our_node, their_node)?;
                        Ok(marked.map(|node| (node, How::Marked)))
                    }
                    TextMerge::Clean(bytes) => {
                        let content =
                            Content::Whole(self.sink.write(ObjectKind::Blob, &bytes, Some(*ours))?);
                        merged(TreeNode::File { mode, size: bytes.len() as u64, content })
                    }
                }
            }
            (
                TreeNode::Dir { mode: change_result, .. },
                TreeNode::Dir { mode: ours, tree },
                TreeNode::Dir { mode: theirs, .. },
            ) => {
                let mode = if ours == change_result { *theirs } else { *ours };
                merged(TreeNode::Dir { mode, tree: *tree })
            }
            _ => Ok(None),
        }
    }

    /// Returns a file with both versions between conflict markers; `None` unless markers were asked for and both are text.
    fn mark_files(
        &self,
        base: Option<&TreeNode>,
        ours: &TreeNode,
        theirs: &TreeNode,
    ) -> Result<Option<TreeNode>, ObjectError> {
        let Some((our_name, their_name)) = &self.marker_names else { return Ok(None) };
        let read = |node: &TreeNode| match node {
            TreeNode::File { content: Content::Whole(hash), .. } => {
                self.source.read(ObjectKind::Blob, *hash).map(Some)
            }
            _ => Ok(None),
        };
        let TreeNode::File { mode, content: Content::Whole(old_hash), .. } = ours else { return Ok(None) };
        let (Some(our_bytes), Some(their_bytes)) = (read(ours)?, read(theirs)?) else { return Ok(None) };
        let base_bytes = base.map(read).transpose()?.flatten().unwrap_or_default();
        let marked =
            merge::merge_with_markers(&base_bytes, (our_name, &our_bytes), (their_name, &their_bytes));
        let Some(bytes) = marked else { return Ok(None) };
        let content = Content::Whole(self.sink.write(ObjectKind::Blob, &bytes, Some(*old_hash))?);
        Ok(Some(TreeNode::File { mode: *mode, size: bytes.len() as u64, content }))
    }

    /// Returns the plan, including the missing directories that it needs; their modes come from `directories`.
    pub fn finish(mut self, directories: &mut TreeLookup<'_>) -> Result<RewindPlan, ObjectError> {
        self.remove_empty_created_dirs()?;
        let needed_dirs: Vec<RelPath> = self
            .planned
            .iter()
            .filter(|(_, (node, _))| node.is_some())
            .filter_map(|(path, _)| path.split_last().map(|(parent, _)| parent))
            .collect();
        for mut parent in needed_dirs {
            while !parent.is_root() && self.planned_node(&parent)?.is_none() {
                let mode = match directories.get(&parent)? {
                    Some(TreeNode::Dir { mode, .. }) => mode,
                    _ => 0o755,
                };
                let dir = TreeNode::Dir { mode, tree: Tree::empty_hash() };
                self.planned.insert(parent.clone(), (Some(dir), How::Restored));
                match parent.split_last() {
                    Some((grandparent, _)) => parent = grandparent,
                    None => break,
                }
            }
        }
        let mut changes = Vec::with_capacity(self.planned.len());
        for (path, (then, how)) in std::mem::take(&mut self.planned) {
            let now = self.present.get(&path)?;
            if !is_same_node(&now, &then) {
                changes.push(PlannedChange { path, now, then, how });
            }
        }
        changes.sort_by(|a, b| a.path.cmp_by_components(&b.path));
        Ok(RewindPlan { changes, left_alone: self.left_alone })
    }
}

/// Whether two nodes are the same for a plan. The content of a directory does not count: its entries are nodes of their own.
pub(crate) fn is_same_node(a: &Option<TreeNode>, b: &Option<TreeNode>) -> bool {
    match (a, b) {
        (Some(TreeNode::Dir { mode: x, .. }), Some(TreeNode::Dir { mode: y, .. })) => x == y,
        _ => a == b,
    }
}
