//! Reads objects that follow each other, such as the messages of a conversation.
//!
//! Objects written one after the other are adjacent in their pack. So a chain is followed with one database query and by
//! reading the neighbours of a record along with it, instead of with a dozen system calls for each of thousands of small
//! objects.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rusqlite::Connection;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{ChainStep, ObjectError};

use super::EmbeddedStore;
use super::objects::{self, IN_DATABASE, Location};
use crate::codec::{self, Codec};
use crate::pack::RecordHeader;

/// How many bytes before a record are read along with it: at first, and once all of those proved useful.
const READAHEAD_BYTES: (u64, u64) = (4 << 10, 128 << 10);

/// A part of a pack, in memory.
struct Window {
    pack: u64,
    file: Arc<File>,
    start: u64,
    bytes: Vec<u8>,
    ahead: u64,
}

impl Window {
    /// The record at `location`, if this window contains it.
    fn get(&self, location: &Location) -> Option<&[u8]> {
        let from = usize::try_from(location.offset.checked_sub(self.start)?).ok()?;
        let len = usize::try_from(location.record_len).ok()?;
        let found = self.bytes.get(from..from.checked_add(len)?);
        found.filter(|_| self.pack == location.pack)
    }
}

impl EmbeddedStore {
    /// Follows a chain as long as its objects are stored in the simplest form. Returns where it stopped; the regular read
    /// reports any error there.
    pub(super) fn read_on(
        &self,
        kind: ObjectKind,
        from: Option<Hash>,
        next: &mut ChainStep<'_>,
    ) -> Result<Option<Hash>, ObjectError> {
        let mut at = from;
        if at.is_none() {
            return Ok(at);
        }
        let connection = self.reader();
        let Ok(snapshot) = connection.unchecked_transaction() else { return Ok(at) };
        let mut window = None;
        while let Some(hash) = at {
            let Ok(Some(location)) = objects::find(&snapshot, hash) else { break };
            let Some(bytes) = self.read_plain(&snapshot, (kind, hash), &location, &mut window) else { break };
            at = next(hash, bytes)?;
        }
        Ok(at)
    }

    fn read_plain(
        &self,
        snapshot: &Connection,
        (kind, hash): (ObjectKind, Hash),
        location: &Location,
        window: &mut Option<Window>,
    ) -> Option<Vec<u8>> {
        if location.kind != kind || location.base.is_some() || location.record_len > READAHEAD_BYTES.1 {
            return None;
        }
        let from_database;
        let record = if location.pack == IN_DATABASE {
            from_database = objects::read_record(snapshot, location.offset).ok()??;
            &from_database
        } else {
            if window.as_ref().is_none_or(|window| window.get(location).is_none()) {
                *window = Some(self.window(location, window.take())?);
            }
            window.as_ref()?.get(location)?
        };
        let (header, start) = RecordHeader::decode(record).ok()?;
        let expected = (kind, hash, location.raw_len, location.record_len);
        if (header.kind, header.hash, header.raw_len, header.record_len()) != expected {
            return None;
        }
        let payload = record.get(start..)?;
        let bytes = match header.codec {
            Codec::Raw => payload.to_vec(),
            Codec::Zstd => codec::decompress(payload, header.raw_len as usize, None).ok()?,
            Codec::ZstdOnBase | Codec::Borrowed => return None,
        };
        (Hash::of(kind, &bytes) == hash).then_some(bytes)
    }

    /// Reads the part of a pack that ends with a record.
    fn window(&self, location: &Location, last: Option<Window>) -> Option<Window> {
        let end = location.offset.checked_add(location.record_len)?;
        let last = last.filter(|last| last.pack == location.pack);
        // As long as the chain leads backwards through the pack without large gaps.
        let near = last.as_ref().filter(|last| end <= last.start && last.start - end <= last.ahead);
        let ahead = near.map_or(READAHEAD_BYTES.0, |last| (last.ahead * 2).min(READAHEAD_BYTES.1));
        let start = end.saturating_sub(ahead.max(location.record_len));
        let (file, mut bytes) = match last {
            Some(last) => (last.file, last.bytes),
            None => (self.pack_file(location.pack, false).ok()?, Vec::new()),
        };
        bytes.resize(usize::try_from(end - start).ok()?, 0);
        file.read_exact_at(&mut bytes, start).ok()?;
        Some(Window { pack: location.pack, file, start, bytes, ahead })
    }
}
