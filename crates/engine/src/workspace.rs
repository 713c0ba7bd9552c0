//! An open workspace: its record, its session, its locks, and scans of its present state.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::StepId;
use stepback_model::plan::SkippedPath;
use stepback_model::record::StepRow;
use stepback_model::record::{self, Session};
use stepback_model::state::WorkspaceState;
use stepback_store::{FinishedBatch, ObjectBatch, Store};
use stepback_worktree::WorktreeError;
use stepback_worktree::cache_check::{self, CacheCondition};
use stepback_worktree::scan::{self, Scan, Snapshot};
use stepback_worktree::vault::Vault;

use crate::engine::Engine;
use crate::error::EngineError;

/// How long to wait for another process that is changing the same workspace, unless the store says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How a workspace is scanned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScanMode {
    /// Every file. Required before files are overwritten.
    Everything,
    /// Every file, and every git object. Required before git directories are overwritten.
    EverythingWithObjects,
    /// Only what the watcher reports, if there is one. For recording.
    Hinted,
}

/// An open workspace.
#[derive(Clone)]
pub struct Workspace {
    /// The engine that opened it.
    pub engine: Engine,
    /// The canonical path of its root directory; for a remote workspace, a name instead of a path.
    pub root: PathBuf,
    /// Its record in the store.
    pub record: record::WorkspaceRecord,
    /// The user's session: steps that do not come from an agent belong to it.
    pub session: Session,
}

/// A lock on a workspace; released when dropped.
#[derive(Debug)]
pub struct WorkspaceLock {
    _files: Vec<File>,
}

impl WorkspaceLock {
    pub(crate) fn new(files: Vec<File>) -> Self {
        Self { _files: files }
    }
}

/// The present state of a workspace, stored but not yet part of the log.
pub struct PresentState {
    /// The files, git and session slots as they are now.
    pub state: WorkspaceState,
    /// The hash of the state.
    pub hash: Hash,
    /// How many files were read.
    pub hashed: u64,
    /// Paths that could not be stored, with the reason.
    pub skipped_paths: Vec<SkippedPath>,
    pub(crate) batch: Option<FinishedBatch>,
    pub(crate) snapshot: Option<Snapshot>,
}

impl Workspace {
    /// The store of the engine.
    pub fn store(&self) -> &dyn Store {
        self.engine.store()
    }

    /// The name of the reference that holds the head of this workspace.
    pub fn head_ref(&self) -> String {
        format!("head/{}", self.record.id)
    }

    /// The id of the head: the step that the workspace is at; `None` if nothing is recorded.
    pub fn head_id(&self) -> Result<Option<StepId>, EngineError> {
        Ok(self.store().reference(&self.head_ref())?)
    }

    /// The head: the checkpoint that the workspace is at. Fails if nothing is recorded.
    pub fn head(&self) -> Result<StepRow, EngineError> {
        let nothing = || EngineError::NothingRecorded { root: self.root.clone() };
        let id = self.head_id()?.ok_or_else(nothing)?;
        self.store().step(id)?.ok_or_else(nothing)
    }

    /// Returns the state after a step; fails if it was purged. A step for which the workspace was not scanned has the files
    /// and git of its nearest ancestor that has them.
    pub fn load_state(&self, stored: &StepRow) -> Result<WorkspaceState, EngineError> {
        let purged = || EngineError::Purged { what: describe_checkpoint(stored) };
        if stored.purged {
            return Err(purged());
        }
        let mut state = WorkspaceState::load(self.store(), stored.step.state)?;
        let mut parent = stored.step.parent;
        while !stored.is_checkpoint() && state.files.is_none() {
            let Some(id) = parent else { break };
            let Some(parent_step) = self.store().step(id)? else { break };
            if parent_step.purged {
                return Err(purged());
            }
            let earlier = WorkspaceState::load(self.store(), parent_step.step.state)?;
            (state.files, state.git) = (earlier.files, earlier.git);
            parent = parent_step.step.parent;
        }
        if state.files.is_none() {
            return Err(EngineError::NoFiles { what: describe_checkpoint(stored) });
        }
        Ok(state)
    }

