//! Segments: the files that a mirror grows by, each with a checksum and with the checksum of the one before.
//!
//! A segment says where the mirror is after it: the newest commit, and how many steps each workspace has. So a writer that
//! continues reads only the last one. Format: `docs/spec/mirror.md`, "Segments".

use serde::{Deserialize, Serialize};
use stepback_model::hash::Hash;
use stepback_model::time::Timestamp;
use stepback_store::codec;
use stepback_store::embedded::ChainLink;

use crate::item::SegmentItem;
use crate::tally::WorkspaceTallies;

/// The folder of segments.
pub const SEGMENTS: &str = "segments";

const MAGIC: [u8; 8] = *b"SBMIRROR";
/// The format of segments.
const FORMAT: u32 = 1;
/// Domain of the checksum of a segment.
const DOMAIN: &str = "stepback mirror 2026-11 segment";
/// Magic, format, length of the header.
const PREFIX: usize = 8 + 4 + 4;
const CHECKSUM: usize = 32;
/// A segment has at most so many bytes before compression; a little more than the largest object.
const MAX_RAW_BYTES: u64 = 5 << 30;

/// Names a segment: its number, and its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SegmentLink {
    /// The number, from 1.
    pub sequence: u64,
    /// The checksum.
    pub hash: Hash,
}

/// How far a mirror is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MirrorCursor {
    /// The present generation; 0 before the first.
    pub generation: u64,
    /// Whether the generation has everything that the store had when it began.
    pub is_complete: bool,
    /// The newest commit.
    pub commit: ChainLink,
    /// The steps up to it.
    pub workspaces: WorkspaceTallies,
}

impl MirrorCursor {
    /// The cursor of a mirror without segments.
    pub fn empty() -> Self {
        Self {
            generation: 0,
            is_complete: false,
            commit: ChainLink::NONE,
            workspaces: WorkspaceTallies::new(),
        }
    }

    /// The number of steps in all workspaces.
    pub fn steps(&self) -> u64 {
        self.workspaces.values().map(|tally| tally.steps).sum()
    }
}

/// The head of a segment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SegmentHeader {
    /// The id of the mirror that it belongs to.
    pub mirror: String,
    /// Its number, which is also its name.
    pub sequence: u64,
    /// The segment that it continues; `None` for the first. Segments between the two are not part of the mirror.
    pub previous: Option<SegmentLink>,
    /// When it was written.
    pub written_at: Timestamp,
    /// How far the mirror is with it.
    pub cursor: MirrorCursor,
    /// Number of objects in it.
    pub objects: u64,
    /// Number of commits in it.
    pub commits: u64,
    /// Size of its items before compression, in bytes.
    pub raw_len: u64,
    /// Whether the items are compressed with zstd.
    pub is_compressed: bool,
}

/// A segment, as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MirrorSegment {
    /// Its head.
    pub header: SegmentHeader,
    /// Its checksum.
    pub hash: Hash,
    /// Its items, not decoded yet.
    body: Vec<u8>,
}

/// The name of a segment in the folder of segments.
pub fn file_name(sequence: u64) -> String {
    format!("{sequence:012}.segment")
}

/// The number in the name of a segment.
pub fn sequence_of(name: &str) -> Option<u64> {
    let sequence = name.strip_suffix(".segment")?.parse().ok()?;
    (file_name(sequence) == name).then_some(sequence)
}

/// Makes the bytes of a segment of encoded items. `raw_len` and `is_compressed` of the header are set here.
pub fn encode(mut header: SegmentHeader, items: &[u8]) -> (Vec<u8>, SegmentLink) {
    let compressed = codec::compress(items);
    header.raw_len = items.len() as u64;
    header.is_compressed = compressed.is_some();
    // A header is plain data with string keys, which always serialises.
    let head = serde_json::to_vec(&header).unwrap_or_default();
    let body = compressed.as_deref().unwrap_or(items);
    let mut bytes = Vec::with_capacity(PREFIX + head.len() + body.len() + CHECKSUM);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&(head.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(body);
    let hash = checksum(&bytes);
    bytes.extend_from_slice(hash.as_bytes());
    (bytes, SegmentLink { sequence: header.sequence, hash })
}

fn checksum(bytes: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new_derive_key(DOMAIN);
    hasher.update(bytes);
    Hash::from_bytes(*hasher.finalize().as_bytes())
}

/// Reads a segment. Anything but the bytes that were written is an error.
pub fn decode(bytes: &[u8]) -> Result<MirrorSegment, String> {
    let prefix: &[u8; PREFIX] = bytes.first_chunk().ok_or("it is truncated")?;
    if prefix[..8] != MAGIC {
        return Err("it does not start as a segment".into());
    }
    let (content, end) = bytes.split_last_chunk::<CHECKSUM>().ok_or("it is truncated")?;
    let hash = checksum(content);
    if hash.as_bytes() != end {
        return Err("its checksum does not match".into());
    }
    let word = |at: usize| u32::from_le_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]]);
    if word(8) > FORMAT {
        return Err(format!("it has format {}, newer than {FORMAT}", word(8)));
    }
    let (head, body) = content[PREFIX..].split_at_checked(word(12) as usize).ok_or("it is truncated")?;
    let header: SegmentHeader =
        serde_json::from_slice(head).map_err(|error| format!("its header cannot be read: {error}"))?;
    let body = match header.is_compressed {
        true if header.raw_len > MAX_RAW_BYTES => return Err("it is too large".into()),
        true => codec::decompress(body, header.raw_len as usize, None)?,
        false => body.to_vec(),
    };
    if body.len() as u64 != header.raw_len {
        return Err("its length does not match".into());
    }
    Ok(MirrorSegment { header, hash, body })
}

