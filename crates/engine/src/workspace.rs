//! An open workspace: its record, its session, its locks, and a look at its present.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use stepback_model::env::Env;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{StepId, WorkspaceId};
use stepback_model::plan::LeftAlone;
use stepback_model::record::{self, Session, SessionInfo};
use stepback_model::state::State;
use stepback_store::port::StoredCheckpoint;
use stepback_store::{FinishedBatch, Mutation, ObjectBatch, Store, StoreError};
use stepback_worktree::WorktreeError;
use stepback_worktree::rules::Budget;
use stepback_worktree::scan::hints::Hints;
use stepback_worktree::scan::{self, Scan, Snapshot};
use stepback_worktree::vault::Vault;

use crate::error::EngineError;

/// How long to wait for another process that is changing the same workspace.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A store and the outside world.
pub struct Engine<'a> {
    /// Where everything is kept.
    pub store: &'a dyn Store,
    /// Time and ids.
    pub env: &'a dyn Env,
    /// How much of what git ignores is stored.
    pub budget: Budget,
    /// Most threads to use.
    pub threads: usize,
    /// Counts work done, for a progress display.
    pub progress: Option<&'a AtomicU64>,
    /// Somebody who may know what changed since the last look.
    pub watcher: Option<&'a dyn Hints>,
}

/// How a workspace is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScanMode {
    /// Every file. What is about to be written over is looked at like this.
    Everything,
    /// What a watcher names, if there is one; for recording what is there.
    Hinted,
}

/// A workspace that is open for work.
pub struct Workspace<'a> {
    /// The engine.
    pub engine: &'a Engine<'a>,
    /// Its root.
    pub root: PathBuf,
    /// Its record.
    pub record: record::Workspace,
    /// The session that steps made here belong to.
    pub session: Session,
}

/// A lock on a workspace; given back when dropped.
#[derive(Debug)]
pub struct WorkspaceLock {
    _files: Vec<File>,
}

/// The present state of a workspace, stored but not yet part of the log.
pub struct PresentState {
    /// The state.
    pub state: State,
    /// Its hash.
    pub hash: Hash,
    /// Files that were read.
    pub hashed: u64,
    /// Paths that could not be covered.
    pub troubles: Vec<LeftAlone>,
    pub(crate) batch: Option<FinishedBatch>,
    pub(crate) snapshot: Option<Snapshot>,
}

impl Engine<'_> {
    /// Opens the workspace at `root`, which must be a canonical path; registers it if it is new.
    pub fn workspace(&self, root: &Path) -> Result<Workspace<'_>, EngineError> {
        let workspace = match self.find_workspace(root)? {
            Some(workspace) => workspace,
            None => self.register(root)?,
        };
        if let Some(dir) = self.store.local_dir() {
            // Only a hint for hooks; without it they ask the database.
            let _ = crate::workspace_index::note(dir, root, workspace.record.id);
        }
        workspace.recover()?;
        Ok(workspace)
    }

    /// Opens the workspace at `root` if stepback knows it.
    pub fn known_workspace(&self, root: &Path) -> Result<Workspace<'_>, EngineError> {
        let workspace = self
            .find_workspace(root)?
            .ok_or_else(|| EngineError::NothingRecorded { root: root.to_path_buf() })?;
        workspace.recover()?;
        Ok(workspace)
    }

    /// The vault of git files, if this store has or was given one.
    pub(crate) fn vault(&self) -> Result<Option<Vault>, EngineError> {
        let Some(dir) = self.store.local_dir() else { return Ok(None) };
        let path = dir.join(stepback_store::port::VAULT);
        if !self.store.has_vault() && !path.is_dir() {
            return Ok(None);
        }
        Ok(Some(Vault::open(&path)?))
    }

    /// Waits until nothing is being freed; nothing will be until the lock is given back.
    pub(crate) fn keep_collector_out(&self) -> Result<WorkspaceLock, EngineError> {
        let store = self.store.local_dir().unwrap_or(Path::new("the store"));
        Ok(WorkspaceLock { _files: self.lock_collector_out(store)?.into_iter().collect() })
    }

    /// `about` is what an error names.
    fn lock_collector_out(&self, about: &Path) -> Result<Option<File>, EngineError> {
        let Some(dir) = self.store.local_dir() else { return Ok(None) };
        let patience = self.store.patience().unwrap_or(PATIENCE);
        Ok(Some(wait_for(&dir.join("collect.lock"), File::try_lock_shared, about, patience)?))
    }

    pub(crate) fn find_workspace(&self, root: &Path) -> Result<Option<Workspace<'_>>, EngineError> {
        let Some(record) = self.store.workspace_at(root.as_os_str().as_bytes())? else { return Ok(None) };
        let Some(session) = self.store.session(Session::id_of(record.id, Session::PERSON, ""))? else {
            return Err(StoreError::Corrupt { what: format!("{} has no session", root.display()) }.into());
        };
        Ok(Some(Workspace { engine: self, root: root.to_path_buf(), record, session }))
    }

    /// Opens the workspace called `name` that is no directory here; registers it if it is new. Agents elsewhere report to it.
    pub fn remote_workspace(&self, name: &str) -> Result<Workspace<'_>, EngineError> {
        let root = [record::Workspace::REMOTE, name.as_bytes()].concat();
        let root = Path::new(OsStr::from_bytes(&root));
        match self.find_workspace(root)? {
            Some(workspace) => Ok(workspace),
            None => self.register(root),
        }
    }

    /// A workspace as it was when it was opened before, without asking the store. That its directory is another machine's or
    /// nobody's is what makes that right: nothing of it is looked at.
    pub fn remote_workspace_again(&self, record: record::Workspace, session: Session) -> Workspace<'_> {
        let root = Path::new(OsStr::from_bytes(&record.root)).to_path_buf();
        Workspace { engine: self, root, record, session }
    }

    fn register(&self, root: &Path) -> Result<Workspace<'_>, EngineError> {
        let now = self.env.now();
        let id = WorkspaceId::from_bytes(self.env.fresh_id());
        let record = record::Workspace { id, root: root.as_os_str().as_bytes().to_vec(), created_at: now };
        let session = Session {
            id: Session::id_of(id, Session::PERSON, ""),
            workspace: id,
            agent: Session::PERSON.to_string(),
            started_at: now,
            info: SessionInfo::default(),
        };
        let mutations = [Mutation::AddWorkspace(record.clone()), Mutation::AddSession(session.clone())];
        match self.store.commit(None, &mutations) {
            Ok(_) => Ok(Workspace { engine: self, root: root.to_path_buf(), record, session }),
            // Another process may have been faster.
            Err(error) => self.find_workspace(root)?.ok_or(error.into()),
        }
    }
}

