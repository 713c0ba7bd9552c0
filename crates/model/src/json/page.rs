//! Pages: small values that are stored together, such as the details of a session's steps, which come by the hundred.
//!
//! A separate object for each would cost more than the value: a lookup, a row, and bytes that resemble those of its
//! neighbours but are compressed alone. So values that are written together share a page, which is stored as the array of
//! them, and each is found by its index. On a page a value is whole, with no part in a separate object; a large value has
//! its own objects, like any other value.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decoder, Encoder};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::node::{Node, Part, encode_scalar};
use super::{JsonError, MAX_DEPTH};
use crate::hash::{Hash, ObjectKind};
use crate::object::{ObjectError, ObjectSink};

/// A value whose encoding has more bytes than this does not go on a page.
const MAX_PAGED_VALUE_BYTES: usize = 4 << 10;
/// A page with this many bytes takes no more values.
const FULL_PAGE_BYTES: usize = 24 << 10;

/// The location of a value: a node of its own, or an entry of a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ValueRoot {
    /// The value's first node, or the page.
    pub node: Hash,
    /// Its index on the page, from 0; `None` if it has a node of its own.
    pub part: Option<u32>,
}

impl ValueRoot {
    /// Its bytes in a database row: those of the hash, then the index in four bytes, big-endian.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.node.as_bytes().to_vec();
        bytes.extend(self.part.iter().flat_map(|part| part.to_be_bytes()));
        bytes
    }

    /// Parses what [`Self::to_bytes`] wrote.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let (node, part) = bytes.split_at_checked(32)?;
        let part = match part {
            [] => None,
            part => Some(u32::from_be_bytes(part.try_into().ok()?)),
        };
        Some(Self { node: Hash::from_slice(node)?, part })
    }
}

impl From<Hash> for ValueRoot {
    fn from(node: Hash) -> Self {
        Self { node, part: None }
    }
}

/// The hash in hexadecimal digits; for a value on a page, a slash and its index.
impl fmt::Display for ValueRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Some(part) => write!(f, "{}/{part}", self.node),
            None => write!(f, "{}", self.node),
        }
    }
}

/// The error for a text that is not the location of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a hash, nor a hash and a place such as HASH/7")]
pub struct NoRoot;

impl FromStr for ValueRoot {
    type Err = NoRoot;

    fn from_str(text: &str) -> Result<Self, NoRoot> {
        let (node, part) = match text.split_once('/') {
            Some((node, part)) => (node, Some(part.parse().map_err(|_| NoRoot)?)),
            None => (text, None),
        };
        Ok(Self { node: Hash::from_hex(node).ok_or(NoRoot)?, part })
    }
}

impl Serialize for ValueRoot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ValueRoot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Values to be stored together in one object.
#[derive(Debug, Default)]
pub struct ValuePage {
    bytes: Vec<u8>,
    count: u32,
}

impl ValuePage {
    /// Adds an object with these fields and returns its index; `None` if it is too large or nests too deep for a page.
    pub fn add(&mut self, fields: &[(&str, &Value)]) -> Option<u32> {
        let start = self.bytes.len();
        let mut adding = PageEncoder { bytes: &mut self.bytes, max_bytes: start + MAX_PAGED_VALUE_BYTES };
        // The page itself is the first container around it.
        if adding.add_object(fields.iter().copied(), 1).is_none() {
            self.bytes.truncate(start);
            return None;
        }
        self.count += 1;
        Some(self.count - 1)
    }

    /// Whether the page has no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the page should take no more values.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_PAGE_BYTES
    }

    /// Stores the page and returns its hash.
    pub fn store(self, sink: &(impl ObjectSink + ?Sized)) -> Result<Hash, JsonError> {
        let mut bytes = Vec::with_capacity(self.bytes.len() + 8);
        let mut encoder = Encoder::new(&mut bytes);
        // Writing into a Vec cannot fail.
        let _ = encoder.array(2).and_then(|e| e.u8(1)).and_then(|e| e.array(u64::from(self.count)));
        bytes.extend(self.bytes);
        Ok(sink.write(ObjectKind::Json, &bytes, None)?)
    }
}

