//! Gemini: `POST …:streamGenerateContent?alt=sse` and `POST …:generateContent`.

use serde_json::{Value, json};

use super::{ConversationItem, ItemRole, ScriptedAnswer};
use crate::model::http::HttpReply;

/// Takes a request apart.
pub fn read(body: &Value) -> Vec<ConversationItem> {
    let mut items: Vec<ConversationItem> = Vec::new();
    let (mut turn, mut model_before) = (0, false);
    // A resumed session contains every result twice: with its call, and as the original message.
    let mut results: Vec<&str> = Vec::new();
    for content in body["contents"].as_array().into_iter().flatten() {
        let model = content["role"] == "model";
        if model && !model_before {
            turn += 1;
        }
        model_before = model;
        for part in content["parts"].as_array().into_iter().flatten() {
            let (call, response) = (&part["functionCall"], &part["functionResponse"]);
            if !call.is_null() {
                items.push(ConversationItem::call(&call["name"], &call["args"], turn));
            } else if !response.is_null() {
                match response["id"].as_str() {
                    Some(id) if results.contains(&id) => continue,
                    id => results.extend(id),
                }
                let output = ["output", "error"].iter().find_map(|key| response["response"][key].as_str());
                let text = output.map_or_else(|| response["response"].to_string(), str::to_owned);
                items.push(ConversationItem::new(ItemRole::Result, text, turn));
            } else if let Some(text) = part["text"].as_str()
                && part["thought"] != true
            {
                items.push(ConversationItem::new(
                    if model { ItemRole::Model } else { ItemRole::User },
                    text,
                    turn,
                ));
            }
        }
    }
    items
}

/// Writes an answer.
pub fn write(answer: &ScriptedAnswer, stream: bool) -> HttpReply {
    let mut parts = Vec::new();
    if let Some(text) = &answer.text {
        parts.push(json!({ "text": text }));
    }
    for (n, call) in answer.calls.iter().enumerate() {
        let id = format!("call_{}n{n}", answer.key);
        parts.push(json!({ "functionCall": { "id": id, "name": call.name, "args": call.input } }));
    }
    let document = json!({
        "candidates": [{ "index": 0, "content": { "role": "model", "parts": parts }, "finishReason": "STOP" }],
        "usageMetadata": { "promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120 },
        "modelVersion": answer.model, "responseId": format!("resp_{}", answer.key),
    });
    if stream {
        HttpReply::Events(vec![(None, document.to_string())])
    } else {
        HttpReply::Json(200, document)
    }
}
