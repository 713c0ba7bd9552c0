//! Finding what is alive, checking it, and freeing the rest.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use stepback_model::conversation::Message;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::json;
use stepback_model::list::{self, Child};
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::plan::Plan;
use stepback_model::state::{GitState, State};
use stepback_model::tree::{Content, Node, Tree};
use stepback_store::StoreError;
use stepback_store::port::{Query, Swept};

use crate::error::EngineError;
use crate::workspace::{Engine, PATIENCE, StoreSource, wait_for};

/// Everything that kept states need.
#[derive(Debug, Default)]
pub struct Alive {
    /// Objects.
    pub objects: HashSet<Hash>,
    /// Names of git files in the vault.
    pub vaulted: HashSet<Vec<u8>>,
}

/// What is wrong with a store.
#[derive(Debug, Default, serde::Serialize)]
pub struct Health {
    /// Objects that were read and verified.
    pub verified: u64,
    /// Their size before compression.
    pub bytes: u64,
    /// Problems found.
    pub problems: Vec<String>,
}

/// Walks from roots to everything they need.
struct Marker<'a> {
    source: &'a dyn ObjectSource,
    alive: Alive,
    /// Objects on the way that are missing or damaged.
    problems: Vec<String>,
    queue: Vec<(ObjectKind, Hash)>,
}

