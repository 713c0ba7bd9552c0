//! What passes between an agent and a model: one request, one answer, as bytes and as what they mean.
//!
//! Four wires are known: Anthropic Messages, OpenAI Chat Completions and Responses, and Gemini's generateContent. Nothing
//! here does I/O; the proxy carries the bytes, the recorder stores them, a rerun looks for the answer to a request it has
//! seen before.

pub mod chunks;
mod documents;
pub mod edit;
pub mod matching;
pub mod prices;
pub mod semantics;
pub mod sse;
pub mod wire;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use chunks::Chunks;
pub use wire::Wire;

/// What an agent asked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The wire, if it is one we know.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wire: Option<Wire>,
    /// The HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers that say something about the request, lower case. Those that authorise it are never here.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub headers: Vec<(String, String)>,
    /// The body: the document it holds, or its text if it is none.
    pub body: Value,
    /// How many bytes it had.
    pub bytes: u64,
}

/// What came back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Headers, lower case; those about the connection and about authorisation are left out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub headers: Vec<(String, String)>,
    /// The body as it came, after decompression. What is no text is kept as far as it can be shown.
    pub body: String,
    /// How it arrived: for each piece, when and how many bytes of `body`.
    pub chunks: Chunks,
    /// How it ended.
    pub ended: Ended,
    /// From the request's arrival to the first byte of the answer's body, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_byte: Option<u64>,
    /// From the request's arrival to the end, in microseconds.
    pub took: u64,
    /// So many bytes at the end were passed on and not recorded, because there were too many.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub left_out: u64,
}

impl Response {
    /// The header by which the proxy says that an answer comes from a recording: no model was asked.
    pub const REPLAYED: &'static str = "x-stepback-replayed";

    /// Whether it came from a recording, so that it cost nothing.
    pub fn is_replayed(&self) -> bool {
        self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(Self::REPLAYED))
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How an answer ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// It was complete.
    Complete,
    /// The agent went away before its end.
    Cancelled,
    /// The connection to the model broke before its end.
    CutOff(String),
    /// No answer came at all: the model could not be reached, or did not answer in time.
    Failed(String),
}

/// One request and its answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Exchange {
    /// What tells it from others of the session.
    pub id: String,
    /// What was asked.
    pub request: Request,
    /// What came back.
    pub response: Response,
}
