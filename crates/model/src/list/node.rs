//! The nodes of a list and their canonical bytes.
//!
//! A leaf is the CBOR array `[0, hashes, lens]`, an inner node `[level, hashes, counts, weights]`, where `hashes` is one
//! byte string of 32 bytes per entry and the rest are arrays of as many unsigned integers.

use minicbor::{Decoder, Encoder};

use crate::hash::{Hash, ObjectKind};
use crate::object::{ObjectError, ObjectSource};

/// Entries a node has before a boundary can close it.
pub const MIN_FANOUT: usize = 8;
/// Entries after which a node closes whatever their hashes are.
pub const MAX_FANOUT: usize = 512;
/// Levels a list can have. With at least [`MIN_FANOUT`] entries a node, no list that can be counted has more.
pub(super) const MAX_LEVEL: u8 = 24;
/// A boundary is a hash whose last bits, this many, are zero: one in 64.
const BOUNDARY_BITS: u32 = 6;

/// Whether the last `bits` bits (at most 8) of `hash` are zero.
pub(crate) fn ends_in_zero_bits(hash: Hash, bits: u32) -> bool {
    u32::from(hash.as_bytes()[31]).trailing_zeros() >= bits
}

/// Whether a node closes after its `n`th entry, counted from 1, which has this hash.
pub(super) fn closes_node(hash: Hash, n: usize) -> bool {
    n >= MAX_FANOUT || (n >= MIN_FANOUT && ends_in_zero_bits(hash, BOUNDARY_BITS))
}

/// An item (count 1) or a node of the level below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) hash: Hash,
    /// Number of items in it.
    pub(super) count: u64,
    /// Sum of their weights. Saturates to the same value in any grouping.
    pub(super) weight: u64,
}

/// A decoded node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub(super) level: u8,
    pub(super) entries: Vec<Entry>,
}

impl Node {
    /// The entry that stands for this node in its parent. Counts of a decoded node are known not to overflow.
    pub(super) fn parent_entry(&self, hash: Hash) -> Entry {
        let count = self.entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.count));
        let weight = self.entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.weight));
        Entry { hash, count, weight }
    }

    /// Canonical bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.entries.len() * 36);
        // Writing into a Vec cannot fail.
        let _ = self.encode_into(&mut Encoder::new(&mut bytes));
        bytes
    }

    fn encode_into(
        &self,
        e: &mut Encoder<&mut Vec<u8>>,
    ) -> Result<(), minicbor::encode::Error<core::convert::Infallible>> {
        let hashes: Vec<u8> = self.entries.iter().flat_map(|entry| *entry.hash.as_bytes()).collect();
        let inner = self.level > 0;
        e.array(if inner { 4 } else { 3 })?.u8(self.level)?.bytes(&hashes)?;
        if inner {
            e.array(self.entries.len() as u64)?;
            for entry in &self.entries {
                e.u64(entry.count)?;
            }
        }
        e.array(self.entries.len() as u64)?;
        for entry in &self.entries {
            e.u64(entry.weight)?;
        }
        Ok(())
    }

    /// Decodes and checks canonical bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let node = Self::decode_fields(bytes).map_err(|error| error.to_string())?;
        if node.level > 0 && (node.entries.is_empty() || node.entries.iter().any(|entry| entry.count == 0)) {
            return Err("an inner node has an empty child".into());
        }
        if node.entries.iter().try_fold(0u64, |sum, entry| sum.checked_add(entry.count)).is_none() {
            return Err("the count of items overflows".into());
        }
        let mut before_last = node.entries.iter().rev().skip(1).rev().enumerate();
        if before_last.any(|(index, entry)| closes_node(entry.hash, index + 1)) {
            return Err("the node continues after a boundary".into());
        }
        // Long forms of integers and trailing bytes would give one list two hashes.
        if node.encode() != bytes {
            return Err("the encoding is not canonical".into());
        }
        Ok(node)
    }

    fn decode_fields(bytes: &[u8]) -> Result<Self, minicbor::decode::Error> {
        let message = minicbor::decode::Error::message;
        let mut d = Decoder::new(bytes);
        let fields = d.array()?;
        let level = d.u8()?;
        if level > MAX_LEVEL || fields != Some(if level == 0 { 3 } else { 4 }) {
            return Err(message("not a list node of a known shape"));
        }
        let (hashes, rest) = d.bytes()?.as_chunks::<32>();
        if !rest.is_empty() || hashes.len() > MAX_FANOUT {
            return Err(message("a list node with a bad number of hashes"));
        }
        let mut entries: Vec<Entry> =
            hashes.iter().map(|hash| Entry { hash: Hash::from_bytes(*hash), count: 1, weight: 0 }).collect();
        let expected = Some(entries.len() as u64);
        if level > 0 {
            if d.array()? != expected {
                return Err(message("not one count for each hash"));
            }
            for entry in &mut entries {
                entry.count = d.u64()?;
            }
        }
        if d.array()? != expected {
            return Err(message("not one weight for each hash"));
        }
        for entry in &mut entries {
            entry.weight = d.u64()?;
        }
        Ok(Self { level, entries })
    }

    /// Reads the node stored under `hash`, at any level.
    pub(super) fn load(source: &(impl ObjectSource + ?Sized), hash: Hash) -> Result<Self, ObjectError> {
        let bytes = source.read(ObjectKind::List, hash)?;
        Self::decode(&bytes).map_err(|reason| ObjectError::corrupt(ObjectKind::List, hash, reason))
    }

    /// Reads the child of `entry` in a node at `parent_level`, and checks that it matches the entry.
    pub(super) fn load_child(
        source: &(impl ObjectSource + ?Sized),
        entry: Entry,
        parent_level: u8,
    ) -> Result<Self, ObjectError> {
        let node = Self::load(source, entry.hash)?;
        if node.level + 1 != parent_level || node.parent_entry(entry.hash) != entry {
            return Err(ObjectError::corrupt(
                ObjectKind::List,
                entry.hash,
                "its level, count or weight is not what its parent says",
            ));
        }
        Ok(node)
    }
}

/// What a list node refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Child {
    /// Another node: an object of kind [`ObjectKind::List`].
    Node(Hash),
    /// An item: an object of the kind that the owner of the list keeps in it.
    Item(Hash),
}

/// Everything the node with these bytes refers to, in order, for a garbage collector. Items are objects whose kind only
/// the owner of the list knows (blobs for the chunks of a file).
pub fn children(bytes: &[u8]) -> Result<Vec<Child>, String> {
    let node = Node::decode(bytes)?;
    let wrap = if node.level == 0 { Child::Item } else { Child::Node };
    Ok(node.entries.into_iter().map(|entry| wrap(entry.hash)).collect())
}
