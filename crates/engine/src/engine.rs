//! The engine: a store, and the environment that workspaces are opened with.
//!
//! Cloning it is cheap. Every open workspace has a clone of its own, so it can be moved to another thread or kept for as
//! long as a program runs.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use stepback_model::anomaly::AnomalyLimits;
use stepback_model::env::Env;
use stepback_model::ids::WorkspaceId;
use stepback_model::record::{self, Session, SessionInfo};
use stepback_store::embedded::EmbeddedStore;
use stepback_store::{Mutation, Store, StoreError};
use stepback_worktree::WorktreeError;
use stepback_worktree::rules::Budget;
use stepback_worktree::scan::hints::ScanHints;
use stepback_worktree::vault::Vault;

use crate::error::EngineError;
use crate::recorder::settings::RecorderSettings;
use crate::system_env::SystemEnv;
use crate::workspace::{PATIENCE, Workspace, WorkspaceLock, wait_for_lock};

/// The maximum number of threads that a scan uses by default.
const MAX_THREADS: usize = 8;

/// How many manual checkpoints a session may have by default.
pub const MAX_MANUAL: usize = 50;

/// A store, and the environment that workspaces are opened with.
#[derive(Clone)]
pub struct Engine {
    /// The store that holds objects and the log.
    pub store: Arc<dyn Store>,
    /// The source of the time and of new ids.
    pub env: Arc<dyn Env>,
    /// How much of the files that git ignores is stored.
    pub budget: Budget,
    /// The maximum number of threads for a scan.
    pub threads: usize,
    /// How many manual checkpoints a session may have; `None` for any number.
    pub max_manual: Option<usize>,
    /// A counter of work done, for a progress display.
    pub progress: Option<Arc<AtomicU64>>,
    /// A file watcher that may know what changed since the last scan.
    pub watcher: Option<Arc<dyn ScanHints>>,
    /// What is recorded of what agents report.
    pub recorder: Arc<RecorderSettings>,
    /// From where on calls are unusual.
    pub anomaly_limits: AnomalyLimits,
}

impl Engine {
    /// Opens the embedded store in a directory, and creates it if there is none. The store must not be inside a
    /// workspace.
    ///
    /// The `stepback` program uses the same format: `stepback --store DIR log` shows what an engine recorded there.
    pub fn open(store: impl AsRef<Path>) -> Result<Self, EngineError> {
        let store = EmbeddedStore::open(store.as_ref())?;
        Ok(Self::new(Arc::new(store), Arc::new(SystemEnv)))
    }

    /// Returns an engine over any store, with the default budget and limits and as many threads as this process may use.
    pub fn new(store: Arc<dyn Store>, env: Arc<dyn Env>) -> Self {
        Self {
            store,
            env,
            budget: Budget::default(),
            threads: default_thread_count(),
            max_manual: Some(MAX_MANUAL),
            progress: None,
            watcher: None,
            recorder: Arc::default(),
            anomaly_limits: AnomalyLimits::default(),
        }
    }

    /// The store that holds objects and the log.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Opens the workspace at a path, which may be relative or contain links; registers it if it is new.
    pub fn open_workspace(&self, path: impl AsRef<Path>) -> Result<Workspace, EngineError> {
        let path = path.as_ref();
        let root = path.canonicalize().map_err(WorktreeError::aside("open", path))?;
        self.open_workspace_root(&root)
    }

    /// Opens the workspace at `root`, which must be a canonical path; registers it if it is new.
    pub fn open_workspace_root(&self, root: &Path) -> Result<Workspace, EngineError> {
        self.check_outside_store(root)?;
        let workspace = match self.find_workspace(root)? {
            Some(workspace) => workspace,
            None => self.register_workspace(root)?,
        };
        if let Some(dir) = self.store.local_dir() {
            // Only a hint for hooks; without it they query the database.
            let _ = crate::workspace_index::write_marker(dir, root, workspace.record.id);
        }
        workspace.recover()?;
        Ok(workspace)
    }

    /// Opens the workspace at `root`; fails if stepback has not recorded it.
    pub fn open_known_workspace(&self, root: &Path) -> Result<Workspace, EngineError> {
        let workspace = self
            .find_workspace(root)?
            .ok_or_else(|| EngineError::NothingRecorded { root: root.to_path_buf() })?;
        workspace.recover()?;
        Ok(workspace)
    }

