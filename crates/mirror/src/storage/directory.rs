//! A mirror in a directory: another disk, a mounted share, a directory of another user.
//!
//! A file is written under a temporary name, synced, linked to its name, which fails if the name is taken, and its directory
//! is synced. Nothing is renamed or overwritten. In a directory with the append-only attribute the temporary name cannot be
//! removed and stays as a second name of the same file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use stepback_faults as faults;
use stepback_store::new_file::{Durability, NewFile};

use super::{CreateOutcome, ListedFile, MirrorStorage};
use crate::error::MirrorError;

/// `O_NOFOLLOW | O_NONBLOCK`: a mirror has no links, and opening a named pipe must not wait.
const OPEN_FLAGS: i32 = 0o400_000 | 0o4000;

/// A directory that holds a mirror.
#[derive(Debug)]
pub struct DirectoryStorage {
    root: PathBuf,
}

impl DirectoryStorage {
    /// Uses an existing directory.
    pub fn open(root: &Path) -> Result<Self, MirrorError> {
        let metadata = fs::metadata(root).map_err(MirrorError::io("open", root.display()))?;
        if !metadata.is_dir() {
            return Err(MirrorError::NotAMirror {
                place: root.display().to_string(),
                reason: "it is not a directory".into(),
            });
        }
        Ok(Self { root: root.to_path_buf() })
    }

    /// Uses a directory, and creates it if it does not exist.
    pub fn create(root: &Path) -> Result<Self, MirrorError> {
        if !root.exists() {
            create_dir(root).map_err(MirrorError::io("create", root.display()))?;
        }
        Self::open(root)
    }

    fn shown(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }
}

/// Creates a directory for the owner only, with its parents, and makes its name durable.
fn create_dir(path: &Path) -> io::Result<()> {
    faults::point()?;
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    if let Some(parent) = path.parent() {
        // Some file systems cannot sync a directory.
        let _ = File::open(parent).and_then(|parent| parent.sync_all());
    }
    Ok(())
}

impl MirrorStorage for DirectoryStorage {
    fn place(&self) -> String {
        self.root.display().to_string()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<CreateOutcome, MirrorError> {
        let path = self.root.join(name);
        let write = || -> io::Result<CreateOutcome> {
            // The directory itself is not created: a disk that is not mounted would be taken for an empty mirror.
            if let Some(folder) = path.parent().filter(|folder| *folder != self.root && !folder.is_dir()) {
                faults::point()?;
                match DirBuilder::new().mode(0o700).create(folder) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
                File::open(&self.root)?.sync_all().or_else(ignore_unsupported)?;
            }
            if fs::symlink_metadata(&path).is_ok() {
                return Ok(CreateOutcome::Exists);
            }
            let new = NewFile::create(&path, 0o600, Durability::Synced)?;
            faults::point()?;
            new.file().write_all(bytes)?;
            match new.link() {
                Ok(()) => Ok(CreateOutcome::Created),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(CreateOutcome::Exists),
                Err(error) => Err(error),
            }
        };
        write().map_err(MirrorError::io("write", path.display()))
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, MirrorError> {
        let path = self.root.join(name);
        let read = || -> io::Result<Option<Vec<u8>>> {
            let mut file = match OpenOptions::new().read(true).custom_flags(OPEN_FLAGS).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.root.is_dir() => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("it is not a file"));
            }
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(Some(bytes))
        };
        read().map_err(MirrorError::io("read", self.shown(name)))
    }

    fn is_empty(&self) -> Result<bool, MirrorError> {
        let failed = |error| MirrorError::io("list", self.root.display())(error);
        for entry in fs::read_dir(&self.root).map_err(failed)? {
            // Every new file system has this one.
            if entry.map_err(failed)?.file_name() != "lost+found" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn list(&self, folder: &str, after: &str) -> Result<Vec<ListedFile>, MirrorError> {
        let path = self.root.join(folder);
        let list = || -> io::Result<Vec<ListedFile>> {
            let entries = match fs::read_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.root.is_dir() => {
                    return Ok(Vec::new());
                }
                entries => entries?,
            };
            let mut files = Vec::new();
            for entry in entries {
                let entry = entry?;
                // A name with a dot in front is an unfinished file.
                let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
                if name.starts_with('.') || name.as_str() <= after {
                    continue;
                }
                let metadata = entry.metadata()?;
                if metadata.is_file() {
                    files.push(ListedFile { name, bytes: metadata.len() });
                }
            }
            files.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(files)
        };
        list().map_err(MirrorError::io("list", path.display()))
    }
}

/// Some file systems cannot sync a directory; what is in it is as durable as they make it.
fn ignore_unsupported(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => Ok(()),
        _ => Err(error),
    }
}
