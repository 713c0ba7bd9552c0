//! The stat cache: what every file of a workspace looked like to `stat` when it was last hashed.
//!
//! A warm scan compares each file's size, times, inode and mode with this cache and reads only what differs. The cache is a
//! file of fixed-size records that is read in one go and never parsed: directories point at runs of entries, entries at
//! names in a heap that belongs to their directory. It is only a cache: lost, torn or foreign, it is rebuilt by hashing.
//! It is written beside its old version and renamed over it, so readers see one or the other.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use stepback_model::hash::Hash;

const MAGIC: [u8; 8] = *b"SBSTAT\x00\x03";
const HEADER: usize = 240;
const DIR_RECORD: usize = 56;
const ENTRY_RECORD: usize = 92;

/// "No such directory" where a directory index is expected.
pub const NONE: u32 = u32::MAX;

/// What `stat` says about a file, as far as it shows changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// Size in bytes.
    pub size: u64,
    /// Modification time in nanoseconds.
    pub mtime: i64,
    /// Status change time in nanoseconds; no program can set it, so it catches restored times.
    pub ctime: i64,
    /// Inode number.
    pub ino: u64,
    /// File type and permission bits.
    pub mode: u32,
}

/// The type of a cached entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A regular file whose content is one blob.
    Whole = 1,
    /// A regular file whose content is a list of chunks.
    Chunked = 2,
    /// A regular file kept by hard link in the vault.
    Vaulted = 3,
    /// A directory; `aux` is its index.
    Dir = 4,
    /// A symbolic link; its target is in the heap at `aux`, `size` bytes.
    Symlink = 5,
    /// Something not stored; `aux` is the reason.
    Skipped = 6,
}

impl Kind {
    fn from_u8(value: u8) -> Option<Self> {
        use Kind::{Chunked, Dir, Skipped, Symlink, Vaulted, Whole};
        [Whole, Chunked, Vaulted, Dir, Symlink, Skipped].into_iter().find(|kind| *kind as u8 == value)
    }
}

/// Entry flag: the file may have changed within its timestamp's granularity; hash it again.
pub const RACY: u8 = 1;
/// Entry flag: git ignores it, so it counts against the budget.
pub const IGNORED: u8 = 2;

/// One cached entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// File name.
    pub name: &'a [u8],
    /// Type.
    pub kind: Kind,
    /// [`RACY`], [`IGNORED`].
    pub flags: u8,
    /// What `stat` said.
    pub stat: Stat,
    /// Content (a blob or list hash) for files.
    pub hash: Hash,
    /// Depends on `kind`.
    pub aux: u32,
    /// Target of a symbolic link.
    pub target: &'a [u8],
}

/// Facts about the scan that wrote the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Device and inode of the root directory: a replaced root invalidates everything.
    pub root: (u64, u64),
    /// What `stat` said about the root directory; all zero if that cannot be relied on.
    pub root_stat: Stat,
    /// The store's collection epoch: after a collection, cached hashes may name objects that are gone.
    pub epoch: u64,
    /// Fingerprint of the rules that decided what is stored.
    pub rules: [u8; 32],
    /// Which boot of the system wrote it; within one boot the page cache cannot be torn.
    pub boot: [u8; 16],
    /// Bytes of ignored files stored, small and large ones.
    pub ignored_bytes: [u64; 2],
    /// The git slot of the state that was scanned, if there were git directories.
    pub git: Option<Hash>,
}

/// A loaded cache.
#[derive(Debug)]
pub struct StatCache {
    bytes: Vec<u8>,
    dirs: usize,
    entries: usize,
    meta: Meta,
}

