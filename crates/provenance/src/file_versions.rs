//! The contents of paths along a line of checkpoints, newest first.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use stepback_engine::authorship::AttributedChange;
use stepback_engine::{Workspace, diff};
use stepback_model::change::PathChange;
use stepback_model::hash::Hash;
use stepback_model::ids::SessionId;
use stepback_model::path::RelPath;
use stepback_model::record::{SessionInfo, StepRow};
use stepback_model::state::WorkspaceState;
use stepback_model::tree::{Content, Tree, TreeNode};

use crate::error::ProvenanceError;

/// The largest file whose lines are compared, in bytes.
const MAX_FILE_BYTES: u64 = 32 << 20;
/// How many directories are kept in memory: the same ones are read for every checkpoint.
const MAX_CACHED_TREES: usize = 4096;

/// How many texts are kept in memory, and the largest of them in bytes.
const MAX_CACHED_TEXTS: usize = 24;
const MAX_CACHED_TEXT_BYTES: u64 = 4 << 20;

/// A content and its text; `None` if it has none.
type CachedText = (Content, Option<Rc<Vec<u8>>>);

/// A line of checkpoints whose states are still stored, newest first.
pub struct FileVersions<'w> {
    workspace: &'w Workspace,
    line: Vec<StepRow>,
    /// The trees of the checkpoints that were looked at.
    roots: RefCell<Vec<Option<Hash>>>,
    trees: RefCell<HashMap<Hash, Rc<Tree>>>,
    /// The texts that were read last, the newest first: versions are compared with their neighbours.
    texts: RefCell<VecDeque<CachedText>>,
    attributions: RefCell<HashMap<(usize, RelPath), AttributedChange>>,
    sessions: RefCell<BTreeMap<SessionId, SessionInfo>>,
}

impl<'w> FileVersions<'w> {
    /// The checkpoints from `from` back to the first one, or to the newest whose state a prune freed.
    pub fn new(workspace: &'w Workspace, from: &StepRow) -> Result<Self, ProvenanceError> {
        let mut line = workspace.ancestry(from)?;
        let kept = line.iter().position(|stored| stored.purged).unwrap_or(line.len());
        line.truncate(kept);
        let roots = RefCell::new(vec![None; line.len()]);
        Ok(Self {
            workspace,
            line,
            roots,
            trees: RefCell::default(),
            texts: RefCell::default(),
            attributions: RefCell::default(),
            sessions: RefCell::default(),
        })
    }

    /// The number of checkpoints.
    pub fn len(&self) -> usize {
        self.line.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// A checkpoint, counted from the newest.
    pub fn step(&self, index: usize) -> &StepRow {
        &self.line[index]
    }

    /// The node at `path` in the state of a checkpoint.
    pub fn node(&self, index: usize, path: &RelPath) -> Result<Option<TreeNode>, ProvenanceError> {
        let Some(mut tree) = self.root(index)? else { return Ok(None) };
        let mut node = None;
        let mut names = path.components().peekable();
        while let Some(name) = names.next() {
            node = self.tree(tree)?.get(name).cloned();
            match (&node, names.peek()) {
                (Some(TreeNode::Dir { tree: inner, .. }), Some(_)) => tree = *inner,
                (_, None) => break,
                _ => return Ok(None),
            }
        }
        Ok(node)
    }

    fn root(&self, index: usize) -> Result<Option<Hash>, ProvenanceError> {
        if let Some(root) = self.roots.borrow()[index] {
            return Ok(Some(root));
        }
        let state = WorkspaceState::load(self.workspace.store(), self.line[index].step.state)?;
        self.roots.borrow_mut()[index] = state.files;
        Ok(state.files)
    }

    fn tree(&self, hash: Hash) -> Result<Rc<Tree>, ProvenanceError> {
        if let Some(tree) = self.trees.borrow().get(&hash) {
            return Ok(tree.clone());
        }
        let tree = Rc::new(Tree::load(self.workspace.store(), hash)?);
        let mut trees = self.trees.borrow_mut();
        if trees.len() >= MAX_CACHED_TREES {
            trees.clear();
        }
        trees.insert(hash, tree.clone());
        Ok(tree)
    }

    /// Who changed a path at a checkpoint.
    pub(crate) fn attribute(
        &self,
        index: usize,
        path: &RelPath,
    ) -> Result<AttributedChange, ProvenanceError> {
        let key = (index, path.clone());
        if let Some(known) = self.attributions.borrow().get(&key) {
            return Ok(known.clone());
        }
        let mut sessions = self.sessions.borrow_mut();
        let found = self.workspace.attribute_change_with(&self.line[index].step, path, &mut sessions)?;
        self.attributions.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    /// What a checkpoint changed in comparison with the one before it.
    pub(crate) fn changes(&self, index: usize) -> Result<Vec<PathChange>, ProvenanceError> {
        if index + 1 >= self.line.len() {
            return Ok(Vec::new());
        }
        let state = |index: usize| WorkspaceState::load(self.workspace.store(), self.line[index].step.state);
        Ok(diff::compare_visible_files(&self.workspace.store(), &state(index + 1)?, &state(index)?)?)
    }

    /// The text of a file; `None` if it is not a stored text file of a reasonable size.
    pub(crate) fn text(&self, node: &TreeNode) -> Result<Option<Rc<Vec<u8>>>, ProvenanceError> {
        let TreeNode::File { size, content, .. } = node else { return Ok(None) };
        if *size > MAX_FILE_BYTES {
            return Ok(None);
        }
        if let Some((_, text)) = self.texts.borrow().iter().find(|(known, _)| known == content) {
            return Ok(text.clone());
        }
        let bytes = self.workspace.read_node(node)?;
        let text = is_text(&bytes).then(|| Rc::new(bytes));
        let mut texts = self.texts.borrow_mut();
        if *size <= MAX_CACHED_TEXT_BYTES {
            texts.truncate(MAX_CACHED_TEXTS - 1);
            texts.push_front((*content, text.clone()));
        }
        Ok(text)
    }
}

/// The text of a file that is asked about, or why it has no lines.
pub(crate) fn require_text(
    workspace: &Workspace,
    path: &RelPath,
    node: &TreeNode,
) -> Result<Vec<u8>, ProvenanceError> {
    let not_a_file = |what| ProvenanceError::NotAFile { path: path.clone(), what };
    match node {
        TreeNode::Dir { .. } => Err(not_a_file("a directory")),
        TreeNode::Symlink { .. } => Err(not_a_file("a symbolic link")),
        TreeNode::Skipped { reason, .. } => {
            Err(ProvenanceError::NotStored { path: path.clone(), reason: reason.describe() })
        }
        TreeNode::File { size, .. } => {
            check_size(path, *size)?;
            let bytes = workspace.read_node(node)?;
            if is_text(&bytes) { Ok(bytes) } else { Err(ProvenanceError::NotText(path.clone())) }
        }
    }
}

/// Refuses a file that is too large to compare.
pub(crate) fn check_size(path: &RelPath, size: u64) -> Result<(), ProvenanceError> {
    if size > MAX_FILE_BYTES {
        let reason = format!("{size} bytes; lines are compared up to {MAX_FILE_BYTES}");
        return Err(ProvenanceError::TooLarge { path: path.clone(), reason });
    }
    Ok(())
}

/// Whether some content is text.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0)
}
