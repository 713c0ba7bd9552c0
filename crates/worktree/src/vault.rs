//! The vault: git's packs and LFS objects, kept in the store so that even `rm -rf .git` can be undone.
//!
//! These files never change under their name, and their name or their end has the hash of their content, so one copy
//! serves all workspaces and checkpoints. A kept file shares no inode with the workspace: a `chmod`, a truncation or a
//! write in place cannot reach it. Only files that are too large to copy are hard-linked, where blocks cannot be shared.
//! Every file is checked while it is copied, and nothing damaged is kept here. `docs/design/0005-git-vault.md` has the
//! reasons and the measurements.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, Seek};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stepback_faults as faults;

pub use crate::git::{object_key, stays_if_newer};

use self::transfer::{CopyOutcome, check_open_file, clone_checked, copy_checked};
use crate::anchored_path::open_file;
use crate::error::WorktreeError;

mod transfer;

/// A larger file is linked if it cannot share blocks: copying it would take longer than a hook may.
const MAX_COPIED_FILE_BYTES: u64 = 64 << 20;
/// Beyond this many bytes per scan, files are linked.
const MAX_COPIED_BYTES: u64 = 256 << 20;
/// Beyond this many bytes per scan, linked files are not checked until they are restored.
const MAX_CHECKED_LINK_BYTES: u64 = 1 << 30;
/// Syncing more files than this one by one takes longer than syncing the file system.
const MAX_SINGLE_SYNCS: usize = 8;
/// Permission bits of files in the vault.
const KEPT_MODE: Mode = Mode::from_raw_mode(0o400);

/// A directory of immutable git files.
#[derive(Debug)]
pub struct Vault {
    path: PathBuf,
    dir: OwnedFd,
    /// Bytes copied by this handle.
    copied: AtomicU64,
    /// Bytes of linked files that this handle checked.
    checked: AtomicU64,
    /// Whether the file system shares blocks between files; unknown until it was tried.
    no_clones: AtomicBool,
    copies: AtomicU64,
    unsynced: Mutex<Unsynced>,
}

/// What is not durable yet.
#[derive(Debug, Default)]
struct Unsynced {
    /// Copies under temporary names, which get their names once they are durable.
    copies: Vec<PendingCopy>,
    /// Files that were linked: git does not sync all that it writes.
    linked: Vec<File>,
    /// Whether entries of the directory may not be durable.
    dir: bool,
}

#[derive(Debug)]
struct PendingCopy {
    file: File,
    temporary: OsString,
    key: OsString,
}

