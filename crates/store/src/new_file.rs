//! Files that appear whole or not at all: written beside their target, and renamed over it.
//!
//! A reader sees the old content or the new one. A [`Durability::Synced`] file is so after a power failure too; a
//! [`Durability::Unsynced`] one is a cache, or concerns running processes only.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether a file must survive a power failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The file and its directory are synced to disk. Each step passes a fault point.
    Synced,
    /// Nothing is synced.
    Unsynced,
}

/// A file that does not have its name yet. Dropped without one, it is removed.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    temporary: PathBuf,
    target: PathBuf,
    durability: Durability,
}

impl NewFile {
    /// Creates a file beside `target`. A link at `target` will be replaced, not followed. `mode` is subject to the umask.
    pub fn create(target: &Path, mode: u32, durability: Durability) -> io::Result<Self> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let created = CREATED.fetch_add(1, Ordering::Relaxed);
        let mut name = OsString::from(".");
        name.push(target.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        name.push(format!(".stepback-{}-{created}", std::process::id()));
        let temporary = target.with_file_name(name);
        durability.fail_point()?;
        // A killed process with the same id may have left one behind.
        let _ = fs::remove_file(&temporary);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        Ok(Self { file, temporary, target: target.to_owned(), durability })
    }

    /// The file, to write its content.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name; a file that had the name is gone.
    pub fn replace(self) -> io::Result<()> {
        self.sync()?;
        self.durability.fail_point()?;
        fs::rename(&self.temporary, &self.target)?;
        self.sync_directory();
        Ok(())
    }

    /// Gives the file its name. Fails with [`io::ErrorKind::AlreadyExists`] if another file has it.
    pub fn link(self) -> io::Result<()> {
        self.sync()?;
        self.durability.fail_point()?;
        fs::hard_link(&self.temporary, &self.target)?;
        self.sync_directory();
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        match self.durability {
            Durability::Synced => self.durability.fail_point().and_then(|()| self.file.sync_all()),
            Durability::Unsynced => Ok(()),
        }
    }

    fn sync_directory(&self) {
        if self.durability == Durability::Synced
            && let Some(dir) = self.temporary.parent()
        {
            // A relative path of one component has an empty parent.
            let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            // Some file systems cannot sync a directory. The content is safe either way.
            let _ = File::open(dir).and_then(|dir| dir.sync_all());
        }
    }
}

impl Durability {
    fn fail_point(self) -> io::Result<()> {
        if self == Self::Synced { stepback_faults::point() } else { Ok(()) }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After a rename there is none.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Replaces the content of a file, or creates it with `mode`.
pub fn replace_file(target: &Path, bytes: &[u8], mode: u32, durability: Durability) -> io::Result<()> {
    let new = NewFile::create(target, mode, durability)?;
    new.file().write_all(bytes)?;
    new.replace()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn names(dir: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("file"), dir.path().join("other"));
        fs::write(&other, "other").unwrap();
        symlink(&other, &file).unwrap();
        for durability in [Durability::Synced, Durability::Unsynced] {
            replace_file(&file, b"new", 0o600, durability).unwrap();
            assert_eq!(fs::read(&file).unwrap(), b"new");
            assert_eq!(fs::symlink_metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(fs::read(&other).unwrap(), b"other");
        }
        assert_eq!(names(dir.path()), ["file", "other"]);
    }

    #[test]
    fn a_name_that_is_taken_stays_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let new = || NewFile::create(&file, 0o600, Durability::Unsynced).unwrap();
        new().file().write_all(b"given up").unwrap();
        new().link().unwrap();
        assert_eq!(new().link().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(dir.path()), ["file"]);
        assert_eq!(fs::read(&file).unwrap(), b"");
    }
}
