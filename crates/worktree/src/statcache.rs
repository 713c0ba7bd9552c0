//! The stat cache: the `stat` of every file of a workspace when it was last hashed.
//!
//! A warm scan compares each file's size, times, inode and mode with this cache and reads only what differs. The cache is a
//! file of fixed-size records that is never parsed: directories point at runs of entries, entries at names in a heap that
//! belongs to their directory. It is only a cache: if it is lost, torn, damaged or not ours, it is rebuilt by hashing. It is
//! written beside its old version and renamed over it, so readers see one or the other. Every directory has its own
//! checksum, which is verified when the directory is read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use stepback_model::hash::Hash;
use stepback_model::path::RelPath;
use stepback_store::new_file::{Durability, replace_file};

use self::body::{Body, read_at};
use self::meta::decode_paths;
use crate::rules::Budget;

mod body;
mod build;
mod meta;
mod overlay;

pub use build::Builder;
pub use meta::{IgnoredTotals, Meta};
pub use overlay::CacheOverlay;

const MAGIC: [u8; 8] = *b"SBSTAT\x00\x06";
/// Magic, four lengths, a checksum, the sum of header and tail, and the meta.
const HEADER: usize = HEADER_SUM + 4 + Meta::LEN;
const HEADER_SUM: usize = 72;
/// First entry, number of entries, start and length of the names, tree, and two sums.
const DIR_RECORD: usize = 64;
/// Place of the sum of a directory's entries and names in its record; the sum of the record follows.
const DIR_SUM: usize = 56;
const ENTRY_RECORD: usize = 92;

/// "No such directory" where a directory index is expected.
pub const NONE: u32 = u32::MAX;

/// The fields of `stat` that show changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// Size in bytes.
    pub size: u64,
    /// Modification time in nanoseconds.
    pub mtime: i64,
    /// Status change time in nanoseconds; no program can set it, so it exposes files whose other times were set back.
    pub ctime: i64,
    /// Inode number.
    pub ino: u64,
    /// File type and permission bits.
    pub mode: u32,
}

/// The type of a cached entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CachedKind {
    /// A regular file whose content is one blob.
    Whole = 1,
    /// A regular file whose content is a list of chunks.
    Chunked = 2,
    /// A regular file kept in the vault.
    Vaulted = 3,
    /// A directory; `aux` is its index.
    Dir = 4,
    /// A symbolic link; its target is in the heap at `aux`, `size` bytes.
    Symlink = 5,
    /// Something not stored; `aux` is the reason.
    Skipped = 6,
}

impl CachedKind {
    fn from_u8(value: u8) -> Option<Self> {
        use CachedKind::{Chunked, Dir, Skipped, Symlink, Vaulted, Whole};
        [Whole, Chunked, Vaulted, Dir, Symlink, Skipped].into_iter().find(|kind| *kind as u8 == value)
    }
}

/// Entry flag: the file may have changed within its timestamp's granularity; hash it again.
pub const RACY: u8 = 1;
/// Entry flag: git ignores it, so it counts against the budget.
pub const IGNORED: u8 = 2;
/// Entry flag: the file has other hard links, and can be written to through any of them.
pub const LINKED: u8 = 4;
/// Entry flag: a git object whose content does not match its hash.
pub const DAMAGED: u8 = 8;

/// One cached entry.
#[derive(Clone, Copy, Debug)]
pub struct CachedEntry<'a> {
    /// File name.
    pub name: &'a [u8],
    /// The type of the entry.
    pub kind: CachedKind,
    /// [`RACY`], [`IGNORED`], [`LINKED`], [`DAMAGED`].
    pub flags: u8,
    /// The `stat` of the file when it was hashed.
    pub stat: Stat,
    /// Hash of the content (a blob or list) for files.
    pub hash: Hash,
    /// A number whose meaning depends on `kind`.
    pub aux: u32,
    /// Target of a symbolic link.
    pub target: &'a [u8],
}

/// An open cache. Directories are read on demand, unless the whole cache was read at once.
#[derive(Debug)]
pub struct StatCache {
    body: Body,
    dirs: usize,
    entries: usize,
    meta: Meta,
    unsettled: Vec<RelPath>,
    checksum: [u8; 32],
    overlay: CacheOverlay,
    /// Whether all of it was compared with its checksums.
    is_verified: bool,
    is_damaged: AtomicBool,
}

