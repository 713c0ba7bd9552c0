//! JSON nodes and their canonical bytes.
//!
//! A node is one of these CBOR arrays:
//!
//! | bytes | meaning |
//! |---|---|
//! | `[0, part]` | a value that is not a container; only ever a root |
//! | `[1, [part, …]]` | an array, or one group of a split one |
//! | `[2, level, hashes, counts]` | groups of an array: 32 bytes of hash and a number of elements for each |
//! | `[3, {key: part, …}]` | an object, or one group of a split one; keys sorted by bytes |
//! | `[4, level, hashes, counts, keys]` | groups of an object, each with its first key |
//!
//! A part is null, a boolean, an integer, a 64-bit float or a text as itself; a small container as a CBOR array or map of
//! parts; tag 6 with the hash of a node of type 1 to 4; or tag 7 with the hash of a blob that holds a long text.

use std::cmp::Ordering;

use minicbor::data::{Tag, Type};
use minicbor::{Decoder, Encoder};
use serde_json::Value;

use super::MAX_DEPTH;
use crate::hash::{Hash, ObjectKind};

const TAG_NODE: Tag = Tag::new(6);
const TAG_TEXT: Tag = Tag::new(7);

/// Levels of groups that one container can have: groups have at least two members.
pub(super) const MAX_LEVEL: u8 = 40;

/// A value as it stands in its parent.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Part {
    /// Null, a boolean, a number or a text that is not long.
    Scalar(Value),
    /// A long text, kept in a blob.
    Text(Hash),
    /// A container in a node of its own.
    Node(Hash),
    /// A small container.
    Inline(Shape, Vec<Member>),
}

/// Array or object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Array,
    Object,
}

/// An element of an array (its key is empty) or a field of an object.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) part: Part,
}

/// A group of members, or of groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub(super) hash: Hash,
    /// Number of members in it.
    pub(super) count: u64,
    /// The first key in it; empty for an array.
    pub(super) key: String,
}

/// A decoded node.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Node {
    Scalar(Part),
    Leaf(Shape, Vec<Member>),
    Inner(Shape, u8, Vec<Group>),
}

pub(super) type EncodeResult = Result<(), minicbor::encode::Error<core::convert::Infallible>>;
type Decoded<T> = Result<T, minicbor::decode::Error>;

fn decode_error(text: &'static str) -> minicbor::decode::Error {
    minicbor::decode::Error::message(text)
}

impl Part {
    /// Canonical bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Writing into a Vec cannot fail.
        let _ = self.encode_into(&mut Encoder::new(&mut bytes));
        bytes
    }

    fn encode_into(&self, e: &mut Encoder<&mut Vec<u8>>) -> EncodeResult {
        match self {
            Part::Scalar(value) => encode_scalar(value, e)?,
            Part::Text(hash) => {
                e.tag(TAG_TEXT)?.bytes(hash.as_bytes())?;
            }
            Part::Node(hash) => {
                e.tag(TAG_NODE)?.bytes(hash.as_bytes())?;
            }
            Part::Inline(shape, members) => encode_members(*shape, members, e)?,
        }
        Ok(())
    }

    pub(super) fn decode(d: &mut Decoder<'_>, depth: usize) -> Decoded<Self> {
        Ok(match d.datatype()? {
            Type::Null => {
                d.null()?;
                Part::Scalar(Value::Null)
            }
            Type::Bool => Part::Scalar(Value::Bool(d.bool()?)),
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => Part::Scalar(d.u64()?.into()),
            Type::I8 | Type::I16 | Type::I32 | Type::I64 => Part::Scalar(d.i64()?.into()),
            Type::F64 => {
                let number =
                    serde_json::Number::from_f64(d.f64()?).ok_or(decode_error("a number is not finite"))?;
                Part::Scalar(Value::Number(number))
            }
            Type::String => Part::Scalar(Value::String(d.str()?.to_owned())),
            Type::Array => Part::Inline(Shape::Array, decode_members(Shape::Array, d, depth)?),
            Type::Map => Part::Inline(Shape::Object, decode_members(Shape::Object, d, depth)?),
            Type::Tag => match d.tag()? {
                TAG_NODE => Part::Node(d.decode()?),
                TAG_TEXT => Part::Text(d.decode()?),
                _ => return Err(decode_error("an unknown tag")),
            },
            _ => return Err(decode_error("something that is not JSON")),
        })
    }
}

