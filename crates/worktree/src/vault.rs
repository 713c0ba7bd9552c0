//! The vault: immutable git files kept under a second name, so that even `rm -rf .git` can be undone at no cost.
//!
//! Packs and loose objects never change under their name, and their name contains the hash of their content. A hard link in
//! the store keeps them alive without copying a byte, shared by all workspaces. Where links are impossible (another file
//! system), files are copied up to a budget.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stepback_faults as faults;

use crate::error::WorktreeError;

/// A directory of immutable git files.
#[derive(Debug)]
pub struct Vault {
    path: PathBuf,
    dir: OwnedFd,
    copied: AtomicU64,
    changed: AtomicBool,
}

/// The result of keeping a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// It is in the vault.
    Yes,
    /// It could only be copied, and the budget for copies is used up.
    OverBudget,
}

/// The vault's name for the file `name` of an `objects` directory called `dir`; `None` if the vault does not keep such files.
pub fn name_of(dir: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    crate::git::vault_name(dir, name)
}

impl Vault {
    /// Opens the vault in `path`, creating it if needed.
    pub fn open(path: &Path) -> Result<Self, WorktreeError> {
        let open =
            || rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let dir = match open() {
            Err(Errno::NOENT) => {
                faults::point()
                    .and_then(|()| DirBuilder::new().recursive(true).mode(0o700).create(path))
                    .map_err(WorktreeError::aside("create", path))?;
                open()
            }
            opened => opened,
        };
        let dir = dir.map_err(|errno| WorktreeError::aside("open", path)(errno.into()))?;
        Ok(Self { path: path.to_path_buf(), dir, copied: AtomicU64::new(0), changed: AtomicBool::new(false) })
    }

