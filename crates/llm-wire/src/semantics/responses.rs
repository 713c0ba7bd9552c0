//! OpenAI Responses.

use serde_json::Value;

use super::{
    ContentPart, Kind, Reading, RequestSummary, ResponseSummary, TextPosition, TokenUsage, WireCall,
    error_of, input_of, string, text_of,
};
use crate::documents::Documents;

pub(super) fn summarize_request(body: &Value) -> RequestSummary {
    let mut messages = Vec::new();
    if let Some(text) = body["input"].as_str() {
        messages.push(ContentPart::User(text.to_owned()));
    }
    messages.extend(body["input"].as_array().into_iter().flatten().filter_map(parse_item));
    let tools = body["tools"].as_array().into_iter().flatten();
    RequestSummary {
        model: string(&body["model"]),
        system: text_of(&body["instructions"]),
        messages,
        tools: tools.filter_map(|tool| string(&tool["name"]).or(string(&tool["type"]))).collect(),
        stream: body["stream"] == true,
    }
}

fn parse_item(item: &Value) -> Option<ContentPart> {
    let kind = item["type"].as_str().unwrap_or("message");
    Some(match kind {
        "message" => {
            let text = text_of(&item["content"]);
            match item["role"].as_str().unwrap_or("user") {
                "assistant" => ContentPart::Model(text),
                "system" | "developer" => ContentPart::System(text),
                _ => ContentPart::User(text),
            }
        }
        "reasoning" => {
            let text = [&item["summary"], &item["content"]].map(text_of).join("");
            if text.is_empty() {
                return None;
            }
            ContentPart::Thought(text)
        }
        _ if kind.ends_with("_output") => ContentPart::Result {
            id: string(&item["call_id"]),
            text: output_text(&item["output"]),
            failed: item["status"] == "failed" || item["output"]["success"] == false,
        },
        _ => ContentPart::Call(parse_call(item)?),
    })
}

/// Returns the text of a result: a text, a list of parts, or an object that holds one of them.
fn output_text(output: &Value) -> String {
    match output {
        Value::Object(map) => map.get("content").map_or_else(|| output.to_string(), text_of),
        other => text_of(other),
    }
}

fn parse_call(item: &Value) -> Option<WireCall> {
    let (name, input) = call_parts(item)?;
    let input = match (&item[input], input) {
        (Value::String(text), "arguments") => input_of(text),
        (other, _) => other.clone(),
    };
    Some(WireCall { id: string(&item["call_id"]).or(string(&item["id"])), name, input })
}

/// Returns the name of a called tool, and the field that holds its input.
fn call_parts(item: &Value) -> Option<(String, &'static str)> {
    let kind = item["type"].as_str()?;
    let base = kind.strip_suffix("_call")?;
    let name = string(&item["name"]).unwrap_or_else(|| base.to_owned());
    Some((
        name,
        match kind {
            "custom_tool_call" => "input",
            "function_call" | "mcp_call" => "arguments",
            _ => "action",
        },
    ))
}

pub(super) fn read(documents: &Documents) -> Reading {
    let mut reading = Reading::default();
    for (index, value) in documents.values().enumerate() {
        let kind = value["type"].as_str().unwrap_or_default();
        let number = |field: &str| value[field].as_u64().and_then(|number| usize::try_from(number).ok());
        let output = number("output_index").unwrap_or(0);
        let within = number("content_index").or_else(|| number("summary_index")).unwrap_or(0);
        match kind {
            "response.output_item.added" => {
                add_item(&mut reading, index, output, &value["item"], "/item", true)
            }
            "response.output_item.done" => {
                add_item(&mut reading, index, output, &value["item"], "/item", false)
            }
            "response.completed" | "response.failed" | "response.incomplete" => {
                add_response(&mut reading, index, &value["response"], "/response");
                reading.rest.complete = true;
            }
            _ if kind.starts_with("response.") => {
                if let Some(model) = value["response"]["model"].as_str() {
                    reading.rest.model = Some(model.to_owned());
                }
                add_chunk(&mut reading, index, kind, (output, within), value);
            }
            _ if value["object"] == "response" => {
                add_response(&mut reading, index, value, "");
                reading.rest.complete |= documents.is_complete;
            }
            _ => {
                if let Some(error) = error_of(value) {
                    reading.rest.error = Some(error);
                    reading.rest.complete = true;
                }
            }
        }
    }
    reading
}

/// Thoughts and texts of one item are numbered separately, so their keys must differ.
const SUMMARY: usize = 1 << 20;
const RAW_THOUGHT: usize = 1 << 21;

