//! Loads JSON values, whole or the part that a pointer names.

use serde_json::{Map, Value};

use super::node::{Group, Member, Node, Part, Shape};
use super::page::{ValueRoot, all_on_page, on_page};
use super::{JsonError, MAX_BYTES, MAX_DEPTH};
use crate::hash::{Hash, ObjectKind};
use crate::object::{ObjectError, ObjectSource};

/// Loads a whole value.
pub fn load(source: &(impl ObjectSource + ?Sized), root: impl Into<ValueRoot>) -> Result<Value, JsonError> {
    let mut reader = Reader::new(source);
    let root = reader.read_root(root.into())?;
    reader.read_value(root, 0)
}

/// Loads all values of a page, in order: for a caller that needs most of them, faster than one after the other.
pub fn load_page(source: &(impl ObjectSource + ?Sized), page: Hash) -> Result<Vec<Value>, JsonError> {
    let mut reader = Reader::new(source);
    let bytes = reader.read(ObjectKind::Json, page)?;
    all_on_page(&bytes, page)?.into_iter().map(|node| reader.read_value(node, 0)).collect()
}

/// Loads the part of a value that `pointer` (RFC 6901, such as `/beliefs/3/text`; empty for the whole) names, reading
/// only what is on the way. `None` if there is no such part.
pub fn get(
    source: &(impl ObjectSource + ?Sized),
    root: impl Into<ValueRoot>,
    pointer: &str,
) -> Result<Option<Value>, JsonError> {
    let tokens = parse_pointer(pointer)?;
    let mut reader = Reader::new(source);
    let mut node = reader.read_root(root.into())?;
    for token in &tokens {
        match reader.find_member(node, token)? {
            Some(part) => node = reader.open(part)?,
            None => return Ok(None),
        }
    }
    reader.read_value(node, tokens.len()).map(Some)
}

/// Splits a pointer into its unescaped tokens.
fn parse_pointer(pointer: &str) -> Result<Vec<String>, JsonError> {
    let fail = |reason| JsonError::Pointer { pointer: pointer.to_owned(), reason };
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let tokens = pointer.strip_prefix('/').ok_or_else(|| fail("it does not start with '/'"))?;
    let unescape = |token: &str| {
        let mut escapes = token.split('~').skip(1);
        if escapes.any(|rest| !rest.starts_with(['0', '1'])) {
            return Err(fail("'~' is followed by neither '0' nor '1'"));
        }
        Ok(token.replace("~1", "/").replace("~0", "~"))
    };
    tokens.split('/').map(unescape).collect()
}

/// Reads nodes within the size limit.
pub(super) struct Reader<'a, S: ?Sized> {
    source: &'a S,
    /// Bytes that may still be read, over all nodes of the value.
    remaining_bytes: usize,
}

impl<'a, S: ObjectSource + ?Sized> Reader<'a, S> {
    pub(super) fn new(source: &'a S) -> Self {
        Self::with_limit(source, MAX_BYTES)
    }

    /// Reads at most `limit` bytes.
    pub(super) fn with_limit(source: &'a S, limit: usize) -> Self {
        Self { source, remaining_bytes: limit }
    }

