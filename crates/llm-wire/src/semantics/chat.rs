//! OpenAI Chat Completions, and the many servers that speak it.

use serde_json::Value;

use super::{
    ContentPart, Kind, Reading, RequestSummary, TextPosition, TokenUsage, WireCall, error_of, input_of,
    string, text_of,
};
use crate::documents::Documents;

/// The fields in which servers put thoughts. The first is DeepSeek's, the second OpenRouter's.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];

pub(super) fn summarize_request(body: &Value) -> RequestSummary {
    let mut system: Vec<String> = Vec::new();
    let mut messages = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let text = text_of(&message["content"]);
        match message["role"].as_str().unwrap_or("user") {
            "system" | "developer" if messages.is_empty() => system.push(text),
            "system" | "developer" => messages.push(ContentPart::System(text)),
            "assistant" => {
                let thought = THOUGHTS.iter().find_map(|key| message[*key].as_str());
                messages.extend(thought.map(|text| ContentPart::Thought(text.to_owned())));
                if !text.is_empty() {
                    messages.push(ContentPart::Model(text));
                }
                messages.extend(parse_calls(message));
            }
            "tool" | "function" => {
                let id = string(&message["tool_call_id"]).or_else(|| string(&message["name"]));
                messages.push(ContentPart::Result { id, text, failed: false });
            }
            _ => messages.push(ContentPart::User(text)),
        }
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    RequestSummary {
        model: string(&body["model"]),
        system: system.join("\n"),
        messages,
        tools: tools.filter_map(|tool| string(&tool["function"]["name"]).or(string(&tool["name"]))).collect(),
        stream: body["stream"] == true,
    }
}

fn parse_calls(message: &Value) -> impl Iterator<Item = ContentPart> {
    message["tool_calls"].as_array().into_iter().flatten().map(|call| {
        let input = match &call["function"]["arguments"] {
            Value::String(text) => input_of(text),
            other => other.clone(),
        };
        ContentPart::Call(WireCall {
            id: string(&call["id"]),
            name: text_of(&call["function"]["name"]),
            input,
        })
    })
}

pub(super) fn read(documents: &Documents) -> Reading {
    let mut reading = Reading::default();
    let mut finished = false;
    for (index, value) in documents.values().enumerate() {
        let rest = &mut reading.rest;
        rest.model = string(&value["model"]).or(rest.model.take());
        if let Some(counted) = parse_usage(&value["usage"]) {
            rest.usage = Some(counted);
        }
        if let Some(error) = error_of(value) {
            rest.error = Some(error);
            finished = true;
        }
        // Agents never ask for more than one answer at once; of several, the first is read.
        let choice = &value["choices"][0];
        if let Some(reason) = choice["finish_reason"].as_str() {
            rest.stop = Some(reason.to_owned());
            finished = true;
        }
        for holder in ["message", "delta"] {
            if choice[holder].is_object() {
                add_message(&mut reading, index, &choice[holder], &format!("/choices/0/{holder}"));
            }
        }
    }
    reading.rest.complete = finished || documents.is_complete;
    reading
}

fn add_message(reading: &mut Reading, document: usize, message: &Value, pointer: &str) {
    const THOUGHT: (usize, usize) = (0, 0);
    const TEXT: (usize, usize) = (0, 1);
    const REFUSAL: (usize, usize) = (0, 2);
    let has_text = |field: &str| message[field].as_str().is_some_and(|text| !text.is_empty());
    if let Some(field) = THOUGHTS.into_iter().find(|field| has_text(field)) {
        let slot = reading.slot(THOUGHT, || Kind::Thought);
        slot.pieces.push(TextPosition::text(document, format!("{pointer}/{field}")));
    }
    for (key, field) in [(TEXT, "content"), (REFUSAL, "refusal")] {
        if has_text(field) {
            reading
                .slot(key, || Kind::Text)
                .pieces
                .push(TextPosition::text(document, format!("{pointer}/{field}")));
        }
    }
    for (position, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let index = index_of(reading, call, position);
        let function = &call["function"];
        let slot = reading.slot((1, index), || Kind::Input { id: None, name: String::new(), plain: false });
        if let Kind::Input { id, name, .. } = &mut slot.kind {
            *id = string(&call["id"]).filter(|id| !id.is_empty()).or(id.take());
            if let Some(chunk) = function["name"].as_str().filter(|chunk| !chunk.is_empty()) {
                chunk.clone_into(name);
            }
        }
        let pointer = format!("{pointer}/tool_calls/{position}/function/arguments");
        match &function["arguments"] {
            Value::String(_) => slot.pieces.push(TextPosition::text(document, pointer)),
            Value::Object(_) => slot.pieces.push(TextPosition::document(document, pointer)),
            _ => {}
        }
    }
}

/// Returns the index of the call that a chunk belongs to. Some servers omit the index and send every call complete; then
/// a new id starts a new call.
fn index_of(reading: &Reading, call: &Value, position: usize) -> usize {
    if let Some(index) = call["index"].as_u64() {
        return usize::try_from(index).unwrap_or(position);
    }
    let Some(new) = call["id"].as_str().filter(|id| !id.is_empty()) else { return position };
    let mut calls = reading.slots.iter().filter_map(|slot| match &slot.kind {
        Kind::Input { id, .. } => Some((id.as_deref(), slot.key.1)),
        _ => None,
    });
    let count = calls.clone().count();
    calls.find(|(id, _)| *id == Some(new)).map_or(count, |(_, index)| index)
}

/// Reads token counts. On this wire, prompt tokens include those read from a cache.
fn parse_usage(counts: &Value) -> Option<TokenUsage> {
    let prompt = counts["prompt_tokens"].as_u64()?;
    let cached = counts["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
    Some(TokenUsage {
        input: prompt.saturating_sub(cached),
        output: counts["completion_tokens"].as_u64().unwrap_or(0),
        cache_read: cached,
        cache_write: 0,
        reasoning: counts["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap_or(0),
    })
}