/// Adds a chunk of a text, or the repeated text at its end.
fn add_chunk(
    reading: &mut Reading,
    document: usize,
    kind: &str,
    (output, part_index): (usize, usize),
    value: &Value,
) {
    let Some((part_kind, end)) = kind.strip_prefix("response.").and_then(|kind| kind.rsplit_once('.')) else {
        return;
    };
    let input = || Kind::Input {
        id: string(&value["item_id"]),
        name: string(&value["name"]).unwrap_or_default(),
        plain: false,
    };
    let plain_input = || Kind::Input { id: string(&value["item_id"]), name: String::new(), plain: true };
    let (key, make_kind, field): (usize, &dyn Fn() -> Kind, _) = match part_kind {
        "output_text" => (part_index, &|| Kind::Text, "text"),
        "refusal" => (part_index, &|| Kind::Text, "refusal"),
        "reasoning_summary_text" => (SUMMARY + part_index, &|| Kind::Thought, "text"),
        "reasoning_text" => (RAW_THOUGHT + part_index, &|| Kind::Thought, "text"),
        "function_call_arguments" | "mcp_call_arguments" => (0, &input, "arguments"),
        "custom_tool_call_input" => (0, &plain_input, "input"),
        "content_part" | "reasoning_summary_part" => {
            let base = if part_kind == "content_part" { 0 } else { SUMMARY };
            let part = &value["part"];
            if end == "done" {
                part_of(reading, document, (output, base + part_index), part, "/part", base == SUMMARY);
            }
            return;
        }
        _ => return,
    };
    match end {
        "delta" if value["delta"].is_string() => {
            let slot = reading.slot((output, key), make_kind);
            slot.pieces.push(TextPosition::text(document, "/delta"));
        }
        "done" if value[field].is_string() => {
            let slot = reading.slot((output, key), make_kind);
            slot.repeats.push(TextPosition::text(document, format!("/{field}")));
        }
        _ => {}
    }
}

/// Adds a part that is repeated as a whole.
fn part_of(
    reading: &mut Reading,
    index: usize,
    key: (usize, usize),
    part: &Value,
    pointer: &str,
    thought: bool,
) {
    for field in ["text", "refusal"] {
        if part[field].is_string() {
            let slot = reading.slot(key, || if thought { Kind::Thought } else { Kind::Text });
            slot.repeats.push(TextPosition::text(index, format!("{pointer}/{field}")));
        }
    }
}

/// Adds an item, at its start (`is_start`) or complete.
fn add_item(
    reading: &mut Reading,
    document: usize,
    output: usize,
    item: &Value,
    pointer: &str,
    is_start: bool,
) {
    if let Some((name, field)) = call_parts(item) {
        let id = string(&item["call_id"]).or(string(&item["id"]));
        let plain = field == "input";
        let input_kind = Kind::Input { id, name, plain };
        let slot = reading.slot((output, 0), || input_kind.clone());
        slot.kind = input_kind;
        let value_pointer = format!("{pointer}/{field}");
        match &item[field] {
            Value::String(text) if !is_start || !text.is_empty() => {
                slot.repeats.push(TextPosition::text(document, value_pointer))
            }
            Value::Object(_) => slot.repeats.push(TextPosition::document(document, value_pointer)),
            _ => {}
        }
        return;
    }
    if is_start {
        return;
    }
    for (index, part) in item["content"].as_array().into_iter().flatten().enumerate() {
        let thought = item["type"] == "reasoning";
        let key = if thought { RAW_THOUGHT + index } else { index };
        part_of(reading, document, (output, key), part, &format!("{pointer}/content/{index}"), thought);
    }
    for (index, part) in item["summary"].as_array().into_iter().flatten().enumerate() {
        part_of(
            reading,
            document,
            (output, SUMMARY + index),
            part,
            &format!("{pointer}/summary/{index}"),
            true,
        );
    }
}

/// Reads the whole response: the answer to a request without streaming, or the last event of a stream.
fn add_response(reading: &mut Reading, document: usize, response: &Value, pointer: &str) {
    for (index, value) in response["output"].as_array().into_iter().flatten().enumerate() {
        add_item(reading, document, index, value, &format!("{pointer}/output/{index}"), false);
    }
    let rest: &mut ResponseSummary = &mut reading.rest;
    rest.model = string(&response["model"]).or(rest.model.take());
    rest.usage = parse_usage(&response["usage"]).or(rest.usage);
    rest.stop = string(&response["incomplete_details"]["reason"]).or_else(|| string(&response["status"]));
    rest.error = error_of(response).or(rest.error.take());
}

/// Reads token counts. On this wire, input tokens include those read from a cache.
fn parse_usage(counts: &Value) -> Option<TokenUsage> {
    let input = counts["input_tokens"].as_u64()?;
    let cached = counts["input_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
    Some(TokenUsage {
        input: input.saturating_sub(cached),
        output: counts["output_tokens"].as_u64().unwrap_or(0),
        cache_read: cached,
        cache_write: 0,
        reasoning: counts["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap_or(0),
    })
}
