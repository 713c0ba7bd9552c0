//! The commit record: a copy of every recent commit outside the database, by which lost commits are noticed and brought
//! back.
//!
//! SQLite ignores its write-ahead log from the first damaged frame on, and cannot tell that from a log that ended there.
//! So every commit is also appended to a file of entries, each with a checksum and with the checksum of the entry before;
//! the database holds the checksum of its newest. An entry is written after its commit is durable and is never waited for:
//! whatever a crash does, an entry proves that its commit was durable, and a missing entry proves nothing.
//!
//! The file starts anew when everything in it has been copied from the write-ahead log into the database; the one before
//! is kept. Format: `docs/spec/store.md`, "Commit record".

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use stepback_faults as faults;
use stepback_model::hash::{Hash, ObjectKind};

/// File name of the record inside the store's directory.
pub(super) const RECORD: &str = "commits.log";
/// File name of the record before that.
pub(super) const RECORD_BEFORE: &str = "commits.old";

const MAGIC: [u8; 8] = *b"SBENTRY\x01";
/// Magic, commit, epoch, link to the entry before, four lengths.
const HEADER: usize = 8 + 8 + 8 + ChainLink::LEN + 16;
/// Hash, and length of the entry.
const TRAILER: usize = 32 + 4;
const RANGE: usize = 24;

/// A record that has grown beyond this many bytes starts anew as soon as the database has everything in it.
const MAX_RECORD_BYTES: u64 = 256 << 10;

/// A record that is kept for a mirror grows at most to this many bytes; a mirror that is further behind reads the database.
const MAX_KEPT_RECORD_BYTES: u64 = 64 << 20;
/// File name, inside the store's directory, of the number of the newest commit that every mirror has.
const MIRRORED: &str = "commits.mirrored";

/// Names an entry of the record: the number of its commit and its hash. The database holds that of its newest commit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct ChainLink {
    /// The number of the commit, which grows with every commit; numbers may be left out.
    pub commit: u64,
    /// The hash of its entry in the commit record.
    pub hash: Hash,
}

impl ChainLink {
    /// Length of its bytes.
    pub const LEN: usize = 40;
    /// Stands for the time before the first entry.
    pub const NONE: Self = Self { commit: 0, hash: Hash::from_bytes([0; 32]) };

    /// The number in eight bytes, and the hash.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.commit.to_le_bytes());
        bytes[8..].copy_from_slice(self.hash.as_bytes());
        bytes
    }

    /// Reads the bytes; `None` unless there are exactly so many.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let (commit, hash) = bytes.split_first_chunk::<8>()?;
        Some(Self { commit: u64::from_le_bytes(*commit), hash: Hash::from_slice(hash)? })
    }
}

/// Bytes that a commit added to a pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PackRange {
    pub pack: u64,
    pub start: u64,
    pub end: u64,
}

/// One commit: everything that is needed to apply it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CommitEntry {
    pub commit: u64,
    /// Number of collections when it was made. It relies on objects that a later one may have freed.
    pub epoch: u64,
    pub before: ChainLink,
    /// The changes of the log, as JSON.
    pub mutations: Vec<u8>,
    pub ranges: Vec<PackRange>,
    /// The objects' records that are in the database.
    pub records: Vec<Vec<u8>>,
}

