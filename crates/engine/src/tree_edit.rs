//! Edits trees: builds the tree that results from setting some paths, and shares everything else.

use std::collections::BTreeMap;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};
use stepback_model::path::RelPath;
use stepback_model::tree::{Tree, TreeNode};

/// A path and its new node; `None` removes it.
pub type Edit = (RelPath, Option<TreeNode>);

/// The edits of one path and of the paths below it, by name.
#[derive(Default)]
struct PathEdits {
    /// What the directory itself is set to; if there are edits below, only the mode matters.
    node: Option<Option<TreeNode>>,
    children: BTreeMap<Vec<u8>, PathEdits>,
}

/// Applies `edits` to `root` and writes the changed trees. A directory that is set keeps its content if it was a directory
/// before; the tree in the new node is ignored, since its entries are edits of their own.
pub fn apply_edits(
    source: &dyn ObjectSource,
    sink: &dyn ObjectSink,
    root: Option<Hash>,
    edits: impl IntoIterator<Item = Edit>,
) -> Result<Hash, ObjectError> {
    let mut root_edits = PathEdits::default();
    for (path, node) in edits {
        let mut current = &mut root_edits;
        for name in path.components() {
            current = current.children.entry(name.to_vec()).or_default();
        }
        current.node = Some(node);
    }
    write_edited_tree(source, sink, root, root_edits)
}

fn write_edited_tree(
    source: &dyn ObjectSource,
    sink: &dyn ObjectSink,
    root: Option<Hash>,
    edits: PathEdits,
) -> Result<Hash, ObjectError> {
    let mut tree = match root {
        Some(root) => Tree::load(source, root)?,
        None => Tree::default(),
    };
    for (name, edits) in edits.children {
        let current = tree.get(&name).cloned();
        let node = match (&edits.node, &current) {
            // A file, a link, or nothing: the content of the former directory is removed with it.
            (Some(node), _) if !node.as_ref().is_some_and(TreeNode::is_dir) => node.clone(),
            (Some(Some(TreeNode::Dir { mode, .. })), _) => {
                let mode = *mode;
                let old = dir_tree_hash(&current);
                Some(TreeNode::Dir {
                    mode,
                    tree: write_edited_tree(source, sink, old, PathEdits { node: None, ..edits })?,
                })
            }
            (_, Some(TreeNode::Dir { mode, tree })) => {
                let (mode, old) = (*mode, *tree);
                Some(TreeNode::Dir { mode, tree: write_edited_tree(source, sink, Some(old), edits)? })
            }
            // Edits below a path that is not a directory: the directory was not restored, so neither are they.
            _ => current.clone(),
        };
        tree.set(&name, node);
    }
    sink.write(ObjectKind::Tree, &tree.encode(), root)
}

fn dir_tree_hash(node: &Option<TreeNode>) -> Option<Hash> {
    match node {
        Some(TreeNode::Dir { tree, .. }) => Some(*tree),
        _ => None,
    }
}
