//! What a mirror consists of: objects, commits, parts of a log, files of the vault. Format: `docs/spec/mirror.md`, "Items".

use stepback_model::hash::{Hash, ObjectKind};
use stepback_store::embedded::ChainLink;

/// One item of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SegmentItem {
    /// An object, whole.
    Object {
        /// Its kind.
        kind: ObjectKind,
        /// Its hash, computed from the bytes when the item is read.
        hash: Hash,
        /// A similar object of the same kind, against which a restored store may keep it.
        base: Option<Hash>,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A commit of the store, after the objects that it stored.
    Commit {
        /// The commit.
        link: ChainLink,
        /// The one before it.
        before: ChainLink,
        /// Its changes of the log, as a JSON array.
        mutations: Vec<u8>,
    },
    /// A new generation begins: what follows does not continue what is before.
    Generation {
        /// Its number, from 1.
        number: u64,
        /// Why it was begun: a sentence for users.
        reason: String,
    },
    /// A part of the whole log, at the beginning of a generation.
    Log {
        /// Number of the part, from 0.
        part: u32,
        /// Changes of the log, as a JSON array.
        mutations: Vec<u8>,
    },
    /// All of the log has been written, as it was after `link`; the objects that it refers to follow.
    LogEnd {
        /// The newest commit in it.
        link: ChainLink,
        /// How many parts it has.
        parts: u32,
    },
    /// The generation has everything that the store had when it began.
    Complete,
    /// A file of the store's vault was mirrored; see [`crate::vault`].
    VaultFile {
        /// The name of its manifest.
        manifest: String,
    },
}

const OBJECT: u8 = 1;
const COMMIT: u8 = 2;
const GENERATION: u8 = 3;
const LOG: u8 = 4;
const LOG_END: u8 = 5;
const COMPLETE: u8 = 6;
const VAULT_FILE: u8 = 7;

/// Type, and length of the rest.
const PREFIX: usize = 1 + 4;

impl SegmentItem {
    /// Appends the item to `out`. An item has less than 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX]);
        let number = match self {
            Self::Object { kind, base, bytes, .. } => {
                out.push(*kind as u8);
                out.push(u8::from(base.is_some()));
                if let Some(base) = base {
                    out.extend_from_slice(base.as_bytes());
                }
                out.extend_from_slice(bytes);
                OBJECT
            }
            Self::Commit { link, before, mutations } => {
                out.extend_from_slice(&link.to_bytes());
                out.extend_from_slice(&before.to_bytes());
                out.extend_from_slice(mutations);
                COMMIT
            }
            Self::Generation { number, reason } => {
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(reason.as_bytes());
                GENERATION
            }
            Self::Log { part, mutations } => {
                out.extend_from_slice(&part.to_le_bytes());
                out.extend_from_slice(mutations);
                LOG
            }
            Self::LogEnd { link, parts } => {
                out.extend_from_slice(&link.to_bytes());
                out.extend_from_slice(&parts.to_le_bytes());
                LOG_END
            }
            Self::Complete => COMPLETE,
            Self::VaultFile { manifest } => {
                out.extend_from_slice(manifest.as_bytes());
                VAULT_FILE
            }
        };
        let len = (out.len() - start - PREFIX) as u32;
        out[start] = number;
        out[start + 1..start + PREFIX].copy_from_slice(&len.to_le_bytes());
    }

    /// Reads the item at the start of `bytes`, and returns what follows it.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), String> {
        let (prefix, rest) = bytes.split_first_chunk::<PREFIX>().ok_or("an item is truncated")?;
        let len = u32::from_le_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        let (body, rest) = rest.split_at_checked(len).ok_or("an item is truncated")?;
        let item = match prefix[0] {
            OBJECT => decode_object(body)?,
            COMMIT => {
                let (link, body) = take_link(body)?;
                let (before, mutations) = take_link(body)?;
                Self::Commit { link, before, mutations: mutations.to_vec() }
            }
            GENERATION => {
                let (number, reason) = body.split_first_chunk().ok_or("a generation has no number")?;
                let reason = String::from_utf8_lossy(reason).into_owned();
                Self::Generation { number: u64::from_le_bytes(*number), reason }
            }
            LOG => {
                let (part, mutations) = body.split_first_chunk().ok_or("a part of the log has no number")?;
                Self::Log { part: u32::from_le_bytes(*part), mutations: mutations.to_vec() }
            }
            LOG_END => {
                let (link, parts) = take_link(body)?;
                let parts = parts.try_into().map_err(|_| "the end of the log has another length")?;
                Self::LogEnd { link, parts: u32::from_le_bytes(parts) }
            }
            COMPLETE if body.is_empty() => Self::Complete,
            VAULT_FILE => {
                let manifest = std::str::from_utf8(body).map_err(|_| "the name of a file is not text")?;
                Self::VaultFile { manifest: manifest.to_owned() }
            }
            other => return Err(format!("an item has the unknown type {other}")),
        };
        Ok((item, rest))
    }
}

fn decode_object(body: &[u8]) -> Result<SegmentItem, String> {
    let (head, body) = body.split_first_chunk::<2>().ok_or("an object is truncated")?;
    let kind = ObjectKind::from_u8(head[0]).ok_or("an object has an unknown kind")?;
    let (base, bytes) = match head[1] {
        0 => (None, body),
        1 => {
            let (base, bytes) = body.split_at_checked(32).ok_or("an object is truncated")?;
            (Hash::from_slice(base), bytes)
        }
        _ => return Err("an object is malformed".into()),
    };
    Ok(SegmentItem::Object { kind, hash: Hash::of(kind, bytes), base, bytes: bytes.to_vec() })
}

fn take_link(bytes: &[u8]) -> Result<(ChainLink, &[u8]), String> {
    let (link, rest) = bytes.split_at_checked(ChainLink::LEN).ok_or("a commit is truncated")?;
    Ok((ChainLink::from_slice(link).ok_or("a commit has no number")?, rest))
}
