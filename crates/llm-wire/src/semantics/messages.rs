//! Anthropic Messages.

use serde_json::Value;

use super::{
    ContentPart, Kind, Reading, RequestSummary, ResponseSummary, TextPosition, WireCall, error_of, string,
    text_of,
};
use crate::documents::Documents;

pub(super) fn summarize_request(body: &Value) -> RequestSummary {
    let mut messages = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap_or("user");
        match &message["content"] {
            Value::Array(blocks) => {
                messages.extend(blocks.iter().filter_map(|block| parse_block(role, block)))
            }
            content => messages.push(by_role(role, text_of(content))),
        }
    }
    RequestSummary {
        model: string(&body["model"]),
        system: text_of(&body["system"]),
        messages,
        tools: body["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| string(&tool["name"]))
            .collect(),
        stream: body["stream"] == true,
    }
}

fn by_role(role: &str, text: String) -> ContentPart {
    match role {
        "assistant" => ContentPart::Model(text),
        "system" => ContentPart::System(text),
        _ => ContentPart::User(text),
    }
}

fn parse_block(role: &str, block: &Value) -> Option<ContentPart> {
    Some(match block["type"].as_str().unwrap_or("text") {
        "thinking" => ContentPart::Thought(text_of(&block["thinking"])),
        "redacted_thinking" => return None,
        "tool_use" | "server_tool_use" | "mcp_tool_use" => ContentPart::Call(WireCall {
            id: string(&block["id"]),
            name: text_of(&block["name"]),
            input: block["input"].clone(),
        }),
        kind if kind.ends_with("tool_result") => ContentPart::Result {
            id: string(&block["tool_use_id"]),
            text: text_of(&block["content"]),
            failed: block["is_error"] == true,
        },
        _ => by_role(role, super::part_text(block)),
    })
}

pub(super) fn read(documents: &Documents) -> Reading {
    let mut reading = Reading::default();
    for (at, value) in documents.values().enumerate() {
        match value["type"].as_str() {
            Some("message") => {
                start(&mut reading.rest, value);
                for (index, block) in value["content"].as_array().into_iter().flatten().enumerate() {
                    begin_block(&mut reading, at, index, block, &format!("/content/{index}"), true);
                }
                reading.rest.complete |= documents.is_complete;
            }
            Some("message_start") => start(&mut reading.rest, &value["message"]),
            Some("content_block_start") => {
                begin_block(
                    &mut reading,
                    at,
                    index_of(value),
                    &value["content_block"],
                    "/content_block",
                    false,
                );
            }
            Some("content_block_delta") => add_delta(&mut reading, at, value),
            Some("message_delta") => {
                update_stop_reason(&mut reading.rest, &value["delta"]);
                update_usage(&mut reading.rest, &value["usage"]);
            }
            Some("message_stop") => reading.rest.complete = true,
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

fn index_of(value: &Value) -> usize {
    value["index"].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or(0)
}

fn start(rest: &mut ResponseSummary, message: &Value) {
    rest.model = string(&message["model"]).or(rest.model.take());
    update_stop_reason(rest, message);
    update_usage(rest, &message["usage"]);
}

fn update_stop_reason(rest: &mut ResponseSummary, holder: &Value) {
    rest.stop = string(&holder["stop_reason"]).or(rest.stop.take());
}

/// Reads token counts. The wire sends totals, not differences. Some servers send zero at the beginning, others at the
/// end.
fn update_usage(rest: &mut ResponseSummary, counts: &Value) {
    if !counts.is_object() {
        return;
    }
    let usage = rest.usage.get_or_insert_default();
    let fields: [(&str, &mut u64); 4] = [
        ("input_tokens", &mut usage.input),
        ("output_tokens", &mut usage.output),
        ("cache_read_input_tokens", &mut usage.cache_read),
        ("cache_creation_input_tokens", &mut usage.cache_write),
    ];
    for (name, field) in fields {
        *field = counts[name].as_u64().unwrap_or(0).max(*field);
    }
}

/// Starts a block, which may already have content. In a stream, a block starts with an empty input that has no meaning.
fn begin_block(
    reading: &mut Reading,
    document: usize,
    index: usize,
    block: &Value,
    pointer: &str,
    is_complete: bool,
) {
    let (kind, field) = match block["type"].as_str() {
        Some("text") => (Kind::Text, "text"),
        Some("thinking") => (Kind::Thought, "thinking"),
        Some("tool_use" | "server_tool_use" | "mcp_tool_use") => {
            let (id, name) = (string(&block["id"]), text_of(&block["name"]));
            (Kind::Input { id, name, plain: false }, "input")
        }
        _ => return,
    };
    let value_pointer = format!("{pointer}/{field}");
    let has_content = match &block[field] {
        Value::String(text) => !text.is_empty(),
        Value::Object(map) => is_complete || !map.is_empty(),
        _ => false,
    };
    let is_call = matches!(kind, Kind::Input { .. });
    let slot = reading.slot((index, 0), || kind);
    if has_content {
        slot.pieces.push(if is_call {
            TextPosition::document(document, value_pointer)
        } else {
            TextPosition::text(document, value_pointer)
        });
    }
}

fn add_delta(reading: &mut Reading, document: usize, value: &Value) {
    let (kind, field): (fn() -> Kind, _) = match value["delta"]["type"].as_str() {
        Some("text_delta") => (|| Kind::Text, "text"),
        Some("thinking_delta") => (|| Kind::Thought, "thinking"),
        // A call without its beginning has no name; its input is kept anyway.
        Some("input_json_delta") => {
            (|| Kind::Input { id: None, name: String::new(), plain: false }, "partial_json")
        }
        _ => return,
    };
    if value["delta"][field].is_string() {
        reading
            .slot((index_of(value), 0), kind)
            .pieces
            .push(TextPosition::text(document, format!("/delta/{field}")));
    }
}