impl StatCache {
    /// Loads the cache at `path`. `None` if there is none, or if it is not one this program wrote completely.
    pub fn load(path: &Path, boot: [u8; 16]) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        if header[..8] != MAGIC {
            return None;
        }
        let word = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| header[at + i]));
        let (dirs, entries) = (word(8) as usize, word(16) as usize);
        let heap = word(24) as usize;
        let mut meta = Meta {
            root: (word(32), word(40)),
            root_stat: Stat {
                size: word(192),
                mtime: word(200) as i64,
                ctime: word(208) as i64,
                ino: word(216),
                mode: word(224) as u32,
            },
            epoch: word(48),
            rules: [0; 32],
            boot: [0; 16],
            ignored_bytes: [word(56), word(64)],
            git: (header[120] == 1).then(|| Hash::from_slice(&header[160..192])).flatten(),
        };
        meta.rules.copy_from_slice(&header[72..104]);
        meta.boot.copy_from_slice(&header[104..120]);
        let expected = HEADER
            .checked_add(dirs.checked_mul(DIR_RECORD)?)?
            .checked_add(entries.checked_mul(ENTRY_RECORD)?)?
            .checked_add(heap)?;
        if bytes.len() != expected || dirs == 0 {
            return None;
        }
        if meta.boot != boot && header[128..160] != checksum(&bytes) {
            return None;
        }
        Some(Self { bytes, dirs, entries, meta })
    }

    /// Facts about the scan that wrote it.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Number of directories. The first is the root.
    pub fn dir_count(&self) -> usize {
        self.dirs
    }

    /// Number of entries in all directories.
    pub fn entry_count(&self) -> usize {
        self.entries
    }

    fn dir_record(&self, dir: u32) -> Option<&[u8; DIR_RECORD]> {
        if dir as usize >= self.dirs {
            return None;
        }
        self.bytes.get(HEADER + dir as usize * DIR_RECORD..)?.first_chunk()
    }

    /// The directory with index `dir`; `None` if the cache is inconsistent.
    pub fn dir(&self, dir: u32) -> Option<Dir<'_>> {
        let record = self.dir_record(dir)?;
        let first = u32_at(record, 0) as usize;
        let count = u32_at(record, 4) as usize;
        let heap_start = u64_at(record, 8) as usize;
        let heap_len = u64_at(record, 16) as usize;
        let tree = Hash::from_slice(&record[24..56])?;
        let table = HEADER + self.dirs * DIR_RECORD;
        let heap = table + self.entries * ENTRY_RECORD;
        let start = table.checked_add(first.checked_mul(ENTRY_RECORD)?)?;
        let records = self.bytes.get(start..start.checked_add(count.checked_mul(ENTRY_RECORD)?)?)?;
        if first + count > self.entries {
            return None;
        }
        let names =
            self.bytes.get(heap.checked_add(heap_start)?..heap.checked_add(heap_start + heap_len)?)?;
        Some(Dir { records, names, count, tree })
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

    /// The entry at `index`, in order of names; `None` if the cache is inconsistent.
    pub fn entry(&self, index: usize) -> Option<Entry<'a>> {
        let record: &[u8; ENTRY_RECORD] = self.records.get(index * ENTRY_RECORD..)?.first_chunk()?;
        let kind = Kind::from_u8(record[6])?;
        let stat = Stat {
            mode: u32_at(record, 8),
            size: u64_at(record, 16),
            mtime: u64_at(record, 24) as i64,
            ctime: u64_at(record, 32) as i64,
            ino: u64_at(record, 40),
        };
        let aux = u32_at(record, 12);
        let target = if kind == Kind::Symlink {
            self.names.get(aux as usize..(aux as usize).checked_add(stat.size as usize)?)?
        } else {
            &[]
        };
        Some(Entry {
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

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn checksum(bytes: &[u8]) -> [u8; 32] {
    let mut covered = bytes[..128].to_vec();
    covered.extend_from_slice(Hash::of(stepback_model::ObjectKind::Blob, &bytes[160..]).as_bytes());
    *Hash::of(stepback_model::ObjectKind::Blob, &covered).as_bytes()
}

/// Assembles a new cache, directory by directory.
#[derive(Debug, Default)]
pub struct Builder {
    dirs: Vec<u8>,
    entries: Vec<u8>,
    heap: Vec<u8>,
    entry_count: usize,
    heap_start: usize,
    ignored_bytes: [u64; 2],
}

impl Builder {
    /// Bytes of ignored files that are stored, small and large ones.
    pub fn ignored_bytes(&self) -> [u64; 2] {
        self.ignored_bytes
    }

    /// Counts what is ignored by git and stored nevertheless.
    fn count(&mut self, kind: u8, flags: u8, size: u64) {
        if flags & IGNORED != 0 && (kind == Kind::Whole as u8 || kind == Kind::Chunked as u8) {
            self.ignored_bytes[usize::from(size > crate::rules::SMALL)] += size;
        }
    }

    /// Makes room for about as much as `old` holds.
    pub fn like(old: Option<&StatCache>) -> Self {
        let mut builder = Self::default();
        if let Some(old) = old {
            builder.dirs.reserve(old.dirs * DIR_RECORD);
            builder.entries.reserve(old.entries * ENTRY_RECORD);
            builder.heap.reserve(old.entries * 16);
        }
        builder
    }

    /// Adds an entry to the directory being assembled; entries come in order of names.
    pub fn entry(&mut self, entry: &Entry<'_>) {
        let name_at = (self.heap.len() - self.heap_start) as u32;
        self.heap.extend_from_slice(entry.name);
        let aux = if entry.kind == Kind::Symlink {
            let target_at = (self.heap.len() - self.heap_start) as u32;
            self.heap.extend_from_slice(entry.target);
            target_at
        } else {
            entry.aux
        };
        self.count(entry.kind as u8, entry.flags, entry.stat.size);
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
        self.entries.extend_from_slice(&record);
    }

    /// Copies all entries of an unchanged directory; `renumber` maps old directory indices to new ones.
    pub fn copy_entries(&mut self, old: &Dir<'_>, renumber: impl Fn(u32) -> u32) {
        let start = self.entries.len();
        self.entries.extend_from_slice(old.records);
        self.heap.extend_from_slice(old.names);
        for record in self.entries[start..].chunks_exact_mut(ENTRY_RECORD) {
            if record[6] == Kind::Dir as u8 {
                let new = renumber(u32_at(record, 12));
                record[12..16].copy_from_slice(&new.to_le_bytes());
            }
        }
        for record in old.records.chunks_exact(ENTRY_RECORD).filter(|record| record[7] & IGNORED != 0) {
            self.count(record[6], record[7], u64_at(record, 16));
        }
    }

    /// Completes the directory being assembled. Directories are numbered in the order they are completed.
    pub fn finish_dir(&mut self, tree: Hash) {
        let entries_end = self.entries.len() / ENTRY_RECORD;
        self.dirs.extend_from_slice(&(self.entry_count as u32).to_le_bytes());
        self.dirs.extend_from_slice(&((entries_end - self.entry_count) as u32).to_le_bytes());
        self.dirs.extend_from_slice(&(self.heap_start as u64).to_le_bytes());
        self.dirs.extend_from_slice(&((self.heap.len() - self.heap_start) as u64).to_le_bytes());
        self.dirs.extend_from_slice(tree.as_bytes());
        self.entry_count = entries_end;
        self.heap_start = self.heap.len();
    }

    /// Writes the cache beside `path` and renames it into place.
    pub fn write(self, path: &Path, meta: &Meta) -> std::io::Result<()> {
        let dirs = self.dirs.len() / DIR_RECORD;
        let mut bytes = Vec::with_capacity(HEADER + self.dirs.len() + self.entries.len() + self.heap.len());
        bytes.extend_from_slice(&MAGIC);
        let words = [
            dirs as u64,
            self.entry_count as u64,
            self.heap.len() as u64,
            meta.root.0,
            meta.root.1,
            meta.epoch,
            meta.ignored_bytes[0],
            meta.ignored_bytes[1],
        ];
        for word in words {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&meta.rules);
        bytes.extend_from_slice(&meta.boot);
        bytes.push(u8::from(meta.git.is_some()));
        bytes.resize(160, 0);
        bytes.extend_from_slice(meta.git.as_ref().map_or(&[0; 32], Hash::as_bytes).as_slice());
        let Stat { size, mtime, ctime, ino, mode } = meta.root_stat;
        for word in [size, mtime as u64, ctime as u64, ino, u64::from(mode)] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.resize(HEADER, 0);
        bytes.extend_from_slice(&self.dirs);
        bytes.extend_from_slice(&self.entries);
        bytes.extend_from_slice(&self.heap);
        let sum = checksum(&bytes);
        bytes[128..160].copy_from_slice(&sum);

        static WRITES: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{}.{}", std::process::id(), WRITES.fetch_add(1, Ordering::Relaxed));
        let temporary = path.with_extension(unique);
        let mut options = fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)
            .and_then(|mut file| file.write_all(&bytes))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stepback_model::ObjectKind;

    fn entry<'a>(name: &'a [u8], kind: Kind, aux: u32, target: &'a [u8]) -> Entry<'a> {
        let stat = Stat { size: target.len() as u64, mtime: -5, ctime: 7, ino: 9, mode: 0o100644 };
        Entry { name, kind, flags: RACY, stat, hash: Hash::of(ObjectKind::Blob, name), aux, target }
    }

    fn meta() -> Meta {
        Meta {
            root: (1, 2),
            root_stat: Stat { ino: 8, ..Stat::default() },
            epoch: 3,
            rules: [4; 32],
            boot: [5; 16],
            ignored_bytes: [6, 7],
            git: None,
        }
    }

    fn sample(path: &Path) {
        let mut builder = Builder::default();
        builder.entry(&entry(b"a", Kind::Whole, 0, b""));
        builder.entry(&entry(b"link", Kind::Symlink, 0, b"target"));
        builder.entry(&entry(b"sub", Kind::Dir, 1, b""));
        builder.finish_dir(Hash::of(ObjectKind::Tree, b"root"));
        builder.entry(&entry(b"x\xff", Kind::Chunked, 0, b""));
        builder.finish_dir(Hash::of(ObjectKind::Tree, b"sub"));
        builder.write(path, &meta()).unwrap();
    }

    #[test]
    fn what_is_written_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        sample(&path);
        let cache = StatCache::load(&path, [5; 16]).unwrap();
        assert_eq!(cache.meta(), &meta());
        let root = cache.dir(0).unwrap();
        assert_eq!((root.len(), root.tree), (3, Hash::of(ObjectKind::Tree, b"root")));
        let link = root.entry(root.find(b"link").unwrap()).unwrap();
        assert_eq!((link.kind, link.target, link.stat.mtime), (Kind::Symlink, &b"target"[..], -5));
        assert_eq!(root.find(b"nope"), None);
        let sub = cache.dir(root.entry(2).unwrap().aux).unwrap();
        assert_eq!(sub.entry(0).unwrap().name, b"x\xff");
        assert!(cache.dir(2).is_none());
    }

    #[test]
    fn a_torn_cache_is_no_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        sample(&path);
        let good = fs::read(&path).unwrap();
        assert!(StatCache::load(&path, [0; 16]).is_some(), "another boot verifies the checksum");
        for cut in [0, 7, 100, good.len() - 1] {
            fs::write(&path, &good[..cut]).unwrap();
            assert!(StatCache::load(&path, [5; 16]).is_none(), "cut at {cut}");
        }
        let mut zeroed = good.clone();
        let end = zeroed.len();
        zeroed[end - 8..].fill(0);
        fs::write(&path, &zeroed).unwrap();
        assert!(StatCache::load(&path, [0; 16]).is_none(), "zeroes after a power loss");
    }
}
