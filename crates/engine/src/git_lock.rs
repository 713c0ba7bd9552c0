//! Keeping git out of a repository while its files are being changed, by git's own lock files.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::EngineError;

const LOCKS: [&str; 3] = ["index.lock", "HEAD.lock", "packed-refs.lock"];

/// Git's locks on some repositories; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct GitLocks {
    held: Vec<PathBuf>,
}

impl GitLocks {
    /// Locks the git directories at `paths`. A directory that is not there needs no lock.
    pub fn take(root: &Path, paths: &[String]) -> Result<Self, EngineError> {
        let mut locks = Self::default();
        for path in paths {
            let dir = root.join(path);
            // Only a real directory: a link could lead out of the workspace.
            if !fs::symlink_metadata(&dir).is_ok_and(|metadata| metadata.is_dir()) {
                continue;
            }
            for name in LOCKS {
                let lock = dir.join(name);
                match OpenOptions::new().write(true).create_new(true).open(&lock) {
                    Ok(_) => locks.held.push(lock),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        return Err(EngineError::GitBusy { path: path.clone(), lock: lock.display().to_string() });
                    }
                    Err(error) => {
                        return Err(stepback_worktree::WorktreeError::aside("lock", lock)(error).into());
                    }
                }
            }
        }
        Ok(locks)
    }
}

impl Drop for GitLocks {
    fn drop(&mut self) {
        for lock in &self.held {
            let _ = fs::remove_file(lock);
        }
    }
}
