//! Anthropic Messages: `POST /v1/messages`.

use serde_json::{Value, json};

use super::{ConversationItem, ItemRole, ScriptedAnswer, text_of};
use crate::model::http::HttpReply;

/// Takes a request apart.
pub fn read(body: &Value) -> Vec<ConversationItem> {
    let mut items = Vec::new();
    for (index, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        let is_model = match message["role"].as_str() {
            Some("assistant") => ItemRole::Model,
            Some("user") => ItemRole::User,
            _ => continue,
        };
        if let Some(text) = message["content"].as_str() {
            items.push(ConversationItem::new(is_model, text, index));
        }
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("text") => items.push(ConversationItem::new(is_model, text_of(&block["text"]), index)),
                Some("tool_use") => {
                    items.push(ConversationItem::call(&block["name"], &block["input"], index))
                }
                Some("tool_result") => {
                    items.push(ConversationItem::new(ItemRole::Result, text_of(&block["content"]), index))
                }
                _ => {}
            }
        }
    }
    items
}

/// Writes an answer.
pub fn write(answer: &ScriptedAnswer, stream: bool) -> HttpReply {
    let mut blocks = Vec::new();
    if let Some(text) = &answer.text {
        blocks.push(json!({ "type": "text", "text": text }));
    }
    for (n, call) in answer.calls.iter().enumerate() {
        let id = format!("toolu_{}n{n}", answer.key);
        blocks.push(json!({ "type": "tool_use", "id": id, "name": call.name, "input": call.input }));
    }
    let reason = if answer.calls.is_empty() { "end_turn" } else { "tool_use" };
    let message = json!({
        "id": format!("msg_{}", answer.key), "type": "message", "role": "assistant", "model": answer.model,
        "content": blocks, "stop_reason": reason, "stop_sequence": null,
        "usage": { "input_tokens": 100, "output_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0 },
    });
    if stream { HttpReply::Events(events(message)) } else { HttpReply::Json(200, message) }
}

fn events(mut message: Value) -> Vec<(Option<String>, String)> {
    let blocks = message["content"].take();
    let reason = message["stop_reason"].take();
    message["content"] = json!([]);
    let mut events = vec![json!({ "type": "message_start", "message": message })];
    for (index, block) in blocks.as_array().into_iter().flatten().enumerate() {
        let (empty, delta) = if block["type"] == "text" {
            (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": block["text"] }))
        } else {
            let mut empty = block.clone();
            empty["input"] = json!({});
            (empty, json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() }))
        };
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": empty }));
        events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    events.push(json!({
        "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null }, "usage": { "output_tokens": 20 },
    }));
    events.push(json!({ "type": "message_stop" }));
    events.into_iter().map(|event| (event["type"].as_str().map(str::to_owned), event.to_string())).collect()
}
