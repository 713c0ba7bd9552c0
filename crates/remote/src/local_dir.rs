//! The directory on this machine for a store that another process holds: caches, locks, settings, and the inboxes of agents.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use stepback_faults as faults;
use stepback_store::StoreError;
use stepback_store::new_file::{Durability, replace_file};

/// The file that holds the id of the store that the directory belongs to.
const STORE_ID: &str = "store-id";
/// The directory with one directory per workspace.
const WORKSPACES: &str = "workspaces";
/// A cache of what is stored; for another store it would list content as stored which is not, and that content would be lost.
const STAT_CACHE: &str = "statcache";

/// Creates the directory. If the address led to another store before, what was cached about that one is removed; events that
/// wait in an inbox stay, and are recorded in the store that is there now.
pub(crate) fn prepare(local: &Path, id: &str) -> Result<(), StoreError> {
    let file = local.join(STORE_ID);
    if fs::read_to_string(&file).is_ok_and(|found| found == id) {
        return Ok(());
    }
    faults::point()
        .and_then(|()| DirBuilder::new().recursive(true).mode(0o700).create(local))
        .map_err(StoreError::io("create", local))?;
    let absent_is_fine = |removed: io::Result<()>| match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let workspaces = local.join(WORKSPACES);
    for entry in fs::read_dir(&workspaces).into_iter().flatten().flatten() {
        let cache = entry.path().join(STAT_CACHE);
        absent_is_fine(fs::remove_file(&cache)).map_err(StoreError::io("remove", &cache))?;
    }
    faults::point()
        .and_then(|()| replace_file(&file, id.as_bytes(), 0o600, Durability::Unsynced))
        .map_err(StoreError::io("write", &file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_store_at_the_address_clears_caches_and_keeps_inboxes() {
        let dir = tempfile::tempdir().unwrap();
        let local = dir.path().join("guarded");
        prepare(&local, "one").unwrap();
        let workspace = local.join("workspaces/ab");
        fs::create_dir_all(&workspace).unwrap();
        for name in ["statcache", "inbox.jsonl"] {
            fs::write(workspace.join(name), "x").unwrap();
        }
        prepare(&local, "one").unwrap();
        assert!(workspace.join("statcache").exists());
        prepare(&local, "two").unwrap();
        assert!(!workspace.join("statcache").exists());
        assert!(workspace.join("inbox.jsonl").exists());
    }
}