impl<'a> Workspace<'a> {
    /// The store.
    pub fn store(&self) -> &'a dyn Store {
        self.engine.store
    }

    /// Name of the reference that says where this workspace stands.
    pub fn head_name(&self) -> String {
        format!("head/{}", self.record.id)
    }

    /// The step this workspace stands at.
    pub fn head_id(&self) -> Result<Option<StepId>, EngineError> {
        Ok(self.store().reference(&self.head_name())?)
    }

    /// The checkpoint this workspace stands at.
    pub fn head(&self) -> Result<StoredCheckpoint, EngineError> {
        let nothing = || EngineError::NothingRecorded { root: self.root.clone() };
        let id = self.head_id()?.ok_or_else(nothing)?;
        self.store().step(id)?.ok_or_else(nothing)
    }

    /// The state after a step, unless it was given up. Files and git that a step did not look at are as they were at the
    /// step it grew from.
    pub fn state_of(&self, stored: &StoredCheckpoint) -> Result<State, EngineError> {
        let purged = || EngineError::Purged { what: describe(stored) };
        if stored.purged {
            return Err(purged());
        }
        let mut state = State::load(self.store(), stored.checkpoint.step.state)?;
        let mut parent = stored.checkpoint.step.parent;
        while stored.checkpoint.trigger.is_none() && state.files.is_none() {
            let Some(id) = parent else { break };
            let Some(before) = self.store().step(id)? else { break };
            if before.purged {
                return Err(purged());
            }
            let earlier = State::load(self.store(), before.checkpoint.step.state)?;
            (state.files, state.git) = (earlier.files, earlier.git);
            parent = before.checkpoint.step.parent;
        }
        if state.files.is_none() {
            return Err(EngineError::NoFiles { what: describe(stored) });
        }
        Ok(state)
    }

    /// The directory for this workspace's caches and locks; `None` for a store without one.
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

    /// The directory for this workspace's caches, locks and inbox; `None` for a store without one.
    pub fn cache_dir(&self) -> Result<Option<PathBuf>, EngineError> {
        self.local_dir()
    }

    /// Where git files are brought back from. A store without a vault of its own may still have one here that came with a copy
    /// of another store.
    pub(crate) fn vault(&self) -> Result<Option<Vault>, EngineError> {
        self.engine.vault()
    }

    /// Where git files are kept; `None` if their content goes into the store like any other.
    fn vault_to_fill(&self) -> Result<Option<Vault>, EngineError> {
        if self.store().has_vault() { self.vault() } else { Ok(None) }
    }

    /// How long to wait for other processes.
    pub(crate) fn patience(&self) -> Duration {
        self.store().patience().unwrap_or(PATIENCE)
    }

    /// Waits until nobody changes the workspace; others may look at it at the same time.
    pub fn lock_shared(&self) -> Result<WorkspaceLock, EngineError> {
        self.lock(File::try_lock_shared)
    }

    /// Waits until nobody looks at or changes the workspace, and keeps everybody else out.
    pub fn lock_exclusive(&self) -> Result<WorkspaceLock, EngineError> {
        self.refuse_remote()?;
        self.lock(File::try_lock)
    }

    fn lock(
        &self,
        try_lock: impl Fn(&File) -> Result<(), TryLockError>,
    ) -> Result<WorkspaceLock, EngineError> {
        let Some(dir) = self.local_dir()? else { return Ok(WorkspaceLock { _files: Vec::new() }) };
        // Whoever relies on objects seen in the store keeps the collector out.
        let mut files = Vec::new();
        files.extend(self.engine.lock_collector_out(&self.root)?);
        files.push(wait_for(&dir.join("lock"), try_lock, &self.root, self.patience())?);
        Ok(WorkspaceLock { _files: files })
    }

    /// Nothing may look for, or write, files of a workspace that is none: its root would be taken for a path.
    fn refuse_remote(&self) -> Result<(), EngineError> {
        match self.record.remote_name() {
            Some(_) => Err(EngineError::NoDirectory { root: self.root.clone() }),
            None => Ok(()),
        }
    }

    /// Looks at the whole workspace and stores what is new. Needs a lock held by the caller.
    pub fn present(&self) -> Result<PresentState, EngineError> {
        self.present_with(ScanMode::Everything, &mut |_, state| self.fill_session_slots(state))
    }

    /// Like [`Self::present`], but looks as `look` says; `fill` may write more objects and set other slots of the state.
    pub(crate) fn present_with(
        &self,
        look: ScanMode,
        fill: &mut dyn FnMut(&dyn ObjectBatch, &mut State) -> Result<(), EngineError>,
    ) -> Result<PresentState, EngineError> {
        self.refuse_remote()?;
        let store = self.store();
        let cache = self.local_dir()?.map(|dir| dir.join("statcache"));
        let vault = self.vault_to_fill()?;
        let batch = store.begin()?;
        let scan = Scan {
            root: &self.root,
            cache: cache.as_deref(),
            vault: vault.as_ref(),
            store_dir: store.local_dir(),
            budget: self.engine.budget,
            epoch: store.gc_generation()?,
            boot: scan::boot_id(),
            threads: self.engine.threads,
            progress: self.engine.progress,
            hints: self.engine.watcher,
            everything: look == ScanMode::Everything,
        };
        let mut snapshot = scan.run(&StoreSource(store), &*batch)?;
        let mut state = State { files: Some(snapshot.files), git: snapshot.git, ..State::default() };
        fill(&*batch, &mut state)?;
        let hash = batch.write(ObjectKind::State, &state.encode(), None)?;
        let hashed = snapshot.hashed;
        let troubles = std::mem::take(&mut snapshot.troubles);
        let batch = Some(batch.finish()?);
        Ok(PresentState { state, hash, hashed, troubles, batch, snapshot: Some(snapshot) })
    }

    /// Looks at the whole workspace and makes what was stored visible, without a step. For showing, not for keeping.
    pub fn look(&self) -> Result<PresentState, EngineError> {
        let _lock = self.lock_shared()?;
        let mut present = self.present()?;
        self.store().commit(present.batch.take(), &[])?;
        present.remember();
        Ok(present)
    }
}