/// Caches up to this size (in bytes) are read at once.
const SMALL: u64 = 256 << 10;

impl StatCache {
    /// Opens the cache at `path`. `None` if there is none, or if this program did not write it completely.
    pub fn open(path: &Path, boot: [u8; 16]) -> Option<Self> {
        let file = File::open(path).ok()?;
        let size = file.metadata().ok()?.len();
        let mut header = [0u8; HEADER];
        file.read_exact_at(&mut header, 0).ok()?;
        if header[..8] != MAGIC {
            return None;
        }
        let word = |offset: usize| u64_at(&header, offset) as usize;
        let (dirs, entries, heap, tail) = (word(8), word(16), word(24), word(32));
        let mut checksum = [0; 32];
        checksum.copy_from_slice(&header[40..72]);
        let meta = Meta::decode(header[HEADER_SUM + 4..].first_chunk()?);
        let table_len = dirs.checked_mul(DIR_RECORD)?;
        let body_len = entries.checked_mul(ENTRY_RECORD)?.checked_add(heap)?;
        let tail_start = HEADER.checked_add(table_len)?.checked_add(body_len)?;
        if size != tail_start.checked_add(tail)? as u64 || dirs == 0 {
            return None;
        }
        if meta.boot != boot
            && checksum != compute_checksum(&header, &read_at(&file, HEADER..tail_start + tail)?)
        {
            return None;
        }
        let tail_bytes = read_at(&file, tail_start..tail_start + tail)?;
        if u32_at(&header, HEADER_SUM) != sum_header(&header, &tail_bytes) {
            return None;
        }
        let unsettled = decode_paths(&tail_bytes)?;
        let body = Body::new(file, HEADER..tail_start, table_len);
        let overlay = CacheOverlay::default();
        let is_damaged = AtomicBool::new(false);
        let is_verified = false;
        let base_cache =
            Self { body, dirs, entries, meta, unsettled, checksum, overlay, is_verified, is_damaged };
        let base_cache = if size <= SMALL { base_cache.read_whole()? } else { base_cache };
        Some(match CacheOverlay::load(path, &checksum) {
            Some((overlay, meta, unsettled)) => Self { overlay, meta, unsettled, ..base_cache },
            None => base_cache,
        })
    }

    /// Reads and verifies all of it, for a caller that needs every directory; `None` if any of it is damaged.
    pub fn read_whole(self) -> Option<Self> {
        if self.is_verified {
            return Some(self);
        }
        let in_memory = Self { body: self.body.read_whole()?, ..self };
        let is_intact =
            |dir: u32| in_memory.record(dir).and_then(|record| in_memory.parts(dir, record)).is_some();
        let is_verified = (0..in_memory.dirs as u32).all(is_intact);
        is_verified.then_some(Self { is_verified, ..in_memory })
    }

    /// Whether something that was read so far did not match its checksum. Then nothing that was taken from the cache can
    /// be relied on.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// The record of a directory, if it is as it was written.
    fn record(&self, dir: u32) -> Option<&[u8; DIR_RECORD]> {
        let record = self.body.dir_record(dir)?;
        let is_intact = self.is_verified || u32_at(record, DIR_SUM + 4) == sum_record(record, dir);
        self.intact(is_intact).then_some(record)
    }

    /// The entries and the names of a directory, if they are as they were written.
    fn parts(&self, dir: u32, record: &[u8; DIR_RECORD]) -> Option<(&[u8], &[u8])> {
        let (first, count) = (u32_at(record, 0) as usize, u32_at(record, 4) as usize);
        let (names_start, names_len) = (u64_at(record, 8) as usize, u64_at(record, 16) as usize);
        if first.checked_add(count)? > self.entries {
            return None;
        }
        // Both offsets count from the first entry; the names follow the last one.
        let records = first.checked_mul(ENTRY_RECORD)?..(first + count).checked_mul(ENTRY_RECORD)?;
        let names_start = self.entries.checked_mul(ENTRY_RECORD)?.checked_add(names_start)?;
        let names = names_start..names_start.checked_add(names_len)?;
        let (records, names) = self.body.dir_parts(dir, records, names)?;
        let is_intact = self.is_verified || u32_at(record, DIR_SUM) == sum_of(&[records, names]);
        self.intact(is_intact).then_some((records, names))
    }