    /// Keeps the file `name` of `dir`, `size` bytes long, as `key`. Copies count against `copy_budget`.
    pub fn keep(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        key: &[u8],
        size: u64,
        copy_budget: u64,
    ) -> io::Result<Kept> {
        let (name, key) = (OsStr::from_bytes(name), OsStr::from_bytes(key));
        if self.has(key, size) {
            return Ok(Kept::Yes);
        }
        faults::point()?;
        match rustix::fs::linkat(dir, name, &self.dir, key, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                // A leftover of an interrupted copy: replace it.
                rustix::fs::unlinkat(&self.dir, key, AtFlags::empty())?;
                rustix::fs::linkat(dir, name, &self.dir, key, AtFlags::empty())
                    .or_else(|_| self.copy_in(dir, name, key))?;
            }
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) => {
                if self.copied.fetch_add(size, Ordering::Relaxed) + size > copy_budget {
                    return Ok(Kept::OverBudget);
                }
                self.copy_in(dir, name, key)?;
            }
            Err(errno) => return Err(errno.into()),
        }
        self.changed.store(true, Ordering::Relaxed);
        Ok(Kept::Yes)
    }

    /// Whether `key` exists with the right size.
    pub fn has(&self, key: &OsStr, size: u64) -> bool {
        rustix::fs::statat(&self.dir, key, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| stat.st_size as u64 == size)
    }

    /// Opens a kept file after verifying its content.
    pub fn open_sound(&self, key: &[u8]) -> io::Result<File> {
        let file = self.open_file(key)?;
        stepback_store::verify_git_file(&self.path.join(OsStr::from_bytes(key))).map_err(io::Error::other)?;
        Ok(file)
    }

    fn open_file(&self, key: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(&self.dir, OsStr::from_bytes(key), flags, Mode::empty())?))
    }

    /// Whether `key` is kept with the same bytes as the file at `path`; `None` if it is not kept.
    pub fn holds_same(&self, key: &[u8], path: &Path) -> io::Result<Option<bool>> {
        let kept = match self.open_file(key) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            kept => kept?,
        };
        let given = File::open(path)?;
        if kept.metadata()?.len() != given.metadata()?.len() {
            return Ok(Some(false));
        }
        let (mut kept, mut given) = (io::BufReader::new(kept), io::BufReader::new(given));
        loop {
            let (a, b) = (kept.fill_buf()?, given.fill_buf()?);
            let count = a.len().min(b.len());
            if a[..count] != b[..count] {
                return Ok(Some(false));
            }
            if count == 0 {
                return Ok(Some(true));
            }
            kept.consume(count);
            given.consume(count);
        }
    }

    /// Keeps a durable file of this file system as `key`, unless another process has already done so.
    pub fn take_in(&self, path: &Path, key: &[u8]) -> io::Result<()> {
        faults::point()?;
        match rustix::fs::linkat(rustix::fs::CWD, path, &self.dir, OsStr::from_bytes(key), AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => {}
            // A file system without links.
            Err(_) => {
                let (dir, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let dir = rustix::fs::open(dir, flags, Mode::empty())?;
                self.copy_in(dir.as_fd(), name, OsStr::from_bytes(key))?;
            }
        }
        self.changed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn copy_in(&self, dir: BorrowedFd<'_>, name: &OsStr, key: &OsStr) -> rustix::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let from = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        copy(from, self.dir.as_fd(), key)
    }

    /// Restores `key` as `name` in `dir`: by link where possible, else by copy.
    pub fn bring_back(&self, key: &[u8], dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        let key = OsStr::from_bytes(key);
        stepback_store::verify_git_file(&self.path.join(key)).map_err(io::Error::other)?;
        faults::point()?;
        match rustix::fs::linkat(&self.dir, key, dir, name, AtFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let from = rustix::fs::openat(&self.dir, key, flags, Mode::empty())?;
                Ok(copy(from, dir, name)?)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes the kept files durable.
    pub fn sync(&self) -> io::Result<()> {
        if self.changed.swap(false, Ordering::Relaxed) {
            faults::point()?;
            rustix::fs::fsync(&self.dir)?;
        }
        Ok(())
    }

    /// Counts the bytes that [`Self::retain`] would free.
    pub fn bytes_without(&self, wanted: impl Fn(&[u8]) -> bool) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if !wanted(entry.file_name().as_bytes()) && std::os::unix::fs::MetadataExt::nlink(&metadata) == 1
            {
                bytes += metadata.len();
            }
        }
        Ok(bytes)
    }

    /// Removes every file whose key is not wanted; returns how many files and bytes were freed.
    pub fn retain(&self, wanted: impl Fn(&[u8]) -> bool) -> io::Result<(u64, u64)> {
        let (mut files, mut bytes) = (0, 0);
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if !wanted(entry.file_name().as_bytes()) {
                let metadata = entry.metadata()?;
                faults::point()?;
                fs::remove_file(entry.path())?;
                files += 1;
                if std::os::unix::fs::MetadataExt::nlink(&metadata) == 1 {
                    bytes += metadata.len();
                }
            }
        }
        Ok((files, bytes))
    }
}

/// Copies an open file to `name` in `dir`, sharing blocks where the file system can, durable before it has its name.
fn copy(from: OwnedFd, dir: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    let temporary = [b".copy-", name.as_bytes()].concat();
    let temporary = OsStr::from_bytes(&temporary);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let to = rustix::fs::openat(dir, temporary, flags, Mode::from_raw_mode(0o444))?;
    let (mut from, mut to) = (File::from(from), File::from(to));
    let copied = match rustix::fs::ioctl_ficlone(&to, &from) {
        Ok(()) => Ok(()),
        Err(_) => io::copy(&mut from, &mut to).map(drop),
    };
    let done = copied
        .and_then(|()| to.sync_all())
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .and_then(|()| rustix::fs::renameat(dir, temporary, dir, name));
    if done.is_err() {
        let _ = rustix::fs::unlinkat(dir, temporary, AtFlags::empty());
    }
    done
}
