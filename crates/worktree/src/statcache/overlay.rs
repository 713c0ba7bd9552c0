//! Changes to a stat cache since its file was written, in a small file beside it, so that a scan of a few directories does
//! not have to rewrite all others.
//!
//! The file is a sequence of sections; each scan appends one with what it found. A section names its base by checksum: the
//! first the cache, every other the section before. Reading stops where that does not match or something is torn: what
//! comes before is a complete cache of an earlier state. When enough of the file is out of date, it is rewritten as one
//! section.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::path::RelPath;

use super::meta::{Meta, decode_paths, encode_paths};
use super::{CachedEntry, Dir, ENTRY_RECORD, append_entry, u32_at, u64_at, write_beside};

const MAGIC: [u8; 8] = *b"SBSTATO\x02";
/// Magic, checksum of the base, meta, length of the list of paths, length of the directories.
const HEADER: usize = 8 + 32 + Meta::LEN + 8 + 8;
const CHECKSUM_BYTES: usize = 32;
/// Number, entries, length of names, tree.
const DIR_HEADER: usize = 4 + 4 + 8 + 32;
/// A file is not rewritten before its size exceeds what is needed by this many bytes plus a quarter of what is needed.
const SPARE_BYTES: usize = 64 << 10;

/// Directories that differ from the cache below.
#[derive(Clone, Debug, Default)]
pub struct CacheOverlay {
    dirs: BTreeMap<u32, OverlayDir>,
    file: Option<AppendPoint>,
}

/// The sections that were read from the file, if more can be appended.
#[derive(Clone, Copy, Debug)]
struct AppendPoint {
    last: [u8; CHECKSUM_BYTES],
    len: usize,
}

/// A directory that replaces a cached one, or is new.
#[derive(Clone, Debug)]
struct OverlayDir {
    tree: Hash,
    /// A buffer that holds its records and, right behind them, its names.
    bytes: Arc<Vec<u8>>,
    records: Range<usize>,
    names_end: usize,
    /// Whether it is in the file already.
    is_written: bool,
}

impl OverlayDir {
    fn as_dir(&self) -> Dir<'_> {
        Dir {
            records: &self.bytes[self.records.clone()],
            names: &self.bytes[self.records.end..self.names_end],
            count: self.records.len() / ENTRY_RECORD,
            tree: self.tree,
        }
    }

    fn written_len(&self) -> usize {
        DIR_HEADER + self.names_end - self.records.start
    }

    fn encode(&self, number: u32, bytes: &mut Vec<u8>) {
        let Dir { records, names, count, tree } = self.as_dir();
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&(count as u32).to_le_bytes());
        bytes.extend_from_slice(&(names.len() as u64).to_le_bytes());
        bytes.extend_from_slice(tree.as_bytes());
        bytes.extend_from_slice(records);
        bytes.extend_from_slice(names);
    }
}

impl CacheOverlay {
    /// The number of directories it replaces or adds.
    pub fn len(&self) -> usize {
        self.dirs.len()
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// One more than the largest number of a directory in it.
    pub(super) fn end_number(&self) -> usize {
        self.dirs.last_key_value().map_or(0, |(number, _)| *number as usize + 1)
    }

    /// A directory that it replaces or adds.
    pub fn get(&self, number: u32) -> Option<Dir<'_>> {
        self.dirs.get(&number).map(OverlayDir::as_dir)
    }