    fn intact(&self, is_intact: bool) -> bool {
        if !is_intact {
            self.is_damaged.store(true, Ordering::Relaxed);
        }
        is_intact
    }

    /// Facts about the scan that wrote it.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Directories that must be scanned again whatever a watcher says.
    pub fn unsettled(&self) -> &[RelPath] {
        &self.unsettled
    }

    /// The changes since the file was written.
    pub fn overlay(&self) -> &CacheOverlay {
        &self.overlay
    }

    /// The checksum, which identifies this version of the file.
    pub fn checksum(&self) -> &[u8; 32] {
        &self.checksum
    }

    /// The number of directories that were ever numbered. The first is the root.
    pub fn dir_count(&self) -> usize {
        self.dirs.max(self.overlay.end_number())
    }

    /// Number of entries in all directories when the file was written.
    pub fn entry_count(&self) -> usize {
        self.entries
    }

    /// The tree of the directory with index `dir`, without reading its entries.
    pub fn tree(&self, dir: u32) -> Option<Hash> {
        match self.overlay.get(dir) {
            Some(replaced) => Some(replaced.tree),
            None => tree_of(self.record(dir)?),
        }
    }

    /// The directory with index `dir`; `None` if the cache is inconsistent.
    pub fn dir(&self, dir: u32) -> Option<Dir<'_>> {
        if let Some(replaced) = self.overlay.get(dir) {
            return Some(replaced);
        }
        let record = self.record(dir)?;
        let (records, names) = self.parts(dir, record)?;
        Some(Dir { records, names, count: u32_at(record, 4) as usize, tree: tree_of(record)? })
    }

    /// The total that git ignores in a cached directory and everything below it.
    pub fn tally_below(&self, dir: u32, budget: &Budget) -> IgnoredTotals {
        let mut tally = IgnoredTotals::default();
        let mut rest = vec![dir];
        // A damaged cache may contain cycles.
        let mut remaining = self.dir_count();
        while let Some(dir) = rest.pop().and_then(|number| self.dir(number)) {
            tally = tally.plus(dir.tally(budget));
            let subdirs = (0..dir.len())
                .filter_map(|index| dir.entry(index))
                .filter(|entry| entry.kind == CachedKind::Dir);
            rest.extend(subdirs.map(|entry| entry.aux));
            remaining = remaining.saturating_sub(1);
            if remaining == 0 {
                break;
            }
        }
        tally
    }
}

/// One cached directory.
#[derive(Clone, Copy, Debug)]
pub struct Dir<'a> {
    records: &'a [u8],
    names: &'a [u8],
    count: usize,
    /// Hash of its tree object.
    pub tree: Hash,
}

impl<'a> Dir<'a> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The total that git ignores in it.
    pub fn tally(&self, budget: &Budget) -> IgnoredTotals {
        let ignored = self.records.chunks_exact(ENTRY_RECORD).filter(|record| record[7] & IGNORED != 0);
        ignored.fold(IgnoredTotals::default(), |tally, record| tally.plus(tally_of(record, budget)))
    }

    /// The entry at `index`, in order of names; `None` if the cache is inconsistent.
    pub fn entry(&self, index: usize) -> Option<CachedEntry<'a>> {
        let record: &[u8; ENTRY_RECORD] = self.records.get(index * ENTRY_RECORD..)?.first_chunk()?;
        let kind = CachedKind::from_u8(record[6])?;
        let stat = Stat {
            mode: u32_at(record, 8),
            size: u64_at(record, 16),
            mtime: u64_at(record, 24) as i64,
            ctime: u64_at(record, 32) as i64,
            ino: u64_at(record, 40),
        };
        let aux = u32_at(record, 12);
        let target = if kind == CachedKind::Symlink {
            self.names.get(aux as usize..(aux as usize).checked_add(stat.size as usize)?)?
        } else {
            &[]
        };
        Some(CachedEntry {
            name: self.name(record)?,
            kind,
            flags: record[7],
            stat,
            hash: Hash::from_slice(&record[48..80])?,
            aux,
            target,
        })
    }

    fn name(&self, record: &[u8; ENTRY_RECORD]) -> Option<&'a [u8]> {
        let start = u32_at(record, 0) as usize;
        let len = u16::from_le_bytes([record[4], record[5]]) as usize;
        self.names.get(start..start + len)
    }

    fn name_at(&self, index: usize) -> Option<&'a [u8]> {
        self.name(self.records.get(index * ENTRY_RECORD..)?.first_chunk()?)
    }

    /// Position of the entry called `name`.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            match self.name_at(middle)?.cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(middle),
            }
        }
        None
    }
}

