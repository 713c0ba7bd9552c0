//! OpenTelemetry's own conventions for generative AI, in the revisions in use.
//!
//! | what | since 1.37 | 1.28 to 1.36 | before |
//! |---|---|---|---|
//! | provider of the model | `gen_ai.provider.name` | `gen_ai.system` | `gen_ai.system` |
//! | messages | `gen_ai.{input,output}.messages` | records `gen_ai.user.message`, … | span events `gen_ai.content.prompt`, … |
//! | tokens | `gen_ai.usage.input_tokens` | the same | `gen_ai.usage.prompt_tokens` |
//!
//! Messages in log records are collected where records are turned into events.

use serde_json::Value;

use super::{SpanReading, SpanRole, usage};
use crate::attributes::Attributes;
use crate::messages::{self, GenAiMessage};
use crate::telemetry::{Span, SpanEvent};

/// Reads a span of this convention.
pub fn read(span: &mut Span) -> Option<SpanReading> {
    let attributes = &mut span.attributes;
    let operation = attributes.text(&["gen_ai.operation.name", "llm.request.type"]);
    let role = match operation.as_deref() {
        Some(operation) => span_role(operation, attributes),
        None if attributes.has_prefix("gen_ai.request.") || attributes.has_prefix("gen_ai.completion.") => {
            SpanRole::Model
        }
        None if attributes.get("gen_ai.tool.name").is_some() => SpanRole::Tool,
        None => return None,
    };
    let mut reading = SpanReading::new(role, "genai");
    reading.provider = attributes.take_text(&["gen_ai.provider.name", "gen_ai.system"]);
    attributes.take(&["gen_ai.system"]);
    reading.agent = attributes.take_text(&["gen_ai.agent.name"]);
    reading.model = attributes.take_text(&["gen_ai.response.model"]);
    // The requested model stays among the parameters: it may differ from the one that answered.
    let asked_for = attributes.text(&["gen_ai.request.model"]);
    reading.model = reading.model.or(asked_for);
    reading.error = attributes.take_text(&["error.type"]).filter(|kind| !kind.is_empty());
    reading.cost = attributes.take_number(&[
        "operation.cost",
        "gen_ai.usage.cost",
        "gen_ai.cost.total",
        "gen_ai.usage.cost_usd",
    ]);
    match role {
        SpanRole::Model => read_model_call(span, &mut reading),
        SpanRole::Tool => read_tool_call(attributes, &mut reading, operation.as_deref()),
        _ => {
            let names: &[&str] = match role {
                SpanRole::Task => &["gen_ai.task.name", "gen_ai.workflow.name"],
                _ => &["gen_ai.workflow.name"],
            };
            reading.name = attributes.take_text(names);
            reading.asked = take_input_messages(attributes);
            reading.said = take_output_messages(attributes);
            reading.input = attributes.take_document(&["gen_ai.task.input"]);
            reading.output = attributes.take_document(&["gen_ai.task.output", "final_result"]);
        }
    }
    attributes_done(&mut span.attributes);
    Some(reading)
}

fn span_role(operation: &str, attributes: &Attributes) -> SpanRole {
    match operation {
        "chat" | "completion" | "text_completion" | "generate_content" | "embeddings" | "embedding"
        | "rerank" => SpanRole::Model,
        "execute_tool" | "retrieval" => SpanRole::Tool,
        "invoke_agent" => SpanRole::Agent,
        "invoke_workflow" | "plan" | "execute_task" | "create_agent" => SpanRole::Task,
        memory if memory.ends_with("_memory") => SpanRole::Tool,
        _ if attributes.get("gen_ai.request.model").is_some() => SpanRole::Model,
        _ => SpanRole::Task,
    }
}

/// Removes attributes that were already read under other names.
fn attributes_done(attributes: &mut Attributes) {
    attributes.take(&["gen_ai.operation.name"]);
    attributes.take(&["llm.request.type"]);
}

fn read_model_call(span: &mut Span, reading: &mut SpanReading) {
    let attributes = &mut span.attributes;
    reading.asked = take_input_messages(attributes);
    reading.said = take_output_messages(attributes);
    for moment in std::mem::take(&mut span.events) {
        if let Some(moment) = read_message_event(moment, reading) {
            span.events.push(moment);
        }
    }
    reading.tools = attributes.take_document(&["gen_ai.tool.definitions", "llm.request.functions"]);
    reading.stop = attributes.take_texts(&["gen_ai.response.finish_reasons"]).into_iter().next();
    let details = attributes.take_count(&["gen_ai.usage.details.reasoning_tokens"]);
    reading.usage = usage(
        attributes.take_count(&["gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"]),
        attributes.take_count(&["gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"]),
        attributes
            .take_count(&["gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"]),
        attributes.take_count(&[
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
        ]),
        attributes
            .take_count(&["gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens"])
            .or(details),
    );
    if let Some(Value::Object(parameters)) = attributes.take_flattened("gen_ai.request.") {
        reading.parameters = parameters;
    }
}