impl Marker<'_> {
    fn push(&mut self, kind: ObjectKind, hash: Hash) {
        if self.alive.objects.insert(hash) {
            self.queue.push((kind, hash));
        }
    }

    fn run(&mut self) {
        while let Some((kind, hash)) = self.queue.pop() {
            if let Err(error) = self.visit(kind, hash) {
                self.problems.push(error.to_string());
            }
        }
    }

    fn visit(&mut self, kind: ObjectKind, hash: Hash) -> Result<(), ObjectError> {
        match kind {
            ObjectKind::Blob => {}
            ObjectKind::Tree => self.tree(hash, &[])?,
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
                if let Some(previous) = Message::load(self.source, hash)?.previous {
                    self.push(ObjectKind::Message, previous);
                }
            }
            ObjectKind::State => {
                let state = State::load(self.source, hash)?;
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
                    if self.alive.objects.insert(repository.tree) {
                        self.tree(repository.tree, b".git")?;
                    }
                }
            }
            ObjectKind::Plan => {
                for change in Plan::load(self.source, hash)?.changes {
                    let parent = change.path.split_last().map(|(parent, _)| parent).unwrap_or_default();
                    let dir = parent.components().next_back().unwrap_or_default().to_vec();
                    let name = change.path.components().next_back().unwrap_or_default().to_vec();
                    for node in [&change.now, &change.then].into_iter().flatten() {
                        self.node(&dir, &name, node)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// `dir` is the name of the directory the tree describes, which vault names are made of.
    fn tree(&mut self, hash: Hash, dir: &[u8]) -> Result<(), ObjectError> {
        let mut stack = vec![(hash, dir.to_vec())];
        while let Some((hash, dir)) = stack.pop() {
            for entry in Tree::load(self.source, hash)?.into_entries() {
                match &entry.node {
                    Node::Dir { tree, .. } => {
                        if self.alive.objects.insert(*tree) {
                            stack.push((*tree, entry.name));
                        }
                    }
                    node => self.node(&dir, &entry.name, node)?,
                }
            }
        }
        Ok(())
    }

    fn node(&mut self, dir: &[u8], name: &[u8], node: &Node) -> Result<(), ObjectError> {
        match node {
            Node::File { content: Content::Vaulted, .. } => {
                self.alive.vaulted.extend(stepback_worktree::vault::name_of(dir, name));
            }
            Node::File { content, .. } => {
                if let Some((kind, hash)) = content.object() {
                    self.push(kind, hash);
                }
            }
            Node::Dir { tree, .. } => {
                if self.alive.objects.insert(*tree) {
                    self.tree(*tree, name)?;
                }
            }
            Node::Symlink { .. } | Node::Skipped { .. } => {}
        }
        Ok(())
    }
}

impl Engine<'_> {
    /// Everything that states not given up, and journals not closed, need. Also what is missing of it.
    pub fn alive(&self) -> Result<(Alive, Vec<String>), EngineError> {
        let source = StoreSource(self.store);
        let mut marker =
            Marker { source: &source, alive: Alive::default(), problems: Vec::new(), queue: Vec::new() };
        for workspace in self.store.workspaces()? {
            for stored in self.store.steps(workspace.id, &Query::default())? {
                if !stored.purged {
                    marker.push(ObjectKind::State, stored.checkpoint.step.state);
                }
                // What was done stays on record when the files it led to are given up.
                if let Some(detail) = stored.checkpoint.step.facts.detail {
                    marker.push(ObjectKind::Json, detail);
                }
            }
            for session in self.store.sessions(workspace.id)? {
                let slots = session.info.slots;
                for hash in [slots.memory, slots.task, slots.env, slots.reasoning].into_iter().flatten() {
                    marker.push(ObjectKind::Json, hash);
                }
                if let Some(tip) = session.info.tip {
                    marker.push(ObjectKind::Message, tip);
                }
            }
            for operation in self.store.unfinished(workspace.id)? {
                if let Some(journal) = operation.journal {
                    marker.push(ObjectKind::Plan, journal);
                }
                if let Some(detail) = operation.action.moved().and_then(|moved| moved.detail) {
                    marker.push(ObjectKind::Json, detail);
                }
            }
        }
        marker.run();
        let Marker { mut alive, problems, .. } = marker;
        // What is stored as a difference needs what it differs from.
        let mut bases: HashMap<Hash, Hash> = HashMap::new();
        self.store.for_each_object(&mut |object| {
            if let Some(base) = object.base {
                bases.insert(object.hash, base);
            }
        })?;
        let mut chains: Vec<Hash> = alive.objects.iter().copied().collect();
        while let Some(hash) = chains.pop() {
            if let Some(base) = bases.get(&hash)
                && alive.objects.insert(*base)
            {
                chains.push(*base);
            }
        }
        Ok((alive, problems))
    }

    /// Frees what nothing needs. Writers and readers may go on meanwhile; who relied on something freed notices.
    pub fn collect(&self) -> Result<Swept, EngineError> {
        let _lock = match self.store.local_dir() {
            Some(dir) => Some(wait_for(&dir.join("collect.lock"), File::try_lock, dir, PATIENCE)?),
            None => None,
        };
        for _ in 0..20 {
            let mark = self.store.mark()?;
            let (alive, problems) = self.alive()?;
            if let Some(problem) = problems.first() {
                return Err(StoreError::Corrupt {
                    what: format!("{problem}; nothing is freed from a damaged store"),
                }
                .into());
            }
            match self.store.sweep(&alive.objects, mark) {
                Err(StoreError::Grew) => {}
                Err(error) => return Err(error.into()),
                Ok(mut swept) => {
                    if let Some(vault) = self.vault()? {
                        let lenders = self.store.lenders()?;
                        let (_, bytes) = vault
                            .retain(|name| alive.vaulted.contains(name) || lenders.contains(name))
                            .map_err(stepback_worktree::WorktreeError::aside("clean up", "the vault"))?;
                        swept.bytes += bytes;
                    }
                    return Ok(swept);
                }
            }
        }
        Err(StoreError::Locked.into())
    }

    /// Reads and verifies everything.
    pub fn check(&self) -> Result<Health, EngineError> {
        let mut health = Health { problems: self.store.check()?, ..Health::default() };
        let mut objects = Vec::new();
        self.store.for_each_object(&mut |object| objects.push(object))?;
        for object in objects {
            match self.store.read(object.kind, object.hash) {
                Ok(bytes) => {
                    health.verified += 1;
                    health.bytes += bytes.len() as u64;
                }
                Err(error) => health.problems.push(error.to_string()),
            }
            if let Some(progress) = self.progress {
                progress.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (alive, missing) = self.alive()?;
        health.problems.extend(missing);
        for hash in &alive.objects {
            let known = ObjectKind::ALL.iter().any(|kind| self.store.contains(*kind, *hash).unwrap_or(false));
            if !known {
                health
                    .problems
                    .push(format!("object {hash} is needed by a checkpoint and is not in the store"));
            }
        }
        if let Some(dir) = self
            .store
            .local_dir()
            .filter(|dir| self.store.has_vault() || dir.join(stepback_store::port::VAULT).is_dir())
        {
            for name in &alive.vaulted {
                let path = dir.join(stepback_store::port::VAULT).join(OsStr::from_bytes(name));
                if let Err(problem) = stepback_store::verify_git_file(&path) {
                    health.problems.push(format!("{} is needed by a checkpoint: {problem}", path.display()));
                }
            }
        }
        health.problems.sort();
        health.problems.dedup();
        Ok(health)
    }
}
