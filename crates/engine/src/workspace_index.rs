//! Finds the workspace of a directory without opening the database.
//!
//! A hook has only a few milliseconds to find its workspace. For every workspace the store holds a small file, named after the
//! hash of the workspace's root, that contains its id. The file is a hint: if it is lost, the next command that opens the
//! workspace writes it again; if it is wrong, it names a workspace that does not exist, and the database is queried.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::hex;
use stepback_model::ids::WorkspaceId;
use stepback_store::new_file::{Durability, replace_file};

/// Returns the nearest workspace at or above `dir`: its root, and the directory for its caches and locks.
pub fn find(store: &Path, dir: &Path) -> Option<(PathBuf, PathBuf)> {
    dir.ancestors().find_map(|root| {
        let id = fs::read_to_string(marker_path(store, root)).ok()?;
        let id = WorkspaceId::from_hex(id.trim())?;
        Some((root.to_path_buf(), store.join("workspaces").join(id.to_string())))
    })
}

/// Writes the file that marks `root` as a workspace.
pub(crate) fn write_marker(store: &Path, root: &Path, id: WorkspaceId) -> io::Result<()> {
    let marker = marker_path(store, root);
    if marker.exists() {
        return Ok(());
    }
    if let Some(dir) = marker.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    replace_file(&marker, id.to_string().as_bytes(), 0o600, Durability::Unsynced)
}

fn marker_path(store: &Path, root: &Path) -> PathBuf {
    let hash = Hash::of(ObjectKind::Blob, root.as_os_str().as_bytes());
    store.join("roots").join(hex::encode(&hash.as_bytes()[..16]))
}