/// Writes null, a boolean, a number or a text. Containers are never scalars.
pub(super) fn encode_scalar(value: &Value, e: &mut Encoder<&mut Vec<u8>>) -> EncodeResult {
    match value {
        Value::Bool(value) => e.bool(*value)?.ok(),
        Value::String(text) => e.str(text)?.ok(),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(integer), _, _) => e.u64(integer)?.ok(),
            (_, Some(integer), _) => e.i64(integer)?.ok(),
            // Adding zero turns -0.0 into 0.0 and changes nothing else.
            (_, _, Some(float)) => e.f64(float + 0.0)?.ok(),
            (None, None, None) => e.null()?.ok(),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => e.null()?.ok(),
    }
}

fn encode_members(shape: Shape, members: &[Member], e: &mut Encoder<&mut Vec<u8>>) -> EncodeResult {
    match shape {
        Shape::Array => e.array(members.len() as u64)?,
        Shape::Object => e.map(members.len() as u64)?,
    };
    for member in members {
        if shape == Shape::Object {
            e.str(&member.key)?;
        }
        member.part.encode_into(e)?;
    }
    Ok(())
}

fn decode_members(shape: Shape, d: &mut Decoder<'_>, depth: usize) -> Decoded<Vec<Member>> {
    if depth >= MAX_DEPTH {
        return Err(decode_error("it nests too deep"));
    }
    let count = match shape {
        Shape::Array => d.array()?,
        Shape::Object => d.map()?,
    };
    // The count is not trusted with an allocation: every member takes at least a byte of input.
    let mut members: Vec<Member> = Vec::new();
    for _ in 0..count.ok_or(decode_error("an indefinite length"))? {
        let key = if shape == Shape::Object { d.str()?.to_owned() } else { String::new() };
        if shape == Shape::Object && members.last().is_some_and(|last| last.key >= key) {
            return Err(decode_error("keys are not sorted"));
        }
        members.push(Member { key, part: Part::decode(d, depth + 1)? });
    }
    Ok(members)
}

