//! The temporary directory of a rerun, which is removed after it, however it ends.
//!
//! It holds copies of files such as `.env`, so it must not stay behind. A rerun removes it before it prints its report,
//! because a closed output pipe ends the program while it prints. A rerun that was killed cannot remove anything; therefore
//! the store has a small file for every such directory, locked while its rerun runs. Any command that finds one without a
//! lock removes the directory, then the file.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stepback_model::record::WorkspaceRecord;
use tempfile::TempDir;

/// The directory of the locked files, in the local part of a store.
const LEASES: &str = "reruns";
/// The start of the name of a lease that is not locked and complete yet.
const NEW_LEASE_PREFIX: &str = ".new-";
/// Age after which such a lease is a leftover: creating one takes microseconds.
const NEW_LEASE_MAX_AGE: Duration = Duration::from_secs(3600);

/// The directory of a rerun. It is removed when this is dropped.
#[derive(Debug)]
pub struct ScratchDirectory {
    path: PathBuf,
    /// The lock that marks the directory as in use; `None` if the store has no directory on this machine.
    lease: Option<Lease>,
    keep: bool,
}

#[derive(Debug)]
struct Lease {
    path: PathBuf,
    /// Held for its lock.
    _file: File,
}

impl ScratchDirectory {
    /// Creates a directory among the temporary files. `local` is the store's directory on this machine.
    pub fn create(local: Option<&Path>) -> io::Result<Self> {
        let temp = private_directory(WorkspaceRecord::RERUN_PREFIX)?;
        let path = temp.path().canonicalize()?;
        let lease = local.map(|local| Lease::acquire(local, &path)).transpose()?;
        // From here on, this type removes it.
        let _ = TempDir::keep(temp);
        Ok(Self { path, lease, keep: false })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory, and returns its path.
    pub fn keep(mut self) -> PathBuf {
        self.keep = true;
        self.path.clone()
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let is_done = self.keep || remove_tree(&self.path).is_ok();
        if let Some(lease) = self.lease.as_ref().filter(|_| is_done) {
            // A file that stays behind names a missing directory, and the next command removes it.
            let _ = fs::remove_file(&lease.path);
        }
    }
}

impl Lease {
    fn acquire(local: &Path, dir: &Path) -> io::Result<Self> {
        let leases = local.join(LEASES);
        DirBuilder::new().recursive(true).mode(0o700).create(&leases)?;
        // It gets its name once it is locked and complete, so that other processes never see it unlocked.
        let mut file = tempfile::Builder::new().prefix(NEW_LEASE_PREFIX).tempfile_in(&leases)?;
        file.as_file().lock()?;
        file.write_all(dir.as_os_str().as_bytes())?;
        let path = leases.join(dir.file_name().unwrap_or_default());
        let file = file.persist(&path).map_err(|error| error.error)?;
        Ok(Self { path, _file: file })
    }
}

/// Creates a temporary directory that only its owner can enter: it will hold recorded files.
pub fn private_directory(prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir()
}

/// Removes the directories of reruns that were killed. `local` is the store's directory on this machine. What cannot be
/// removed now is left for the next call.
pub fn remove_leftovers(local: &Path) {
    let Ok(leases) = fs::read_dir(local.join(LEASES)) else { return };
    for lease in leases.flatten().map(|entry| entry.path()) {
        let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&lease) else {
            continue;
        };
        if file.try_lock().is_err() || is_being_created(&lease, &file) {
            continue;
        }
        let dir = fs::read(&lease).map(|bytes| PathBuf::from(std::ffi::OsString::from_vec(bytes)));
        if dir.is_ok_and(|dir| !is_scratch(&dir) || remove_tree(&dir).is_ok()) {
            let _ = fs::remove_file(&lease);
        }
    }
}

/// Whether a lease has no name yet, and its process may be about to lock it.
fn is_being_created(lease: &Path, file: &File) -> bool {
    let name = lease.file_name().unwrap_or_default().as_bytes();
    let age = file.metadata().and_then(|metadata| metadata.modified()).map(|time| time.elapsed());
    name.starts_with(NEW_LEASE_PREFIX.as_bytes()) && !matches!(age, Ok(Ok(age)) if age > NEW_LEASE_MAX_AGE)
}

