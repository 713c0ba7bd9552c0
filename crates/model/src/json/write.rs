//! Storing JSON values.

use serde_json::Value;

use super::node::{Group, Member, Node, Part, Shape};
use super::{JsonError, MAX_BYTES, MAX_DEPTH};
use crate::hash::{Hash, ObjectKind};
use crate::list::ends_in_zero_bits;
use crate::object::ObjectSink;

/// A container whose encoding has at most this many bytes is kept inside its parent.
const INLINE_BYTES: usize = 256;
/// A string of more bytes is a blob.
pub(super) const TEXT_BYTES: usize = 4096;
/// A container with more members is split.
const WHOLE_MEMBERS: usize = 128;
/// A container whose encoding is longer is split, and a group closes when it has reached this.
const WHOLE_BYTES: usize = 8192;
/// Members a group has before a boundary can close it.
const MIN_GROUP: usize = 4;
/// Members after which a group closes in any case.
const MAX_GROUP: usize = 256;
/// A boundary is a hash with this many zero bits at its end: one in 32.
const BOUNDARY_BITS: u32 = 5;

/// Stores `value` and returns the hash of its root node. `similar_to` may name the root of an older value that this one
/// probably resembles; it only helps compression.
pub fn store(
    sink: &(impl ObjectSink + ?Sized),
    value: &Value,
    similar_to: Option<Hash>,
) -> Result<Hash, JsonError> {
    let mut writer = Writer { sink, left: MAX_BYTES };
    match value {
        Value::Array(_) | Value::Object(_) => {
            let (shape, members) = writer.collect_members(value, 1)?;
            writer.write_container(shape, members, similar_to)
        }
        scalar => {
            let part = writer.write_part(scalar, 0)?;
            writer.write_node(&Node::Scalar(part), similar_to)
        }
    }
}

/// Like [`store`], for an object given as borrowed fields.
pub fn store_fields(sink: &(impl ObjectSink + ?Sized), fields: &[(&str, &Value)]) -> Result<Hash, JsonError> {
    let mut writer = Writer { sink, left: MAX_BYTES };
    let members = writer.collect_fields(fields.iter().copied(), 1)?;
    writer.write_container(Shape::Object, members, None)
}

pub(super) struct Writer<'a, K: ?Sized> {
    pub(super) sink: &'a K,
    /// Bytes that may still be written.
    pub(super) left: usize,
}

