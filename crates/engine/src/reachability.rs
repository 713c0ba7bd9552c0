//! Finds everything that is reachable from a set of roots: the objects that a collection must keep or a bundle must hold.

use std::collections::HashSet;

use stepback_model::conversation::ConversationMessage;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::json;
use stepback_model::list::{self, Child};
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::plan::RewindPlan;
use stepback_model::record::{SessionInfo, Step};
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::{Content, Tree, TreeNode};

/// Everything that was reached.
#[derive(Debug, Default)]
pub struct Alive {
    /// The hashes of all reachable objects.
    pub objects: HashSet<Hash>,
    /// The names of the reachable git files in the vault.
    pub vaulted: HashSet<Vec<u8>>,
}

/// Walks from roots to everything they refer to.
pub struct Marker<'a> {
    source: &'a dyn ObjectSource,
    /// What was reached so far.
    pub alive: Alive,
    /// Messages about reachable objects that are missing or damaged.
    pub problems: Vec<String>,
    queue: Vec<(ObjectKind, Hash)>,
    /// Called once for every object that is reached, and for every file that a tree names.
    visitor: Option<&'a mut dyn Visitor>,
}

/// Receives what a [`Marker`] reaches.
pub trait Visitor {
    /// Called when an object is reached for the first time.
    fn visit_object(&mut self, kind: ObjectKind, hash: Hash);
    /// Called when a tree names a file of this size.
    fn visit_file(&mut self, size: u64, content: &Content) -> Result<(), ObjectError>;
    /// Called when a git file in the vault is reached for the first time.
    fn vaulted(&mut self, _name: &[u8]) {}
}

impl<'a> Marker<'a> {
    /// Creates a marker that reads from `source`.
    pub fn new(source: &'a dyn ObjectSource) -> Self {
        Self { source, alive: Alive::default(), problems: Vec::new(), queue: Vec::new(), visitor: None }
    }

    /// Reports what is reached to `visitor`.
    pub fn with_visitor(self, visitor: &'a mut dyn Visitor) -> Self {
        Self { visitor: Some(visitor), ..self }
    }

    /// Adds a step as a root. The detail of a purged step is still needed, its state is not.
    pub fn push_step(&mut self, step: &Step, purged: bool) {
        if !purged {
            self.push(ObjectKind::State, step.state);
        }
        if let Some(detail) = step.meta.detail {
            self.push(ObjectKind::Json, detail.node);
        }
    }

    /// Adds the slots and the conversation of a session as roots.
    pub fn push_session(&mut self, info: &SessionInfo) {
        let slots = info.slots;
        for hash in [slots.memory, slots.task, slots.env, slots.reasoning].into_iter().flatten() {
            self.push(ObjectKind::Json, hash);
        }
        if let Some(tip) = info.tip {
            self.push(ObjectKind::Message, tip);
        }
    }

    /// Marks an object as reached; returns `true` if it was not before.
    fn mark_reached(&mut self, kind: ObjectKind, hash: Hash) -> bool {
        let fresh = self.alive.objects.insert(hash);
        if let Some(visitor) = self.visitor.as_mut().filter(|_| fresh) {
            visitor.visit_object(kind, hash);
        }
        fresh
    }

    /// Adds an object as a root, or as reached from one.
    pub fn push(&mut self, kind: ObjectKind, hash: Hash) {
        if self.mark_reached(kind, hash) {
            self.queue.push((kind, hash));
        }
    }

    /// Walks until everything reachable is marked.
    pub fn run(&mut self) {
        while let Some((kind, hash)) = self.queue.pop() {
            if let Err(error) = self.follow_references(kind, hash) {
                self.problems.push(error.to_string());
            }
        }
    }