    fn read(&mut self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, JsonError> {
        let bytes = self.source.read(kind, hash)?;
        self.remaining_bytes = self.remaining_bytes.checked_sub(bytes.len()).ok_or(JsonError::TooLarge)?;
        Ok(bytes)
    }

    /// Reads the first node of a value.
    pub(super) fn read_root(&mut self, ValueRoot { node, part }: ValueRoot) -> Result<Node, JsonError> {
        match part {
            Some(part) => Ok(on_page(&self.read(ObjectKind::Json, node)?, node, part)?),
            None => self.read_node(node),
        }
    }

    /// Reads the node stored under `hash`.
    pub(super) fn read_node(&mut self, hash: Hash) -> Result<Node, JsonError> {
        let bytes = self.read(ObjectKind::Json, hash)?;
        Ok(Node::decode(&bytes).map_err(|reason| ObjectError::corrupt(ObjectKind::Json, hash, reason))?)
    }

    /// Reads the node of a group that is listed in a node of this shape and level, and checks that it matches the group's
    /// entry.
    pub(super) fn read_group(&mut self, group: &Group, shape: Shape, level: u8) -> Result<Node, JsonError> {
        let node = self.read_node(group.hash)?;
        let agrees = node.shape() == Some(shape)
            && node.level() + 1 == level
            && node.count() == group.count
            && node.first_key() == group.key;
        if !agrees {
            let reason = "its shape, level, count or first key is not what its parent says";
            return Err(ObjectError::corrupt(ObjectKind::Json, group.hash, reason).into());
        }
        Ok(node)
    }

    /// Reads the node a part stands for; a part that stands for itself becomes a node.
    pub(super) fn open(&mut self, part: Part) -> Result<Node, JsonError> {
        match part {
            Part::Scalar(_) | Part::Text(_) => Ok(Node::Scalar(part)),
            Part::Inline(shape, members) => Ok(Node::Leaf(shape, members)),
            Part::Node(hash) => match self.read_node(hash)? {
                Node::Scalar(_) => {
                    let reason = "it is a scalar where a container belongs";
                    Err(ObjectError::corrupt(ObjectKind::Json, hash, reason).into())
                }
                node => Ok(node),
            },
        }
    }

    /// The whole value of a node. `depth` counts the containers around it.
    pub(super) fn read_value(&mut self, node: Node, depth: usize) -> Result<Value, JsonError> {
        let Some(shape) = node.shape() else { return self.read_scalar(node) };
        if depth >= MAX_DEPTH {
            return Err(JsonError::TooDeep);
        }
        let mut array = Vec::new();
        let mut object = Map::new();
        self.visit_leaves(node, |reader, members| {
            for Member { key, part } in members {
                let value = reader.part_value(part, depth + 1)?;
                if shape == Shape::Array {
                    array.push(value);
                } else {
                    object.insert(key, value);
                }
            }
            Ok(())
        })?;
        Ok(if shape == Shape::Array { Value::Array(array) } else { Value::Object(object) })
    }

    /// The whole value of a part.
    pub(super) fn part_value(&mut self, part: Part, depth: usize) -> Result<Value, JsonError> {
        match part {
            Part::Scalar(value) => Ok(value),
            part => {
                let node = self.open(part)?;
                self.read_value(node, depth)
            }
        }
    }

    fn read_scalar(&mut self, node: Node) -> Result<Value, JsonError> {
        match node {
            Node::Scalar(Part::Scalar(value)) => Ok(value),
            Node::Scalar(Part::Text(hash)) => {
                let bytes = self.read(ObjectKind::Blob, hash)?;
                let text = String::from_utf8(bytes)
                    .map_err(|error| ObjectError::corrupt(ObjectKind::Blob, hash, error.utf8_error()))?;
                Ok(Value::String(text))
            }
            // The decoder and `open` make no other scalars.
            _ => Ok(Value::Null),
        }
    }

    /// Visits the groups of members of a container in order, without recursion.
    pub(super) fn visit_leaves(
        &mut self,
        node: Node,
        mut visit: impl FnMut(&mut Self, Vec<Member>) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        let mut pending = Vec::new();
        let mut next = Some(node);
        let mut last_key: Option<String> = None;
        while let Some(node) = next {
            match node {
                Node::Scalar(_) => {}
                Node::Leaf(shape, members) => {
                    last_key = members.last().filter(|_| shape == Shape::Object).map(|last| last.key.clone());
                    visit(self, members)?;
                }
                Node::Inner(shape, level, groups) => {
                    pending.extend(groups.into_iter().rev().map(|group| (group, shape, level)));
                }
            }
            next = match pending.pop() {
                // Within a group the decoder has checked the order of keys; between groups only this does.
                Some((group, _, _)) if last_key.as_ref().is_some_and(|last| *last >= group.key) => {
                    let reason = "its keys do not follow those of the group before it";
                    return Err(ObjectError::corrupt(ObjectKind::Json, group.hash, reason).into());
                }
                Some((group, shape, level)) => Some(self.read_group(&group, shape, level)?),
                None => None,
            };
        }
        Ok(())
    }

    /// The member of a container that a pointer's token names.
    fn find_member(&mut self, mut node: Node, token: &str) -> Result<Option<Part>, JsonError> {
        let Some(shape) = node.shape() else { return Ok(None) };
        let mut index = match shape {
            Shape::Array => match parse_index(token) {
                Some(index) => index,
                None => return Ok(None),
            },
            Shape::Object => 0,
        };
        while let Node::Inner(_, level, groups) = &node {
            let child = match shape {
                Shape::Array => groups.iter().find(|group| {
                    let is_inside = index < group.count;
                    if !is_inside {
                        index -= group.count;
                    }
                    is_inside
                }),
                Shape::Object => {
                    let next_group = groups.partition_point(|group| group.key.as_str() <= token);
                    next_group.checked_sub(1).map(|position| &groups[position])
                }
            };
            let Some(group) = child else { return Ok(None) };
            let (group, level) = (group.clone(), *level);
            node = self.read_group(&group, shape, level)?;
        }
        let Node::Leaf(_, mut members) = node else { return Ok(None) };
        let position = match shape {
            Shape::Array => usize::try_from(index).ok().filter(|position| *position < members.len()),
            Shape::Object => members.binary_search_by(|member| member.key.as_str().cmp(token)).ok(),
        };
        Ok(position.map(|position| members.swap_remove(position).part))
    }
}

/// An array index as RFC 6901 writes it: digits without leading zeros.
fn parse_index(token: &str) -> Option<u64> {
    let is_canonical =
        token == "0" || (!token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit()));
    if is_canonical { token.parse().ok() } else { None }
}
