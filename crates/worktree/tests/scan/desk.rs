//! A directory that is scanned in all ways, and what a scan found in it.

use std::fs;
use std::path::{Path, PathBuf};

use stepback_model::hash::Hash;
use stepback_model::tree::{SkipReason, Tree, TreeNode};
use stepback_store::memory::MemoryStore;
use stepback_store::prelude::*;
use stepback_testkit::tree::{self, Copy, Thing};
use stepback_worktree::restore::read_content;
use stepback_worktree::rules::Budget;
use stepback_worktree::scan::{Scan, Snapshot, boot_id};

/// A directory to scan, a store, and a place for the cache.
pub struct ScannedTree {
    pub dir: tempfile::TempDir,
    pub root: PathBuf,
    pub store: MemoryStore,
    pub budget: Budget,
    pub boot: [u8; 16],
}

impl ScannedTree {
    pub fn new() -> Self {
        Self::at(&tree::scratch_place())
    }

    pub fn at(place: &Path) -> Self {
        let dir = tempfile::tempdir_in(place).unwrap();
        let root = dir.path().canonicalize().unwrap().join("work");
        fs::create_dir(&root).unwrap();
        Self { dir, root, store: MemoryStore::new(4 << 30), budget: Budget::default(), boot: boot_id() }
    }

    pub fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    pub fn scan(&self, cache: Option<&Path>) -> Snapshot {
        let batch = self.store.begin().unwrap();
        let scan = Scan {
            root: &self.root,
            cache,
            vault: None,
            store_dir: None,
            budget: self.budget,
            epoch: self.store.gc_generation().unwrap(),
            boot: self.boot,
            threads: 2,
            progress: None,
            hints: None,
            everything: false,
            check_objects: false,
        };
        let mut snapshot = scan.run(&self.store, &*batch).unwrap();
        self.store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
        snapshot.remember();
        snapshot
    }

    /// A scan that may believe the cache.
    pub fn warm(&self) -> Snapshot {
        self.scan(Some(&self.cache()))
    }

    /// A scan that reads everything.
    pub fn cold(&self) -> Snapshot {
        self.scan(None)
    }

    #[track_caller]
    pub fn warm_is_cold(&self, when: &str) {
        let (warm, cold) = (self.warm(), self.cold());
        if (warm.files, warm.git) != (cold.files, cold.git) {
            let differences = tree::differences(&self.stored(cold.files), &self.stored(warm.files));
            panic!("{when}: a warm scan is wrong:\n{differences}");
        }
    }

    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// What a scan stored, read back from the store.
    pub fn stored(&self, files: Hash) -> Copy {
        let mut copy = Copy::new();
        self.read_tree(files, &[], &mut copy);
        copy
    }

    fn read_tree(&self, hash: Hash, path: &[u8], copy: &mut Copy) {
        for entry in Tree::load(&self.store, hash).unwrap().into_entries() {
            let child = if path.is_empty() {
                entry.name.clone()
            } else {
                [path, b"/", entry.name.as_slice()].concat()
            };
            let thing = match entry.node {
                TreeNode::Dir { mode, tree } => {
                    self.read_tree(tree, &child, copy);
                    Thing::Dir(mode)
                }
                TreeNode::File { mode, content, .. } => {
                    Thing::File(mode, read_content(&content, &self.store).unwrap().into())
                }
                TreeNode::Symlink { target } => Thing::Link(target),
                TreeNode::Skipped { .. } => Thing::Special,
            };
            copy.insert(child, thing);
        }
    }

    pub fn node(&self, snapshot: &Snapshot, path: &str) -> Option<TreeNode> {
        let mut node = TreeNode::Dir { mode: 0o755, tree: snapshot.files };
        for name in path.split('/') {
            let TreeNode::Dir { tree, .. } = node else { return None };
            node = Tree::load(&self.store, tree).unwrap().get(name.as_bytes())?.clone();
        }
        Some(node)
    }

    pub fn skipped(&self, snapshot: &Snapshot, path: &str) -> Option<SkipReason> {
        match self.node(snapshot, path) {
            Some(TreeNode::Skipped { reason }) => Some(reason),
            _ => None,
        }
    }

    pub fn content(&self, snapshot: &Snapshot, path: &str) -> Vec<u8> {
        match self.node(snapshot, path) {
            Some(TreeNode::File { content, .. }) => read_content(&content, &self.store).unwrap(),
            other => panic!("{path} is {other:?}"),
        }
    }
}
