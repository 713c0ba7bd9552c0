//! What a request asks and what an answer says, the same for every wire.

use serde_json::Value;

use crate::{Request, Response, Wire};

/// What a request asks.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Asked {
    /// The model.
    pub model: Option<String>,
    /// The instructions.
    pub system: String,
    /// The conversation, oldest first.
    pub messages: Vec<Said>,
    /// Names of the tools the model may call.
    pub tools: Vec<String>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
}

/// One piece of a conversation.
#[derive(Clone, PartialEq, Debug)]
pub enum Said {
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
    pub said: Vec<Said>,
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
pub fn asked(wire: Wire, request: &Request) -> Asked {
    let _ = (wire, request);
    unimplemented!()
}

/// What an answer says. Broken answers are read as far as they go.
pub fn answered(wire: Wire, response: &Response) -> Answered {
    let _ = (wire, response);
    unimplemented!()
}

/// Whether a piece of a streamed answer holds the end of what the model says, after which an agent may act.
pub fn is_last(wire: Wire, piece: &[u8]) -> bool {
    let _ = (wire, piece);
    unimplemented!()
}