    /// The vault of git files; `None` if this store neither has one nor received one from a copy.
    pub fn vault(&self) -> Result<Option<Vault>, EngineError> {
        let Some(dir) = self.store.local_dir() else { return Ok(None) };
        let path = dir.join(stepback_store::port::VAULT);
        if !self.store.has_vault() && !path.is_dir() {
            return Ok(None);
        }
        Ok(Some(Vault::open(&path)?))
    }

    /// The directory of the vault, if there is one.
    pub(crate) fn vault_dir(&self) -> Option<PathBuf> {
        let dir = self.store.local_dir()?.join(stepback_store::port::VAULT);
        dir.is_dir().then_some(dir)
    }

    /// Waits until the collector is not running, and keeps it from running until the lock is dropped.
    pub fn block_garbage_collection(&self) -> Result<WorkspaceLock, EngineError> {
        let store = self.store.local_dir().unwrap_or(Path::new("the store"));
        Ok(WorkspaceLock::new(self.lock_garbage_collection(store)?.into_iter().collect()))
    }

    /// Like [`Self::keep_collector_out`]; `about` is the path that an error names.
    pub(crate) fn lock_garbage_collection(&self, about: &Path) -> Result<Option<File>, EngineError> {
        let Some(dir) = self.store.local_dir() else { return Ok(None) };
        let patience = self.store.patience().unwrap_or(PATIENCE);
        Ok(Some(wait_for_lock(&dir.join("collect.lock"), File::try_lock_shared, about, patience)?))
    }

    /// Returns the workspace at `root` for reading, if stepback has recorded it: interrupted operations are not finished.
    pub fn find_workspace(&self, root: &Path) -> Result<Option<Workspace>, EngineError> {
        let Some(record) = self.store.workspace_at(root.as_os_str().as_bytes())? else { return Ok(None) };
        let Some(session) = self.store.session(Session::id_of(record.id, Session::PERSON, ""))? else {
            return Err(StoreError::Corrupt { what: format!("{} has no session", root.display()) }.into());
        };
        Ok(Some(Workspace { engine: self.clone(), root: root.to_path_buf(), record, session }))
    }

    /// Opens the remote workspace `name`, which has no directory on this machine and which agents on other machines report to.
    /// Registers it if it is new.
    pub fn open_remote_workspace(&self, name: &str) -> Result<Workspace, EngineError> {
        let root = [record::WorkspaceRecord::REMOTE, name.as_bytes()].concat();
        let root = Path::new(OsStr::from_bytes(&root));
        match self.find_workspace(root)? {
            Some(workspace) => Ok(workspace),
            None => self.register_workspace(root),
        }
    }

    /// Returns a remote workspace that was opened before, without a query to the store. This is correct only because a remote
    /// workspace has no directory here that would have to be checked.
    pub fn reopen_remote_workspace(&self, record: record::WorkspaceRecord, session: Session) -> Workspace {
        let root = Path::new(OsStr::from_bytes(&record.root)).to_path_buf();
        Workspace { engine: self.clone(), root, record, session }
    }

    fn register_workspace(&self, root: &Path) -> Result<Workspace, EngineError> {
        // A hook may have chosen the id while the store could not be reached; events wait in the inbox of that id.
        let reserved = self.store.local_dir().and_then(|dir| crate::workspace_index::marked_id(dir, root));
        if let Some(id) = reserved {
            match self.register_workspace_as(root, id) {
                Err(EngineError::Store(StoreError::Exists { .. })) => {}
                registered => return registered,
            }
        }
        self.register_workspace_as(root, WorkspaceId::from_bytes(self.env.fresh_id()))
    }

    fn register_workspace_as(&self, root: &Path, id: WorkspaceId) -> Result<Workspace, EngineError> {
        let now = self.env.now();
        let record =
            record::WorkspaceRecord { id, root: root.as_os_str().as_bytes().to_vec(), created_at: now };
        let session = Session {
            id: Session::id_of(id, Session::PERSON, ""),
            workspace: id,
            agent: Session::PERSON.to_string(),
            started_at: now,
            info: SessionInfo::default(),
        };
        let mutations = [Mutation::AddWorkspace(record.clone()), Mutation::AddSession(session.clone())];
        match self.store.commit(None, &mutations) {
            Ok(_) => Ok(Workspace { engine: self.clone(), root: root.to_path_buf(), record, session }),
            // Another process may have registered it first.
            Err(error) => self.find_workspace(root)?.ok_or(error.into()),
        }
    }
}

/// Returns how many threads to use. The standard library also reads control groups, which takes too long for a small
/// checkpoint.
fn default_thread_count() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(1, |cpus| cpus.count() as usize).clamp(1, MAX_THREADS)
}