impl MirrorSegment {
    /// The segment's link.
    pub fn link(&self) -> SegmentLink {
        SegmentLink { sequence: self.header.sequence, hash: self.hash }
    }

    /// Its items, in order.
    pub fn items(&self) -> impl Iterator<Item = Result<SegmentItem, String>> + '_ {
        let mut rest = &self.body[..];
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            match SegmentItem::decode(rest) {
                Ok((item, after)) => {
                    rest = after;
                    Some(Ok(item))
                }
                Err(error) => {
                    rest = &[];
                    Some(Err(error))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use stepback_model::hash::ObjectKind;

    use super::*;

    fn sample() -> (Vec<u8>, SegmentLink, Vec<SegmentItem>) {
        let link = |commit| ChainLink { commit, hash: Hash::of(ObjectKind::Blob, &[commit as u8]) };
        let bytes = b"some text that repeats, some text that repeats".repeat(4);
        let object = |base| SegmentItem::Object {
            kind: ObjectKind::Json,
            hash: Hash::of(ObjectKind::Json, &bytes),
            base,
            bytes: bytes.clone(),
        };
        let items = vec![
            SegmentItem::Generation { number: 1, reason: "the mirror is new".into() },
            SegmentItem::Log { part: 0, mutations: b"[]".to_vec() },
            SegmentItem::LogEnd { link: link(4), parts: 1 },
            object(None),
            object(Some(Hash::of(ObjectKind::Json, b"base"))),
            SegmentItem::VaultFile { manifest: "pack-1.pack".into() },
            SegmentItem::Complete,
            SegmentItem::Commit { link: link(5), before: link(4), mutations: b"[1]".to_vec() },
        ];
        let mut encoded = Vec::new();
        items.iter().for_each(|item| item.encode(&mut encoded));
        let header = SegmentHeader {
            mirror: "ab".into(),
            sequence: 7,
            previous: Some(SegmentLink { sequence: 6, hash: link(9).hash }),
            written_at: Timestamp::from_micros(5),
            cursor: MirrorCursor { commit: link(5), ..MirrorCursor::empty() },
            objects: 2,
            commits: 1,
            raw_len: 0,
            is_compressed: false,
        };
        let (bytes, name) = encode(header, &encoded);
        (bytes, name, items)
    }

    #[test]
    fn a_segment_reads_back_as_it_was_written() {
        let (bytes, link, items) = sample();
        let read = decode(&bytes).unwrap();
        assert_eq!(read.link(), link);
        assert!(read.header.is_compressed);
        assert_eq!(read.items().collect::<Result<Vec<_>, _>>().unwrap(), items);
        assert_eq!(sequence_of(&file_name(7)), Some(7));
        assert_eq!(sequence_of("7.segment"), None);
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_noticed() {
        let (bytes, _, _) = sample();
        for at in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            assert!(decode(&damaged).is_err(), "bit {at}");
        }
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        assert!(decode(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn damaged_items_are_errors() {
        let (bytes, _, _) = sample();
        let body = decode(&bytes).unwrap().body;
        for len in 0..body.len() {
            let mut rest = &body[..len];
            while let Ok((_, after)) = SegmentItem::decode(rest) {
                rest = after;
            }
            assert!(!rest.is_empty() || decode_all(&body[..len]) || len == 0);
        }
        assert!(SegmentItem::decode(&[99, 0, 0, 0, 0]).is_err());
        assert!(SegmentItem::decode(&[1, 1, 0, 0, 0, 77]).is_err());
    }

    fn decode_all(mut rest: &[u8]) -> bool {
        while !rest.is_empty() {
            match SegmentItem::decode(rest) {
                Ok((_, after)) => rest = after,
                Err(_) => return false,
            }
        }
        true
    }
}