    fn follow_references(&mut self, kind: ObjectKind, hash: Hash) -> Result<(), ObjectError> {
        match kind {
            ObjectKind::Blob => {}
            ObjectKind::Tree => self.mark_tree(hash, &[])?,
            ObjectKind::List => {
                let bytes = self.source.read(kind, hash)?;
                for child in
                    list::children(&bytes).map_err(|reason| ObjectError::corrupt(kind, hash, reason))?
                {
                    match child {
                        Child::Node(hash) => self.push(ObjectKind::List, hash),
                        Child::Item(hash) => self.push(ObjectKind::Blob, hash),
                    }
                }
            }
            ObjectKind::Json => {
                let bytes = self.source.read(kind, hash)?;
                for (kind, hash) in
                    json::children(&bytes).map_err(|reason| ObjectError::corrupt(kind, hash, reason))?
                {
                    self.push(kind, hash);
                }
            }
            ObjectKind::Message => {
                if let Some(previous) = ConversationMessage::load(self.source, hash)?.previous {
                    self.push(ObjectKind::Message, previous);
                }
            }
            ObjectKind::State => {
                let state = WorkspaceState::load(self.source, hash)?;
                let slots = [
                    (ObjectKind::Tree, state.files),
                    (ObjectKind::Git, state.git),
                    (ObjectKind::Message, state.conversation),
                    (ObjectKind::Json, state.reasoning),
                    (ObjectKind::Json, state.memory),
                    (ObjectKind::Json, state.task),
                    (ObjectKind::Json, state.env),
                ];
                for (kind, hash) in slots {
                    if let Some(hash) = hash {
                        self.push(kind, hash);
                    }
                }
            }
            ObjectKind::Git => {
                for repository in GitState::load(self.source, hash)?.repositories {
                    if self.mark_reached(ObjectKind::Tree, repository.tree) {
                        self.mark_tree(repository.tree, b".git")?;
                    }
                }
            }
            ObjectKind::Plan => {
                for change in RewindPlan::load(self.source, hash)?.changes {
                    let parent = change.path.split_last().map(|(parent, _)| parent).unwrap_or_default();
                    let dir = parent.components().next_back().unwrap_or_default().to_vec();
                    let name = change.path.components().next_back().unwrap_or_default().to_vec();
                    for node in [&change.now, &change.then].into_iter().flatten() {
                        self.mark_node(&dir, &name, node)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Marks everything in a tree. `dir` is the name of the directory it describes, which vault names are made of.
    fn mark_tree(&mut self, hash: Hash, dir: &[u8]) -> Result<(), ObjectError> {
        let mut stack = vec![(hash, dir.to_vec())];
        while let Some((hash, dir)) = stack.pop() {
            for entry in Tree::load(self.source, hash)?.into_entries() {
                match &entry.node {
                    TreeNode::Dir { tree, .. } => {
                        if self.mark_reached(ObjectKind::Tree, *tree) {
                            stack.push((*tree, entry.name));
                        }
                    }
                    node => self.mark_node(&dir, &entry.name, node)?,
                }
            }
        }
        Ok(())
    }

    fn mark_node(&mut self, dir: &[u8], name: &[u8], node: &TreeNode) -> Result<(), ObjectError> {
        if let (TreeNode::File { size, content, .. }, Some(visitor)) = (node, self.visitor.as_mut()) {
            visitor.visit_file(*size, content)?;
        }
        match node {
            TreeNode::File { content: Content::Vaulted, .. } => {
                if let Some(name) = stepback_worktree::vault::name_of(dir, name)
                    && !self.alive.vaulted.contains(&name)
                {
                    if let Some(visitor) = self.visitor.as_mut() {
                        visitor.vaulted(&name);
                    }
                    self.alive.vaulted.insert(name);
                }
            }
            TreeNode::File { content, .. } => {
                if let Some((kind, hash)) = content.object() {
                    self.push(kind, hash);
                }
            }
            TreeNode::Dir { tree, .. } => {
                if self.mark_reached(ObjectKind::Tree, *tree) {
                    self.mark_tree(*tree, name)?;
                }
            }
            TreeNode::Symlink { .. } | TreeNode::Skipped { .. } => {}
        }
        Ok(())
    }
}
