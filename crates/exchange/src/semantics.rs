//! What a request asks and what an answer says, the same for every wire.

mod chat;
mod gemini;
mod messages;
mod reading;
mod responses;

use memchr::memmem;
use serde_json::Value;

use crate::documents::{Documents, Form};
use crate::{Request, Response, Wire};

pub(crate) use reading::{Kind, Place, Reading, Shape};

/// What a request asks.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RequestSummary {
    /// The model.
    pub model: Option<String>,
    /// The instructions.
    pub system: String,
    /// The conversation, oldest first.
    pub messages: Vec<ContentPart>,
    /// Names of the tools the model may call.
    pub tools: Vec<String>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
}

/// One piece of a conversation.
#[derive(Clone, PartialEq, Debug)]
pub enum ContentPart {
    /// A person, or the agent in a person's name.
    User(String),
    /// Instructions in the middle of a conversation.
    System(String),
    /// The model.
    Model(String),
    /// The model, thinking aloud.
    Thought(String),
    /// The model calls a tool.
    Call(Call),
    /// What the tool gave back.
    Result {
        /// Of which call.
        id: Option<String>,
        /// What it said.
        text: String,
        /// Whether it went wrong.
        failed: bool,
    },
}

/// A call of a tool.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// Its id, if it has one.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// Its input; text if it is no document.
    pub input: Value,
}

/// Tokens, as far as the answer tells. `input` counts those that were not read from a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Read, at the full price.
    pub input: u64,
    /// Written, thoughts included.
    pub output: u64,
    /// Read from a cache.
    pub cache_read: u64,
    /// Written to a cache.
    pub cache_write: u64,
    /// Of the output, thoughts.
    pub reasoning: u64,
}

/// What an answer says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answered {
    /// The model that answered, if it says so.
    pub model: Option<String>,
    /// Text, thoughts and calls, in order.
    pub said: Vec<ContentPart>,
    /// Why it stopped.
    pub stop: Option<String>,
    /// Tokens.
    pub usage: Option<Usage>,
    /// What went wrong, in the model's words.
    pub error: Option<String>,
    /// Whether the answer came to its own end (the wire says so), not just to the end of the connection.
    pub complete: bool,
}

/// What a request asks.
pub fn asked(wire: Wire, request: &Request) -> RequestSummary {
    match wire {
        Wire::Messages => messages::asked(&request.body),
        Wire::Chat => chat::asked(&request.body),
        Wire::Responses => responses::asked(&request.body),
        Wire::Gemini => gemini::asked(&request.path, &request.body),
    }
}

/// What an answer says. Broken answers are read as far as they go. An error that the model reports is an end of its own.
pub fn answered(wire: Wire, response: &Response) -> Answered {
    let documents = Documents::of(&response.body);
    let mut answered = read(wire, &documents).answered(&documents);
    if documents.form == Form::Whole {
        // Without its end, a document may say anything yet.
        answered.complete &= documents.done;
    }
    if answered.error.is_none() && response.status >= 400 {
        let words = response.body.trim();
        answered.error = Some(if words.is_empty() {
            format!("status {}", response.status)
        } else {
            words.chars().take(500).collect()
        });
    }
    answered
}

/// Finds the texts and calls of an answer, and the rest of what it says.
pub(crate) fn read(wire: Wire, documents: &Documents) -> Reading {
    match wire {
        Wire::Messages => messages::read(documents),
        Wire::Chat => chat::read(documents),
        Wire::Responses => responses::read(documents),
        Wire::Gemini => gemini::read(documents),
    }
}

/// Whether a piece of a streamed answer holds the end of what the model says, after which an agent may act. An error is an
/// end too. A piece that only looks like it (a text about `message_stop`) counts as well: that costs a little time and no more.
pub fn is_last(wire: Wire, piece: &[u8]) -> bool {
    let has = |marker: &[u8]| memmem::find(piece, marker).is_some();
    match wire {
        Wire::Messages => has(b"message_stop") || names_error(piece),
        Wire::Chat => has(b"[DONE]") || holds(piece, b"\"finish_reason\"", b"\"") || holds_error(piece),
        Wire::Responses => ends_response(piece) || holds_error(piece) || names_error(piece),
        Wire::Gemini => {
            holds(piece, b"\"finishReason\"", b"\"") || has(b"\"blockReason\"") || holds_error(piece)
        }
    }
}

/// Whether the end of an answer may come right behind these whole events, and an agent may act on them already: some begin
/// with a call as soon as it is whole.
pub fn may_be_followed_by_the_end(wire: Wire, events: &[u8]) -> bool {
    let has = |marker: &[u8]| memmem::find(events, marker).is_some();
    match wire {
        Wire::Messages => has(b"content_block_stop") || has(b"message_delta"),
        Wire::Responses => has(b"response.output_item.done"),
        Wire::Chat => is_last(wire, events),
        // Every piece of a text may have a reason to stop; a text is not waited for.
        Wire::Gemini => is_last(wire, events) && has(b"functionCall"),
    }
}

/// Whether there is an event `response.completed`, `response.failed` or `response.incomplete`.
fn ends_response(piece: &[u8]) -> bool {
    const ENDS: [&[u8]; 3] = [b"completed", b"failed", b"incomplete"];
    memmem::find_iter(piece, b"response.").any(|at| {
        let rest = &piece[at + b"response.".len()..];
        ENDS.iter().any(|end| rest.starts_with(end))
    })
}

/// Whether some field's value is `"error"`.
fn names_error(piece: &[u8]) -> bool {
    memmem::find_iter(piece, b"\"error\"")
        .any(|at| piece[..at].iter().rev().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':'))
}

fn holds_error(piece: &[u8]) -> bool {
    holds(piece, b"\"error\"", b"{\"")
}

/// Whether a field has a value that begins with one of these bytes.
fn holds(piece: &[u8], field: &[u8], begins: &[u8]) -> bool {
    memmem::find_iter(piece, field).any(|at| {
        let mut rest = piece[at + field.len()..].iter().filter(|byte| !byte.is_ascii_whitespace());
        rest.next() == Some(&b':') && rest.next().is_some_and(|first| begins.contains(first))
    })
}

/// What an error document says, in the model's words.
fn error_of(value: &Value) -> Option<String> {
    let error = match &value["error"] {
        Value::Null if value["type"] == "error" => value,
        error => error,
    };
    let words = |key: &str| error[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    match error {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Object(_) => words("message")
            .or_else(|| words("type"))
            .or_else(|| words("status"))
            .or_else(|| words("code"))
            .or_else(|| Some(error.to_string())),
        _ => None,
    }
}

/// A call's input as it was sent in a text: the document, or the text if it is none. No text at all is no input.
fn input_of(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The text of what may be a text or a list of parts. A part that is no text is named in brackets.
fn text_of(content: &Value) -> String {
    match content {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(part_text).collect::<Vec<_>>().join("\n"),
        other => part_text(other),
    }
}

fn part_text(part: &Value) -> String {
    match (part.as_str(), part["text"].as_str(), part["type"].as_str()) {
        (Some(text), ..) | (_, Some(text), _) => text.to_owned(),
        (_, _, Some(kind)) => format!("[{kind}]"),
        _ => part.to_string(),
    }
}

fn string(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
