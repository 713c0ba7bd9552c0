//! Pack files: append-only sequences of self-describing object records.
//!
//! A pack has at most one writer at a time, which holds an exclusive lock on it from its first append until its commit is in
//! the database. The database knows how far each pack is committed; bytes beyond that are leftovers of a writer that died
//! and are cut off by the next one. Format: `docs/spec/store.md`, "Packs".

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use stepback_faults as faults;
use stepback_model::hash::{Hash, ObjectKind};

use crate::codec::Codec;
use crate::error::StoreError;

/// First bytes of every pack: name and format version.
pub const MAGIC: [u8; 8] = *b"SBPACK\x00\x01";
/// A pack that has grown beyond this is not appended to any more.
pub const MAX_PACK: u64 = 512 << 20;
/// Size of a record's header without the base.
pub const HEADER: usize = 48;

const RECORD_MAGIC: [u8; 2] = *b"SR";
const BUFFER: usize = 1 << 20;
/// Bytes that a disk writes in the time that the rest of a commit takes.
const MAX_BACKGROUND_SYNC_BYTES: u64 = 1 << 20;

/// The header in front of an object's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// The object's kind.
    pub kind: ObjectKind,
    /// Encoding of the payload.
    pub codec: Codec,
    /// Length of its chain of bases.
    pub depth: u8,
    /// Size before compression, in bytes.
    pub raw_len: u32,
    /// Size of the payload as stored, in bytes, without header and base.
    pub payload_len: u32,
    /// The object's hash.
    pub hash: Hash,
    /// The base, for [`Codec::ZstdOnBase`].
    pub base: Option<Hash>,
}

impl RecordHeader {
    /// Size of the whole record in the pack, in bytes.
    pub fn record_len(&self) -> u64 {
        HEADER as u64 + if self.base.is_some() { 32 } else { 0 } + u64::from(self.payload_len)
    }

    /// Appends the encoded header to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&RECORD_MAGIC);
        out.extend_from_slice(&[self.kind as u8, self.codec as u8, self.depth, 0, 0, 0]);
        out.extend_from_slice(&self.raw_len.to_le_bytes());
        out.extend_from_slice(&self.payload_len.to_le_bytes());
        out.extend_from_slice(self.hash.as_bytes());
        if let Some(base) = &self.base {
            out.extend_from_slice(base.as_bytes());
        }
    }

    /// Decodes a header; also returns the offset of the payload.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), String> {
        let fixed: &[u8; HEADER] = bytes.first_chunk().ok_or("the record is truncated")?;
        if fixed[..2] != RECORD_MAGIC {
            return Err("no record starts here".into());
        }
        let kind = ObjectKind::from_u8(fixed[2]).ok_or("the record has an unknown kind")?;
        let codec = Codec::from_u8(fixed[3]).ok_or("the record has an unknown codec")?;
        let word = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let hash = Hash::from_slice(&fixed[16..]).ok_or("the record has no hash")?;
        let (base, start) = if codec == Codec::ZstdOnBase {
            let base =
                bytes.get(HEADER..HEADER + 32).and_then(Hash::from_slice).ok_or("the record is truncated")?;
            (Some(base), HEADER + 32)
        } else {
            (None, HEADER)
        };
        let header =
            Self { kind, codec, depth: fixed[4], raw_len: word(8), payload_len: word(12), hash, base };
        Ok((header, start))
    }
}

/// The number of the pack called `name`; `None` if that is not a pack's name.
pub fn id_of(name: &std::ffi::OsStr) -> Option<u64> {
    name.to_str()?.strip_suffix(".pack")?.parse().ok()
}

/// The path of pack `id`.
pub fn path_of(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:08}.pack"))
}

/// Appends records to one pack, under its exclusive lock.
#[derive(Debug)]
pub struct PackWriter {
    id: u64,
    path: PathBuf,
    file: File,
    /// The offset at which the buffer will be written.
    flushed: u64,
    buffer: Vec<u8>,
    /// Whether nothing of this pack was ever committed, so that its name may not be durable yet.
    fresh: bool,
    /// The offset at which this writer began.
    start: u64,
    /// The offset up to which everything is durable.
    synced: u64,
}

