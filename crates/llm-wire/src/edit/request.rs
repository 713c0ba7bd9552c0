//! Replaces texts of a request in place. Each function returns whether it found what it replaces.

use serde_json::{Value, json};

use crate::Wire;

pub(super) fn set_result(wire: Wire, body: &mut Value, id: &str, text: &str) -> bool {
    match wire {
        Wire::Messages => {
            let blocks = list_items(body, "messages").flat_map(|message| list_items(message, "content"));
            replace_field(blocks.filter(|block| block["tool_use_id"] == id), "content", text)
        }
        Wire::Chat => {
            let results = list_items(body, "messages").filter(|message| message["tool_call_id"] == id);
            replace_field(results, "content", text)
        }
        Wire::Responses => {
            let outputs = list_items(body, "input").filter(|item| {
                item["call_id"] == id && item["type"].as_str().is_some_and(|kind| kind.ends_with("_output"))
            });
            replace_field(outputs, "output", text)
        }
        Wire::Gemini => {
            let parts =
                list_items(gemini_request(body), "contents").flat_map(|content| list_items(content, "parts"));
            let mut replaced = false;
            for response in
                parts.filter_map(|part| part.get_mut("functionResponse")).filter(|part| part.is_object())
            {
                if response["id"] == id || (response["id"].is_null() && response["name"] == id) {
                    let failed = response["response"].get("error").is_some_and(Value::is_string);
                    response["response"] = json!({ (if failed { "error" } else { "output" }): text });
                    replaced = true;
                }
            }
            replaced
        }
    }
}

/// Replaces the text in `field` of each holder. A list of parts keeps the parts that are not text (an image), and gets
/// one part with the new text.
fn replace_field<'a>(holders: impl Iterator<Item = &'a mut Value>, field: &str, text: &str) -> bool {
    let mut replaced = false;
    for holder in holders {
        replaced = true;
        // A result may be an object that holds the content.
        let content = match &mut holder[field] {
            Value::Object(object) if object.contains_key("content") => &mut object["content"],
            content => content,
        };
        match content {
            Value::Array(parts) => replace_text_parts(parts, text),
            content => *content = Value::String(text.to_owned()),
        }
    }
    replaced
}

/// Puts the text into the first text part and removes the other text parts; adds a part if there is none.
fn replace_text_parts(parts: &mut Vec<Value>, text: &str) {
    let is_text = |part: &Value| part.get("text").is_some_and(Value::is_string);
    match parts.iter().position(is_text) {
        Some(first_text) => {
            parts[first_text]["text"] = Value::String(text.to_owned());
            let mut index = 0;
            parts.retain(|part| {
                index += 1;
                index - 1 <= first_text || !is_text(part)
            });
        }
        None => parts.insert(0, json!({ "type": "text", "text": text })),
    }
}

/// The field of a request with the messages, and the field of a message with its content.
fn message_fields(wire: Wire) -> (&'static str, &'static str) {
    match wire {
        Wire::Messages | Wire::Chat => ("messages", "content"),
        Wire::Responses => ("input", "content"),
        Wire::Gemini => ("contents", "parts"),
    }
}

pub(super) fn messages(wire: Wire, body: &mut Value) -> Option<&mut Vec<Value>> {
    let body = if wire == Wire::Gemini { gemini_request(body) } else { body };
    body.get_mut(message_fields(wire).0)?.as_array_mut()
}

pub(super) fn set_message_text(wire: Wire, message: &mut Value, text: &str) -> bool {
    match message.get_mut(message_fields(wire).1) {
        Some(Value::Array(parts)) if parts.iter().any(|part| part["text"].is_string()) => {
            replace_text_parts(parts, text);
            true
        }
        Some(content @ Value::String(_)) => {
            *content = Value::String(text.to_owned());
            true
        }
        _ => false,
    }
}

