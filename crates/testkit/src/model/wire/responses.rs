//! OpenAI Responses: `POST /v1/responses`.

use serde_json::{Value, json};

use super::{ConversationItem, ItemRole, ScriptedAnswer, text_of};
use crate::model::http::HttpReply;

/// Takes a request apart.
pub fn read(body: &Value) -> Vec<ConversationItem> {
    let mut items: Vec<ConversationItem> = Vec::new();
    for (index, item) in body["input"].as_array().into_iter().flatten().enumerate() {
        match item["type"].as_str().unwrap_or("message") {
            "message" => match item["role"].as_str() {
                Some("user") => {
                    items.push(ConversationItem::new(ItemRole::User, text_of(&item["content"]), index))
                }
                Some("assistant") => {
                    let turn = turn_of(item, &items, index);
                    items.push(ConversationItem::new(ItemRole::Model, text_of(&item["content"]), turn));
                }
                _ => {}
            },
            "function_call" => {
                let turn = turn_of(item, &items, index);
                items.push(ConversationItem::call(&item["name"], &item["arguments"], turn));
            }
            "custom_tool_call" => {
                let turn = turn_of(item, &items, index);
                items.push(ConversationItem::call(&item["name"], &item["input"], turn));
            }
            "function_call_output" | "custom_tool_call_output" => {
                let output = &item["output"];
                let content = if output["content"].is_null() { output } else { &output["content"] };
                items.push(ConversationItem::new(ItemRole::Result, text_of(content), index));
            }
            _ => {}
        }
    }
    items
}

/// The answer that an item belongs to: the one its id was made for, or for a foreign id that of its neighbour.
fn turn_of(item: &Value, earlier: &[ConversationItem], index: usize) -> String {
    let ids = [&item["call_id"], &item["id"]].into_iter().filter_map(Value::as_str);
    for id in ids {
        if let Some((_, key)) = id.split_once("_c")
            && key.starts_with(|first: char| first.is_ascii_digit())
        {
            return format!("c{}", key.split('n').next().unwrap_or_default());
        }
    }
    match earlier.last() {
        Some(last) if matches!(last.role, ItemRole::Model | ItemRole::Call) => last.turn.clone(),
        _ => format!("at {index}"),
    }
}

/// Writes an answer.
pub fn write(answer: &ScriptedAnswer, stream: bool) -> HttpReply {
    let mut output = Vec::new();
    if let Some(text) = &answer.text {
        output.push(json!({
            "type": "message", "id": format!("msg_{}", answer.key), "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }],
        }));
    }
    for (n, call) in answer.calls.iter().enumerate() {
        let key = format!("{}n{n}", answer.key);
        output.push(match &call.input {
            Value::String(text) => json!({
                "type": "custom_tool_call", "id": format!("ctc_{key}"), "call_id": format!("call_{key}"),
                "name": call.name, "input": text, "status": "completed",
            }),
            input => json!({
                "type": "function_call", "id": format!("fc_{key}"), "call_id": format!("call_{key}"),
                "name": call.name, "arguments": input.to_string(), "status": "completed",
            }),
        });
    }
    let mut response = json!({
        "id": format!("resp_{}", answer.key), "object": "response", "model": answer.model, "status": "in_progress",
        "output": [],
    });
    let mut events = vec![json!({ "type": "response.created", "response": response })];
    for (index, item) in output.iter().enumerate() {
        let mut started_item = item.clone();
        started_item["status"] = json!("in_progress");
        if item["type"] == "message" {
            started_item["content"] = json!([]);
        }
        events.push(
            json!({ "type": "response.output_item.added", "output_index": index, "item": started_item }),
        );
        if item["type"] == "message" {
            events.push(json!({
                "type": "response.output_text.delta", "item_id": item["id"], "output_index": index,
                "content_index": 0, "delta": answer.text,
            }));
        }
        events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
    }
    response["status"] = json!("completed");
    response["output"] = Value::Array(output);
    response["usage"] = json!({
        "input_tokens": 100, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": 20, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 120,
    });
    if !stream {
        return HttpReply::Json(200, response);
    }
    events.push(json!({ "type": "response.completed", "response": response }));
    let numbered_event = |(number, mut event): (usize, Value)| {
        event["sequence_number"] = json!(number);
        (event["type"].as_str().map(str::to_owned), event.to_string())
    };
    HttpReply::Events(events.into_iter().enumerate().map(numbered_event).collect())
}