/// Whether [`PackWriter::lock`] creates a pack file that does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfAbsent {
    /// Create it: the database has a row for it, with nothing committed.
    Create,
    /// Skip it: it was removed, or is lost.
    Skip,
}

impl PackWriter {
    /// Locks pack `id` for appending. `committed` is called under the lock and returns how many of its bytes are committed
    /// (`None`: the pack was removed). Returns `None` if another writer holds the lock, or if the pack was removed.
    pub fn lock(
        dir: &Path,
        id: u64,
        if_absent: IfAbsent,
        committed: impl FnOnce() -> Result<Option<u64>, StoreError>,
    ) -> Result<Option<Self>, StoreError> {
        let path = path_of(dir, id);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if if_absent == IfAbsent::Create {
            faults::point().map_err(StoreError::io("create", &path))?;
            options.create(true).mode(0o600);
        }
        let file = match options.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && if_absent == IfAbsent::Skip => {
                return Ok(None);
            }
            Err(error) => return Err(StoreError::io("open", path)(error)),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", path)(error)),
        }
        // A collection deletes a pack's row before its file, so a pack that still has a row still has its file name.
        let Some(committed) = committed()? else { return Ok(None) };
        let len = file.metadata().map_err(StoreError::io("read", &path))?.len();
        if len < committed {
            return Err(StoreError::Corrupt {
                what: format!("{} has {len} bytes where {committed} were committed", path.display()),
            });
        }
        if len > committed {
            faults::point()
                .and_then(|()| file.set_len(committed))
                .map_err(StoreError::io("truncate", &path))?;
        }
        let fresh = committed == 0;
        let buffer = if fresh { MAGIC.to_vec() } else { Vec::new() };
        let (start, synced) = (committed, committed);
        Ok(Some(Self { id, path, file, flushed: committed, buffer, fresh, start, synced }))
    }

    /// The pack's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The offset at which this writer began.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Whether the file has no name any more, so that what was written to it will be lost.
    pub fn is_deleted(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }

    /// The offset at which the next record will start.
    pub fn end(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Appends a record and returns its offset.
    pub fn append(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<u64, StoreError> {
        let offset = self.end();
        header.encode(&mut self.buffer);
        self.buffer.extend_from_slice(payload);
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(offset)
    }

    /// Appends an already encoded record, and returns its offset.
    pub fn append_record(&mut self, record: &[u8]) -> u64 {
        let offset = self.end();
        self.buffer.extend_from_slice(record);
        offset
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        faults::point()
            .and_then(|()| self.file.write_all_at(&self.buffer, self.flushed))
            .map_err(StoreError::io("write", &self.path))?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Starts writing everything appended to the disk. Waits for the disk if it is much; if it is little, returns while the
    /// disk works, and [`Self::sync`] waits for it.
    pub fn send(&mut self) -> Result<(), StoreError> {
        if self.end() - self.start > MAX_BACKGROUND_SYNC_BYTES {
            return self.sync();
        }
        self.flush()?;
        start_writing(&self.file, self.start);
        Ok(())
    }

    /// Makes everything appended durable. The lock is held until the writer is dropped.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        if self.synced == self.flushed {
            return Ok(());
        }
        faults::point().and_then(|()| self.file.sync_data()).map_err(StoreError::io("sync", &self.path))?;
        if self.fresh
            && let Some(dir) = self.path.parent()
        {
            // A new file is only durable once its directory is synced.
            sync_dir(dir)?;
        }
        self.synced = self.flushed;
        Ok(())
    }
}