    /// The directory for this workspace's caches and locks; `None` if the store has no local directory.
    pub(crate) fn local_dir(&self) -> Result<Option<PathBuf>, EngineError> {
        let Some(dir) = self.store().local_dir() else { return Ok(None) };
        let dir = dir.join("workspaces").join(self.record.id.to_string());
        if !dir.is_dir() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .map_err(WorktreeError::aside("create", &dir))?;
        }
        Ok(Some(dir))
    }

    /// The directory for this workspace's caches, locks and inbox; `None` if the store has no local directory.
    pub fn cache_dir(&self) -> Result<Option<PathBuf>, EngineError> {
        self.local_dir()
    }

    /// The vault to restore git files from. A store that does not use a vault may still have one that came with a copy of
    /// another store.
    pub(crate) fn vault(&self) -> Result<Option<Vault>, EngineError> {
        self.engine.vault()
    }

    /// The vault to store git files in; `None` if their content goes into the store like that of any other file.
    fn writable_vault(&self) -> Result<Option<Vault>, EngineError> {
        if self.store().has_vault() { self.vault() } else { Ok(None) }
    }

    /// How long to wait for locks of other processes.
    pub(crate) fn lock_timeout(&self) -> Duration {
        self.store().patience().unwrap_or(PATIENCE)
    }

    /// Waits until no other process changes the workspace; other processes may still read it.
    pub fn lock_shared(&self) -> Result<WorkspaceLock, EngineError> {
        self.lock(File::try_lock_shared)
    }

    /// Waits until no other process reads or changes the workspace, and locks all others out.
    pub fn lock_exclusive(&self) -> Result<WorkspaceLock, EngineError> {
        self.check_not_remote()?;
        self.lock(File::try_lock)
    }

    /// Locks the workspace exclusively, also if it has no directory on this machine.
    pub(crate) fn lock_for_everything(&self) -> Result<WorkspaceLock, EngineError> {
        self.lock(File::try_lock)
    }

    fn lock(
        &self,
        try_lock: impl Fn(&File) -> Result<(), TryLockError>,
    ) -> Result<WorkspaceLock, EngineError> {
        let Some(dir) = self.local_dir()? else { return Ok(WorkspaceLock::new(Vec::new())) };
        // The caller relies on objects it has seen in the store, so the collector must not free them.
        let mut files = Vec::new();
        files.extend(self.engine.lock_garbage_collection(&self.root)?);
        files.push(wait_for_lock(&dir.join("lock"), try_lock, &self.root, self.lock_timeout())?);
        Ok(WorkspaceLock::new(files))
    }

    /// Fails for a remote workspace: it has no files to read or write, and its root would be taken for a path.
    fn check_not_remote(&self) -> Result<(), EngineError> {
        match self.record.remote_name() {
            Some(_) => Err(EngineError::NoDirectory { root: self.root.clone() }),
            None => Ok(()),
        }
    }

    /// Scans the whole workspace and stores new objects. The caller must hold a lock.
    pub fn scan_present(&self) -> Result<PresentState, EngineError> {
        self.scan_present_with(ScanMode::Everything, &mut |_, state| self.fill_session_slots(state))
    }

    /// Like [`Self::present`], but scans as `look` says; `fill` may write more objects and set other slots of the state.
    pub(crate) fn scan_present_with(
        &self,
        look: ScanMode,
        fill: &mut dyn FnMut(&dyn ObjectBatch, &mut WorkspaceState) -> Result<(), EngineError>,
    ) -> Result<PresentState, EngineError> {
        self.check_not_remote()?;
        let store = self.store();
        let cache = self.local_dir()?.map(|dir| dir.join("statcache"));
        let vault = self.writable_vault()?;
        let batch = store.begin()?;
        let scan = Scan {
            root: &self.root,
            cache: cache.as_deref(),
            vault: vault.as_ref(),
            store_dir: store.local_dir(),
            budget: self.engine.budget,
            epoch: store.cache_generation()?,
            boot: scan::boot_id(),
            threads: self.engine.threads,
            progress: self.engine.progress.as_deref(),
            hints: self.engine.watcher.as_deref(),
            everything: look != ScanMode::Hinted,
            check_objects: look == ScanMode::EverythingWithObjects,
        };
        let mut snapshot = scan.run(&StoreSource(store), &*batch)?;
        let mut state =
            WorkspaceState { files: Some(snapshot.files), git: snapshot.git, ..WorkspaceState::default() };
        fill(&*batch, &mut state)?;
        let hash = batch.write(ObjectKind::State, &state.encode(), None)?;
        let hashed = snapshot.hashed;
        let troubles = std::mem::take(&mut snapshot.troubles);
        let batch = Some(batch.finish()?);
        Ok(PresentState { state, hash, hashed, skipped_paths: troubles, batch, snapshot: Some(snapshot) })
    }

    /// Returns what is known about the stat cache of the last scan. Changes nothing.
    pub fn inspect_stat_cache(&self) -> CacheCondition {
        let dir = self.store().local_dir().map(|dir| dir.join("workspaces").join(self.record.id.to_string()));
        dir.map_or(CacheCondition::Absent, |dir| {
            cache_check::inspect(&dir.join("statcache"), scan::boot_id())
        })
    }

    /// Scans the whole workspace and commits the new objects, without a step: for display, not for recording.
    pub fn scan_for_display(&self) -> Result<PresentState, EngineError> {
        let _lock = self.lock_shared()?;
        let mut present = self.scan_present()?;
        self.store().commit(present.batch.take(), &[])?;
        present.save_stat_cache();
        Ok(present)
    }
}