fn tree_of(record: &[u8; DIR_RECORD]) -> Option<Hash> {
    Hash::from_slice(&record[24..DIR_SUM])
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from(u32_at(bytes, offset)) | u64::from(u32_at(bytes, offset + 4)) << 32
}

/// A sum that detects damage, of these parts as one: fast enough for every byte of a warm scan's cache.
fn sum_of(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// The sum of the record of directory `dir`.
fn sum_record(record: &[u8], dir: u32) -> u32 {
    sum_of(&[&dir.to_le_bytes(), &record[..DIR_SUM + 4]])
}

/// The sum of a cache's header and of the paths at its end.
fn sum_header(header: &[u8], tail: &[u8]) -> u32 {
    sum_of(&[&header[..HEADER_SUM], &header[HEADER_SUM + 4..], tail])
}

/// The checksum of a cache: covers its header (without the checksum and the sum) and all that follows.
fn compute_checksum(header: &[u8], rest: &[u8]) -> [u8; 32] {
    let mut covered = header[..40].to_vec();
    covered.extend_from_slice(&header[HEADER_SUM + 4..]);
    covered.extend_from_slice(Hash::of(stepback_model::ObjectKind::Blob, rest).as_bytes());
    *Hash::of(stepback_model::ObjectKind::Blob, &covered).as_bytes()
}

fn tally_of(record: &[u8], budget: &Budget) -> IgnoredTotals {
    let (kind, size) = (record[6], u64_at(record, 16));
    let class = usize::from(size > crate::rules::SMALL);
    let mut tally = IgnoredTotals::default();
    if record[7] & IGNORED == 0 {
        return tally;
    }
    if kind == CachedKind::Whole as u8 || kind == CachedKind::Chunked as u8 {
        tally.bytes[class] = size;
    } else if kind == CachedKind::Skipped as u8 && size <= budget.file {
        tally.waiting = 1;
    }
    tally
}

/// Appends an entry's record and its name; `names_start` is where the names of its directory begin.
fn append_entry(records: &mut Vec<u8>, names: &mut Vec<u8>, names_start: usize, entry: &CachedEntry<'_>) {
    let name_at = (names.len() - names_start) as u32;
    names.extend_from_slice(entry.name);
    let aux = if entry.kind == CachedKind::Symlink {
        let target_at = (names.len() - names_start) as u32;
        names.extend_from_slice(entry.target);
        target_at
    } else {
        entry.aux
    };
    let mut record = [0u8; ENTRY_RECORD];
    record[..4].copy_from_slice(&name_at.to_le_bytes());
    record[4..6].copy_from_slice(&(entry.name.len() as u16).to_le_bytes());
    record[6] = entry.kind as u8;
    record[7] = entry.flags;
    record[8..12].copy_from_slice(&entry.stat.mode.to_le_bytes());
    record[12..16].copy_from_slice(&aux.to_le_bytes());
    record[16..24].copy_from_slice(&entry.stat.size.to_le_bytes());
    record[24..32].copy_from_slice(&entry.stat.mtime.to_le_bytes());
    record[32..40].copy_from_slice(&entry.stat.ctime.to_le_bytes());
    record[40..48].copy_from_slice(&entry.stat.ino.to_le_bytes());
    record[48..80].copy_from_slice(entry.hash.as_bytes());
    records.extend_from_slice(&record);
}

/// Replaces a file of the cache, which need not survive a power failure.
fn write_beside(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    replace_file(path, bytes, 0o600, Durability::Unsynced)
}

#[cfg(test)]
mod tests;
