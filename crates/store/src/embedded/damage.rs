//! Objects that a read found damaged.
//!
//! They are listed in a file of the store, so that the next checkpoint does not rely on them: a batch stores them again if
//! it has their bytes, and a scan reads the files that have them again. Format: `docs/spec/store.md`, "Files beside the
//! store".

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use stepback_faults as faults;
use stepback_model::hash::Hash;
use stepback_model::object::ObjectError;

use super::EmbeddedStore;
use crate::error::StoreError;
use crate::new_file::{Durability, replace_file};
use crate::pack;

/// File name of the list inside the store's directory.
const DAMAGED: &str = "damaged-objects";

impl EmbeddedStore {
    fn damage_path(&self) -> PathBuf {
        self.dir.join(DAMAGED)
    }

    /// Length of the list in bytes: 0 if nothing is known to be damaged.
    pub(super) fn damage_len(&self) -> u64 {
        fs::metadata(self.damage_path()).map_or(0, |metadata| metadata.len())
    }

    /// The objects that are known to be damaged.
    pub(super) fn damaged_objects(&self) -> HashSet<Hash> {
        let text = fs::read_to_string(self.damage_path()).unwrap_or_default();
        let hashes = text.lines().filter_map(|line| stepback_model::hex::decode_array(line.as_bytes()));
        hashes.map(Hash::from_bytes).collect()
    }

    /// Adds the object that was asked for, and the one it is stored against, to the list if the error says that they are
    /// damaged. The list only saves later commands from relying on them, so failures are ignored.
    pub(super) fn note_damage(&self, asked: Hash, error: &ObjectError) {
        match error {
            ObjectError::Corrupt { hash, .. } => self.list_damage(&HashSet::from([asked, *hash])),
            // An object that is missing may never have been stored, unless another one is stored against it.
            ObjectError::Missing { hash, .. } if *hash != asked => {
                self.list_damage(&HashSet::from([asked, *hash]));
            }
            _ => {}
        }
    }

    fn list_damage(&self, found: &HashSet<Hash>) {
        let known = self.damaged_objects();
        let lines: String = found.difference(&known).map(|hash| format!("{hash}\n")).collect();
        if lines.is_empty() {
            return;
        }
        let append = || -> io::Result<()> {
            faults::point()?;
            let path = self.damage_path();
            OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(lines.as_bytes())
        };
        let _ = append();
    }

    /// Removes objects that were stored again from the list.
    pub(super) fn forget_damage(&self, stored: &HashSet<Hash>) {
        if stored.is_empty() {
            return;
        }
        let left = self.damaged_objects();
        let lines: String = left.difference(stored).map(|hash| format!("{hash}\n")).collect();
        let _ = match lines.is_empty() {
            true => faults::point().and_then(|()| fs::remove_file(self.damage_path())),
            false => replace_file(&self.damage_path(), lines.as_bytes(), 0o600, Durability::Unsynced),
        };
    }

    /// Lists the objects in packs that are missing or too short, once in the life of a process: it takes a `stat` per pack.
    pub(super) fn find_cut_packs(&self) -> Result<(), StoreError> {
        if self.knows_packs.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let db = self.reader();
        let mut statement = db.prepare_cached("SELECT id, committed FROM packs WHERE committed > 0")?;
        let rows = statement
            .query_map([], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)))?;
        for row in rows {
            let (id, committed) = row?;
            let len = fs::metadata(pack::path_of(&self.packs, id)).map_or(0, |metadata| metadata.len());
            if len < committed {
                let sql = "SELECT hash FROM objects WHERE pack = ?1 AND offset + record_len > ?2";
                let mut statement = db.prepare(sql)?;
                let hashes = statement.query_map([id as i64, len as i64], |row| row.get::<_, Vec<u8>>(0))?;
                let hashes: Result<Vec<Vec<u8>>, _> = hashes.collect();
                self.list_damage(&hashes?.iter().filter_map(|hash| Hash::from_slice(hash)).collect());
            }
        }
        Ok(())
    }
}
