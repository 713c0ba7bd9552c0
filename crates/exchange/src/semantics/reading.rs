//! Where in an answer each text, thought and input is. Reading an answer and changing it go by the same places, so that they
//! can never disagree.

use serde_json::Value;

use super::{Answered, Call, ContentPart};
use crate::documents::Documents;

/// How a text is written at its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// As a string.
    Text,
    /// As the document itself: the input of a call on wires that do not put it into a string.
    Document,
}

/// A place in an answer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Place {
    /// In which of its documents.
    pub(crate) document: usize,
    /// Where in it, as a JSON pointer.
    pub(crate) pointer: String,
    pub(crate) shape: Shape,
}

impl Place {
    /// A string.
    pub(crate) fn text(document: usize, pointer: impl Into<String>) -> Self {
        Self { document, pointer: pointer.into(), shape: Shape::Text }
    }

    /// A document.
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
    /// A call's input. `plain` is input that is text by nature, even if it looks like a document.
    Input {
        id: Option<String>,
        name: String,
        plain: bool,
    },
}

/// One text, thought or input, however many pieces it came in.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Slot {
    /// What tells it from others of the same answer.
    pub(crate) key: (usize, usize),
    pub(crate) kind: Kind,
    /// Its pieces; together they are the text.
    pub(crate) pieces: Vec<Place>,
    /// Where the wire says the whole text once more.
    pub(crate) repeats: Vec<Place>,
}

impl Slot {
    /// The whole text.
    pub(crate) fn text(&self, documents: &Documents) -> String {
        if self.pieces.is_empty() {
            return self.repeats.last().map(|place| place.read(documents)).unwrap_or_default();
        }
        self.pieces.iter().map(|place| place.read(documents)).collect()
    }
}

/// An answer, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) slots: Vec<Slot>,
    /// Everything but what was said.
    pub(crate) rest: Answered,
}

impl Reading {
    /// The slot with a key, made if there is none.
    pub(crate) fn slot(&mut self, key: (usize, usize), kind: impl FnOnce() -> Kind) -> &mut Slot {
        // The one that grows is nearly always the last.
        let at = self.slots.iter().rposition(|slot| slot.key == key).unwrap_or_else(|| {
            self.slots.push(Slot { key, kind: kind(), pieces: Vec::new(), repeats: Vec::new() });
            self.slots.len() - 1
        });
        &mut self.slots[at]
    }

    /// What was said, in order. Texts that hold nothing are left out.
    pub(crate) fn answered(self, documents: &Documents) -> Answered {
        let mut answered = self.rest;
        for slot in self.slots {
            let text = slot.text(documents);
            match slot.kind {
                Kind::Text if !text.is_empty() => answered.said.push(ContentPart::Model(text)),
                Kind::Thought if !text.is_empty() => answered.said.push(ContentPart::Thought(text)),
                Kind::Text | Kind::Thought => {}
                Kind::Input { id, name, plain } => {
                    let input = if plain { Value::String(text) } else { super::input_of(&text) };
                    answered.said.push(ContentPart::Call(Call { id, name, input }));
                }
            }
        }
        answered
    }
}