/// The result of keeping a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kept {
    /// It is in the vault, or will be after [`Vault::sync`].
    Yes,
    /// It could only be copied, and the budget for copies is used up.
    OverBudget,
    /// It cannot be read.
    Unreadable,
    /// It is damaged, so it is not kept here.
    Damaged(String),
    /// The vault has another intact file of this name.
    NameTaken,
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
                create_durably(path).map_err(WorktreeError::aside("create", path))?;
                open()
            }
            opened => opened,
        };
        let dir = dir.map_err(|errno| WorktreeError::aside("open", path)(errno.into()))?;
        Ok(Self {
            path: path.to_path_buf(),
            dir,
            copied: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            no_clones: AtomicBool::new(false),
            copies: AtomicU64::new(0),
            unsynced: Mutex::default(),
        })
    }

    /// Keeps the file `name` of `dir` as `key`, if it is intact. Copies that are made because links are impossible count
    /// against `copy_budget`. It is durable after [`Vault::sync`].
    pub fn keep(&self, dir: BorrowedFd<'_>, name: &[u8], key: &[u8], copy_budget: u64) -> io::Result<Kept> {
        let name = OsStr::from_bytes(name);
        let (source, stat_now) = match open_file(&dir, name) {
            Ok(opened) => opened,
            Err(Errno::ACCESS | Errno::PERM) => return Ok(Kept::Unreadable),
            Err(errno) => return Err(errno.into()),
        };
        let size = stat_now.st_size as u64;
        let kept_stat = rustix::fs::statat(&self.dir, OsStr::from_bytes(key), AtFlags::SYMLINK_NOFOLLOW).ok();
        if let Some(kept_stat) = kept_stat {
            match self.check_source(&source, key, size) {
                CopyOutcome::Intact => {}
                outcome => return Ok(outcome.into_kept()),
            }
            let is_same_file = (kept_stat.st_dev, kept_stat.st_ino) == (stat_now.st_dev, stat_now.st_ino);
            if is_same_file && size > MAX_COPIED_FILE_BYTES {
                self.lock_unsynced().linked.push(source);
                return Ok(self.kept_before());
            }
            if !is_same_file && self.verify(key).is_ok() {
                return Ok(if kept_stat.st_size == stat_now.st_size {
                    self.kept_before()
                } else {
                    Kept::NameTaken
                });
            }
            // A link of an earlier version, or a damaged file: replaced below.
        }
        if let Some(outcome) = self.clone_in(&source, key)? {
            return Ok(outcome.into_kept());
        }
        if size <= MAX_COPIED_FILE_BYTES && reserve(&self.copied, size, MAX_COPIED_BYTES) {
            return Ok(self.copy_in(&source, key)?.into_kept());
        }
        match self.link_in(dir, name, &source, key)? {
            Some(kept) => Ok(kept),
            None if reserve(&self.copied, size, copy_budget) => Ok(self.copy_in(&source, key)?.into_kept()),
            None => Ok(Kept::OverBudget),
        }
    }

    /// The vault has it already, but another process may have added it a moment ago.
    fn kept_before(&self) -> Kept {
        self.lock_unsynced().dir = true;
        Kept::Yes
    }

    /// Checks a file of the workspace. Too many bytes of large files are left to the check at their restoration.
    fn check_source(&self, source: &File, key: &[u8], size: u64) -> CopyOutcome {
        match size <= MAX_COPIED_FILE_BYTES || reserve(&self.checked, size, MAX_CHECKED_LINK_BYTES) {
            true => check_open_file(source, key),
            false => CopyOutcome::Intact,
        }
    }

    /// Keeps a file by a hard link; `None` if that is impossible.
    fn link_in(
        &self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        source: &File,
        key: &[u8],
    ) -> io::Result<Option<Kept>> {
        match self.check_source(source, key, source.metadata()?.len()) {
            CopyOutcome::Intact => {}
            outcome => return Ok(Some(outcome.into_kept())),
        }
        let key = OsStr::from_bytes(key);
        faults::point()?;
        let linked = match rustix::fs::linkat(dir, name, &self.dir, key, AtFlags::empty()) {
            Err(Errno::EXIST) => {
                // The existing file is damaged, otherwise it would have been used: replace it.
                rustix::fs::unlinkat(&self.dir, key, AtFlags::empty())?;
                rustix::fs::linkat(dir, name, &self.dir, key, AtFlags::empty())
            }
            linked => linked,
        };
        match linked {
            Ok(()) => {}
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        let mut unsynced = self.lock_unsynced();
        unsynced.linked.push(source.try_clone()?);
        unsynced.dir = true;
        Ok(Some(Kept::Yes))
    }

    /// Keeps a file that shares its blocks with `source`; `None` if the file system cannot do that.
    fn clone_in(&self, source: &File, key: &[u8]) -> io::Result<Option<CopyOutcome>> {
        if self.no_clones.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (into, temporary) = self.create_temporary(key)?;
        let outcome = clone_checked(source, &into, key);
        if let Ok(None) = outcome {
            self.no_clones.store(true, Ordering::Relaxed);
        }
        self.settle_copy(into, temporary, key, outcome)
    }

    fn copy_in(&self, source: &File, key: &[u8]) -> io::Result<CopyOutcome> {
        let (into, temporary) = self.create_temporary(key)?;
        let outcome = copy_checked(source, &into, key).map(Some);
        Ok(self.settle_copy(into, temporary, key, outcome)?.unwrap_or(CopyOutcome::Unreadable))
    }

    fn create_temporary(&self, key: &[u8]) -> io::Result<(File, OsString)> {
        let number = self.copies.fetch_add(1, Ordering::Relaxed);
        let mut name = format!(".copy-{}-{number}-", std::process::id()).into_bytes();
        name.extend_from_slice(key);
        let name = OsStr::from_bytes(&name).to_os_string();
        faults::point()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok((File::from(rustix::fs::openat(&self.dir, &name, flags, KEPT_MODE)?), name))
    }

    /// Queues an intact copy to be synced, and removes any other.
    fn settle_copy(
        &self,
        file: File,
        temporary: OsString,
        key: &[u8],
        outcome: io::Result<Option<CopyOutcome>>,
    ) -> io::Result<Option<CopyOutcome>> {
        if let Ok(Some(CopyOutcome::Intact)) = outcome {
            let key = OsStr::from_bytes(key).to_os_string();
            self.lock_unsynced().copies.push(PendingCopy { file, temporary, key });
        } else {
            let _ = rustix::fs::unlinkat(&self.dir, &temporary, AtFlags::empty());
        }
        outcome
    }

    fn lock_unsynced(&self) -> std::sync::MutexGuard<'_, Unsynced> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `key` exists with the right size.
    pub fn has(&self, key: &[u8], size: u64) -> bool {
        rustix::fs::statat(&self.dir, OsStr::from_bytes(key), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| stat.st_size as u64 == size)
    }

    /// Checks the content of a kept file.
    pub fn verify(&self, key: &[u8]) -> Result<(), String> {
        let file = self.open_file(key).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "it is missing".to_string(),
            _ => error.to_string(),
        })?;
        stepback_store::check_git_file(key, file).unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Opens a kept file after verifying its content.
    pub fn open_sound(&self, key: &[u8]) -> io::Result<File> {
        let mut file = self.open_file(key)?;
        stepback_store::check_git_file(key, &file)?.map_err(io::Error::other)?;
        file.rewind()?;
        Ok(file)
    }

    fn open_file(&self, key: &[u8]) -> io::Result<File> {
        let key = OsStr::from_bytes(key);
        match open_file(&self.dir, key) {
            Err(Errno::ACCESS) => {
                // It was linked once, and the workspace's name of it was made unreadable. If that name is gone, only the
                // vault's is left.
                let stat = rustix::fs::statat(&self.dir, key, AtFlags::SYMLINK_NOFOLLOW)?;
                if stat.st_nlink > 1 {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                faults::point()?;
                rustix::fs::chmodat(&self.dir, key, KEPT_MODE, AtFlags::empty())?;
                Ok(open_file(&self.dir, key)?.0)
            }
            opened => Ok(opened?.0),
        }
    }

    /// Whether `key` is kept with the same bytes as the file at `path`; `None` if it is not kept.
    pub fn holds_same(&self, key: &[u8], path: &Path) -> io::Result<Option<bool>> {
        let kept_file = match self.open_file(key) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            kept_file => kept_file?,
        };
        let source = File::open(path)?;
        if kept_file.metadata()?.len() != source.metadata()?.len() {
            return Ok(Some(false));
        }
        let (mut kept_file, mut source) = (io::BufReader::new(kept_file), io::BufReader::new(source));
        loop {
            let (a, b) = (kept_file.fill_buf()?, source.fill_buf()?);
            let count = a.len().min(b.len());
            if a[..count] != b[..count] {
                return Ok(Some(false));
            }
            if count == 0 {
                return Ok(Some(true));
            }
            kept_file.consume(count);
            source.consume(count);
        }
    }

    /// Keeps a durable file of the store's own as `key`, unless another process has already done so.
    pub fn take_in(&self, path: &Path, key: &[u8]) -> io::Result<()> {
        faults::point()?;
        match rustix::fs::linkat(rustix::fs::CWD, path, &self.dir, OsStr::from_bytes(key), AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => {}
            // A file system without links.
            Err(_) => {
                if let CopyOutcome::Damaged(problem) = self.copy_in(&File::open(path)?, key)? {
                    return Err(io::Error::other(problem));
                }
            }
        }
        self.lock_unsynced().dir = true;
        Ok(())
    }

    /// Restores `key` as the new file `name` in `dir`, with these permission bits, after checking its content: as a copy,
    /// or as a link if it is too large and cannot share blocks.
    pub fn bring_back(&self, key: &[u8], dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<()> {
        let kept_file = self.open_file(key)?;
        let create = || {
            faults::point()?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            io::Result::Ok(File::from(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?))
        };
        let mut into = create()?;
        let mut restored = clone_checked(&kept_file, &into, key);
        if matches!(restored, Ok(None)) && kept_file.metadata()?.len() > MAX_COPIED_FILE_BYTES {
            rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
            if self.link_back(&kept_file, key, dir, name, mode)? {
                return Ok(());
            }
            into = create()?;
        }
        if let Ok(None) = restored {
            restored = copy_checked(&kept_file, &into, key).map(Some);
        }
        let result = restored.and_then(|outcome| match outcome {
            Some(CopyOutcome::Intact) => Ok(rustix::fs::fchmod(&into, Mode::from_raw_mode(mode))?),
            Some(CopyOutcome::Damaged(problem)) => Err(damaged(&problem)),
            Some(CopyOutcome::Unreadable) | None => Err(damaged("it cannot be read")),
        });
        if result.is_err() {
            let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        }
        result
    }

    /// Restores a large file as a link, after checking it. Returns `false` if a link is impossible, or would have other
    /// permission bits.
    fn link_back(
        &self,
        kept_file: &File,
        key: &[u8],
        dir: BorrowedFd<'_>,
        name: &OsStr,
        mode: u32,
    ) -> io::Result<bool> {
        let stat = rustix::fs::fstat(kept_file)?;
        if stat.st_mode & stepback_model::tree::MODE_MASK != mode && stat.st_nlink > 1 {
            return Ok(false);
        }
        match check_open_file(kept_file, key) {
            CopyOutcome::Intact => {}
            CopyOutcome::Damaged(problem) => return Err(damaged(&problem)),
            CopyOutcome::Unreadable => return Err(damaged("it cannot be read")),
        }
        faults::point()?;
        rustix::fs::fchmod(kept_file, Mode::from_raw_mode(mode))?;
        match rustix::fs::linkat(&self.dir, OsStr::from_bytes(key), dir, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes the kept files durable and gives the copies their names.
    pub fn sync(&self) -> io::Result<()> {
        let Unsynced { mut copies, linked, dir } = std::mem::take(&mut *self.lock_unsynced());
        let synced = self.sync_files(&copies, &linked);
        let result = synced.and_then(|()| {
            while let Some(copy) = copies.last() {
                faults::point()?;
                rustix::fs::renameat(&self.dir, &copy.temporary, &self.dir, &copy.key)?;
                copies.pop();
                self.lock_unsynced().dir = true;
            }
            Ok(())
        });
        self.remove_copies(&copies);
        result?;
        if dir || std::mem::take(&mut self.lock_unsynced().dir) {
            faults::point()?;
            rustix::fs::fsync(&self.dir)?;
        }
        Ok(())
    }

    /// Counts the bytes that [`Self::retain`] would free.
    pub fn bytes_without(&self, is_wanted: impl Fn(&[u8]) -> bool) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if !is_wanted(entry.file_name().as_bytes())
                && std::os::unix::fs::MetadataExt::nlink(&metadata) == 1
            {
                bytes += metadata.len();
            }
        }
        Ok(bytes)
    }

    fn sync_files(&self, copies: &[PendingCopy], linked: &[File]) -> io::Result<()> {
        if copies.len() + linked.len() > MAX_SINGLE_SYNCS {
            faults::point()?;
            return Ok(rustix::fs::syncfs(&self.dir)?);
        }
        for file in copies.iter().map(|copy| &copy.file).chain(linked) {
            faults::point()?;
            file.sync_all()?;
        }
        Ok(())
    }

    fn remove_copies(&self, copies: &[PendingCopy]) {
        for copy in copies {
            let _ = rustix::fs::unlinkat(&self.dir, &copy.temporary, AtFlags::empty());
        }
    }

    /// Removes every file whose key is not wanted; returns how many files and bytes were freed.
    pub fn retain(&self, is_wanted: impl Fn(&[u8]) -> bool) -> io::Result<(u64, u64)> {
        let (mut files, mut bytes) = (0, 0);
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if !is_wanted(entry.file_name().as_bytes()) {
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

impl Drop for Vault {
    fn drop(&mut self) {
        // A scan that failed did not get to sync; without a name, a copy is of no use.
        let unsynced = std::mem::take(&mut *self.lock_unsynced());
        self.remove_copies(&unsynced.copies);
    }
}

/// Adds `size` to `used` if the sum stays within `budget`.
fn reserve(used: &AtomicU64, size: u64, budget: u64) -> bool {
    let add = |used: u64| used.checked_add(size).filter(|sum| *sum <= budget);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

fn damaged(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its copy in the store is damaged: {problem}"))
}

/// Creates the directory `path` so that it is there after a power loss.
fn create_durably(path: &Path) -> io::Result<()> {
    faults::point()?;
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    match path.parent() {
        Some(parent) => {
            faults::point()?;
            File::open(parent)?.sync_all()
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