/// Replaces the first user message that equals `old`; without one, the first occurrence of `old` in a user message.
pub(super) fn set_prompt(wire: Wire, body: &mut Value, old: &str, new: &str) -> bool {
    if let Some(text) = user_texts_mut(wire, body).into_iter().find(|text| *text == old) {
        new.clone_into(text);
        return true;
    }
    if old.is_empty() {
        return false;
    }
    match user_texts_mut(wire, body).into_iter().find(|text| text.contains(old)) {
        Some(text) => {
            *text = text.replacen(old, new, 1);
            true
        }
        None => false,
    }
}

/// Returns every text of a user message, in order.
fn user_texts_mut(wire: Wire, body: &mut Value) -> Vec<&mut String> {
    let (list, content) = message_fields(wire);
    let body = if wire == Wire::Gemini { gemini_request(body) } else { body };
    let Some(list) = body.get_mut(list) else { return Vec::new() };
    let mut texts = Vec::new();
    match list {
        Value::String(text) => texts.push(text),
        Value::Array(messages) => {
            for message in messages {
                let role = message.get("role").and_then(Value::as_str).unwrap_or("user");
                let kind = message.get("type").and_then(Value::as_str).unwrap_or("message");
                if role != "user" || kind != "message" {
                    continue;
                }
                match message.get_mut(content) {
                    Some(Value::String(text)) => texts.push(text),
                    Some(Value::Array(parts)) => {
                        texts.extend(parts.iter_mut().filter_map(|part| match part.get_mut("text") {
                            Some(Value::String(text)) => Some(text),
                            _ => None,
                        }))
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    texts
}

pub(super) fn set_system(wire: Wire, body: &mut Value, text: &str) {
    if !body.is_object() {
        return;
    }
    match wire {
        Wire::Messages => set_text(&mut body["system"], text),
        Wire::Responses => body["instructions"] = json!(text),
        Wire::Chat => {
            let Some(messages) = body.get_mut("messages").and_then(Value::as_array_mut) else { return };
            let leads = |message: &Value| matches!(message["role"].as_str(), Some("system" | "developer"));
            if messages.first().is_some_and(leads) {
                // Several leading ones are one set of instructions, split for a cache.
                let count = messages.iter().take_while(|message| leads(message)).count();
                messages.drain(1..count);
                set_text(&mut messages[0]["content"], text);
            } else {
                messages.insert(0, json!({ "role": "system", "content": text }));
            }
        }
        Wire::Gemini => {
            let body = gemini_request(body);
            let key =
                if body["system_instruction"].is_null() { "systemInstruction" } else { "system_instruction" };
            if key == "systemInstruction"
                && let Some(body) = body.as_object_mut()
            {
                body.remove("system_instruction");
            }
            match &mut body[key] {
                Value::Object(system) => {
                    system.insert("parts".to_owned(), json!([{ "text": text }]));
                }
                other => *other = json!({ "parts": [{ "text": text }] }),
            }
        }
    }
}

fn set_text(content: &mut Value, text: &str) {
    match content {
        Value::Array(parts) => replace_text_parts(parts, text),
        content => *content = Value::String(text.to_owned()),
    }
}

pub(super) fn set_model(wire: Wire, path: &mut String, body: &mut Value, model: &str) {
    if wire != Wire::Gemini {
        if let Some(body) = body.as_object_mut() {
            body.insert("model".to_owned(), json!(model));
        }
        return;
    }
    let end = path.find(['?', '#']).unwrap_or(path.len());
    if let Some(begin) = path[..end].rfind("models/").map(|index| index + "models/".len())
        && let Some(length) = path[begin..end].rfind(':')
    {
        path.replace_range(begin..begin + length, model);
    }
    if let Some(model_field) = body.get_mut("model") {
        *model_field = json!(model);
    }
}

/// Returns the part of a body with the request; Google's Code Assist wraps it.
fn gemini_request(body: &mut Value) -> &mut Value {
    if body.get("request").is_some_and(Value::is_object) { &mut body["request"] } else { body }
}

fn list_items<'a>(value: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}
