//! What changed in a stat cache since its file was written: a small file beside it, so that a look at a few directories
//! need not write what is known of all the others.
//!
//! It names the file it belongs to by its checksum. Beside any other it is ignored, and so is one that is torn: the file
//! below it is a cache by itself, of an earlier moment.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::path::RelPath;

use super::meta::{Meta, decode_paths, encode_paths};
use super::{Dir, ENTRY_RECORD, Entry, append_entry, u32_at, u64_at, write_beside};

const MAGIC: [u8; 8] = *b"SBSTATO\x01";
/// Magic, checksum of the cache below, meta, length of the list of paths, number of directories.
const HEADER: usize = 8 + 32 + Meta::LEN + 8 + 8;
const SUM: usize = 32;
/// Number, entries, length of names, tree.
const DIR_HEADER: usize = 4 + 4 + 8 + 32;

/// Directories that are not as the cache below says.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    dirs: BTreeMap<u32, Replaced>,
}

/// A directory that stands for another, or is new.
#[derive(Clone, Debug)]
pub(super) struct Replaced {
    tree: Hash,
    records: Vec<u8>,
    names: Vec<u8>,
}

impl Replaced {
    fn view(&self) -> Dir<'_> {
        Dir {
            records: &self.records,
            names: &self.names,
            count: self.records.len() / ENTRY_RECORD,
            tree: self.tree,
        }
    }
}

impl Overlay {
    /// How many directories it replaces or adds.
    pub fn len(&self) -> usize {
        self.dirs.len()
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// One more than the largest number of a directory in it.
    pub(super) fn end(&self) -> usize {
        self.dirs.last_key_value().map_or(0, |(number, _)| *number as usize + 1)
    }

    /// A directory that it replaces or adds.
    pub fn get(&self, number: u32) -> Option<Dir<'_>> {
        self.dirs.get(&number).map(Replaced::view)
    }

    /// Sets what a directory holds; entries come in order of names.
    pub fn set<'e>(&mut self, number: u32, tree: Hash, entries: impl Iterator<Item = Entry<'e>>) {
        let (mut records, mut names) = (Vec::new(), Vec::new());
        for entry in entries {
            append_entry(&mut records, &mut names, 0, &entry);
        }
        self.dirs.insert(number, Replaced { tree, records, names });
    }

    /// Where the overlay of the cache at `cache` is kept.
    pub fn path(cache: &Path) -> PathBuf {
        let mut name = cache.file_name().unwrap_or_default().to_owned();
        name.push(".changes");
        cache.with_file_name(name)
    }

    /// Writes it for the cache at `cache`, whose checksum is `below`.
    pub fn write(
        &self,
        cache: &Path,
        below: &[u8; 32],
        meta: &Meta,
        unsettled: &[RelPath],
    ) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(4096);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(below);
        meta.encode(&mut bytes);
        let mut paths = Vec::new();
        encode_paths(unsettled, &mut paths);
        bytes.extend_from_slice(&(paths.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(self.dirs.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&paths);
        for (number, dir) in &self.dirs {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(&((dir.records.len() / ENTRY_RECORD) as u32).to_le_bytes());
            bytes.extend_from_slice(&(dir.names.len() as u64).to_le_bytes());
            bytes.extend_from_slice(dir.tree.as_bytes());
            bytes.extend_from_slice(&dir.records);
            bytes.extend_from_slice(&dir.names);
        }
        let sum = Hash::of(ObjectKind::Blob, &bytes);
        bytes.extend_from_slice(sum.as_bytes());
        write_beside(&Self::path(cache), &bytes)
    }

    /// Removes the one of the cache at `cache`: that has just been written anew.
    pub fn forget(cache: &Path) {
        let _ = fs::remove_file(Self::path(cache));
    }

    /// Loads the overlay of the cache at `cache`; `None` if there is none for this version of it.
    pub(super) fn load(cache: &Path, below: &[u8; 32]) -> Option<(Self, Meta, Vec<RelPath>)> {
        let bytes = fs::read(Self::path(cache)).ok()?;
        let (bytes, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM)?)?;
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        if header[..8] != MAGIC
            || header[8..40] != *below
            || Hash::of(ObjectKind::Blob, bytes).as_bytes() != sum
        {
            return None;
        }
        let meta = Meta::decode(header[40..].first_chunk()?);
        let paths = u64_at(header, HEADER - 16) as usize;
        let count = u64_at(header, HEADER - 8);
        let (paths, mut rest) = bytes[HEADER..].split_at_checked(paths)?;
        let mut overlay = Self::default();
        for _ in 0..count {
            let (head, body) = rest.split_first_chunk::<DIR_HEADER>()?;
            let entries = (u32_at(head, 4) as usize).checked_mul(ENTRY_RECORD)?;
            let (records, body) = body.split_at_checked(entries)?;
            let (names, body) = body.split_at_checked(u64_at(head, 8) as usize)?;
            let tree = Hash::from_slice(&head[16..])?;
            let dir = Replaced { tree, records: records.to_vec(), names: names.to_vec() };
            overlay.dirs.insert(u32_at(head, 0), dir);
            rest = body;
        }
        Some((overlay, meta, decode_paths(paths)?)).filter(|_| rest.is_empty())
    }
}
