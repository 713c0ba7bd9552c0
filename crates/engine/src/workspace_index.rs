//! Finds the workspace of a directory without opening the database.
//!
//! A hook has only a few milliseconds to find its workspace. For every workspace the store holds a small file, named after the
//! hash of the workspace's root, that contains its id. The file is a hint: if it is lost, the next command that opens the
//! workspace writes it again; if it is wrong, it names a workspace that does not exist, and the database is queried.
//!
//! While the server of a store is away, a hook in a new directory chooses the id itself ([`reserve`]), so that its events have
//! an inbox. The workspace is registered with that id later.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::hex;
use stepback_model::ids::WorkspaceId;
use stepback_store::new_file::{Durability, NewFile, replace_file};

/// Returns the nearest workspace at or above `dir`: its root, and the directory for its caches and locks.
pub fn find(store: &Path, dir: &Path) -> Option<(PathBuf, PathBuf)> {
    dir.ancestors().find_map(|root| {
        let id = marked_id(store, root)?;
        Some((root.to_path_buf(), workspace_dir(store, id)))
    })
}

/// Chooses the id of a workspace that cannot be registered now, unless another process has, and returns the directory for its
/// inbox.
pub fn reserve(store: &Path, root: &Path, id: [u8; 16]) -> io::Result<PathBuf> {
    let marker = marker_path(store, root);
    if let Some(dir) = marker.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let new = NewFile::create(&marker, 0o600, Durability::Unsynced)?;
    new.file().write_all(WorkspaceId::from_bytes(id).to_string().as_bytes())?;
    match new.link() {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let id = marked_id(store, root).ok_or_else(|| io::Error::other("the marker of the workspace is lost"))?;
    let dir = workspace_dir(store, id);
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    Ok(dir)
}

/// Returns the id that a marker names for exactly this root.
pub(crate) fn marked_id(store: &Path, root: &Path) -> Option<WorkspaceId> {
    let id = fs::read_to_string(marker_path(store, root)).ok()?;
    WorkspaceId::from_hex(id.trim())
}

fn workspace_dir(store: &Path, id: WorkspaceId) -> PathBuf {
    store.join("workspaces").join(id.to_string())
}

/// Writes the file that marks `root` as a workspace.
pub(crate) fn write_marker(store: &Path, root: &Path, id: WorkspaceId) -> io::Result<()> {
    if marked_id(store, root) == Some(id) {
        return Ok(());
    }
    let marker = marker_path(store, root);
    if let Some(dir) = marker.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    replace_file(&marker, id.to_string().as_bytes(), 0o600, Durability::Unsynced)
}

/// Removes the file that marks `root` as a workspace.
pub(crate) fn remove_marker(store: &Path, root: &Path) {
    // A hook that still finds it queries the database then.
    let _ = fs::remove_file(marker_path(store, root));
}

fn marker_path(store: &Path, root: &Path) -> PathBuf {
    let hash = Hash::of(ObjectKind::Blob, root.as_os_str().as_bytes());
    store.join("roots").join(hex::encode(&hash.as_bytes()[..16]))
}
