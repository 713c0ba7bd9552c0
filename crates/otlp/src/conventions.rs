//! Reads a span into one common form, whatever instrumentation wrote it.
//!
//! There is a module for each convention: [`genai`] (OpenTelemetry's own, in the revisions in use), [`openinference`]
//! (Arize, Phoenix), [`traceloop`] (OpenLLMetry), [`agent_message`] (messages between agents), and [`stepback`] (spans that
//! stepback itself exported). A convention takes the attributes it understands out of a span; what
//! is left is kept unchanged. A span can use several at once: OpenLLMetry writes GenAI attributes for model calls, and
//! its own for everything around them.

pub mod agent_message;
pub mod genai;
pub mod openinference;
pub mod stepback;
pub mod traceloop;

use serde_json::{Map, Value};
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::message::AgentMessage;

use self::stepback::ExportedSpan;
use crate::attributes::Attributes;
use crate::messages::GenAiMessage;
use crate::telemetry::Span;

/// What a span is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanRole {
    /// A model call.
    Model,
    /// A tool call or a lookup.
    Tool,
    /// An agent's run.
    Agent,
    /// A part of an agent's work: a workflow, a chain, a node of a graph.
    Task,
    /// A check that allowed or refused something.
    Guard,
    /// A message from one agent to another.
    Message,
    /// Anything else inside the service.
    Plain,
}

/// The common form of a span.
#[derive(Clone, PartialEq, Debug)]
pub struct SpanReading {
    /// What the span is about.
    pub role: SpanRole,
    /// The name of the convention that it was read with.
    pub convention: &'static str,
    /// The name of the tool, agent or task.
    pub name: Option<String>,
    /// The name of the model.
    pub model: Option<String>,
    /// The provider of the model.
    pub provider: Option<String>,
    /// The agent it happened in.
    pub agent: Option<String>,
    /// The id of the task that it is part of.
    pub task: Option<String>,
    /// The id of the call.
    pub call: Option<String>,
    /// The message from one agent to another.
    pub message: Option<AgentMessage>,
    /// The input, if it is not messages.
    pub input: Option<Value>,
    /// The output, if it is not messages.
    pub output: Option<Value>,
    /// The messages sent to a model.
    pub asked: Vec<GenAiMessage>,
    /// The messages that it answered.
    pub said: Vec<GenAiMessage>,
    /// The tools that it was offered.
    pub tools: Option<Value>,
    /// Other parameters of the request.
    pub parameters: Map<String, Value>,
    /// Token counts.
    pub usage: Option<TokenUsage>,
    /// The cost in dollars, if the source reports it.
    pub cost: Option<f64>,
    /// Why the model stopped.
    pub stop: Option<String>,
    /// The type of error.
    pub error: Option<String>,
    /// Whether the tool itself reports that it failed.
    pub failed: bool,
    /// What stepback's own attributes say, if it exported the span.
    pub exported: Option<Box<ExportedSpan>>,
}

impl SpanReading {
    /// Creates a reading with only its role and convention.
    pub fn new(role: SpanRole, convention: &'static str) -> Self {
        Self {
            role,
            convention,
            name: None,
            model: None,
            provider: None,
            agent: None,
            task: None,
            call: None,
            message: None,
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
            exported: None,
        }
    }
}

/// Reads a span in any convention, and removes the attributes that were understood.
pub fn read(span: &mut Span) -> SpanReading {
    let task = task(&span.attributes);
    let exported = stepback::take(&mut span.attributes).map(Box::new);
    let reading = read_by_convention(span);
    let call = exported.as_ref().and_then(|exported| exported.call.clone());
    SpanReading { task, call: reading.call.or(call), exported, ..reading }
}

fn read_by_convention(span: &mut Span) -> SpanReading {
    if let Some(reading) = agent_message::read(span) {
        return reading;
    }
    if let Some(reading) = openinference::read(span) {
        return reading;
    }
    let genai = genai::read(span);
    let traceloop = traceloop::read(span, genai);
    traceloop.unwrap_or_else(|| SpanReading::new(SpanRole::Plain, "none"))
}

/// Attribute names for the session that something belongs to, the most exact first.
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

/// Attribute names for the task that something is part of.
const TASK: [&str; 4] = ["gen_ai.task.id", "task.id", "task_id", "traceloop.association.properties.task_id"];

/// Returns the task that a span names.
fn task(attributes: &Attributes) -> Option<String> {
    TASK.iter().find_map(|name| attributes.text(&[name])).filter(|id| id.len() <= LONGEST_SESSION)
}

/// The longest session id that is accepted.
const LONGEST_SESSION: usize = 256;

/// Returns the session that a span, a record or a whole service names.
pub fn session(attributes: &Attributes) -> Option<String> {
    let session_name = SESSION.iter().find_map(|name| attributes.text(&[name]));
    session_name.filter(|id| id.len() <= LONGEST_SESSION)
}

/// Returns token counts, from totals that include what was read from or written to a cache.
pub(crate) fn usage(
    input: Option<u64>,
    output: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
) -> Option<TokenUsage> {
    if input.is_none() && output.is_none() {
        return None;
    }
    let (cache_read, cache_write) = (cache_read.unwrap_or(0), cache_write.unwrap_or(0));
    let total_input = input.unwrap_or(0);
    // Some instrumentations of Anthropic's API count cache tokens separately from the input, as that API does.
    let uncached_input =
        total_input.checked_sub(cache_read.saturating_add(cache_write)).unwrap_or(total_input);
    Some(TokenUsage {
        input: uncached_input,
        output: output.unwrap_or(0),
        cache_read,
        cache_write,
        reasoning: reasoning.unwrap_or(0),
    })
}
