//! The meaning of requests and answers, in the same form for every wire.

mod chat;
mod gemini;
mod messages;
mod reading;
mod responses;

use memchr::memmem;
use serde_json::Value;

use crate::documents::{Documents, Form};
use crate::{ModelRequest, Response, Wire};

pub(crate) use reading::{Kind, Reading, Shape, TextPosition};

/// What a request asks.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RequestSummary {
    /// The name of the model.
    pub model: Option<String>,
    /// The system instructions.
    pub system: String,
    /// The conversation, oldest first.
    pub messages: Vec<ContentPart>,
    /// Names of the tools the model may call.
    pub tools: Vec<String>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
}

/// One part of a conversation.
#[derive(Clone, PartialEq, Debug)]
pub enum ContentPart {
    /// Text of the user, or of the agent on the user's behalf.
    User(String),
    /// Instructions in the middle of a conversation.
    System(String),
    /// Text of the model.
    Model(String),
    /// A thought of the model.
    Thought(String),
    /// A tool call of the model.
    Call(WireCall),
    /// The result of a tool call.
    Result {
        /// The id of the call.
        id: Option<String>,
        /// The output of the tool.
        text: String,
        /// Whether the call failed.
        failed: bool,
    },
}

/// A tool call.
#[derive(Clone, PartialEq, Debug)]
pub struct WireCall {
    /// The id of the call, if it has one.
    pub id: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The input; a text if it is not JSON.
    pub input: Value,
}

/// Token counts, as far as the answer reports them. `input` counts tokens that were not read from a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct TokenUsage {
    /// Input tokens at the full price.
    pub input: u64,
    /// Output tokens, including thoughts.
    pub output: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// The output tokens that were thoughts.
    pub reasoning: u64,
}

impl TokenUsage {
    /// Returns the number of tokens read and written; thoughts are part of what was written.
    pub fn total(self) -> u64 {
        let parts = [self.output, self.cache_read, self.cache_write];
        parts.into_iter().fold(self.input, u64::saturating_add)
    }
}

impl std::iter::Sum for TokenUsage {
    fn sum<I: Iterator<Item = Self>>(calls: I) -> Self {
        calls.fold(Self::default(), |sum, call| Self {
            input: sum.input.saturating_add(call.input),
            output: sum.output.saturating_add(call.output),
            cache_read: sum.cache_read.saturating_add(call.cache_read),
            cache_write: sum.cache_write.saturating_add(call.cache_write),
            reasoning: sum.reasoning.saturating_add(call.reasoning),
        })
    }
}

/// What an answer says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ResponseSummary {
    /// The model that answered, if the answer names it.
    pub model: Option<String>,
    /// Text, thoughts and calls, in order.
    pub content: Vec<ContentPart>,
    /// Why the model stopped.
    pub stop: Option<String>,
    /// Token counts, if the answer has them.
    pub usage: Option<TokenUsage>,
    /// The error message of the model.
    pub error: Option<String>,
    /// Whether the wire itself says that the answer is complete, not just the end of the connection.
    pub complete: bool,
}

/// Returns what a request asks.
pub fn asked(wire: Wire, request: &ModelRequest) -> RequestSummary {
    match wire {
        Wire::Messages => messages::summarize_request(&request.body),
        Wire::Chat => chat::summarize_request(&request.body),
        Wire::Responses => responses::summarize_request(&request.body),
        Wire::Gemini => gemini::summarize_request(&request.path, &request.body),
    }
}

/// Returns what an answer says. Broken answers are read as far as possible. An error that the model reports is a complete
/// answer.
pub fn answered(wire: Wire, response: &Response) -> ResponseSummary {
    let documents = Documents::parse(&response.body);
    let mut answered = read(wire, &documents).into_summary(&documents);
    if documents.form == Form::Whole {
        // An incomplete document could still say anything.
        answered.complete &= documents.is_complete;
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

/// Finds the texts and calls of an answer, and everything else it says.
pub(crate) fn read(wire: Wire, documents: &Documents) -> Reading {
    match wire {
        Wire::Messages => messages::read(documents),
        Wire::Chat => chat::read(documents),
        Wire::Responses => responses::read(documents),
        Wire::Gemini => gemini::read(documents),
    }
}

/// Whether a chunk of a streamed answer contains the end of the model's output, after which an agent may act. An error is
/// an end too. A chunk that only looks like it (a text about `message_stop`) counts as well: that costs a little time and
/// nothing else.
pub fn is_last(wire: Wire, piece: &[u8]) -> bool {
    let has = |marker: &[u8]| memmem::find(piece, marker).is_some();
    match wire {
        Wire::Messages => has(b"message_stop") || names_error(piece),
        Wire::Chat => {
            has(b"[DONE]") || has_field_value(piece, b"\"finish_reason\"", b"\"") || holds_error(piece)
        }
        Wire::Responses => ends_response(piece) || holds_error(piece) || names_error(piece),
        Wire::Gemini => {
            has_field_value(piece, b"\"finishReason\"", b"\"")
                || has(b"\"blockReason\"")
                || holds_error(piece)
        }
    }
}

/// Whether the end of an answer may directly follow these complete events, and an agent may already act on them: some
/// agents start a call as soon as it is complete.
pub fn may_be_followed_by_the_end(wire: Wire, events: &[u8]) -> bool {
    let has = |marker: &[u8]| memmem::find(events, marker).is_some();
    match wire {
        Wire::Messages => has(b"content_block_stop") || has(b"message_delta"),
        Wire::Responses => has(b"response.output_item.done"),
        Wire::Chat => is_last(wire, events),
        // Every chunk of text may have a finish reason, so text is not held back.
        Wire::Gemini => is_last(wire, events) && has(b"functionCall"),
    }
}

/// Whether there is an event `response.completed`, `response.failed` or `response.incomplete`.
fn ends_response(piece: &[u8]) -> bool {
    const FINAL_STATUSES: [&[u8]; 3] = [b"completed", b"failed", b"incomplete"];
    memmem::find_iter(piece, b"response.").any(|at| {
        let rest = &piece[at + b"response.".len()..];
        FINAL_STATUSES.iter().any(|end| rest.starts_with(end))
    })
}

/// Whether the value of any field is `"error"`.
fn names_error(piece: &[u8]) -> bool {
    memmem::find_iter(piece, b"\"error\"")
        .any(|at| piece[..at].iter().rev().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':'))
}

fn holds_error(piece: &[u8]) -> bool {
    has_field_value(piece, b"\"error\"", b"{\"")
}

/// Whether a field has a value that begins with one of these bytes.
fn has_field_value(piece: &[u8], field: &[u8], begins: &[u8]) -> bool {
    memmem::find_iter(piece, field).any(|at| {
        let mut rest = piece[at + field.len()..].iter().filter(|byte| !byte.is_ascii_whitespace());
        rest.next() == Some(&b':') && rest.next().is_some_and(|first| begins.contains(first))
    })
}

/// Returns the message of an error document.
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

/// Parses a call's input that was sent as text: the document, or the text if it is not JSON. An empty text means no
/// input.
fn input_of(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Returns the text of a text or a list of parts. A part that is not text is named in brackets.
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
