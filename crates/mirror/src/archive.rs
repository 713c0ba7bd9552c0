//! The files of a mirror as a whole: whose it is, where it ends, and how it grows.
//!
//! Every segment is created under the number after the last one, and creating fails if the number is taken. So two writers
//! cannot both continue the mirror: the second one learns that it was too late, and reads again where the mirror is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;

use crate::error::MirrorError;
use crate::item::SegmentItem;
use crate::segment::{self, MirrorCursor, MirrorSegment, SEGMENTS, SegmentHeader, SegmentLink};
use crate::storage::{CreateOutcome, MirrorStorage};

/// The file that says whose mirror it is.
pub const IDENTITY: &str = "stepback-mirror.json";
/// The format of mirrors that this program reads and writes.
pub const FORMAT: u32 = 1;

/// A segment is written when its items have this many bytes; one item may have more.
const SEGMENT_BYTES: usize = 8 << 20;

/// Whose mirror it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MirrorIdentity {
    /// The format of the mirror.
    #[serde(rename = "stepback-mirror")]
    pub format: u32,
    /// The id that all mirrors of a store share: 32 hex digits.
    pub id: String,
    /// When the mirror was created.
    pub created_at: Timestamp,
}

/// A mirror, and where it ends.
pub struct MirrorArchive {
    storage: Arc<dyn MirrorStorage>,
    /// The id of the mirror.
    pub id: String,
    /// How far the mirror is.
    pub cursor: MirrorCursor,
    /// When the last segment was written; `None` without segments.
    pub written_at: Option<Timestamp>,
    tail: Option<SegmentLink>,
    /// The number of the next segment.
    next: u64,
    /// Segments after the last intact one, which cannot be read.
    pub unreadable: Vec<u64>,
    /// Number of segments.
    pub segments: u64,
    /// Bytes in all segments.
    pub bytes: u64,
}

impl std::fmt::Debug for MirrorArchive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MirrorArchive").field("place", &self.place()).finish_non_exhaustive()
    }
}

impl MirrorArchive {
    /// Opens the mirror in a storage; `None` if the storage has none.
    pub fn open(storage: Arc<dyn MirrorStorage>) -> Result<Option<Self>, MirrorError> {
        let identity = match storage.read(IDENTITY)? {
            Some(bytes) => Some(parse_identity(&*storage, &bytes)?),
            None => None,
        };
        let mut archive = Self {
            storage,
            id: identity.map(|identity| identity.id).unwrap_or_default(),
            cursor: MirrorCursor::empty(),
            written_at: None,
            tail: None,
            next: 1,
            unreadable: Vec::new(),
            segments: 0,
            bytes: 0,
        };
        archive.find_tail()?;
        Ok((!archive.id.is_empty()).then_some(archive))
    }

    /// Creates a mirror in an empty storage.
    pub fn create(storage: Arc<dyn MirrorStorage>, id: &str, now: Timestamp) -> Result<Self, MirrorError> {
        let identity = MirrorIdentity { format: FORMAT, id: id.to_owned(), created_at: now };
        let mut text = serde_json::to_vec_pretty(&identity).unwrap_or_default();
        text.push(b'\n');
        match storage.create(IDENTITY, &text)? {
            CreateOutcome::Created => {}
            CreateOutcome::Exists => return Err(MirrorError::Conflict { place: storage.place() }),
        }
        if storage.create(IDENTITY, &text)? == CreateOutcome::Created {
            let reason =
                "the service ignores \"If-None-Match\", so two writers could overwrite each other".into();
            return Err(MirrorError::NotAMirror { place: storage.place(), reason });
        }
        match Self::open(storage.clone())? {
            Some(archive) => Ok(archive),
            None => Err(MirrorError::Unverified { place: storage.place(), name: IDENTITY.into() }),
        }
    }

    /// The place, for messages.
    pub fn place(&self) -> String {
        self.storage.place()
    }

    /// The files of the mirror.
    pub fn storage(&self) -> &dyn MirrorStorage {
        &*self.storage
    }

    /// Reads again where the mirror ends, if its last segment is not there any more. Segments that another process appended
    /// are not looked for: appending to them fails, and then [`Self::find_tail`] finds them.
    pub fn refresh(&mut self) -> Result<(), MirrorError> {
        let Some(tail) = self.tail else { return self.find_tail() };
        match self.read(tail.sequence).is_ok_and(|segment| segment.link() == tail) {
            true => Ok(()),
            false => self.find_tail(),
        }
    }

