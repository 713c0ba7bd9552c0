//! What a span says, in one form, whoever instrumented it.
//!
//! There is a module for each convention: [`genai`] (OpenTelemetry's own, in the revisions that are about),
//! [`openinference`] (Arize, Phoenix) and [`traceloop`] (OpenLLMetry). A convention takes the attributes it understands
//! out of a span; what is left is kept as it came. A span can speak several at once: OpenLLMetry writes GenAI attributes for
//! model calls, and its own for everything around them.

pub mod genai;
pub mod openinference;
pub mod traceloop;

use serde_json::{Map, Value};
use stepback_exchange::semantics::Usage;

use crate::attributes::Attributes;
use crate::messages::Message;
use crate::telemetry::Span;

/// What a span is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A model was asked.
    Model,
    /// A tool ran, or something was looked up.
    Tool,
    /// An agent was at work.
    Agent,
    /// A part of an agent's work: a workflow, a chain, a node of a graph.
    Task,
    /// Something was checked and allowed or refused.
    Guard,
    /// Anything else that happened inside of the service.
    Plain,
}

/// What a span says.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// What it is about.
    pub role: Role,
    /// The convention that said so.
    pub convention: &'static str,
    /// The tool, agent or task.
    pub name: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// Who provides it.
    pub provider: Option<String>,
    /// The agent it happened in.
    pub agent: Option<String>,
    /// The id of the call.
    pub call: Option<String>,
    /// What went in, if it is not messages.
    pub input: Option<Value>,
    /// What came out, if it is not messages.
    pub output: Option<Value>,
    /// Messages that a model was asked with.
    pub asked: Vec<Message>,
    /// Messages that it answered.
    pub said: Vec<Message>,
    /// Tools that it was offered.
    pub tools: Option<Value>,
    /// What else the request set.
    pub parameters: Map<String, Value>,
    /// Tokens.
    pub usage: Option<Usage>,
    /// What it cost, in dollars, if the source says so.
    pub cost: Option<f64>,
    /// Why the model stopped.
    pub stop: Option<String>,
    /// The kind of error.
    pub error: Option<String>,
    /// Whether the tool itself says that it failed.
    pub failed: bool,
}

impl Reading {
    /// Nothing but what it is about.
    pub fn new(role: Role, convention: &'static str) -> Self {
        Self {
            role,
            convention,
            name: None,
            model: None,
            provider: None,
            agent: None,
            call: None,
            input: None,
            output: None,
            asked: Vec::new(),
            said: Vec::new(),
            tools: None,
            parameters: Map::new(),
            usage: None,
            cost: None,
            stop: None,
            error: None,
            failed: false,
        }
    }
}

/// Reads a span in whatever convention it speaks, and takes out of its attributes what was understood.
pub fn read(span: &mut Span) -> Reading {
    if let Some(reading) = openinference::read(span) {
        return reading;
    }
    let genai = genai::read(span);
    let traceloop = traceloop::read(span, genai);
    traceloop.unwrap_or_else(|| Reading::new(Role::Plain, "none"))
}

/// Names under which a service says which session something belongs to, the most exact first.
const SESSION: [&str; 14] = [
    "gen_ai.conversation.id",
    "session.id",
    "openinference.session.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.conversation_id",
    "traceloop.association.properties.thread_id",
    "traceloop.association.properties.chat_id",
    "langfuse.session.id",
    "langsmith.trace.session_id",
    "gcp.vertex.agent.session_id",
    "ai.telemetry.metadata.sessionId",
    "conversation.id",
    "conversation_id",
    "session_id",
];

/// Longer than any id.
const LONGEST_SESSION: usize = 256;

/// The session that a span, a record or a whole service says it belongs to.
pub fn session(attributes: &Attributes) -> Option<String> {
    let named = SESSION.iter().find_map(|name| attributes.text(&[name]));
    named.filter(|id| id.len() <= LONGEST_SESSION)
}

/// Tokens, from counts that include what was read from or written to a cache.
pub(crate) fn usage(
    input: Option<u64>,
    output: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
) -> Option<Usage> {
    if input.is_none() && output.is_none() {
        return None;
    }
    let (cache_read, cache_write) = (cache_read.unwrap_or(0), cache_write.unwrap_or(0));
    let all = input.unwrap_or(0);
    // Some instrumentations of Anthropic's API count the cache beside the input, as that API does.
    let plain = all.checked_sub(cache_read.saturating_add(cache_write)).unwrap_or(all);
    Some(Usage {
        input: plain,
        output: output.unwrap_or(0),
        cache_read,
        cache_write,
        reasoning: reasoning.unwrap_or(0),
    })
}
