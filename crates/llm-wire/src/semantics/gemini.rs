//! Gemini's generateContent and streamGenerateContent.

use serde_json::Value;

use super::{
    ContentPart, Kind, Reading, RequestSummary, TextPosition, TokenUsage, WireCall, error_of, string,
};
use crate::documents::Documents;

pub(super) fn summarize_request(path: &str, body: &Value) -> RequestSummary {
    let address = path.split(['?', '#']).next().unwrap_or_default();
    let (path_prefix, method) = address.rsplit_once(':').unwrap_or((address, ""));
    let named_model = path_prefix.rsplit_once("models/").map(|(_, model)| model.to_owned());
    let model = named_model.or_else(|| string(&body["model"]));
    let body = unwrap_body(body, "request");
    let mut messages = Vec::new();
    for content in body["contents"].as_array().into_iter().flatten() {
        let model = content["role"] == "model";
        messages.extend(parts(content).map(|part| parse_part(model, part)));
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    let declared = tools
        .flat_map(|tool| field_either_case(tool, "functionDeclarations", "function_declarations").as_array());
    let system = field_either_case(body, "systemInstruction", "system_instruction");
    let texts: Vec<&str> = parts(system).filter_map(|part| part["text"].as_str()).collect();
    RequestSummary {
        model,
        system: system.as_str().map_or_else(|| texts.join("\n"), str::to_owned),
        messages,
        tools: declared.flatten().filter_map(|tool| string(&tool["name"])).collect(),
        stream: method == "streamGenerateContent",
    }
}

/// Returns the body without the wrapper that Google's Code Assist adds.
fn unwrap_body<'a>(body: &'a Value, wrapper: &str) -> &'a Value {
    if body[wrapper].is_object() { &body[wrapper] } else { body }
}

/// Returns a field under either of its names: the wire accepts both spellings.
fn field_either_case<'a>(value: &'a Value, camel: &str, snake: &str) -> &'a Value {
    if value[camel].is_null() { &value[snake] } else { &value[camel] }
}

fn parts(content: &Value) -> impl Iterator<Item = &Value> {
    content["parts"].as_array().into_iter().flatten()
}

fn parse_part(model: bool, part: &Value) -> ContentPart {
    let (call, result) = (&part["functionCall"], &part["functionResponse"]);
    if call.is_object() {
        let name = string(&call["name"]).unwrap_or_default();
        return ContentPart::Call(WireCall { id: string(&call["id"]), name, input: call["args"].clone() });
    }
    if result.is_object() {
        let response = &result["response"];
        let failed = !response["error"].is_null();
        let result_text = ["output", "error"].iter().find_map(|key| response[*key].as_str());
        return ContentPart::Result {
            id: string(&result["id"]).or_else(|| string(&result["name"])),
            text: result_text.map_or_else(|| response.to_string(), str::to_owned),
            failed,
        };
    }
    let text = part["text"].as_str().map_or_else(
        || {
            format!(
                "[{}]",
                part.as_object().and_then(|part| part.keys().next()).map_or("part", String::as_str)
            )
        },
        str::to_owned,
    );
    match (model, part["thought"] == true) {
        (true, true) => ContentPart::Thought(text),
        (true, false) => ContentPart::Model(text),
        (false, _) => ContentPart::User(text),
    }
}

pub(super) fn read(documents: &Documents) -> Reading {
    let mut reading = Reading::default();
    for (at, outer) in documents.values().enumerate() {
        let value = unwrap_body(outer, "response");
        let pointer = if std::ptr::eq(outer, value) { "" } else { "/response" };
        let rest = &mut reading.rest;
        rest.model = string(&value["modelVersion"]).or(rest.model.take());
        rest.usage = parse_usage(&value["usageMetadata"]).or(rest.usage);
        if let Some(error) = error_of(value) {
            rest.error = Some(error);
            rest.complete = true;
        }
        if let Some(reason) = value["promptFeedback"]["blockReason"].as_str() {
            rest.stop = Some(reason.to_owned());
            rest.complete = true;
        }
        let candidate = &value["candidates"][0];
        if let Some(reason) = candidate["finishReason"].as_str() {
            rest.stop = Some(reason.to_owned());
            rest.complete = true;
        }
        for (index, part) in parts(&candidate["content"]).enumerate() {
            add_chunk(&mut reading, at, part, &format!("{pointer}/candidates/0/content/parts/{index}"));
        }
    }
    reading
}

/// Adds a chunk. Nothing on this wire says which text a chunk belongs to: it continues the previous one if that is of the
/// same kind.
fn add_chunk(reading: &mut Reading, document: usize, part: &Value, pointer: &str) {
    let next = (reading.slots.len(), 0);
    let call = &part["functionCall"];
    if call.is_object() {
        let name = string(&call["name"]).unwrap_or_default();
        let slot = reading.slot(next, || Kind::Input { id: string(&call["id"]), name, plain: false });
        if call["args"].is_object() {
            slot.pieces.push(TextPosition::document(document, format!("{pointer}/functionCall/args")));
        }
        return;
    }
    if part["text"].as_str().is_none_or(str::is_empty) {
        return;
    }
    let kind = if part["thought"] == true { Kind::Thought } else { Kind::Text };
    let key = reading.slots.last().filter(|slot| slot.kind == kind).map_or(next, |slot| slot.key);
    reading.slot(key, || kind).pieces.push(TextPosition::text(document, format!("{pointer}/text")));
}

/// Reads token counts. On this wire, prompt tokens include those read from a cache, and thoughts are counted separately.
fn parse_usage(counts: &Value) -> Option<TokenUsage> {
    let count = |name: &str| counts[name].as_u64();
    let prompt = count("promptTokenCount")?.saturating_add(count("toolUsePromptTokenCount").unwrap_or(0));
    let cached = count("cachedContentTokenCount").unwrap_or(0);
    let thoughts = count("thoughtsTokenCount").unwrap_or(0);
    Some(TokenUsage {
        input: prompt.saturating_sub(cached),
        output: count("candidatesTokenCount").unwrap_or(0).saturating_add(thoughts),
        cache_read: cached,
        cache_write: 0,
        reasoning: thoughts,
    })
}
