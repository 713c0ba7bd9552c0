//! A scripted model: the server side of every wire that a coding agent uses.
//!
//! Tests run real agents, which need a model. This one is a small HTTP server that implements four wires ([`wire`]),
//! answers each request with the turn of a [`script`] that comes next in the conversation *in the request itself*, and
//! records every request. No calls are counted globally: a resumed, rewound or forked conversation continues where its
//! own history ends, whichever process sends the request.
//!
//! Start at [`Script`] for writing a script, [`server`] for how a turn is chosen, [`history`] for comparing the
//! conversations of two agents, and [`mod@crate::agent`] for running an agent.

pub mod http;
pub mod script;
pub mod server;
pub mod tools;
pub mod wire;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use script::{Script, ScriptedCall, ScriptedConversation, ScriptedTurn};
pub use server::ModelServer;
pub use wire::{ItemRole, history};

/// The agents that tests drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScriptedAgent {
    /// Claude Code, over Anthropic Messages.
    Claude,
    /// Codex, over OpenAI Responses.
    Codex,
    /// Gemini CLI, over Gemini's generateContent.
    Gemini,
    /// opencode, over OpenAI Chat Completions.
    Opencode,
}

impl ScriptedAgent {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Gemini, Self::Opencode];

    /// The name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
        }
    }
}

/// One request that arrived, and how it was answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReceivedRequest {
    /// `POST`, `HEAD` …
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// The JSON body; null if there was none.
    pub body: Value,
    /// What it was answered with.
    pub answer: RequestOutcome,
}

impl ReceivedRequest {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether a turn of the script answered it.
    pub fn is_turn(&self) -> bool {
        matches!(self.answer, RequestOutcome::Turn { .. })
    }
}

/// What a request was answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestOutcome {
    /// A turn of the script.
    Turn {
        /// Which conversation of the script.
        conversation: usize,
        /// Which turn of it.
        turn: usize,
    },
    /// A text without effect, because the script has no further turn.
    Over,
    /// A text without effect, because the request offers no tools: a title, a summary, a choice of model.
    Aside,
    /// The error that the script specifies, with this status.
    Failed(u16),
    /// Not a question to a model at all.
    Other(u16),
}