impl Node {
    /// Canonical bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Writing into a Vec cannot fail.
        let _ = self.encode_into(&mut Encoder::new(&mut bytes));
        bytes
    }

    fn encode_into(&self, e: &mut Encoder<&mut Vec<u8>>) -> EncodeResult {
        match self {
            Node::Scalar(part) => part.encode_into(e.array(2)?.u8(0)?)?,
            Node::Leaf(shape, members) => {
                e.array(2)?.u8(if *shape == Shape::Array { 1 } else { 3 })?;
                encode_members(*shape, members, e)?;
            }
            Node::Inner(shape, level, groups) => {
                let hashes: Vec<u8> = groups.iter().flat_map(|group| *group.hash.as_bytes()).collect();
                let (fields, kind) = if *shape == Shape::Array { (4, 2) } else { (5, 4) };
                e.array(fields)?.u8(kind)?.u8(*level)?.bytes(&hashes)?.array(groups.len() as u64)?;
                for group in groups {
                    e.u64(group.count)?;
                }
                if *shape == Shape::Object {
                    e.array(groups.len() as u64)?;
                    for group in groups {
                        e.str(&group.key)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Decodes and checks canonical bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut d = Decoder::new(bytes);
        let node = Self::decode_fields(&mut d).map_err(|error| error.to_string())?;
        // Long forms of numbers, -0.0 and trailing bytes would give one value two hashes.
        if node.encode() != bytes {
            return Err("the encoding is not canonical".into());
        }
        Ok(node)
    }

    fn decode_fields(d: &mut Decoder<'_>) -> Decoded<Self> {
        let fields = d.array()?;
        match (d.u8()?, fields) {
            (0, Some(2)) => match Part::decode(d, 0)? {
                part @ (Part::Scalar(_) | Part::Text(_)) => Ok(Node::Scalar(part)),
                _ => Err(decode_error("a container where a scalar belongs")),
            },
            (1, Some(2)) => Ok(Node::Leaf(Shape::Array, decode_members(Shape::Array, d, 0)?)),
            (3, Some(2)) => Ok(Node::Leaf(Shape::Object, decode_members(Shape::Object, d, 0)?)),
            (2, Some(4)) => decode_groups(Shape::Array, d),
            (4, Some(5)) => decode_groups(Shape::Object, d),
            _ => Err(decode_error("not a JSON node of a known shape")),
        }
    }

    /// The number of members that a group entry for this node states.
    pub(super) fn count(&self) -> u64 {
        match self {
            Node::Scalar(_) => 0,
            Node::Leaf(_, members) => members.len() as u64,
            Node::Inner(_, _, groups) => groups.iter().fold(0, |sum, group| sum.saturating_add(group.count)),
        }
    }

    /// The first key in it; empty for an array.
    pub(super) fn first_key(&self) -> &str {
        match self {
            Node::Scalar(_) => "",
            Node::Leaf(_, members) => members.first().map_or("", |member| &member.key),
            Node::Inner(_, _, groups) => groups.first().map_or("", |group| &group.key),
        }
    }

    /// The number of levels of groups below it.
    pub(super) fn level(&self) -> u8 {
        if let Node::Inner(_, level, _) = self { *level } else { 0 }
    }

    /// Array or object; `None` for a scalar.
    pub(super) fn shape(&self) -> Option<Shape> {
        match self {
            Node::Scalar(_) => None,
            Node::Leaf(shape, _) | Node::Inner(shape, _, _) => Some(*shape),
        }
    }
}

fn decode_groups(shape: Shape, d: &mut Decoder<'_>) -> Decoded<Node> {
    let level = d.u8()?;
    let (hashes, rest) = d.bytes()?.as_chunks::<32>();
    if !(1..=MAX_LEVEL).contains(&level) || hashes.is_empty() || !rest.is_empty() {
        return Err(decode_error("a bad level or number of hashes"));
    }
    let group = |hash: &[u8; 32]| Group { hash: Hash::from_bytes(*hash), count: 0, key: String::new() };
    let mut groups: Vec<Group> = hashes.iter().map(group).collect();
    let expected = Some(groups.len() as u64);
    if d.array()? != expected {
        return Err(decode_error("not one count for each hash"));
    }
    let mut total = 0u64;
    for group in &mut groups {
        group.count = d.u64()?;
        total = total.checked_add(group.count).ok_or(decode_error("the count of members overflows"))?;
        if group.count == 0 {
            return Err(decode_error("an empty group"));
        }
    }
    if shape == Shape::Object {
        if d.array()? != expected {
            return Err(decode_error("not one key for each hash"));
        }
        for group in &mut groups {
            group.key = d.str()?.to_owned();
        }
        if groups.windows(2).any(|pair| pair[0].key.cmp(&pair[1].key) != Ordering::Less) {
            return Err(decode_error("keys are not sorted"));
        }
    }
    Ok(Node::Inner(shape, level, groups))
}

/// Every object the node with these bytes refers to, for a garbage collector: JSON nodes, and blobs of long texts.
pub fn children(bytes: &[u8]) -> Result<Vec<(ObjectKind, Hash)>, String> {
    let mut children = Vec::new();
    match Node::decode(bytes)? {
        Node::Scalar(part) => collect_children(&part, &mut children),
        Node::Leaf(_, members) => {
            members.iter().for_each(|member| collect_children(&member.part, &mut children))
        }
        Node::Inner(_, _, groups) => {
            children.extend(groups.into_iter().map(|group| (ObjectKind::Json, group.hash)));
        }
    }
    Ok(children)
}

fn collect_children(part: &Part, children: &mut Vec<(ObjectKind, Hash)>) {
    match part {
        Part::Scalar(_) => {}
        Part::Text(hash) => children.push((ObjectKind::Blob, *hash)),
        Part::Node(hash) => children.push((ObjectKind::Json, *hash)),
        Part::Inline(_, members) => {
            members.iter().for_each(|member| collect_children(&member.part, children))
        }
    }
}
