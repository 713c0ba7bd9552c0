//! OpenAI Chat Completions: `POST /v1/chat/completions`.

use serde_json::{Value, json};

use super::{ConversationItem, ItemRole, ScriptedAnswer, text_of};
use crate::model::http::HttpReply;

/// Takes a request apart.
pub fn read(body: &Value) -> Vec<ConversationItem> {
    let mut items = Vec::new();
    for (index, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        let text = text_of(&message["content"]);
        match message["role"].as_str() {
            Some("user") => {
                // opencode puts a prompt of several words in quotation marks.
                let unquoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                items.push(ConversationItem::new(ItemRole::User, unquoted.unwrap_or(&text), index));
            }
            Some("tool") => items.push(ConversationItem::new(ItemRole::Result, text, index)),
            Some("assistant") => {
                items.push(ConversationItem::new(ItemRole::Model, text, index));
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    items.push(ConversationItem::call(
                        &call["function"]["name"],
                        &call["function"]["arguments"],
                        index,
                    ));
                }
            }
            _ => {}
        }
    }
    items
}

/// Writes an answer.
pub fn write(answer: &ScriptedAnswer, stream: bool) -> HttpReply {
    let calls: Vec<Value> = answer
        .calls
        .iter()
        .enumerate()
        .map(|(n, call)| {
            json!({
                "index": n, "id": format!("call_{}n{n}", answer.key), "type": "function",
                "function": { "name": call.name, "arguments": call.input.to_string() },
            })
        })
        .collect();
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120 });
    let document = |object: &str, choices: Value| {
        json!({
            "id": format!("chatcmpl-{}", answer.key), "object": object, "created": 1_700_000_000,
            "model": answer.model, "choices": choices,
        })
    };
    if !stream {
        let mut message = json!({ "role": "assistant", "content": answer.text });
        if !calls.is_empty() {
            message["tool_calls"] = Value::Array(calls);
        }
        let choices = json!([{ "index": 0, "message": message, "finish_reason": reason }]);
        let mut response = document("chat.completion", choices);
        response["usage"] = usage;
        return HttpReply::Json(200, response);
    }
    let chunk = |delta: Value, reason: Value| {
        document("chat.completion.chunk", json!([{ "index": 0, "delta": delta, "finish_reason": reason }]))
    };
    let mut events = vec![chunk(json!({ "role": "assistant", "content": "" }), Value::Null)];
    if let Some(text) = &answer.text {
        events.push(chunk(json!({ "content": text }), Value::Null));
    }
    for call in calls {
        events.push(chunk(json!({ "tool_calls": [call] }), Value::Null));
    }
    events.push(chunk(json!({}), json!(reason)));
    let mut last = document("chat.completion.chunk", json!([]));
    last["usage"] = usage;
    events.push(last);
    let data = events.into_iter().map(|event| event.to_string()).chain(["[DONE]".to_owned()]);
    HttpReply::Events(data.map(|data| (None, data)).collect())
}