/// Writes one value in the form that [`Part`] has inside its parent.
struct PageEncoder<'a> {
    bytes: &'a mut Vec<u8>,
    /// Maximum length of the bytes.
    max_bytes: usize,
}

impl PageEncoder<'_> {
    fn encoder(&mut self) -> Encoder<&mut Vec<u8>> {
        Encoder::new(self.bytes)
    }

    fn check_size(&self) -> Option<()> {
        (self.bytes.len() <= self.max_bytes).then_some(())
    }

    fn add_value(&mut self, value: &Value, depth: usize) -> Option<()> {
        match value {
            Value::Object(fields) => {
                self.add_object(fields.iter().map(|(key, value)| (key.as_str(), value)), depth)?;
            }
            Value::Array(elements) => {
                self.check_depth(depth)?;
                self.encoder().array(elements.len() as u64).ok()?;
                for element in elements {
                    self.add_value(element, depth + 1)?;
                }
            }
            Value::Number(number) if !super::write::is_representable(number) => return None,
            Value::String(text) if text.len() > MAX_PAGED_VALUE_BYTES => return None,
            scalar => encode_scalar(scalar, &mut self.encoder()).ok()?,
        }
        self.check_size()
    }

    fn add_object<'v>(
        &mut self,
        fields: impl Iterator<Item = (&'v str, &'v Value)>,
        depth: usize,
    ) -> Option<()> {
        self.check_depth(depth)?;
        let mut fields: Vec<_> = fields.collect();
        fields.sort_unstable_by_key(|(key, _)| *key);
        self.encoder().map(fields.len() as u64).ok()?;
        for (key, value) in fields {
            self.encoder().str(key).ok()?;
            self.add_value(value, depth + 1)?;
        }
        self.check_size()
    }

    fn check_depth(&self, depth: usize) -> Option<()> {
        (depth < MAX_DEPTH).then_some(())
    }
}

/// The values of the page with these bytes, in order.
pub(super) fn all_on_page(bytes: &[u8], page: Hash) -> Result<Vec<Node>, ObjectError> {
    let nodes = (|| {
        let mut d = Decoder::new(bytes);
        let (fields, shape, count) = (d.array()?, d.u8()?, d.array()?);
        let Some(count) = count.filter(|_| (fields, shape) == (Some(2), 1)) else {
            return Err(minicbor::decode::Error::message("it is not a page"));
        };
        let mut nodes = Vec::new();
        for _ in 0..count {
            match Part::decode(&mut d, 1)? {
                Part::Inline(shape, members) => nodes.push(Node::Leaf(shape, members)),
                _ => return Err(minicbor::decode::Error::message("a value on it is not a container")),
            }
        }
        Ok(nodes)
    })();
    nodes.map_err(|error| ObjectError::corrupt(ObjectKind::Json, page, error))
}

/// The value at an index of the page with these bytes, without decoding the others.
pub(super) fn on_page(bytes: &[u8], page: Hash, part: u32) -> Result<Node, ObjectError> {
    let node = (|| {
        let mut d = Decoder::new(bytes);
        let (fields, shape, count) = (d.array()?, d.u8()?, d.array()?);
        if (fields, shape) != (Some(2), 1) || count.is_none_or(|count| u64::from(part) >= count) {
            return Err(minicbor::decode::Error::message("there is no such value on it"));
        }
        for _ in 0..part {
            d.skip()?;
        }
        match Part::decode(&mut d, 1)? {
            Part::Inline(shape, members) => Ok(Node::Leaf(shape, members)),
            _ => Err(minicbor::decode::Error::message("a value on it is not a container")),
        }
    })();
    node.map_err(|error| ObjectError::corrupt(ObjectKind::Json, page, error))
}
