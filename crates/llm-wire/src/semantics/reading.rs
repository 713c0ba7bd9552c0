//! The positions of each text, thought and input in an answer. Reading and changing an answer use the same positions, so
//! that they cannot disagree.

use serde_json::Value;

use super::{ContentPart, ResponseSummary, WireCall};
use crate::documents::Documents;

/// How a text is encoded at its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// As a JSON string.
    Text,
    /// As the document itself: the input of a call on wires that do not encode it in a string.
    Document,
}

/// A position in an answer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TextPosition {
    /// The index of the document.
    pub(crate) document: usize,
    /// The position in the document, as a JSON pointer.
    pub(crate) pointer: String,
    pub(crate) shape: Shape,
}

impl TextPosition {
    /// The position of a string.
    pub(crate) fn text(document: usize, pointer: impl Into<String>) -> Self {
        Self { document, pointer: pointer.into(), shape: Shape::Text }
    }

    /// The position of a document.
    pub(crate) fn document(document: usize, pointer: impl Into<String>) -> Self {
        Self { document, pointer: pointer.into(), shape: Shape::Document }
    }

    fn read(&self, documents: &Documents) -> String {
        let value =
            documents.list.get(self.document).and_then(|document| document.value.pointer(&self.pointer));
        match (value, self.shape) {
            (Some(Value::String(text)), Shape::Text) => text.clone(),
            (Some(value), Shape::Document) => value.to_string(),
            _ => String::new(),
        }
    }
}

/// What a slot holds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    Text,
    Thought,
    /// A call's input. `plain` is input that is plain text, even if it looks like a document.
    Input {
        id: Option<String>,
        name: String,
        plain: bool,
    },
}

/// One text, thought or input, however many chunks it came in.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Slot {
    /// A key that is unique within the answer.
    pub(crate) key: (usize, usize),
    pub(crate) kind: Kind,
    /// The positions of its chunks; concatenated they are the text.
    pub(crate) pieces: Vec<TextPosition>,
    /// Positions where the wire repeats the whole text.
    pub(crate) repeats: Vec<TextPosition>,
}

impl Slot {
    /// Returns the whole text.
    pub(crate) fn text(&self, documents: &Documents) -> String {
        if self.pieces.is_empty() {
            return self.repeats.last().map(|position| position.read(documents)).unwrap_or_default();
        }
        self.pieces.iter().map(|position| position.read(documents)).collect()
    }
}

/// A parsed answer.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) slots: Vec<Slot>,
    /// Everything except the texts, thoughts and calls.
    pub(crate) rest: ResponseSummary,
}

impl Reading {
    /// Returns the slot with a key, and creates it if there is none.
    pub(crate) fn slot(&mut self, key: (usize, usize), kind: impl FnOnce() -> Kind) -> &mut Slot {
        // The one that grows is nearly always the last.
        let index = self.slots.iter().rposition(|slot| slot.key == key).unwrap_or_else(|| {
            self.slots.push(Slot { key, kind: kind(), pieces: Vec::new(), repeats: Vec::new() });
            self.slots.len() - 1
        });
        &mut self.slots[index]
    }

    /// Returns the parts of the answer, in order. Empty texts are left out.
    pub(crate) fn into_summary(self, documents: &Documents) -> ResponseSummary {
        let mut answered = self.rest;
        for slot in self.slots {
            let text = slot.text(documents);
            match slot.kind {
                Kind::Text if !text.is_empty() => answered.content.push(ContentPart::Model(text)),
                Kind::Thought if !text.is_empty() => answered.content.push(ContentPart::Thought(text)),
                Kind::Text | Kind::Thought => {}
                Kind::Input { id, name, plain } => {
                    let input = if plain { Value::String(text) } else { super::input_of(&text) };
                    answered.content.push(ContentPart::Call(WireCall { id, name, input }));
                }
            }
        }
        answered
    }
}