/// Whether a path is the directory of a rerun that may be removed.
fn is_scratch(dir: &Path) -> bool {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_own =
        |metadata: fs::Metadata| metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    name.starts_with(WorkspaceRecord::RERUN_PREFIX) && fs::symlink_metadata(dir).is_ok_and(is_own)
}

/// Removes a directory and its content, even if it is read-only.
fn remove_tree(dir: &Path) -> io::Result<()> {
    let ignore_missing = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other_result => other_result,
    };
    if ignore_missing(fs::remove_dir_all(dir)).is_ok() {
        return Ok(());
    }
    make_writable(dir);
    ignore_missing(fs::remove_dir_all(dir))
}

/// Makes every directory below `dir` writable for its owner. Links are not followed.
fn make_writable(dir: &Path) {
    let _ = fs::set_permissions(dir, Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(dir: &Path) {
        let closed = dir.join("work/closed");
        fs::create_dir_all(&closed).unwrap();
        fs::write(closed.join(".env"), "SECRET=1").unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o500)).unwrap();
    }

    fn leases(store: &Path) -> usize {
        fs::read_dir(store.join(LEASES)).map_or(0, Iterator::count)
    }

    #[test]
    fn only_its_owner_can_enter_it() {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let scratch = ScratchDirectory::create(None).unwrap();
        assert_eq!(mode(scratch.path()), 0o700);
        let inside = stepback_engine::materialize::make_apart(scratch.path()).unwrap();
        assert_eq!(mode(&inside), 0o700);
        assert_eq!(mode(private_directory("stepback-test-").unwrap().path()), 0o700);
    }

    #[test]
    fn it_goes_with_its_owner_whatever_is_in_it() {
        let store = tempfile::tempdir().unwrap();
        let scratch = ScratchDirectory::create(Some(store.path())).unwrap();
        let path = scratch.path().to_path_buf();
        fill(&path);
        remove_leftovers(store.path());
        assert!(path.join("work/closed/.env").exists(), "its rerun still runs");
        drop(scratch);
        assert!(!path.exists());
        assert_eq!(leases(store.path()), 0);
    }

    #[test]
    fn what_a_killed_rerun_left_is_removed_by_the_next_command() {
        let store = tempfile::tempdir().unwrap();
        let mut scratch = ScratchDirectory::create(Some(store.path())).unwrap();
        let path = scratch.path().to_path_buf();
        fill(&path);
        // The process was killed: the lock is released, and nothing else happens.
        scratch.lease = None;
        std::mem::forget(scratch);
        remove_leftovers(store.path());
        assert!(!path.exists());
        assert_eq!(leases(store.path()), 0);
    }

    #[test]
    fn a_lease_that_is_being_created_stays_and_an_abandoned_one_goes() {
        let store = tempfile::tempdir().unwrap();
        let dir = store.path().join(LEASES);
        fs::create_dir(&dir).unwrap();
        let file = File::create(dir.join(".new-abc")).unwrap();
        remove_leftovers(store.path());
        assert_eq!(leases(store.path()), 1, "its process locks it next");
        file.set_modified(std::time::SystemTime::now() - NEW_LEASE_MAX_AGE * 2).unwrap();
        remove_leftovers(store.path());
        assert_eq!(leases(store.path()), 0);
    }

    #[test]
    fn a_kept_one_stays_and_nothing_else_is_ever_removed() {
        let (store, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let kept = ScratchDirectory::create(Some(store.path())).unwrap().keep();
        fs::write(store.path().join(LEASES).join("forged"), other.path().as_os_str().as_bytes()).unwrap();
        remove_leftovers(store.path());
        assert!(kept.exists() && other.path().exists());
        assert_eq!(leases(store.path()), 0);
        remove_tree(&kept).unwrap();
    }
}
