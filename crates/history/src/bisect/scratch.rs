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
pub struct ScratchDir<'w> {
    workspace: &'w Workspace,
    dir: PathBuf,
    state: Option<WorkspaceState>,
    /// The `stat` result of every file of the state at the time the caller got the directory. Files that a command created
    /// are not included.
    stamps_at_handover: BTreeMap<PathBuf, FileStamp>,
}

/// A stamp that changes whenever a file does: inode, size, mtime and ctime.
type FileStamp = (u64, u64, (i64, i64), (i64, i64));

impl<'w> ScratchDir<'w> {
    /// Creates a scratch directory at `dir`, which must not exist or be empty.
    pub fn new(workspace: &'w Workspace, dir: PathBuf) -> Self {
        Self { workspace, dir, state: None, stamps_at_handover: BTreeMap::new() }
    }

    /// Path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory contain the files of `state`. Files that a command created and no state has, such as build
    /// results, stay; its changes to files of the state do not.
    pub fn switch_to_state(&mut self, state: &WorkspaceState) -> Result<(), EngineError> {
        let updated = match self.state.take() {
            Some(current) => !self.is_modified() && self.apply_difference(&current, state)?,
            None => false,
        };
        if !updated {
            if self.dir.exists() {
                fs::remove_dir_all(&self.dir).map_err(WorktreeError::aside("clear", &self.dir))?;
            }
            self.workspace.materialize(state, &self.dir, false)?;
            self.stamps_at_handover =
                read_stamps(&self.dir).map_err(WorktreeError::aside("look through", &self.dir))?;
        }
        self.state = Some(*state);
        Ok(())
    }

    /// Whether a file of the state was changed since the caller got the directory.
    fn is_modified(&self) -> bool {
        let files: Vec<(&PathBuf, &FileStamp)> = self.stamps_at_handover.iter().collect();
        let differs = |(path, handed_over): &(&PathBuf, &FileStamp)| {
            fs::symlink_metadata(path).map_or(true, |meta| file_stamp(&meta) != **handed_over)
        };
        let share = files.len().div_ceil(self.workspace.engine.threads.max(1)).max(FEW);
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                files.chunks(share).map(|chunk| scope.spawn(move || chunk.iter().any(differs))).collect();
            // The result of a thread that panicked is unknown, so the directory counts as changed.
            threads.into_iter().any(|chunk| chunk.join().unwrap_or(true))
        })
    }

    /// Writes what differs; returns `false` if a file is not as it was left.
    fn apply_difference(&mut self, from: &WorkspaceState, to: &WorkspaceState) -> Result<bool, EngineError> {
        let Some(changes) = self.workspace.update_materialized_dir(from, to, &self.dir)? else {
            return Ok(false);
        };
        for change in &changes {
            let path = self.dir.join(std::ffi::OsStr::from_bytes(change.path.as_bytes()));
            self.stamps_at_handover.remove(&path);
            if change.then.as_ref().is_some_and(|then| !then.is_dir()) {
                let meta = fs::symlink_metadata(&path).map_err(WorktreeError::aside("look at", &path))?;
                self.stamps_at_handover.insert(path, file_stamp(&meta));
            }
        }
        Ok(true)
    }
}

fn file_stamp(meta: &fs::Metadata) -> FileStamp {
    (meta.ino(), meta.size(), (meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()))
}

fn read_stamps(dir: &Path) -> io::Result<BTreeMap<PathBuf, FileStamp>> {
    let mut stamps = BTreeMap::new();
    let mut waiting = vec![dir.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if meta.is_dir() {
                waiting.push(entry.path());
            } else {
                stamps.insert(entry.path(), file_stamp(&meta));
            }
        }
    }
    Ok(stamps)
}
