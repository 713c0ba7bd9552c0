//! Keeps git out of a repository while its files are being changed, using git's own lock files.
//!
//! A lock is a dangling symbolic link whose target names the operation that took it. It is created together with this mark in
//! one step, so that a lock left by a process that died can be distinguished from one that git holds.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use stepback_faults as faults;
use stepback_model::ids::OpId;

use crate::error::EngineError;

const LOCKS: [&str; 3] = ["index.lock", "HEAD.lock", "packed-refs.lock"];

/// Git locks held on some repositories; released when dropped.
#[derive(Debug, Default)]
pub(crate) struct GitLocks {
    held: Vec<PathBuf>,
}

impl GitLocks {
    /// Locks the git directories at `paths` for `operation`. A directory that does not exist needs no lock.
    pub fn take(root: &Path, paths: &[String], operation: OpId) -> Result<Self, EngineError> {
        let mut locks = Self::default();
        for (path, lock) in places(root, paths) {
            match faults::point().and_then(|()| symlink(mark(operation), &lock)) {
                Ok(()) => locks.held.push(lock),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(busy(path, &lock)),
                Err(error) => return Err(stepback_worktree::WorktreeError::aside("lock", lock)(error).into()),
            }
        }
        Ok(locks)
    }

    /// Fails if git is at work in one of the git directories at `paths`.
    pub fn expect_free(root: &Path, paths: &[String]) -> Result<(), EngineError> {
        match places(root, paths).find(|(_, lock)| fs::symlink_metadata(lock).is_ok()) {
            Some((path, lock)) => Err(busy(path, &lock)),
            None => Ok(()),
        }
    }

    /// Removes the locks left by a process that died during `operation`.
    pub fn clean_up(root: &Path, paths: &[String], operation: OpId) {
        for (_, lock) in places(root, paths) {
            if fs::read_link(&lock).is_ok_and(|target| target.as_os_str() == mark(operation).as_str()) {
                let _ = fs::remove_file(lock);
            }
        }
    }
}

fn mark(operation: OpId) -> String {
    format!("stepback-{operation}")
}

/// Returns the paths of the lock files. Only in real directories: a symbolic link could lead out of the workspace.
fn places<'p>(root: &'p Path, paths: &'p [String]) -> impl Iterator<Item = (&'p String, PathBuf)> {
    let is_dir = |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    let real = move |path: &&String| {
        Path::new(path.as_str())
            .ancestors()
            .all(|part| part.as_os_str().is_empty() || is_dir(&root.join(part)))
    };
    paths.iter().filter(real).flat_map(|path| LOCKS.map(|name| (path, root.join(path).join(name))))
}

fn busy(path: &str, lock: &Path) -> EngineError {
    EngineError::GitBusy { path: path.to_string(), lock: lock.display().to_string() }
}

impl Drop for GitLocks {
    fn drop(&mut self) {
        for lock in &self.held {
            let _ = fs::remove_file(lock);
        }
    }
}