/// Asks the system to start writing what was appended from `start` on. Only a hint: an error shows up in the sync.
#[cfg(target_os = "linux")]
fn start_writing(file: &File, start: u64) {
    use std::os::fd::AsRawFd;
    // SAFETY: takes a descriptor that is open for as long as `file` is borrowed, and no pointers.
    unsafe { libc::sync_file_range(file.as_raw_fd(), start as i64, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(not(target_os = "linux"))]
fn start_writing(_file: &File, _start: u64) {}

/// Makes the file names in `dir` durable.
pub fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    faults::point().and_then(|()| File::open(dir)?.sync_all()).map_err(StoreError::io("sync", dir))
}

/// Reads the record of `len` bytes at `offset`.
pub fn read_record(file: &File, offset: u64, len: u64) -> Result<(RecordHeader, Vec<u8>), String> {
    // Check before allocating: a damaged row must not make us allocate an arbitrary amount.
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    if offset.checked_add(len).is_none_or(|end| end > size) {
        return Err(format!("the pack ends at byte {size}"));
    }
    let mut bytes = vec![0u8; usize::try_from(len).map_err(|_| "the record is too long")?];
    file.read_exact_at(&mut bytes, offset).map_err(|error| error.to_string())?;
    parse_record(bytes, len)
}

/// Splits a record of `len` bytes into header and payload.
pub fn parse_record(mut bytes: Vec<u8>, len: u64) -> Result<(RecordHeader, Vec<u8>), String> {
    if bytes.len() as u64 != len {
        return Err(format!("there are {} bytes where {len} were expected", bytes.len()));
    }
    let (header, start) = RecordHeader::decode(&bytes)?;
    if header.record_len() != len {
        return Err(format!("the record has {} bytes where {len} were expected", header.record_len()));
    }
    bytes.drain(..start);
    Ok((header, bytes))
}

/// Checks that a file begins like a pack of a version that this program knows.
pub fn check_magic(file: &File) -> Result<(), String> {
    let mut start = [0u8; 8];
    file.read_exact_at(&mut start, 0).map_err(|error| error.to_string())?;
    if start[..7] != MAGIC[..7] {
        return Err("it does not start as a pack".into());
    }
    if start[7] > MAGIC[7] {
        return Err(format!("it has pack format {}, newer than {}", start[7], MAGIC[7]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(payload: &[u8], base: Option<Hash>) -> RecordHeader {
        RecordHeader {
            kind: ObjectKind::Blob,
            codec: if base.is_some() { Codec::ZstdOnBase } else { Codec::Raw },
            depth: u8::from(base.is_some()),
            raw_len: payload.len() as u32,
            payload_len: payload.len() as u32,
            hash: Hash::of(ObjectKind::Blob, payload),
            base,
        }
    }

    #[test]
    fn records_read_back_and_a_dead_writers_tail_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = PackWriter::lock(dir.path(), 1, IfAbsent::Create, || Ok(Some(0))).unwrap().unwrap();
        let first = header(b"hello", None);
        let at = writer.append(&first, b"hello").unwrap();
        writer.sync().unwrap();
        let committed = writer.end();
        let second = header(b"world", Some(first.hash));
        writer.append(&second, b"world").unwrap();
        writer.sync().unwrap();
        assert!(
            PackWriter::lock(dir.path(), 1, IfAbsent::Skip, || Ok(Some(committed))).unwrap().is_none(),
            "locked twice"
        );
        drop(writer);

        let writer =
            PackWriter::lock(dir.path(), 1, IfAbsent::Skip, || Ok(Some(committed))).unwrap().unwrap();
        assert_eq!(writer.end(), committed);
        let file = File::open(path_of(dir.path(), 1)).unwrap();
        assert_eq!(file.metadata().unwrap().len(), committed);
        check_magic(&file).unwrap();
        assert_eq!(read_record(&file, at, first.record_len()).unwrap(), (first, b"hello".to_vec()));
        assert!(read_record(&file, at, first.record_len() + 1).is_err());
        assert!(read_record(&file, at + 1, first.record_len() - 1).is_err());
    }

    #[test]
    fn a_pack_shorter_than_committed_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let lock = |committed| PackWriter::lock(dir.path(), 1, IfAbsent::Create, || Ok(Some(committed)));
        lock(0).unwrap().unwrap().sync().unwrap();
        assert!(matches!(lock(99), Err(StoreError::Corrupt { .. })));
    }

    #[test]
    fn a_pack_that_is_not_there_is_made_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        assert!(PackWriter::lock(dir.path(), 1, IfAbsent::Skip, || Ok(Some(0))).unwrap().is_none());
        assert!(!path_of(dir.path(), 1).exists());
        assert!(PackWriter::lock(dir.path(), 1, IfAbsent::Create, || Ok(Some(0))).unwrap().is_some());
        assert_eq!(id_of(path_of(dir.path(), 1).file_name().unwrap()), Some(1));
    }
}
