//! A workspace, a store, a watcher, and scans with and without it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use stepback_model::hash::Hash;
use stepback_model::tree::{Tree, TreeNode};
use stepback_store::memory::MemoryStore;
use stepback_store::prelude::*;
use stepback_testkit::tree::{self, Copy, Thing};
use stepback_watcher::kernel::{Inotify, Kernel};
use stepback_watcher::watch::{KernelSource, Watch, WatchTarget};
use stepback_worktree::restore::read_content;
use stepback_worktree::rules::Budget;
use stepback_worktree::scan::hints::{ScanHints, WatchAnswer, WatchQuestion};
use stepback_worktree::scan::{Scan, Snapshot, boot_id};

/// A watcher in this process.
pub struct Direct(pub Mutex<Option<Watch>>);

impl ScanHints for Direct {
    fn changes(&self, question: &WatchQuestion<'_>) -> WatchAnswer {
        let mut watch = self.0.lock().unwrap();
        let answer = watch.as_mut().map(|watch| {
            if watch.is_lost() {
                watch.restart()?;
            }
            watch.answer(question.root_id, question.since)
        });
        match answer {
            Some(Ok(answer)) => answer,
            // What cannot be watched any more is not.
            Some(Err(_)) => {
                *watch = None;
                WatchAnswer::Unknown
            }
            None => WatchAnswer::Unknown,
        }
    }
}

/// What a test works with.
pub struct WatchFixture {
    pub dir: tempfile::TempDir,
    pub root: PathBuf,
    pub store: MemoryStore,
    pub budget: Budget,
    pub watcher: Direct,
    pub source: fn() -> KernelSource,
    /// How many entries of directories were looked at.
    pub looked: AtomicU64,
}

/// The real kernel.
pub fn inotify() -> KernelSource {
    Box::new(|| Ok(Box::new(Inotify::new()?) as Box<dyn Kernel>))
}

impl WatchFixture {
    pub fn new() -> Self {
        Self::over(inotify)
    }

    pub fn over(source: fn() -> KernelSource) -> Self {
        let dir = tempfile::tempdir_in(tree::scratch_place()).unwrap();
        let root = dir.path().canonicalize().unwrap().join("work");
        fs::create_dir(&root).unwrap();
        fs::create_dir(dir.path().join("marks")).unwrap();
        let desk = Self {
            dir,
            root,
            store: MemoryStore::new(4 << 30),
            budget: Budget::default(),
            watcher: Direct(Mutex::new(None)),
            source,
            looked: AtomicU64::new(0),
        };
        desk.watch().unwrap();
        desk
    }

    /// Starts the watcher, or another in its place.
    pub fn watch(&self) -> io::Result<()> {
        let marks = self.dir.path().join("marks");
        let place = WatchTarget { root: &self.root, store_dir: None, marks: &marks, max_dirs: 10_000 };
        *self.watcher.0.lock().unwrap() = Some(Watch::begin(&place, (self.source)())?);
        Ok(())
    }

    pub fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    pub fn scan(&self, cache: Option<&Path>, hints: Option<&dyn ScanHints>) -> Snapshot {
        self.scan_with(cache, hints, false)
    }

    /// A scan that asks the watcher for the moment alone.
    pub fn whole(&self) -> Snapshot {
        self.scan_with(Some(&self.cache()), Some(&self.watcher), true)
    }

    fn scan_with(&self, cache: Option<&Path>, hints: Option<&dyn ScanHints>, everything: bool) -> Snapshot {
        let batch = self.store.begin().unwrap();
        let scan = Scan {
            root: &self.root,
            cache,
            vault: None,
            store_dir: None,
            budget: self.budget,
            epoch: self.store.gc_generation().unwrap(),
            boot: boot_id(),
            threads: 2,
            progress: Some(&self.looked),
            hints,
            everything,
            check_objects: false,
        };
        let mut snapshot = scan.run(&self.store, &*batch).unwrap();
        self.store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
        snapshot.remember();
        snapshot
    }

    /// A scan that asks the watcher.
    pub fn asked(&self) -> Snapshot {
        self.scan(Some(&self.cache()), Some(&self.watcher))
    }

    /// Scans with the watcher and without cache, and compares. Whether the watcher could help.
    #[track_caller]
    pub fn check(&self, when: &dyn Fn() -> String) -> bool {
        let (asked, cold) = (self.asked(), self.scan(None, None));
        if (asked.files, asked.git) != (cold.files, cold.git) {
            let differences = tree::differences(&self.stored(cold.files), &self.stored(asked.files));
            let git = if asked.git == cold.git { "" } else { "git differs\n" };
            panic!("{}: a scan with a watcher is wrong:\n{git}{differences}", when());
        }
        asked.hinted
    }

    /// What a scan stored, read back from the store.
    pub fn stored(&self, files: Hash) -> Copy {
        let mut copy = Copy::new();
        self.read_tree(files, &[], &mut copy);
        copy
    }

    fn read_tree(&self, hash: Hash, path: &[u8], copy: &mut Copy) {
        for entry in Tree::load(&self.store, hash).unwrap().into_entries() {
            let child = match path.is_empty() {
                true => entry.name.clone(),
                false => [path, b"/", entry.name.as_slice()].concat(),
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

    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Until nothing that was written before is racy.
pub fn let_times_settle() {
    std::thread::sleep(std::time::Duration::from_millis(60));
}