impl<K: ObjectSink + ?Sized> Writer<'_, K> {
    fn write(&mut self, kind: ObjectKind, bytes: &[u8], similar: Option<Hash>) -> Result<Hash, JsonError> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(JsonError::TooLarge)?;
        Ok(self.sink.write(kind, bytes, similar)?)
    }

    fn write_node(&mut self, node: &Node, similar_to: Option<Hash>) -> Result<Hash, JsonError> {
        self.write(ObjectKind::Json, &node.encode(), similar_to)
    }

    /// Stores what is too large to be kept in a parent, and returns the part for the parent. `depth` counts the containers
    /// around it.
    pub(super) fn write_part(&mut self, value: &Value, depth: usize) -> Result<Part, JsonError> {
        match value {
            Value::String(text) if text.len() > TEXT_BYTES => {
                Ok(Part::Text(self.write(ObjectKind::Blob, text.as_bytes(), None)?))
            }
            Value::Number(number) => {
                if !is_representable(number) {
                    return Err(JsonError::Number(number.clone()));
                }
                Ok(Part::Scalar(value.clone()))
            }
            Value::Null | Value::Bool(_) | Value::String(_) => Ok(Part::Scalar(value.clone())),
            Value::Array(_) | Value::Object(_) => {
                let (shape, members) = self.collect_members(value, depth + 1)?;
                self.write_nested(shape, members, None)
            }
        }
    }

    /// A container inside another: inline if it fits, else a node of its own.
    fn write_nested(
        &mut self,
        shape: Shape,
        members: Vec<Member>,
        similar_to: Option<Hash>,
    ) -> Result<Part, JsonError> {
        let inline = Part::Inline(shape, members);
        if fits_inline(&inline) {
            return Ok(inline);
        }
        let Part::Inline(shape, members) = inline else { return Ok(inline) };
        Ok(Part::Node(self.write_container(shape, members, similar_to)?))
    }

    /// A container inside another, built from parts that are already stored.
    pub(super) fn nest_parts(
        &mut self,
        shape: Shape,
        members: impl Iterator<Item = (String, Part)>,
        similar_to: Option<Hash>,
    ) -> Result<Part, JsonError> {
        let members = members.map(|(key, part)| Member { key, part }).collect();
        self.write_nested(shape, members, similar_to)
    }

    /// A root object, built from parts that are already stored.
    pub(super) fn write_object(
        &mut self,
        fields: impl Iterator<Item = (String, Part)>,
        similar_to: Option<Hash>,
    ) -> Result<Hash, JsonError> {
        let mut members: Vec<Member> = fields.map(|(key, part)| Member { key, part }).collect();
        members.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        self.write_container(Shape::Object, members, similar_to)
    }

    /// The members of a container, sorted if they have keys. `depth` counts containers, this one included.
    fn collect_members(&mut self, value: &Value, depth: usize) -> Result<(Shape, Vec<Member>), JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::TooDeep);
        }
        match value {
            Value::Object(fields) => {
                let fields = fields.iter().map(|(key, value)| (key.as_str(), value));
                Ok((Shape::Object, self.collect_fields(fields, depth)?))
            }
            _ => {
                let mut members = Vec::new();
                for value in value.as_array().into_iter().flatten() {
                    members.push(Member { key: String::new(), part: self.write_part(value, depth)? });
                }
                Ok((Shape::Array, members))
            }
        }
    }

    /// The fields of an object, sorted.
    fn collect_fields<'v>(
        &mut self,
        fields: impl Iterator<Item = (&'v str, &'v Value)>,
        depth: usize,
    ) -> Result<Vec<Member>, JsonError> {
        let mut members = Vec::new();
        for (key, value) in fields {
            members.push(Member { key: key.to_owned(), part: self.write_part(value, depth)? });
        }
        members.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(members)
    }

    /// Writes a container as one node or as a tree of groups.
    fn write_container(
        &mut self,
        shape: Shape,
        members: Vec<Member>,
        similar_to: Option<Hash>,
    ) -> Result<Hash, JsonError> {
        let sizes: Vec<usize> = members.iter().map(|m| m.key.len() + m.part.encode().len()).collect();
        if members.len() <= WHOLE_MEMBERS && sizes.iter().sum::<usize>() <= WHOLE_BYTES {
            return self.write_node(&Node::Leaf(shape, members), similar_to);
        }
        let member_counts = group_member_counts(members.iter().zip(sizes).map(|(member, size)| {
            let hash = match shape {
                Shape::Array => Hash::of(ObjectKind::Json, &member.part.encode()),
                Shape::Object => Hash::of(ObjectKind::Json, member.key.as_bytes()),
            };
            (ends_in_zero_bits(hash, BOUNDARY_BITS), size)
        }));
        let mut remaining = members.into_iter();
        let leaves =
            member_counts.iter().map(|n| Node::Leaf(shape, remaining.by_ref().take(*n).collect())).collect();
        let mut groups = self.write_level(leaves, similar_to)?;
        let mut level = 0;
        while groups.len() > 1 {
            level += 1;
            let member_counts = group_member_counts(groups.iter().map(|group| {
                let hash = match shape {
                    Shape::Array => group.hash,
                    // The level is hashed too, so that one key does not decide the boundaries of every level.
                    Shape::Object => Hash::of(ObjectKind::Json, &[&[level], group.key.as_bytes()].concat()),
                };
                (ends_in_zero_bits(hash, BOUNDARY_BITS), group.key.len() + 36)
            }));
            let mut remaining = groups.into_iter();
            let nodes = member_counts
                .iter()
                .map(|n| Node::Inner(shape, level, remaining.by_ref().take(*n).collect()))
                .collect();
            groups = self.write_level(nodes, similar_to)?;
        }
        let Some(root) = groups.pop() else { unreachable!("a container without members is one leaf") };
        Ok(root.hash)
    }

    /// Writes all nodes of one level. The previous root is the delta base only of a root, which is the one node of its
    /// level.
    fn write_level(&mut self, nodes: Vec<Node>, similar_to: Option<Hash>) -> Result<Vec<Group>, JsonError> {
        let similar_to = similar_to.filter(|_| nodes.len() == 1);
        let mut groups = Vec::with_capacity(nodes.len());
        for node in nodes {
            let hash = self.write_node(&node, similar_to)?;
            groups.push(Group { hash, count: node.count(), key: node.first_key().to_owned() });
        }
        Ok(groups)
    }
}

/// Whether a number can be stored: a 64-bit integer or a finite float.
pub(super) fn is_representable(number: &serde_json::Number) -> bool {
    number.is_u64() || number.is_i64() || number.as_f64().is_some_and(f64::is_finite)
}

fn fits_inline(part: &Part) -> bool {
    // Every member takes at least a byte, so a long list need not be encoded to see that it does not fit.
    !matches!(part, Part::Inline(_, members) if members.len() > INLINE_BYTES)
        && part.encode().len() <= INLINE_BYTES
}

/// The number of members of each group, given for each member whether it is a boundary and its size in bytes. Boundaries
/// are content-defined, so that an edit moves few of them. A group has two members or more (the last may have one), so
/// that every level is shorter than the one below.
fn group_member_counts(sizes: impl Iterator<Item = (bool, usize)>) -> Vec<usize> {
    let mut counts = Vec::new();
    let (mut members, mut bytes) = (0, 0);
    for (boundary, size) in sizes {
        members += 1;
        bytes += size;
        if members >= MAX_GROUP
            || (members >= MIN_GROUP && boundary)
            || (members >= 2 && bytes >= WHOLE_BYTES)
        {
            counts.push(members);
            (members, bytes) = (0, 0);
        }
    }
    if members > 0 {
        counts.push(members);
    }
    counts
}