    /// Sets the entries of a directory, which come in order of names.
    pub fn set<'e>(&mut self, number: u32, tree: Hash, entries: impl Iterator<Item = CachedEntry<'e>>) {
        let (mut bytes, mut names) = (Vec::new(), Vec::new());
        for entry in entries {
            append_entry(&mut bytes, &mut names, 0, &entry);
        }
        let records = 0..bytes.len();
        bytes.extend_from_slice(&names);
        let names_end = bytes.len();
        let dir = OverlayDir { tree, bytes: Arc::new(bytes), records, names_end, is_written: false };
        self.dirs.insert(number, dir);
    }

    /// The path of the overlay of the cache at `cache`.
    pub fn path(cache: &Path) -> PathBuf {
        let mut name = cache.file_name().unwrap_or_default().to_owned();
        name.push(".changes");
        cache.with_file_name(name)
    }

    /// Writes it for the cache at `cache`, whose checksum is `base_checksum`.
    pub fn write(
        &self,
        cache: &Path,
        base_checksum: &[u8; 32],
        meta: &Meta,
        unsettled: &[RelPath],
    ) -> io::Result<()> {
        let path = Self::path(cache);
        let needed: usize = self.dirs.values().map(OverlayDir::written_len).sum();
        if let Some(row) = &self.file
            && row.len <= needed + needed / 4 + SPARE_BYTES
            && append_if_unchanged(
                &path,
                row.len,
                &self.encode_section(&row.last, meta, unsettled, |dir| !dir.is_written),
            )
            .is_ok()
        {
            return Ok(());
        }
        write_beside(&path, &self.encode_section(base_checksum, meta, unsettled, |_| true))
    }

    fn encode_section(
        &self,
        base_checksum: &[u8; 32],
        meta: &Meta,
        unsettled: &[RelPath],
        is_part: impl Fn(&OverlayDir) -> bool,
    ) -> Vec<u8> {
        let mut paths = Vec::new();
        encode_paths(unsettled, &mut paths);
        let parts = || self.dirs.iter().filter(|(_, dir)| is_part(dir));
        let len: usize = parts().map(|(_, dir)| dir.written_len()).sum();
        let mut bytes = Vec::with_capacity(HEADER + paths.len() + len + CHECKSUM_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(base_checksum);
        meta.encode(&mut bytes);
        bytes.extend_from_slice(&(paths.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(len as u64).to_le_bytes());
        bytes.extend_from_slice(&paths);
        parts().for_each(|(number, dir)| dir.encode(*number, &mut bytes));
        let sum = Hash::of(ObjectKind::Blob, &bytes);
        bytes.extend_from_slice(sum.as_bytes());
        bytes
    }

    /// Removes the overlay of the cache at `cache`, which has just been rewritten.
    pub fn forget(cache: &Path) {
        let _ = fs::remove_file(Self::path(cache));
    }

    /// Loads the overlay of the cache at `cache`; `None` if there is none for this version of it.
    pub(super) fn load(cache: &Path, base_checksum: &[u8; 32]) -> Option<(Self, Meta, Vec<RelPath>)> {
        let bytes = Arc::new(fs::read(Self::path(cache)).ok()?);
        let mut dirs = BTreeMap::new();
        let mut row = AppendPoint { last: *base_checksum, len: 0 };
        let mut newest = None;
        while let Some(section) = Section::parse_at(&bytes, row.len, &row.last) {
            let Some(unsettled) = section.read_into(&mut dirs, &bytes) else { break };
            newest = Some((section.meta, unsettled));
            row = AppendPoint { last: section.sum, len: section.end };
        }
        let (meta, unsettled) = newest?;
        let file = Some(row).filter(|row| row.len == bytes.len());
        Some((Self { dirs, file }, meta, unsettled))
    }
}

/// A section whose checksum is valid.
struct Section {
    meta: Meta,
    paths: Range<usize>,
    dirs: Range<usize>,
    sum: [u8; CHECKSUM_BYTES],
    end: usize,
}

impl Section {
    /// The section at `start`, if its base is `base_checksum`.
    fn parse_at(bytes: &[u8], start: usize, base_checksum: &[u8; 32]) -> Option<Self> {
        let header: &[u8; HEADER] = bytes.get(start..)?.first_chunk()?;
        if header[..8] != MAGIC || header[8..40] != *base_checksum {
            return None;
        }
        let meta = Meta::decode(header[40..].first_chunk()?);
        let paths = start + HEADER;
        let dirs = paths.checked_add(usize::try_from(u64_at(header, HEADER - 16)).ok()?)?;
        let dirs_end = dirs.checked_add(usize::try_from(u64_at(header, HEADER - 8)).ok()?)?;
        let sum: [u8; CHECKSUM_BYTES] = *bytes.get(dirs_end..)?.first_chunk()?;
        let is_whole = *Hash::of(ObjectKind::Blob, &bytes[start..dirs_end]).as_bytes() == sum;
        is_whole.then_some(Self {
            meta,
            paths: paths..dirs,
            dirs: dirs..dirs_end,
            sum,
            end: dirs_end + CHECKSUM_BYTES,
        })
    }

    /// Adds its directories, and returns which are unsettled.
    fn read_into(&self, dirs: &mut BTreeMap<u32, OverlayDir>, bytes: &Arc<Vec<u8>>) -> Option<Vec<RelPath>> {
        let mut position = self.dirs.start;
        let mut read = Vec::new();
        while position < self.dirs.end {
            let head: &[u8; DIR_HEADER] = bytes.get(position..self.dirs.end)?.first_chunk()?;
            let start = position + DIR_HEADER;
            let end = start.checked_add((u32_at(head, 4) as usize).checked_mul(ENTRY_RECORD)?)?;
            let names_end = end.checked_add(usize::try_from(u64_at(head, 8)).ok()?)?;
            bytes.get(start..names_end).filter(|_| names_end <= self.dirs.end)?;
            let tree = Hash::from_slice(&head[16..])?;
            let bytes = Arc::clone(bytes);
            read.push((
                u32_at(head, 0),
                OverlayDir { tree, bytes, records: start..end, names_end, is_written: true },
            ));
            position = names_end;
        }
        let unsettled = decode_paths(&bytes[self.paths.clone()])?;
        dirs.extend(read);
        Some(unsettled)
    }
}

/// Appends to a file if it still has the length it was read with.
fn append_if_unchanged(path: &Path, len: usize, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().append(true).open(path)?;
    if file.metadata()?.len() != len as u64 {
        return Err(io::ErrorKind::Other.into());
    }
    file.write_all(bytes)
}