impl PresentState {
    /// A placeholder where the real state is filled in later.
    pub(crate) fn placeholder() -> Self {
        let (state, hash) = (WorkspaceState::default(), Hash::from_bytes([0; 32]));
        Self { state, hash, hashed: 0, skipped_paths: Vec::new(), batch: None, snapshot: None }
    }

    /// Updates the stat cache. Call it only after the stored objects are committed.
    pub(crate) fn save_stat_cache(&mut self) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.remember();
        }
    }
}

/// Returns the name of a checkpoint for messages: its number, and its label if it has one.
pub fn describe_checkpoint(stored: &StepRow) -> String {
    let step = &stored.step;
    match &stored.annotation.label {
        Some(label) => format!("#{} \"{label}\"", step.number),
        None => format!("#{}", step.number),
    }
}

/// The reading side of a store, as a sized value.
pub(crate) struct StoreSource<'a>(pub &'a dyn Store);

impl stepback_model::object::ObjectSource for StoreSource<'_> {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, stepback_model::object::ObjectError> {
        self.0.read(kind, hash)
    }
}

pub(crate) fn wait_for_lock(
    path: &Path,
    try_lock: impl Fn(&File) -> Result<(), TryLockError>,
    root: &Path,
    patience: Duration,
) -> Result<File, EngineError> {
    let open =
        || OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    // A lock needs no permission to write. In a store that is mounted read-only, no other process changes anything; if the
    // file does not exist there, its directory is locked.
    let existing = |error: io::Error| match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            File::open(path).or_else(|_| File::open(path.parent().unwrap_or(path))).map_err(|_| error)
        }
        _ => Err(error),
    };
    let file = open().or_else(existing).map_err(WorktreeError::aside("open", path))?;
    let mut waited = Duration::ZERO;
    let mut pause = Duration::from_micros(200);
    loop {
        match try_lock(&file) {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if waited < patience => {
                std::thread::sleep(pause);
                waited += pause;
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            Err(TryLockError::WouldBlock) => return Err(EngineError::Busy { root: root.to_path_buf() }),
            Err(TryLockError::Error(error)) => return Err(WorktreeError::aside("lock", path)(error).into()),
        }
    }
}