impl PresentState {
    /// Stands in where the real one is filled in later.
    pub(crate) fn nothing() -> Self {
        let (state, hash) = (State::default(), Hash::from_bytes([0; 32]));
        Self { state, hash, hashed: 0, troubles: Vec::new(), batch: None, snapshot: None }
    }

    /// Updates the stat cache. Only after what was stored has been committed.
    pub(crate) fn remember(&mut self) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.remember();
        }
    }
}

/// How a checkpoint is called in messages.
pub fn describe(stored: &StoredCheckpoint) -> String {
    let step = &stored.checkpoint.step;
    match &stored.checkpoint.annotation.label {
        Some(label) => format!("#{} \"{label}\"", step.number),
        None => format!("#{}", step.number),
    }
}

/// The reading half of a store, as a sized value.
pub(crate) struct StoreSource<'a>(pub &'a dyn Store);

impl stepback_model::object::ObjectSource for StoreSource<'_> {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, stepback_model::object::ObjectError> {
        self.0.read(kind, hash)
    }
}

pub(crate) fn wait_for(
    path: &Path,
    try_lock: impl Fn(&File) -> Result<(), TryLockError>,
    root: &Path,
    patience: Duration,
) -> Result<File, EngineError> {
    let open =
        || OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = open().map_err(WorktreeError::aside("open", path))?;
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

/// Whether `path` is a directory that exists.
pub(crate) fn is_dir(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_dir())
}