impl CommitEntry {
    /// The bytes in the file, and the name of the entry.
    pub fn encode(&self) -> (Vec<u8>, ChainLink) {
        let body = self.mutations.len()
            + self.ranges.len() * RANGE
            + self.records.iter().map(|record| 4 + record.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(HEADER + body + TRAILER);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.commit.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.before.to_bytes());
        for length in [body, self.mutations.len(), self.ranges.len(), self.records.len()] {
            bytes.extend_from_slice(&(length as u32).to_le_bytes());
        }
        bytes.extend_from_slice(&self.mutations);
        for PackRange { pack, start, end } in &self.ranges {
            for number in [pack, start, end] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        for record in &self.records {
            bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
            bytes.extend_from_slice(record);
        }
        let hash = Hash::of(ObjectKind::Blob, &bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes.extend_from_slice(&((bytes.len() + 4) as u32).to_le_bytes());
        (bytes, ChainLink { commit: self.commit, hash })
    }

    /// The entry at the start of `bytes`, its name and its length; `None` unless it is whole.
    fn decode(bytes: &[u8]) -> Option<(Self, ChainLink, usize)> {
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        if header[..8] != MAGIC {
            return None;
        }
        let number = |at: usize| header[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        let length = |at: usize| header[at..].first_chunk().copied().map_or(0, u32::from_le_bytes) as usize;
        let lengths = HEADER - 16;
        let body_end = HEADER.checked_add(length(lengths))?;
        let hash = Hash::from_slice(bytes.get(body_end..body_end.checked_add(32)?)?)?;
        if Hash::of(ObjectKind::Blob, &bytes[..body_end]) != hash {
            return None;
        }
        let (mutations, mut rest) = bytes[HEADER..body_end].split_at_checked(length(lengths + 4))?;
        let mut ranges = Vec::new();
        for _ in 0..length(lengths + 8) {
            let (range, after) = rest.split_first_chunk::<RANGE>()?;
            let part = |at: usize| range[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
            ranges.push(PackRange { pack: part(0), start: part(8), end: part(16) });
            rest = after;
        }
        let mut records = Vec::new();
        for _ in 0..length(lengths + 12) {
            let (len, after) = rest.split_first_chunk::<4>()?;
            let (record, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            records.push(record.to_vec());
            rest = after;
        }
        let before = ChainLink::from_slice(&header[24..24 + ChainLink::LEN])?;
        let mutations = mutations.to_vec();
        let entry = Self { commit: number(8), epoch: number(16), before, mutations, ranges, records };
        let name = ChainLink { commit: entry.commit, hash };
        // A crash may have torn off the length at the end, and the next entry followed.
        let end = body_end + TRAILER;
        let has_length = bytes.get(end - 4..end).is_some_and(|length| *length == (end as u32).to_le_bytes());
        Some((entry, name, if has_length { end } else { end - 4 }))
    }
}

/// The entries of the record that are whole, in order of their commits.
#[derive(Debug, Default)]
pub(super) struct CommitEntries {
    pub entries: Vec<(CommitEntry, ChainLink)>,
    /// Number of places with bytes that are no entry: torn by a crash, or damaged.
    pub unreadable: usize,
}

/// Reads the record and the one before it. A missing file has no entries.
pub(super) fn read_entries(dir: &Path) -> io::Result<CommitEntries> {
    let mut read = CommitEntries::default();
    for name in [RECORD_BEFORE, RECORD] {
        match fs::read(dir.join(name)) {
            Ok(bytes) => read.add_all(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    // Two processes may append in another order than they committed.
    read.entries.sort_by_key(|(entry, _)| entry.commit);
    read.entries.dedup_by_key(|(_, name)| *name);
    Ok(read)
}

impl CommitEntries {
    fn add_all(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            if let Some((entry, name, len)) = CommitEntry::decode(&bytes[at..]) {
                self.entries.push((entry, name));
                at += len;
                continue;
            }
            // What a crash tore is followed by the next entry.
            self.unreadable += 1;
            at += 1;
            while at < bytes.len() && !bytes[at..].starts_with(&MAGIC) {
                at += 1;
            }
        }
    }
}

/// What a process remembers about the record since its last commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordTail {
    file: (u64, u64),
    len: u64,
    newest: Option<ChainLink>,
}

impl RecordTail {
    /// The name of the newest entry in the record. `known` is what the process saw last; what has not changed since is not
    /// read again.
    pub fn read(dir: &Path, known: Option<&Self>) -> io::Result<Option<Self>> {
        let mut tail = None;
        for name in [RECORD, RECORD_BEFORE] {
            let file = match File::open(dir.join(name)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let metadata = file.metadata()?;
            let (id, len) = ((metadata.dev(), metadata.ino()), metadata.len());
            if let Some(known) = known.filter(|known| (known.file, known.len) == (id, len)) {
                return Ok(Some(*known));
            }
            tail = Some(Self { file: id, len, newest: None });
            if let Some(newest) = newest_of(&file, len)? {
                return Ok(Some(Self { file: id, len, newest: Some(newest) }));
            }
        }
        Ok(tail)
    }

    /// The newest entry; `None` if there is none.
    pub fn newest(&self) -> Option<ChainLink> {
        self.newest
    }
}

/// The name of the newest entry of a file: usually the last one, which is found from its end.
fn newest_of(file: &File, len: u64) -> io::Result<Option<ChainLink>> {
    let mut size = [0; 4];
    if len >= (HEADER + TRAILER) as u64 {
        file.read_exact_at(&mut size, len - 4)?;
        let size = u64::from(u32::from_le_bytes(size));
        if size <= len {
            let mut bytes = vec![0; size as usize];
            file.read_exact_at(&mut bytes, len - size)?;
            if let Some((_, name, _)) = CommitEntry::decode(&bytes) {
                return Ok(Some(name));
            }
        }
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let mut read = CommitEntries::default();
    read.add_all(&bytes);
    Ok(read.entries.iter().map(|(_, name)| *name).max_by_key(|name| name.commit))
}

/// Appends an encoded entry. `is_folded` if the database has everything that the record has, so that it may start anew.
///
/// The commit is durable already, so a failure must not fail it: the record then lacks an entry, which proves nothing.
pub(super) fn append(dir: &Path, bytes: &[u8], name: ChainLink, is_folded: bool) -> io::Result<RecordTail> {
    let path = dir.join(RECORD);
    let len = fs::metadata(&path).map_or(0, |metadata| metadata.len());
    if is_folded && len > MAX_RECORD_BYTES && (len > MAX_KEPT_RECORD_BYTES || !is_needed_by_mirror(dir)) {
        faults::point()?;
        fs::rename(&path, dir.join(RECORD_BEFORE))?;
    }
    loop {
        let mut file = open_to_append(&path)?;
        faults::point()?;
        file.write_all(bytes)?;
        let metadata = file.metadata()?;
        // A process that starts the record anew removes this file only after it has read it.
        if metadata.nlink() > 0 {
            let id = (metadata.dev(), metadata.ino());
            return Ok(RecordTail { file: id, len: metadata.len(), newest: Some(name) });
        }
    }
}

/// Whether a mirror still needs entries of the record before this one, which would be removed.
fn is_needed_by_mirror(dir: &Path) -> bool {
    let Some(mirrored) = mirrored_commit(dir) else { return false };
    let before =
        File::open(dir.join(RECORD_BEFORE)).and_then(|file| newest_of(&file, file.metadata()?.len()));
    before.ok().flatten().is_some_and(|newest| newest.commit > mirrored)
}

/// The newest commit that every mirror has; `None` if there is no mirror.
pub(super) fn mirrored_commit(dir: &Path) -> Option<u64> {
    fs::read_to_string(dir.join(MIRRORED)).ok()?.trim().parse().ok()
}

/// Says up to which commit every mirror has the store; entries after it are kept. `None`: there is no mirror.
pub(super) fn note_mirrored(dir: &Path, commit: Option<u64>) -> io::Result<()> {
    use crate::new_file::{Durability, replace_file};
    let path = dir.join(MIRRORED);
    match commit {
        // Lost in a power failure, an older number keeps more of the record.
        Some(commit) => replace_file(&path, format!("{commit}\n").as_bytes(), 0o600, Durability::Unsynced),
        None => match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    }
}

fn open_to_append(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Starts the record anew with these entries. Nothing is synced: a record that a power failure takes proves less.
pub(super) fn restart(dir: &Path, bytes: &[u8]) -> io::Result<()> {
    use crate::new_file::{Durability, replace_file};
    replace_file(&dir.join(RECORD), bytes, 0o600, Durability::Unsynced)?;
    match faults::point().and_then(|()| fs::remove_file(dir.join(RECORD_BEFORE))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(commit: u64, before: ChainLink) -> CommitEntry {
        CommitEntry {
            commit,
            epoch: 3,
            before,
            mutations: b"[]".to_vec(),
            ranges: vec![PackRange { pack: 1, start: 8, end: 99 }],
            records: vec![b"one".to_vec(), Vec::new()],
        }
    }

    fn write_chain(dir: &Path, commits: std::ops::Range<u64>) -> Vec<ChainLink> {
        let mut before = ChainLink::NONE;
        commits
            .map(|commit| {
                let (bytes, name) = entry(commit, before).encode();
                append(dir, &bytes, name, false).unwrap();
                before = name;
                name
            })
            .collect()
    }

    #[test]
    fn entries_read_back_and_the_newest_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert!(RecordTail::read(dir.path(), None).unwrap().is_none());
        let names = write_chain(dir.path(), 1..6);
        let read = read_entries(dir.path()).unwrap();
        assert_eq!(read.entries.iter().map(|(_, name)| *name).collect::<Vec<_>>(), names);
        assert_eq!(read.entries[2].0, entry(3, names[1]));
        assert_eq!(read.unreadable, 0);
        let tail = RecordTail::read(dir.path(), None).unwrap().unwrap();
        assert_eq!(tail.newest(), Some(names[4]));
    }

    /// Every bit of the record: a damaged entry is skipped, none is misread, and all others are found.
    #[test]
    fn a_flipped_bit_hides_one_entry_and_changes_none() {
        let dir = tempfile::tempdir().unwrap();
        let names = write_chain(dir.path(), 1..4);
        let path = dir.path().join(RECORD);
        let intact = fs::read(&path).unwrap();
        let length_of_last = intact.len() - 4..intact.len();
        for at in 0..intact.len() * 8 {
            let mut damaged = intact.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            fs::write(&path, &damaged).unwrap();
            let read = read_entries(dir.path()).unwrap();
            assert!(read.entries.iter().all(|(_, name)| names.contains(name)), "bit {at}");
            assert!(read.entries.len() >= 2, "bit {at}: {} entries", read.entries.len());
            let newest = RecordTail::read(dir.path(), None).unwrap().unwrap().newest().unwrap();
            assert!(names[1..].contains(&newest), "bit {at}");
            if length_of_last.contains(&(at / 8)) {
                assert_eq!(newest, names[2], "bit {at}");
            }
        }
    }

    #[test]
    fn a_torn_entry_is_followed_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let names = write_chain(dir.path(), 1..3);
        let path = dir.path().join(RECORD);
        let intact = fs::read(&path).unwrap();
        for cut in 0..intact.len() {
            fs::write(&path, &intact[..cut]).unwrap();
            let (bytes, name) = entry(9, names[1]).encode();
            append(dir.path(), &bytes, name, false).unwrap();
            let read = read_entries(dir.path()).unwrap();
            assert_eq!(read.entries.last().map(|(_, name)| *name), Some(name), "cut at {cut}");
            assert_eq!(RecordTail::read(dir.path(), None).unwrap().unwrap().newest(), Some(name));
        }
    }

    #[test]
    fn a_long_record_starts_anew_once_the_database_has_it_all() {
        let dir = tempfile::tempdir().unwrap();
        let large = CommitEntry { mutations: vec![b' '; 300 << 10], ..entry(1, ChainLink::NONE) };
        let (bytes, first) = large.encode();
        append(dir.path(), &bytes, first, false).unwrap();
        let (bytes, second) = entry(2, first).encode();
        append(dir.path(), &bytes, second, false).unwrap();
        assert!(!dir.path().join(RECORD_BEFORE).exists());
        let (bytes, third) = entry(3, second).encode();
        append(dir.path(), &bytes, third, true).unwrap();
        let names: Vec<_> = read_entries(dir.path()).unwrap().entries.iter().map(|(_, name)| *name).collect();
        assert_eq!(names, [first, second, third]);
        fs::remove_file(dir.path().join(RECORD)).unwrap();
        assert_eq!(RecordTail::read(dir.path(), None).unwrap().unwrap().newest(), Some(second));
        restart(dir.path(), &bytes).unwrap();
        assert!(!dir.path().join(RECORD_BEFORE).exists());
        assert_eq!(RecordTail::read(dir.path(), None).unwrap().unwrap().newest(), Some(third));
    }

    #[test]
    fn entries_that_a_mirror_needs_stay() {
        let dir = tempfile::tempdir().unwrap();
        let mut before = ChainLink::NONE;
        let mut append_large = |commit| {
            let large = CommitEntry { mutations: vec![b' '; 300 << 10], ..entry(commit, before) };
            let (bytes, name) = large.encode();
            append(dir.path(), &bytes, name, true).unwrap();
            before = name;
        };
        let commits = || -> Vec<u64> {
            read_entries(dir.path()).unwrap().entries.iter().map(|(entry, _)| entry.commit).collect()
        };
        append_large(1);
        append_large(2);
        note_mirrored(dir.path(), Some(0)).unwrap();
        append_large(3);
        append_large(4);
        assert_eq!(commits(), [1, 2, 3, 4], "the mirror has none of them");
        note_mirrored(dir.path(), Some(1)).unwrap();
        append_large(5);
        assert_eq!(commits(), [2, 3, 4, 5]);
        note_mirrored(dir.path(), None).unwrap();
        note_mirrored(dir.path(), None).unwrap();
        append_large(6);
        assert_eq!(commits(), [5, 6]);
    }
}
