//! Exchanges between an agent and a model: one request and one answer, as bytes and as their meaning.
//!
//! Four wires (API formats) are supported: Anthropic Messages, OpenAI Chat Completions and Responses, and Gemini's
//! generateContent. Nothing here does I/O: the proxy transfers the bytes, the recorder stores them, and a rerun looks
//! up the answer to a request that was recorded before. This crate knows no agent, no session and no socket.
//!
//! # Modules
//!
//! - [`wire`]: which wire a request uses.
//! - [`chunks`], [`sse`] and `documents`: how an answer arrived, server-sent events, and the JSON documents of an
//!   answer, complete or truncated.
//! - [`semantics`]: the meaning of requests and answers, one module per wire; `semantics::reading` knows where each
//!   text is.
//! - [`edit`]: changes what a request or an answer says, and nothing else in it.
//! - [`matching`]: finds the recorded answer to a request. `normalize` and `text_normalizer` remove what differs
//!   between two runs of the same task, `background` knows requests beside the conversation, `differences` shows where
//!   two requests diverge.
//! - [`prices`]: the cost of an answer, by a dated table of list prices.
//! - [`recorded_call`]: answer, tokens and cost of a call, from the detail of its step.
//!
//! Start at [`semantics::answered`] for what an answer says, and at [`matching::Recording`] for replay. A new wire is a
//! variant of [`Wire`], a module in `semantics`, lines in `edit` and `matching::normalize`, an error format in the
//! proxy, and a module of the scripted model in `testkit`.

pub mod chunks;
mod documents;
pub mod edit;
pub mod matching;
pub mod prices;
pub mod recorded_call;
pub mod semantics;
pub mod sse;
pub mod wire;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use chunks::Chunks;
pub use wire::Wire;

/// A request from an agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ModelRequest {
    /// The wire; `None` if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wire: Option<Wire>,
    /// The HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers about the request, in lower case. Credentials are never included.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub headers: Vec<(String, String)>,
    /// The body: its JSON document, or its text if it is not JSON.
    pub body: Value,
    /// The size of the body in bytes.
    pub bytes: u64,
}

/// The answer to a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Headers, in lower case, without those about the connection and without credentials.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub headers: Vec<(String, String)>,
    /// The body as it arrived, after decompression. Bytes that are not text are kept as far as they can be shown.
    pub body: String,
    /// How it arrived: for each chunk, when and how many bytes of `body`.
    pub chunks: Chunks,
    /// How it ended.
    pub ended: AnswerEnd,
    /// From the request's arrival to the first byte of the answer's body, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_byte: Option<u64>,
    /// From the request's arrival to the end, in microseconds.
    pub took: u64,
    /// How many bytes at the end were passed on but not recorded, because the limit was reached.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub left_out: u64,
}

impl Response {
    /// The header with which the proxy marks an answer from a recording: no model was asked.
    pub const REPLAYED: &'static str = "x-stepback-replayed";

    /// Whether it came from a recording and so cost nothing.
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
pub enum AnswerEnd {
    /// It was complete.
    Complete,
    /// The agent disconnected before its end.
    Cancelled,
    /// The connection to the model broke before its end.
    CutOff(String),
    /// No answer arrived: the model could not be reached, or timed out.
    Failed(String),
}

/// One request and its answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Exchange {
    /// The id of the exchange, unique in the session.
    pub id: String,
    /// The request from the agent.
    pub request: ModelRequest,
    /// The answer from the model.
    pub response: Response,
}