fn read_tool_call(attributes: &mut Attributes, reading: &mut SpanReading, operation: Option<&str>) {
    reading.name = attributes.take_text(&["gen_ai.tool.name", "gen_ai.data_source.id"]);
    if reading.name.is_none() {
        reading.name = operation.map(str::to_owned);
    }
    reading.call = attributes.take_text(&["gen_ai.tool.call.id"]);
    reading.input = attributes.take_document(&[
        "gen_ai.tool.call.arguments",
        "gen_ai.retrieval.query.text",
        "tool_arguments",
    ]);
    reading.output =
        attributes.take_document(&["gen_ai.tool.call.result", "gen_ai.retrieval.documents", "tool_response"]);
}

/// Returns the instructions and messages that a model or an agent was given.
pub(crate) fn take_input_messages(attributes: &mut Attributes) -> Vec<GenAiMessage> {
    let instructions = attributes.take_document(&["gen_ai.system_instructions"]);
    let mut asked = Vec::new();
    if let Some(instructions) = instructions {
        let parts = match instructions {
            Value::Array(parts) => Value::Array(parts),
            one => Value::Array(vec![one]),
        };
        asked.push(GenAiMessage::read(serde_json::json!({ "parts": parts }), "system"));
    }
    let messages = attributes.take(&["gen_ai.input.messages"]);
    asked.extend(messages.into_iter().flat_map(|value| messages::read_all(value, "user")));
    if asked.iter().all(|message| message.role == "system") {
        // OpenLLMetry's older form.
        let flattened = attributes.take_flattened("gen_ai.prompt.");
        asked.extend(flattened.into_iter().flat_map(|value| messages::read_all(value, "user")));
    }
    asked.retain(|message| !message.is_empty());
    asked
}

/// Returns the messages of the answer.
pub(crate) fn take_output_messages(attributes: &mut Attributes) -> Vec<GenAiMessage> {
    let messages = attributes.take(&["gen_ai.output.messages"]);
    let mut said: Vec<_> =
        messages.into_iter().flat_map(|value| messages::read_all(value, "assistant")).collect();
    if said.is_empty() {
        let flattened = attributes.take_flattened("gen_ai.completion.");
        said.extend(flattened.into_iter().flat_map(|value| messages::read_all(value, "assistant")));
    }
    said
}

/// Reads a message that came as an event of the span, in the form before 1.37; any other event is returned.
fn read_message_event(mut moment: SpanEvent, reading: &mut SpanReading) -> Option<SpanEvent> {
    match moment.name.as_str() {
        "gen_ai.content.prompt" => {
            let prompt = moment.attributes.take(&["gen_ai.prompt"])?;
            reading.asked.extend(messages::read_all(prompt, "user"));
        }
        "gen_ai.content.completion" => {
            let completion = moment.attributes.take(&["gen_ai.completion"])?;
            reading.said.extend(messages::read_all(completion, "assistant"));
        }
        "gen_ai.client.inference.operation.details" => {
            reading.asked.extend(take_input_messages(&mut moment.attributes));
            reading.said.extend(take_output_messages(&mut moment.attributes));
        }
        name => {
            let Some(role) = role_of(name) else { return Some(moment) };
            let body = moment.attributes.rest()?;
            into(role, body, &mut reading.asked, &mut reading.said);
        }
    }
    None
}

/// Returns the role of the author for an event or a record of this name.
pub(crate) fn role_of(name: &str) -> Option<&str> {
    match name.strip_prefix("gen_ai.")? {
        "choice" => Some("choice"),
        rest => rest.strip_suffix(".message"),
    }
}

/// Adds a message from the body of an event to the list it belongs to.
pub(crate) fn into(role: &str, body: Value, asked: &mut Vec<GenAiMessage>, said: &mut Vec<GenAiMessage>) {
    let (to, role, body) = match (role, body) {
        ("choice", Value::Object(mut fields)) => {
            let inner = match fields.remove("message") {
                Some(inner) => inner,
                None => Value::Object(fields),
            };
            (said, "assistant", inner)
        }
        ("choice", other) => (said, "assistant", other),
        (role, other) => (asked, role, other),
    };
    let message = GenAiMessage::read(body, role);
    if !message.is_empty() {
        to.push(message);
    }
}
