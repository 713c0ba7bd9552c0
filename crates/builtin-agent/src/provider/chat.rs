//! Translates between the Messages API and a Chat Completions server, for requests and responses.
//!
//! The agent uses one form with every provider, so that recordings can be compared and replayed.

use serde_json::{Value, json};

/// Translates a request body to Chat Completions.
pub fn question(body: &Value) -> Value {
    let mut messages = Vec::new();
    if let Some(system) = body["system"].as_str().filter(|system| !system.is_empty()) {
        messages.push(json!({ "role": "system", "content": system }));
    }
    for message in body["messages"].as_array().map(Vec::as_slice).unwrap_or_default() {
        match message["role"].as_str() {
            Some("assistant") => messages.push(to_assistant_message(&message["content"])),
            _ => messages.extend(to_user_messages(&message["content"])),
        }
    }
    let tools: Vec<Value> = (body["tools"].as_array().map(Vec::as_slice).unwrap_or_default().iter())
        .map(|tool| {
            json!({
                "type": "function",
                "function": {
                    "name": tool["name"],
                    "description": tool["description"],
                    "parameters": tool["input_schema"],
                },
            })
        })
        .collect();
    let mut question = json!({
        "model": body["model"],
        "max_tokens": body["max_tokens"],
        "messages": messages,
        "stream": false,
    });
    if !tools.is_empty() {
        question["tools"] = tools.into();
    }
    question
}

fn content_parts(content: &Value) -> &[Value] {
    content.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn join_text(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_string();
    }
    let texts = content_parts(content)
        .iter()
        .filter(|part| part["type"] == "text")
        .filter_map(|part| part["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// Translates a message of the model.
fn to_assistant_message(content: &Value) -> Value {
    let text = join_text(content);
    let calls: Vec<Value> = (content_parts(content).iter())
        .filter(|part| part["type"] == "tool_use")
        .map(|part| {
            json!({
                "id": part["id"],
                "type": "function",
                "function": { "name": part["name"], "arguments": part["input"].to_string() },
            })
        })
        .collect();
    let mut message =
        json!({ "role": "assistant", "content": if text.is_empty() { Value::Null } else { text.into() } });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// Translates a message of the user and tools: one message for each result, then the text. Results must come right after the
/// calls.
fn to_user_messages(content: &Value) -> Vec<Value> {
    let results = content_parts(content).iter().filter(|part| part["type"] == "tool_result");
    let mut messages: Vec<Value> = results
        .map(|part| {
            let said = join_text(&part["content"]);
            let said = if part["is_error"] == true { format!("Error: {said}") } else { said };
            json!({ "role": "tool", "tool_call_id": part["tool_use_id"], "content": said })
        })
        .collect();
    let text = join_text(content);
    if !text.is_empty() || messages.is_empty() {
        messages.push(json!({ "role": "user", "content": text }));
    }
    messages
}

/// Translates a response body to the Messages API; anything else stays as it is.
pub fn answer(body: &Value) -> Value {
    let choice = &body["choices"][0];
    let message = &choice["message"];
    if !message.is_object() {
        return to_error_body(body);
    }
    let mut content = Vec::new();
    if let Some(text) = message["content"].as_str().filter(|text| !text.is_empty()) {
        content.push(json!({ "type": "text", "text": text }));
    }
    let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (at, call) in calls.iter().enumerate() {
        // Some servers send no ids.
        let id = call["id"].as_str().filter(|id| !id.is_empty());
        let id = id.map_or_else(
            || format!("call_{}_{}", body["id"].as_str().unwrap_or("x"), at + 1),
            str::to_string,
        );
        let arguments = &call["function"]["arguments"];
        let input = match arguments.as_str() {
            // Arguments that are not JSON go to the tool as they are, which reports what is wrong.
            Some(text) => serde_json::from_str(text).unwrap_or_else(|_| json!({ "unreadable": text })),
            None => arguments.clone(),
        };
        content
            .push(json!({ "type": "tool_use", "id": id, "name": call["function"]["name"], "input": input }));
    }
    let stop = match choice["finish_reason"].as_str() {
        _ if !calls.is_empty() => "tool_use",
        Some("length") => "max_tokens",
        _ => "end_turn",
    };
    let usage = &body["usage"];
    let tokens = |field: &str| usage[field].as_u64().unwrap_or_default();
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default();
    let mut used = json!({
        "input_tokens": tokens("prompt_tokens").saturating_sub(cached),
        "output_tokens": tokens("completion_tokens"),
        "cache_read_input_tokens": cached,
    });
    if usage["cost"].is_number() {
        used["cost"] = usage["cost"].clone();
    }
    json!({
        "id": body["id"],
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": stop,
        "usage": used,
    })
}

fn to_error_body(body: &Value) -> Value {
    let error = &body["error"];
    let said = error["message"].as_str().or_else(|| error.as_str()).or_else(|| body["message"].as_str());
    let name = error["type"].as_str().unwrap_or("error");
    json!({ "type": "error", "error": { "type": name, "message": said.unwrap_or("no reason was given") } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_keeps_its_calls_and_results_together() {
        let body = json!({
            "model": "m", "max_tokens": 10, "system": "be good", "stream": false,
            "tools": [{ "name": "bash", "description": "runs", "input_schema": { "type": "object" } }],
            "messages": [
                { "role": "user", "content": "go" },
                { "role": "assistant", "content": [
                    { "type": "text", "text": "I look" },
                    { "type": "tool_use", "id": "c1", "name": "bash", "input": { "command": "ls" } },
                ] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "c1", "content": "a", "is_error": true },
                    { "type": "text", "text": "hurry" },
                ] },
            ],
        });
        let asked = question(&body);
        let roles: Vec<&str> = asked["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        assert_eq!(asked["messages"][2]["tool_calls"][0]["function"]["arguments"], r#"{"command":"ls"}"#);
        assert_eq!(
            asked["messages"][3],
            json!({ "role": "tool", "tool_call_id": "c1", "content": "Error: a" })
        );
        assert_eq!(asked["tools"][0]["function"]["parameters"], json!({ "type": "object" }));
    }

    #[test]
    fn an_answer_says_the_same() {
        let body = json!({
            "id": "x", "model": "m", "usage": { "prompt_tokens": 10, "completion_tokens": 2 },
            "choices": [{ "finish_reason": "tool_calls", "message": { "content": "hm", "tool_calls": [
                { "id": "c1", "function": { "name": "bash", "arguments": "{\"command\": \"ls\"}" } },
                { "function": { "name": "read", "arguments": "{broken" } },
            ] } }],
        });
        let said = answer(&body);
        assert_eq!(said["content"][0], json!({ "type": "text", "text": "hm" }));
        assert_eq!(said["content"][1]["input"], json!({ "command": "ls" }));
        assert_eq!(said["content"][2]["input"], json!({ "unreadable": "{broken" }));
        assert_eq!(said["content"][2]["id"], "call_x_2");
        assert_eq!((&said["stop_reason"], &said["usage"]["input_tokens"]), (&json!("tool_use"), &json!(10)));
        let refused = answer(&json!({ "error": { "message": "no such model", "type": "not_found" } }));
        assert_eq!(refused["error"]["message"], "no such model");
    }
}