    /// Reads where the mirror ends.
    pub fn find_tail(&mut self) -> Result<(), MirrorError> {
        let listed = self.storage.list(SEGMENTS, "")?;
        let sequences: Vec<u64> = listed.iter().filter_map(|file| segment::sequence_of(&file.name)).collect();
        self.bytes = listed.iter().map(|file| file.bytes).sum();
        self.segments = sequences.len() as u64;
        self.next = sequences.last().map_or(1, |last| last + 1);
        (self.cursor, self.tail, self.written_at) = (MirrorCursor::empty(), None, None);
        self.unreadable.clear();
        for sequence in sequences.into_iter().rev() {
            match self.read(sequence) {
                Ok(found) => {
                    if self.id.is_empty() {
                        self.id.clone_from(&found.header.mirror);
                    }
                    (self.tail, self.written_at) = (Some(found.link()), Some(found.header.written_at));
                    self.cursor = found.header.cursor;
                    break;
                }
                Err(MirrorError::Damaged { .. }) => self.unreadable.push(sequence),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The numbers of all segments, with their sizes.
    pub fn sequences(&self) -> Result<Vec<(u64, u64)>, MirrorError> {
        let listed = self.storage.list(SEGMENTS, "")?;
        Ok(listed.iter().filter_map(|file| Some((segment::sequence_of(&file.name)?, file.bytes))).collect())
    }

    /// Reads and verifies a segment.
    pub fn read(&self, sequence: u64) -> Result<MirrorSegment, MirrorError> {
        let name = segment_path(sequence);
        let damaged = |what: String| MirrorError::Damaged { what: format!("{name}: {what}") };
        let bytes = self.storage.read(&name)?.ok_or_else(|| damaged("it is missing".into()))?;
        let found = segment::decode(&bytes).map_err(damaged)?;
        if found.header.sequence != sequence || (!self.id.is_empty() && found.header.mirror != self.id) {
            return Err(damaged("it is another segment, or of another mirror".into()));
        }
        Ok(found)
    }

    /// Appends a segment, and reads it back.
    fn append(
        &mut self,
        items: &[u8],
        cursor: &MirrorCursor,
        (objects, commits): (u64, u64),
        now: Timestamp,
    ) -> Result<u64, MirrorError> {
        let header = SegmentHeader {
            mirror: self.id.clone(),
            sequence: self.next,
            previous: self.tail,
            written_at: now,
            cursor: cursor.clone(),
            objects,
            commits,
            raw_len: 0,
            is_compressed: false,
        };
        let (bytes, link) = segment::encode(header, items);
        create_verified(&*self.storage, &segment_path(link.sequence), &bytes)?;
        (self.tail, self.written_at) = (Some(link), Some(now));
        self.cursor = cursor.clone();
        self.next += 1;
        self.segments += 1;
        self.bytes += bytes.len() as u64;
        Ok(bytes.len() as u64)
    }
}

fn segment_path(sequence: u64) -> String {
    format!("{SEGMENTS}/{}", segment::file_name(sequence))
}

fn parse_identity(storage: &dyn MirrorStorage, bytes: &[u8]) -> Result<MirrorIdentity, MirrorError> {
    let identity: MirrorIdentity = serde_json::from_slice(bytes).map_err(|error| {
        MirrorError::NotAMirror { place: storage.place(), reason: format!("{IDENTITY}: {error}") }
    })?;
    if identity.format > FORMAT {
        let (found, known) = (identity.format, FORMAT);
        return Err(MirrorError::Newer { place: storage.place(), found, known });
    }
    Ok(identity)
}

/// Creates a file that must not exist, and reads it back.
pub fn create_verified(storage: &dyn MirrorStorage, name: &str, bytes: &[u8]) -> Result<(), MirrorError> {
    match storage.create(name, bytes)? {
        CreateOutcome::Created => {}
        CreateOutcome::Exists => return Err(MirrorError::Conflict { place: storage.place() }),
    }
    if storage.read(name)?.as_deref() == Some(bytes) {
        return Ok(());
    }
    Err(MirrorError::Unverified { place: storage.place(), name: name.to_owned() })
}

/// Collects items and appends them as segments.
#[derive(Debug)]
pub struct SegmentWriter<'a> {
    /// The mirror.
    pub archive: &'a mut MirrorArchive,
    /// How far the mirror is with everything that was pushed.
    pub cursor: MirrorCursor,
    /// Number of segments that were written.
    pub segments: u64,
    /// Bytes of these.
    pub bytes: u64,
    now: Timestamp,
    items: Vec<u8>,
    objects: u64,
    commits: u64,
}

impl<'a> SegmentWriter<'a> {
    /// Continues a mirror.
    pub fn new(archive: &'a mut MirrorArchive, now: Timestamp) -> Self {
        let cursor = archive.cursor.clone();
        Self { archive, cursor, segments: 0, bytes: 0, now, items: Vec::new(), objects: 0, commits: 0 }
    }

    /// Adds an item. The cursor must say how far the mirror is after it.
    pub fn push(&mut self, item: &SegmentItem) -> Result<(), MirrorError> {
        item.encode(&mut self.items);
        match item {
            SegmentItem::Object { .. } => self.objects += 1,
            SegmentItem::Commit { .. } => self.commits += 1,
            _ => {}
        }
        if self.items.len() >= SEGMENT_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes what was pushed since the last segment. After that it counts as mirrored.
    pub fn flush(&mut self) -> Result<(), MirrorError> {
        if self.items.is_empty() {
            return Ok(());
        }
        let counts = (std::mem::take(&mut self.objects), std::mem::take(&mut self.commits));
        let items = std::mem::take(&mut self.items);
        self.bytes += self.archive.append(&items, &self.cursor, counts, self.now)?;
        self.segments += 1;
        Ok(())
    }
}
