//! Finds a repository from a directory, and says what it is in the middle of.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::GitError;

/// The largest reference, `HEAD` or pointer file that is read.
const MAX_SMALL_BYTES: u64 = 64 << 10;

/// A repository.
#[derive(Clone, Debug)]
pub struct GitRepository {
    /// The work tree; `None` for a bare repository.
    pub work_dir: Option<PathBuf>,
    /// The git directory of the work tree, with `HEAD`.
    pub git_dir: PathBuf,
    /// The directory with the objects and references; another one than `git_dir` in a linked work tree.
    pub common_dir: PathBuf,
}

impl GitRepository {
    /// Opens the repository whose work tree, or bare git directory, is `root`.
    pub fn open(root: &Path) -> Result<Self, GitError> {
        let none = || GitError::NoRepository(root.to_owned());
        let dot = root.join(".git");
        let (git_dir, work_dir) = match fs::symlink_metadata(&dot) {
            Ok(metadata) if metadata.is_dir() => (dot, Some(root.to_owned())),
            // A linked work tree, or a submodule.
            Ok(metadata) if metadata.is_file() => {
                let text = read_small(&dot)?.unwrap_or_default();
                let target = text.strip_prefix(b"gitdir: ").ok_or_else(none)?;
                (root.join(OsStr::from_bytes(target.trim_ascii_end())), Some(root.to_owned()))
            }
            _ => (root.to_owned(), None),
        };
        let common_dir = match read_small(&git_dir.join("commondir"))? {
            Some(common) => git_dir.join(OsStr::from_bytes(common.trim_ascii_end())),
            None => git_dir.clone(),
        };
        let canonical = |dir: PathBuf| dir.canonicalize().map_err(|_| none());
        let found = Self { work_dir, git_dir: canonical(git_dir)?, common_dir: canonical(common_dir)? };
        let has_head = found.git_dir.join("HEAD").symlink_metadata().is_ok();
        if !has_head || !found.common_dir.join("objects").is_dir() || !found.common_dir.join("refs").is_dir()
        {
            return Err(none());
        }
        found.check_format()?;
        Ok(found)
    }

    /// Opens the repository that contains `dir`: its own, or the one of the closest directory above.
    pub fn discover(dir: &Path) -> Result<Self, GitError> {
        for above in dir.ancestors() {
            match Self::open(above) {
                Err(GitError::NoRepository(_)) => {}
                found => return found,
            }
        }
        Err(GitError::NoRepository(dir.to_owned()))
    }

    /// Refuses a repository that keeps its objects or references in another way than files with SHA-1 names.
    fn check_format(&self) -> Result<(), GitError> {
        let config = read_limited(&self.common_dir.join("config"), 1 << 20)?.unwrap_or_default();
        let config = String::from_utf8_lossy(&config).to_ascii_lowercase();
        for (setting, value, what) in
            [("objectformat", "sha256", "SHA-256 object names"), ("refstorage", "reftable", "a reftable")]
        {
            let is_set = |line: &str| line.trim_start().starts_with(setting) && line.contains(value);
            if config.lines().any(is_set) {
                return Err(GitError::Unsupported { dir: self.common_dir.clone(), what });
            }
        }
        if self.common_dir.join("reftable").is_dir() {
            return Err(GitError::Unsupported { dir: self.common_dir.clone(), what: "a reftable" });
        }
        Ok(())
    }

    /// The commits at which a shallow clone ends; none if the history is complete.
    pub fn shallow_commits(&self) -> Vec<crate::GitOid> {
        let text =
            read_limited(&self.common_dir.join("shallow"), 16 << 20).ok().flatten().unwrap_or_default();
        text.split(|byte| *byte == b'\n').filter_map(crate::GitOid::parse).collect()
    }

    /// The repository's own rules about ignored files, besides those in the work tree.
    pub fn exclude_rules(&self) -> Vec<u8> {
        read_limited(&self.common_dir.join("info/exclude"), 1 << 20).ok().flatten().unwrap_or_default()
    }

    /// The git directories of all work trees of the repository.
    fn work_tree_dirs(&self) -> Vec<PathBuf> {
        let linked = fs::read_dir(self.common_dir.join("worktrees")).into_iter().flatten().flatten();
        std::iter::once(self.common_dir.clone()).chain(linked.map(|entry| entry.path())).collect()
    }

    /// The references that a work tree has checked out, or that a rebase or bisect in one will return to.
    pub fn references_in_use(&self) -> Vec<String> {
        let mut names = Vec::new();
        for dir in self.work_tree_dirs() {
            let read = |name: &str| read_small(&dir.join(name)).ok().flatten();
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(bytes.trim_ascii_end()).into_owned();
            if let Some(head) = read("HEAD").map(text) {
                names.extend(head.strip_prefix("ref: ").map(|name| name.trim().to_owned()));
            }
            for file in ["rebase-merge/head-name", "rebase-apply/head-name"] {
                names.extend(read(file).map(text));
            }
            names.extend(read("BISECT_START").map(text).map(|name| format!("refs/heads/{name}")));
            let updated = read("rebase-merge/update-refs").map(text).unwrap_or_default();
            names.extend(updated.lines().filter(|line| line.starts_with("refs/")).map(ToOwned::to_owned));
        }
        names
    }

    /// Adds the path of a file in the repository to an error of the system.
    pub(crate) fn io(&self, path: &str) -> impl Fn(io::Error) -> GitError {
        let path = self.common_dir.join(path);
        move |error| GitError::Io { path: path.clone(), error }
    }
}

/// Reads a small regular file; `None` if it does not exist. A pipe is not waited for.
pub(crate) fn read_small(path: &Path) -> Result<Option<Vec<u8>>, GitError> {
    read_limited(path, MAX_SMALL_BYTES)
}

/// Reads a regular file of at most `limit` bytes; `None` if it does not exist.
pub(crate) fn read_limited(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, GitError> {
    let failed = |error| GitError::Io { path: path.to_owned(), error };
    let Some(file) = open_regular(path).map_err(failed)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(GitError::damaged(path.display(), format!("it has more than {limit} bytes")));
    }
    Ok(Some(bytes))
}

fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    match file.metadata()?.is_file() {
        true => Ok(Some(file)),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file")),
    }
}
