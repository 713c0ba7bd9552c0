//! Builds a new stat cache, directory by directory.

use std::path::Path;

use stepback_model::hash::Hash;
use stepback_model::path::RelPath;

use super::meta::encode_paths;
use super::{
    CacheOverlay, CachedEntry, CachedKind, DIR_RECORD, Dir, ENTRY_RECORD, HEADER, HEADER_SUM, IgnoredTotals,
    MAGIC, Meta, StatCache, append_entry, compute_checksum, sum_header, sum_of, sum_record, tally_of, u32_at,
    write_beside,
};
use crate::rules::Budget;

/// Builds a new cache, directory by directory.
#[derive(Debug)]
pub struct Builder {
    budget: Budget,
    dirs: Vec<u8>,
    entries: Vec<u8>,
    heap: Vec<u8>,
    entry_count: usize,
    heap_start: usize,
    tally: IgnoredTotals,
}

impl Builder {
    /// A builder with capacity for about as much as `old` holds.
    pub fn like(old: Option<&StatCache>, budget: Budget) -> Self {
        let (dirs, entries) = old.map_or((0, 0), |old| (old.dir_count(), old.entry_count()));
        Self {
            budget,
            dirs: Vec::with_capacity(dirs * DIR_RECORD),
            entries: Vec::with_capacity(entries * ENTRY_RECORD),
            heap: Vec::with_capacity(entries * 16),
            entry_count: 0,
            heap_start: 0,
            tally: IgnoredTotals::default(),
        }
    }

    /// The total that git ignores in the directories so far.
    pub fn tally(&self) -> IgnoredTotals {
        self.tally
    }

    /// Adds an entry to the directory being assembled; entries come in order of names.
    pub fn entry(&mut self, entry: &CachedEntry<'_>) {
        append_entry(&mut self.entries, &mut self.heap, self.heap_start, entry);
        let record = &self.entries[self.entries.len() - ENTRY_RECORD..];
        self.tally = self.tally.plus(tally_of(record, &self.budget));
    }

    /// Copies all entries of an unchanged directory; `renumber` maps old directory indices to new ones.
    pub fn copy_entries(&mut self, old: &Dir<'_>, renumber: impl Fn(u32) -> u32) {
        let start = self.entries.len();
        self.entries.extend_from_slice(old.records);
        self.heap.extend_from_slice(old.names);
        for record in self.entries[start..].chunks_exact_mut(ENTRY_RECORD) {
            if record[6] == CachedKind::Dir as u8 {
                let new = renumber(u32_at(record, 12));
                record[12..16].copy_from_slice(&new.to_le_bytes());
            }
        }
        self.tally = self.tally.plus(old.tally(&self.budget));
    }

    /// Completes the directory being assembled. Directories are numbered in the order they are completed.
    pub fn finish_dir(&mut self, tree: Hash) {
        let entries_end = self.entries.len() / ENTRY_RECORD;
        self.dirs.extend_from_slice(&(self.entry_count as u32).to_le_bytes());
        self.dirs.extend_from_slice(&((entries_end - self.entry_count) as u32).to_le_bytes());
        self.dirs.extend_from_slice(&(self.heap_start as u64).to_le_bytes());
        self.dirs.extend_from_slice(&((self.heap.len() - self.heap_start) as u64).to_le_bytes());
        self.dirs.extend_from_slice(tree.as_bytes());
        let entries = &self.entries[self.entry_count * ENTRY_RECORD..];
        let sum = sum_of(&[entries, &self.heap[self.heap_start..]]);
        self.dirs.extend_from_slice(&sum.to_le_bytes());
        let number = (self.dirs.len() / DIR_RECORD) as u32;
        let sum = sum_record(&self.dirs[number as usize * DIR_RECORD..], number);
        self.dirs.extend_from_slice(&sum.to_le_bytes());
        self.entry_count = entries_end;
        self.heap_start = self.heap.len();
    }

    /// Writes the cache beside `path` and renames it into place. `unsettled` are directories that must be scanned again
    /// whatever a watcher says.
    pub fn write(self, path: &Path, meta: &Meta, unsettled: &[RelPath]) -> std::io::Result<()> {
        let mut tail = Vec::new();
        encode_paths(unsettled, &mut tail);
        let rest = self.dirs.len() + self.entries.len() + self.heap.len() + tail.len();
        let mut bytes = Vec::with_capacity(HEADER + rest);
        bytes.extend_from_slice(&MAGIC);
        for length in [self.dirs.len() / DIR_RECORD, self.entry_count, self.heap.len(), tail.len()] {
            bytes.extend_from_slice(&(length as u64).to_le_bytes());
        }
        bytes.resize(HEADER_SUM + 4, 0);
        meta.encode(&mut bytes);
        for part in [&self.dirs, &self.entries, &self.heap, &tail] {
            bytes.extend_from_slice(part);
        }
        let sum = compute_checksum(&bytes[..HEADER], &bytes[HEADER..]);
        bytes[40..72].copy_from_slice(&sum);
        let sum = sum_header(&bytes[..HEADER], &tail);
        bytes[HEADER_SUM..HEADER_SUM + 4].copy_from_slice(&sum.to_le_bytes());
        write_beside(path, &bytes)?;
        CacheOverlay::forget(path);
        Ok(())
    }
}
