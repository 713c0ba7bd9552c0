//! Builds values from parts that are already stored, and splits them again.
//!
//! [`super::store`] visits every part of a value. A caller that keeps a large value in memory, and knows which few parts of
//! it changed, writes those and assembles the rest from stored parts. The result is the same as storing the whole.

use serde_json::Value;

use super::node::{Node, Part, Shape};
use super::read::Reader;
use super::write::{TEXT_BYTES, Writer};
use super::{JsonError, MAX_BYTES};
use crate::hash::{Hash, ObjectKind};
use crate::object::{ObjectError, ObjectSink, ObjectSource};

/// A part of a value in its stored form.
#[derive(Clone, PartialEq, Debug)]
pub struct Piece(pub(super) Part);

impl Piece {
    /// Stores a value, as far as it does not fit into its future parent.
    pub fn value(sink: &(impl ObjectSink + ?Sized), value: &Value) -> Result<Self, JsonError> {
        Ok(Self(Writer { sink, left: MAX_BYTES }.write_part(value, 0)?))
    }

    /// Stores a text. `similar_to` may be the stored form of a similar text.
    pub fn text(
        sink: &(impl ObjectSink + ?Sized),
        text: String,
        similar_to: Option<&Self>,
    ) -> Result<Self, JsonError> {
        if text.len() <= TEXT_BYTES {
            return Ok(Self(Part::Scalar(Value::String(text))));
        }
        let similar = match similar_to {
            Some(Self(Part::Text(hash))) => Some(*hash),
            _ => None,
        };
        Ok(Self(Part::Text(sink.write(ObjectKind::Blob, text.as_bytes(), similar)?)))
    }

    /// Stores an array of parts. `similar_to` may be the stored form of a similar array.
    pub fn store_array(
        sink: &(impl ObjectSink + ?Sized),
        pieces: impl IntoIterator<Item = Self>,
        similar_to: Option<&Self>,
    ) -> Result<Self, JsonError> {
        let members = pieces.into_iter().map(|piece| (String::new(), piece.0));
        let similar = match similar_to {
            Some(Self(Part::Node(hash))) => Some(*hash),
            _ => None,
        };
        Ok(Self(Writer { sink, left: MAX_BYTES }.nest_parts(Shape::Array, members, similar)?))
    }

    /// The elements of an array.
    pub fn elements(&self, source: &(impl ObjectSource + ?Sized)) -> Result<Vec<Self>, JsonError> {
        let mut reader = Reader::new(source);
        let node = reader.open(self.0.clone())?;
        let mut elements = Vec::new();
        if node.shape() == Some(Shape::Array) {
            reader.visit_leaves(node, |_, members| {
                elements.extend(members.into_iter().map(|member| Self(member.part)));
                Ok(())
            })?;
        }
        Ok(elements)
    }

    /// The text, if the part is one.
    pub fn read_text(
        &self,
        source: &(impl ObjectSource + ?Sized),
    ) -> Result<Option<std::borrow::Cow<'_, str>>, JsonError> {
        match &self.0 {
            Part::Scalar(Value::String(text)) => Ok(Some(text.into())),
            Part::Text(hash) => {
                let bytes = source.read(ObjectKind::Blob, *hash)?;
                let text = String::from_utf8(bytes)
                    .map_err(|error| ObjectError::corrupt(ObjectKind::Blob, *hash, error.utf8_error()))?;
                Ok(Some(text.into()))
            }
            _ => Ok(None),
        }
    }

    /// The hash of the object that has the part, if it is not whole in its parent: equal parts have equal hashes.
    pub fn hash(&self) -> Option<Hash> {
        match &self.0 {
            Part::Text(hash) | Part::Node(hash) => Some(*hash),
            Part::Scalar(_) | Part::Inline(..) => None,
        }
    }

    /// The whole value.
    pub fn load(&self, source: &(impl ObjectSource + ?Sized)) -> Result<Value, JsonError> {
        let mut reader = Reader::new(source);
        reader.part_value(self.0.clone(), 0)
    }

    /// The fields of an object, without reading their values; empty if it is not an object.
    pub fn fields(&self, source: &(impl ObjectSource + ?Sized)) -> Result<Vec<(String, Self)>, JsonError> {
        let mut reader = Reader::new(source);
        let node = reader.open(self.0.clone())?;
        collect_fields(&mut reader, node)
    }

    /// The value, if it is neither a long text nor a large container.
    pub fn as_scalar(&self) -> Option<&Value> {
        match &self.0 {
            Part::Scalar(value) => Some(value),
            _ => None,
        }
    }
}

/// Stores an object of parts that are already stored, and returns the hash of its root.
pub fn assemble(
    sink: &(impl ObjectSink + ?Sized),
    fields: impl IntoIterator<Item = (String, Piece)>,
    similar_to: Option<Hash>,
) -> Result<Hash, JsonError> {
    let fields = fields.into_iter().map(|(key, piece)| (key, piece.0));
    Writer { sink, left: MAX_BYTES }.write_object(fields, similar_to)
}

/// The fields of the object stored under `hash`, without reading their values; empty if it is not an object.
pub fn fields(source: &(impl ObjectSource + ?Sized), hash: Hash) -> Result<Vec<(String, Piece)>, JsonError> {
    let mut reader = Reader::new(source);
    let node: Node = reader.read_node(hash)?;
    collect_fields(&mut reader, node)
}

fn collect_fields<S: ObjectSource + ?Sized>(
    reader: &mut Reader<'_, S>,
    node: Node,
) -> Result<Vec<(String, Piece)>, JsonError> {
    let mut fields = Vec::new();
    if node.shape() == Some(Shape::Object) {
        reader.visit_leaves(node, |_, members| {
            fields.extend(members.into_iter().map(|member| (member.key, Piece(member.part))));
            Ok(())
        })?;
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{load, store};
    use super::*;
    use crate::list::tests::Memory;

    #[test]
    fn a_value_put_together_is_the_same_as_one_stored_whole() {
        let objects = Memory::default();
        let texts: Vec<String> = [10, 5000, 300, 100_000].iter().map(|len| "x".repeat(*len)).collect();
        for count in [0, 1, 3, 400] {
            let list: Vec<String> = texts.iter().cycle().take(count).cloned().collect();
            let whole = json!({ "format": 1, "list": list });
            let pieces = list.iter().map(|text| Piece::text(&objects, text.clone(), None).unwrap());
            let array = Piece::store_array(&objects, pieces, None).unwrap();
            let format = Piece::value(&objects, &json!(1)).unwrap();
            let parts = [("list".to_owned(), array), ("format".to_owned(), format)];
            let root = assemble(&objects, parts, None).unwrap();
            assert_eq!(root, store(&objects, &whole, None).unwrap());
            assert_eq!(load(&objects, root).unwrap(), whole);
            let again = fields(&objects, root).unwrap();
            assert_eq!(again[0].1.as_scalar(), Some(&json!(1)));
            let read = again[1].1.elements(&objects).unwrap();
            let read: Vec<String> =
                read.iter().map(|piece| piece.read_text(&objects).unwrap().unwrap().into_owned()).collect();
            assert_eq!(read, list);
        }
        let array = store(&objects, &json!([1]), None).unwrap();
        assert!(fields(&objects, array).unwrap().is_empty(), "it is no object");
    }
}
