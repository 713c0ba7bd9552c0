//! A directory that is brought to one moment after another by writing only what differs, so the cost of a probe depends on the
//! changes and not on the size of the tree.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stepback_engine::{EngineError, Workspace};
use stepback_model::state::WorkspaceState;
use stepback_worktree::WorktreeError;

/// Minimum number of files per thread; fewer are not worth a thread.
const FEW: usize = 500;

/// A directory that is brought from one past state to another.
pub struct Scratch<'w> {
    workspace: &'w Workspace,
    dir: PathBuf,
    at: Option<WorkspaceState>,
    /// The `stat` result of every file of the state at the time the caller got the directory. Files that a command created
    /// are not included.
    handed_over: BTreeMap<PathBuf, Stamp>,
}

/// A stamp that changes whenever a file does: inode, size, mtime and ctime.
type Stamp = (u64, u64, (i64, i64), (i64, i64));

impl<'w> Scratch<'w> {
    /// Creates a scratch directory at `dir`, which must not exist or be empty.
    pub fn new(workspace: &'w Workspace, dir: PathBuf) -> Self {
        Self { workspace, dir, at: None, handed_over: BTreeMap::new() }
    }

    /// Path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory contain the files of `state`. Files that a command created and no state has, such as build
    /// results, stay; its changes to files of the state do not.
    pub fn become_state(&mut self, state: &WorkspaceState) -> Result<(), EngineError> {
        let updated = match self.at.take() {
            Some(from) => !self.is_spoilt() && self.update(&from, state)?,
            None => false,
        };
        if !updated {
            if self.dir.exists() {
                fs::remove_dir_all(&self.dir).map_err(WorktreeError::aside("clear", &self.dir))?;
            }
            self.workspace.materialize(state, &self.dir, false)?;
            self.handed_over = stamps(&self.dir).map_err(WorktreeError::aside("look through", &self.dir))?;
        }
        self.at = Some(*state);
        Ok(())
    }

    /// Whether a file of the state was changed since the caller got the directory.
    fn is_spoilt(&self) -> bool {
        let files: Vec<(&PathBuf, &Stamp)> = self.handed_over.iter().collect();
        let differs = |(path, handed_over): &(&PathBuf, &Stamp)| {
            fs::symlink_metadata(path).map_or(true, |meta| stamp(&meta) != **handed_over)
        };
        let share = files.len().div_ceil(self.workspace.engine.threads.max(1)).max(FEW);
        std::thread::scope(|scope| {
            let looking: Vec<_> =
                files.chunks(share).map(|some| scope.spawn(move || some.iter().any(differs))).collect();
            // The result of a thread that panicked is unknown, so the directory counts as changed.
            looking.into_iter().any(|some| some.join().unwrap_or(true))
        })
    }

    /// Writes what differs; returns `false` if a file is not as it was left.
    fn update(&mut self, from: &WorkspaceState, to: &WorkspaceState) -> Result<bool, EngineError> {
        let Some(changes) = self.workspace.carry_over(from, to, &self.dir)? else { return Ok(false) };
        for change in &changes {
            let path = self.dir.join(std::ffi::OsStr::from_bytes(change.path.as_bytes()));
            self.handed_over.remove(&path);
            if change.then.as_ref().is_some_and(|then| !then.is_dir()) {
                let meta = fs::symlink_metadata(&path).map_err(WorktreeError::aside("look at", &path))?;
                self.handed_over.insert(path, stamp(&meta));
            }
        }
        Ok(true)
    }
}

fn stamp(meta: &fs::Metadata) -> Stamp {
    (meta.ino(), meta.size(), (meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()))
}

fn stamps(dir: &Path) -> io::Result<BTreeMap<PathBuf, Stamp>> {
    let mut stamps = BTreeMap::new();
    let mut waiting = vec![dir.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if meta.is_dir() {
                waiting.push(entry.path());
            } else {
                stamps.insert(entry.path(), stamp(&meta));
            }
        }
    }
    Ok(stamps)
}
