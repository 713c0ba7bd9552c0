//! A workspace in a temporary directory with a store beside it: what tests of the engine, and of everything above it, start
//! from.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepback_engine::Engine;
use stepback_model::env::{Env, FrozenEnv};
use stepback_model::time::Timestamp;
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::memory::MemoryStore;
use stepback_worktree::rules::Budget;

use crate::tree::{self, Copy};

/// The time at which the clocks of tests start: 2023-11-14T22:13:20Z, in microseconds.
pub const START: i64 = 1_700_000_000_000_000;

/// A workspace and its store; both are deleted when it is dropped.
pub struct TestWorkspace {
    /// The root of the workspace, a canonical path.
    pub root: PathBuf,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The clock and the source of ids.
    pub env: Arc<dyn Env>,
    /// How much of the files that git ignores is stored.
    pub budget: Budget,
    /// How many threads a scan may use.
    pub threads: usize,
    top: PathBuf,
    _dir: tempfile::TempDir,
}

impl Default for TestWorkspace {
    fn default() -> Self {
        Self::new()
    }
}

impl TestWorkspace {
    /// Creates an empty workspace with a store on disk.
    pub fn new() -> Self {
        Self::with_store(|top| Arc::new(EmbeddedStore::open(&top.join("store")).unwrap()))
    }

    /// Creates an empty workspace with a store in memory.
    pub fn in_memory() -> Self {
        Self::with_store(|_| Arc::new(MemoryStore::new(1 << 30)))
    }

    /// Creates an empty workspace with any store; `open` gets the directory that contains everything of the test.
    pub fn with_store(open: impl FnOnce(&Path) -> Arc<dyn Store>) -> Self {
        let dir = tempfile::tempdir_in(tree::scratch_place()).unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("work");
        fs::create_dir(&root).unwrap();
        let store = open(&top);
        Self { root, store, env: frozen_env(1), budget: Budget::default(), threads: 2, top, _dir: dir }
    }

    /// Replaces the seed of the ids.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { env: frozen_env(seed), ..self }
    }

    /// Replaces the clock and the source of ids.
    pub fn with_env(self, env: impl Env + 'static) -> Self {
        Self { env: Arc::new(env), ..self }
    }

    /// The engine over the store.
    pub fn engine(&self) -> Engine {
        Engine {
            budget: self.budget,
            threads: self.threads,
            ..Engine::new(self.store.clone(), self.env.clone())
        }
    }

    /// The directory that contains the workspace, the store and everything else of the test.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// A directory outside the workspace.
    pub fn outside(&self) -> PathBuf {
        let outside = self.top.join("outside");
        fs::create_dir_all(&outside).unwrap();
        outside
    }

    /// A path in the workspace.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Writes a file and creates its directories.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The text of a file, which must exist.
    #[track_caller]
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Whether there is something at a path; links are not followed.
    pub fn has(&self, path: &str) -> bool {
        fs::symlink_metadata(self.path(path)).is_ok()
    }

    /// Sets the permissions of a path.
    pub fn chmod(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), Permissions::from_mode(mode)).unwrap();
    }

    /// The permissions of a path; links are not followed.
    pub fn mode(&self, path: &str) -> u32 {
        fs::symlink_metadata(self.path(path)).unwrap().permissions().mode() & 0o7777
    }

    /// A copy of everything in the workspace.
    pub fn copy(&self) -> Copy {
        tree::copy_of(&self.root, |_| false)
    }

    /// Fails unless the workspace is exactly as it was copied.
    #[track_caller]
    pub fn expect(&self, expected: &Copy) {
        let differences = tree::differences(expected, &self.copy());
        assert!(differences.is_empty(), "the workspace is wrong:\n{differences}");
    }
}

fn frozen_env(seed: u64) -> Arc<dyn Env> {
    Arc::new(FrozenEnv::new(Timestamp::from_micros(START), seed))
}
