//! Content hashes: BLAKE3 with one domain per kind of object.
//!
//! Domain separation means that the bytes of a file can never be mistaken for a tree or a state, even if the content of a
//! file is crafted to be a valid tree encoding. See `docs/spec/objects.md`, "Hashes".

use std::fmt;

use crate::from_text::from_text;
use crate::hex;

/// The kind of an object. The discriminant is stored in packs and selects the hash domain; never renumber.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum ObjectKind {
    /// File content up to the chunking limit, one chunk of a larger file, or any other opaque bytes.
    Blob = 1,
    /// A directory listing ([`crate::tree::Tree`]).
    Tree = 2,
    /// A node of a structurally shared list ([`crate::list`]).
    List = 3,
    /// A node of a structurally shared JSON value ([`crate::json`]).
    Json = 4,
    /// A full state ([`crate::state::WorkspaceState`]).
    State = 5,
    /// The git part of a state ([`crate::state::GitState`]).
    Git = 6,
    /// The plan of a rewind that is being applied ([`crate::plan::RewindPlan`]), kept for crash recovery.
    Plan = 7,
    /// A message and the hash of the one before it ([`crate::conversation`]).
    Message = 8,
}

impl ObjectKind {
    /// Every kind, in order of discriminant.
    pub const ALL: [ObjectKind; 8] =
        [Self::Blob, Self::Tree, Self::List, Self::Json, Self::State, Self::Git, Self::Plan, Self::Message];

    /// Reads the stored discriminant; `None` for a kind this version does not know.
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == value)
    }

    /// The BLAKE3 key of this kind's domain: fixed, public, 32 bytes.
    fn domain_key(self) -> &'static [u8; 32] {
        match self {
            Self::Blob => b"stepback object v1: blob........",
            Self::Tree => b"stepback object v1: tree........",
            Self::List => b"stepback object v1: list........",
            Self::Json => b"stepback object v1: json........",
            Self::State => b"stepback object v1: state.......",
            Self::Git => b"stepback object v1: git.........",
            Self::Plan => b"stepback object v1: plan........",
            Self::Message => b"stepback object v1: message.....",
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blob => "blob",
            Self::Tree => "tree",
            Self::List => "list",
            Self::Json => "json",
            Self::State => "state",
            Self::Git => "git",
            Self::Plan => "plan",
            Self::Message => "message",
        })
    }
}

/// The address of an object: the keyed BLAKE3 hash of its canonical bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Hashes `bytes` as an object of `kind`.
    pub fn of(kind: ObjectKind, bytes: &[u8]) -> Self {
        Self(*blake3::keyed_hash(kind.domain_key(), bytes).as_bytes())
    }

    /// Wraps raw bytes read from storage.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Wraps a slice read from storage; `None` unless it has exactly 32 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The raw bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses 64 hex digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        hex::decode_array(text.as_bytes()).map(Self)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl serde::Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, |text| Self::from_hex(text).ok_or("a hash has 64 hex digits"))
    }
}

impl<C> minicbor::Encode<C> for Hash {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Hash {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        Self::from_slice(d.bytes()?).ok_or_else(|| minicbor::decode::Error::message("a hash has 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_bytes_of_different_kinds_have_different_hashes() {
        let mut seen = std::collections::HashSet::new();
        for kind in ObjectKind::ALL {
            assert!(seen.insert(Hash::of(kind, b"same bytes")));
            assert_eq!(ObjectKind::from_u8(kind as u8), Some(kind));
        }
        assert_eq!(ObjectKind::from_u8(0), None);
    }

    #[test]
    fn hex_round_trips_and_rejects_other_lengths() {
        let hash = Hash::of(ObjectKind::Blob, b"x");
        assert_eq!(Hash::from_hex(&hash.to_string()), Some(hash));
        assert_eq!(Hash::from_hex("abc"), None);
        assert_eq!(Hash::from_hex(&"g".repeat(64)), None);
    }
}
