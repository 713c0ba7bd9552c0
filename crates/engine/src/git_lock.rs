//! Keeps git out of a repository while its files are being changed, using git's own lock files.
//!
//! A lock is a dangling symbolic link whose target names the operation that took it. It is created together with this mark in
//! one step, so that a lock left by a process that died can be distinguished from one that git holds.

use std::io;
use std::path::Path;

use stepback_model::ids::OpId;
use stepback_model::path::RelPath;
use stepback_worktree::WorktreeError;
use stepback_worktree::anchored_path::AnchoredDir;
use stepback_worktree::anchored_write::{create_link, exists, read_link, remove_file, sync_dir};

use crate::error::EngineError;

const LOCKS: [&[u8]; 3] = [b"index.lock", b"HEAD.lock", b"packed-refs.lock"];

/// Git locks held on some repositories; released when dropped.
#[derive(Debug)]
pub(crate) struct GitLocks {
    root: AnchoredDir,
    held: Vec<RelPath>,
}

impl GitLocks {
    /// Locks the git directories at `paths` for `operation`. A directory that does not exist needs no lock.
    pub fn acquire(root: &Path, paths: &[RelPath], operation: OpId) -> Result<Self, EngineError> {
        let mut locks = Self { root: open(root)?, held: Vec::new() };
        for (path, lock) in locks_of(&mut locks.root.duplicate(), paths) {
            match create_link(&mut locks.root, &lock, &lock_owner(operation)) {
                Ok(()) => locks.held.push(lock),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(git_busy_error(root, &path, &lock));
                }
                Err(error) => return Err(WorktreeError::io("lock", &lock)(error).into()),
            }
        }
        Ok(locks)
    }

    /// Fails if git is at work in one of the git directories at `paths`.
    pub fn check_free(root: &Path, paths: &[RelPath]) -> Result<(), EngineError> {
        let mut anchor = open(root)?;
        match locks_of(&mut anchor.duplicate(), paths).into_iter().find(|(_, lock)| exists(&mut anchor, lock))
        {
            Some((path, lock)) => Err(git_busy_error(root, &path, &lock)),
            None => Ok(()),
        }
    }

    /// Removes the locks for good, before the journal is closed: without a journal, a lock that a power failure brought back
    /// would look like git's own.
    pub fn release(mut self) {
        let mut directories: Vec<RelPath> = Vec::new();
        for lock in std::mem::take(&mut self.held) {
            let _ = remove_file(&mut self.root, &lock);
            if let Some((parent, _)) = lock.split_last()
                && directories.last() != Some(&parent)
            {
                directories.push(parent);
            }
        }
        for directory in directories {
            // If it fails, the lock is still gone unless the power fails too.
            let _ = sync_dir(&mut self.root, &directory);
        }
    }

    /// Removes the locks left by a process that died during `operation`.
    pub fn clean_up(root: &Path, paths: &[RelPath], operation: OpId) {
        let Ok(mut anchor) = AnchoredDir::open(root) else { return };
        for (_, lock) in locks_of(&mut anchor.duplicate(), paths) {
            if read_link(&mut anchor, &lock).is_some_and(|target| target == lock_owner(operation).as_bytes())
            {
                let _ = remove_file(&mut anchor, &lock);
            }
        }
    }
}

fn open(root: &Path) -> Result<AnchoredDir, EngineError> {
    let failed = |error| WorktreeError::Root { root: root.to_path_buf(), error };
    Ok(AnchoredDir::open(root).map_err(failed)?)
}

fn lock_owner(operation: OpId) -> String {
    format!("stepback-{operation}")
}

/// Returns the lock files of the git directories that exist. One behind a link is not in the workspace.
fn locks_of(anchor: &mut AnchoredDir, paths: &[RelPath]) -> Vec<(RelPath, RelPath)> {
    let existing: Vec<&RelPath> = paths.iter().filter(|path| anchor.dir(path).is_ok()).collect();
    existing.into_iter().flat_map(|path| LOCKS.map(|name| (path.clone(), path.join(name)))).collect()
}

fn git_busy_error(root: &Path, path: &RelPath, lock: &RelPath) -> EngineError {
    let lock = root.join(lock.display().as_ref());
    EngineError::GitBusy { path: path.display().into_owned(), lock: lock.display().to_string() }
}

impl Drop for GitLocks {
    fn drop(&mut self) {
        for lock in &self.held {
            let _ = remove_file(&mut self.root, lock);
        }
    }
}
