//! What a recorded request to a model was made of.
//!
//! A request repeats the whole conversation, and its parts are stored once. So each part is read and measured once, however many
//! requests contain it.

use std::collections::HashMap;

use serde_json::{Value, json};
use stepback_llm_wire::semantics::{self, ContentPart};
use stepback_llm_wire::{ModelRequest, Wire};
use stepback_model::hash::Hash;
use stepback_model::json::{JsonError, Piece};
use stepback_store::Store;

use super::details::text_bytes;

/// How many measured parts are remembered.
const MAX_REMEMBERED: usize = 200_000;

/// The parts of a request, in bytes of text.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct RequestParts {
    pub model: Option<String>,
    pub system: u64,
    pub tools: u64,
    pub user: u64,
    pub assistant: u64,
    /// Results by tool; by the id of the call where its tool is not known.
    pub results: HashMap<String, u64>,
    pub other: u64,
}

/// A request and its size.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct MeasuredRequest {
    /// The size of the body.
    pub bytes: u64,
    /// Its parts; `None` if its wire is not known.
    pub parts: Option<RequestParts>,
}

/// The parts of one message, in bytes of text.
#[derive(Clone, Debug, Default)]
struct MessageSizes {
    system: u64,
    user: u64,
    assistant: u64,
    other: u64,
    /// The calls that the message requests: id and tool.
    calls: Vec<(String, String)>,
    /// The results that it has: id of the call and size.
    results: Vec<(String, u64)>,
}

/// Reads requests, and remembers the sizes of their parts.
#[derive(Default)]
pub(super) struct RequestReader {
    sizes: HashMap<Hash, u64>,
    messages: HashMap<Hash, MessageSizes>,
}

impl RequestReader {
    /// Measures a request as a proxy records it.
    pub fn read(&mut self, store: &dyn Store, input: &Piece) -> Result<MeasuredRequest, JsonError> {
        let fields = input.fields(store)?;
        let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, piece)| piece);
        let wire =
            field("wire").and_then(|wire| serde_json::from_value::<Wire>(wire.as_scalar()?.clone()).ok());
        let bytes = match field("bytes").and_then(|bytes| bytes.as_scalar()?.as_u64()) {
            Some(bytes) => bytes,
            None => self.text_bytes(store, input)?,
        };
        let (Some(wire), Some(body)) = (wire, field("body")) else {
            return Ok(MeasuredRequest { bytes, parts: None });
        };
        let mut parts = RequestParts::default();
        let mut tools: HashMap<String, String> = HashMap::new();
        for (name, piece) in body.fields(store)? {
            match name.as_str() {
                "system" | "instructions" | "systemInstruction" | "system_instruction" => {
                    parts.system = parts.system.saturating_add(self.text_bytes(store, &piece)?);
                }
                "tools" => parts.tools = self.text_bytes(store, &piece)?,
                "model" => parts.model = piece.as_scalar().and_then(Value::as_str).map(str::to_owned),
                "messages" | "input" | "contents" => {
                    if let Some(text) = piece.read_text(store)? {
                        parts.user = parts.user.saturating_add(text.len() as u64);
                    }
                    for element in piece.elements(store)? {
                        let sizes = self.message(store, wire, &name, &element)?;
                        add_message(&mut parts, &mut tools, sizes);
                    }
                }
                _ => {}
            }
        }
        Ok(MeasuredRequest { bytes, parts: Some(parts) })
    }

    /// The size of a part as text.
    pub fn text_bytes(&mut self, store: &dyn Store, piece: &Piece) -> Result<u64, JsonError> {
        let known = piece.hash().and_then(|hash| self.sizes.get(&hash));
        if let Some(size) = known {
            return Ok(*size);
        }
        // Small parts are whole in their parent; of larger ones, parts may be known already.
        let (fields, elements) = match piece.hash() {
            Some(_) => (piece.fields(store)?, piece.elements(store)?),
            None => (Vec::new(), Vec::new()),
        };
        let size = if fields.is_empty() && elements.is_empty() {
            text_bytes(&piece.load(store)?)
        } else {
            let mut size = 2_u64;
            for (name, piece) in &fields {
                size = size.saturating_add(name.len() as u64 + 4 + self.text_bytes(store, piece)?);
            }
            for piece in &elements {
                size = size.saturating_add(1 + self.text_bytes(store, piece)?);
            }
            size
        };
        if let Some(hash) = piece.hash().filter(|_| self.sizes.len() < MAX_REMEMBERED) {
            self.sizes.insert(hash, size);
        }
        Ok(size)
    }

    fn message(
        &mut self,
        store: &dyn Store,
        wire: Wire,
        field: &str,
        element: &Piece,
    ) -> Result<MessageSizes, JsonError> {
        if let Some(known) = element.hash().and_then(|hash| self.messages.get(&hash)) {
            return Ok(known.clone());
        }
        let value = element.load(store)?;
        let sizes = measure_message(wire, field, &value);
        if let Some(hash) = element.hash().filter(|_| self.messages.len() < MAX_REMEMBERED) {
            self.messages.insert(hash, sizes.clone());
        }
        Ok(sizes)
    }
}

/// Measures one message, which is understood as a request with only this message.
fn measure_message(wire: Wire, field: &str, value: &Value) -> MessageSizes {
    let request = ModelRequest {
        wire: Some(wire),
        method: String::new(),
        path: String::new(),
        headers: Vec::new(),
        body: json!({ field: [value] }),
        bytes: 0,
    };
    let mut sizes = MessageSizes::default();
    let understood = semantics::asked(wire, &request);
    sizes.system = understood.system.len() as u64;
    for part in understood.messages {
        match part {
            ContentPart::System(text) => sizes.system += text.len() as u64,
            ContentPart::User(text) => sizes.user += text.len() as u64,
            ContentPart::Model(text) | ContentPart::Thought(text) => sizes.assistant += text.len() as u64,
            ContentPart::Call(call) => {
                sizes.assistant += call.name.len() as u64 + text_bytes(&call.input);
                sizes.calls.push((call.id.unwrap_or_else(|| call.name.clone()), call.name));
            }
            ContentPart::Result { id, text, .. } => {
                sizes.results.push((id.unwrap_or_default(), text.len() as u64));
            }
        }
    }
    sizes.other = image_bytes(value);
    sizes
}

/// The bytes of images and other content that is not text, as far as they are in the message itself.
fn image_bytes(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(image_bytes).sum(),
        Value::Object(fields) => {
            let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
            let is_media = kind.contains("image") || kind.contains("audio") || kind.contains("document");
            if is_media || fields.contains_key("inlineData") || fields.contains_key("inline_data") {
                return fields.values().map(text_bytes).sum();
            }
            fields.values().map(image_bytes).sum()
        }
        _ => 0,
    }
}

fn add_message(parts: &mut RequestParts, tools: &mut HashMap<String, String>, sizes: MessageSizes) {
    parts.system = parts.system.saturating_add(sizes.system);
    parts.user = parts.user.saturating_add(sizes.user);
    parts.assistant = parts.assistant.saturating_add(sizes.assistant);
    parts.other = parts.other.saturating_add(sizes.other);
    tools.extend(sizes.calls);
    for (id, size) in sizes.results {
        let tool = tools.get(&id).cloned().unwrap_or(id);
        let sum = parts.results.entry(tool).or_default();
        *sum = sum.saturating_add(size);
    }
}
