//! OpenInference (Arize, Phoenix): `openinference.span.kind` says what a span is, and messages are flattened into
//! attributes with numbers in their names.

use serde_json::Value;

use super::{SpanReading, SpanRole, usage};
use crate::attributes::{Attributes, document};
use crate::langchain;
use crate::messages::{self, GenAiMessage};
use crate::telemetry::Span;

/// Reads a span of this convention.
pub fn read(span: &mut Span) -> Option<SpanReading> {
    let attributes = &mut span.attributes;
    let kind = attributes.take_text(&["openinference.span.kind"])?;
    let role = match kind.as_str() {
        "LLM" | "EMBEDDING" | "RERANKER" => SpanRole::Model,
        "TOOL" | "RETRIEVER" => SpanRole::Tool,
        "AGENT" => SpanRole::Agent,
        "GUARDRAIL" => SpanRole::Guard,
        _ => SpanRole::Task,
    };
    let mut reading = SpanReading::new(role, "openinference");
    reading.agent = attributes.take_text(&["agent.name"]);
    reading.error = attributes.take_text(&["error.type"]).filter(|kind| !kind.is_empty());
    let (input, output) = (take_value(attributes, "input"), take_value(attributes, "output"));
    reading.asked = take_messages(attributes, "llm.input_messages.", "user");
    reading.said = take_messages(attributes, "llm.output_messages.", "assistant");
    match role {
        SpanRole::Model => {
            read_model_call(attributes, &mut reading);
            // The body of the request repeats the messages, so it is used only if there are none.
            if reading.asked.is_empty() {
                reading.input = input;
            }
            if reading.said.is_empty() {
                reading.output = output;
            }
        }
        SpanRole::Tool => {
            reading.name = attributes.take_text(&["tool.name"]);
            reading.call = attributes.take_text(&["tool_call.id", "tool.id"]);
            let parameters = attributes.take_document(&["tool.parameters", "tool_call.function.arguments"]);
            let documents = attributes.take_flattened("retrieval.documents.");
            reading.input = input.or(parameters);
            let output = langchain::tool_output(documents.or(output).unwrap_or_default());
            reading.call = reading.call.or(output.call);
            reading.failed = output.failed;
            reading.output = Some(output.content).filter(|content| !content.is_null());
        }
        _ => {
            reading.input = input;
            reading.output = output;
        }
    }
    Some(reading)
}

fn take_value(attributes: &mut Attributes, side: &str) -> Option<Value> {
    attributes.take(&[&format!("{side}.mime_type")]);
    attributes.take(&[&format!("{side}.value")]).map(document)
}

fn take_messages(attributes: &mut Attributes, prefix: &str, role: &str) -> Vec<GenAiMessage> {
    let tree = attributes.take_flattened(prefix);
    tree.into_iter().flat_map(|value| messages::read_all(value, role)).collect()
}

fn read_model_call(attributes: &mut Attributes, reading: &mut SpanReading) {
    reading.model = attributes.take_text(&["llm.model_name", "embedding.model_name", "reranker.model_name"]);
    reading.provider = attributes.take_text(&["llm.provider", "llm.system"]);
    attributes.take(&["llm.system"]);
    reading.stop = attributes.take_text(&["llm.finish_reason"]);
    reading.cost = attributes.take_number(&["llm.cost.total"]);
    reading.tools = attributes.take_flattened("llm.tools.").map(tools);
    if let Some(Value::Object(parameters)) = attributes.take_document(&["llm.invocation_parameters"]) {
        reading.parameters = parameters;
        reading.parameters.remove("tools");
    }
    reading.usage = usage(
        attributes.take_count(&["llm.token_count.prompt"]),
        attributes.take_count(&["llm.token_count.completion"]),
        attributes.take_count(&["llm.token_count.prompt_details.cache_read"]),
        attributes.take_count(&["llm.token_count.prompt_details.cache_write"]),
        attributes.take_count(&["llm.token_count.completion_details.reasoning"]),
    );
    attributes.take(&["llm.token_count.total"]);
}

/// Turns `[{"tool": {"json_schema": "{…}"}}]` into the schemas themselves.
fn tools(value: Value) -> Value {
    let Value::Array(items) = value else { return value };
    let schema = |item: Value| match item.pointer("/tool/json_schema") {
        Some(schema) => document(schema.clone()),
        None => item,
    };
    items.into_iter().map(schema).collect()
}
