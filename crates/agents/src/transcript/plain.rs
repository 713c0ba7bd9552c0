//! Parses messages as frameworks and model APIs write them: `{"role": …, "content": …}` and variants.
//!
//! Agents that report over the network send such messages, and the built-in agent stores its conversation in this form.
//! Content is a text, a list of parts, or one part; it may be called `content`, `text` or `parts`; calls may be in fields
//! beside it.

use serde_json::Value;

use super::message::{MessagePart, MessageRole, TranscriptMessage};
use super::value::{get_array, get_bool, get_str, get_string, get_timestamp};

/// Reads every line. One without an author is kept as it is.
pub(super) fn parse_messages(lines: impl Iterator<Item = (usize, Value)>) -> Vec<TranscriptMessage> {
    let unknown = |at: usize, line: Value| {
        let mut message = TranscriptMessage::new(MessageRole::Unknown, at);
        message.parts = match line {
            Value::String(text) => vec![MessagePart::Text { text }],
            value => vec![MessagePart::Other { value }],
        };
        message
    };
    lines.map(|(at, line)| parse_message(at, &line).unwrap_or_else(|| unknown(at, line))).collect()
}

/// Reads one line, if it names its author.
pub(super) fn parse_message(at: usize, line: &Value) -> Option<TranscriptMessage> {
    // Some frameworks wrap the message in an object with metadata.
    let inner = ["message", "content"].into_iter().filter_map(|name| line.get(name));
    let inner = inner.into_iter().find(|inner| inner.get("role").is_some_and(Value::is_string));
    let value = if line.get("role").is_some_and(Value::is_string) { line } else { inner.unwrap_or(line) };
    let role = match get_str(value, "role").or_else(|| get_str(value, "type"))? {
        "user" | "human" => MessageRole::User,
        "assistant" | "ai" | "model" => MessageRole::Assistant,
        "tool" | "function" => MessageRole::Tool,
        "system" | "developer" => MessageRole::System,
        "function_call" | "custom_tool_call" => MessageRole::Assistant,
        "function_call_output" | "custom_tool_call_output" => MessageRole::Tool,
        _ => return None,
    };
    let mut message = TranscriptMessage::new(role, at);
    message.id = get_string(value, "id").or_else(|| get_string(line, "id"));
    message.model = get_string(value, "model").or_else(|| get_string(line, "model"));
    message.at = ["timestamp", "at", "created_at"]
        .into_iter()
        .find_map(|name| get_timestamp(value, name).or_else(|| get_timestamp(line, name)));
    message.parts = parse_parts(value);
    if let Some(id) = ["tool_call_id", "toolCallId"].into_iter().find_map(|name| get_string(value, name))
        && role == MessageRole::Tool
        && !message.parts.iter().any(|part| matches!(part, MessagePart::ToolResult { .. }))
    {
        let output = value.get("content").or_else(|| value.get("text")).cloned().unwrap_or_default();
        message.parts =
            vec![MessagePart::ToolResult { id, output, failed: has_failed(value), at: message.at }];
    }
    // In the Messages API, results of tools come in messages of the user.
    if role == MessageRole::User && message.result_ids().next().is_some() {
        message.role = MessageRole::Tool;
    }
    Some(message)
}

/// Returns the content of a message, from any of the known fields.
fn parse_parts(value: &Value) -> Vec<MessagePart> {
    let mut parts = Vec::new();
    for name in ["reasoning_content", "thinking"] {
        parts.extend(
            get_string(value, name)
                .filter(|text| !text.is_empty())
                .map(|text| MessagePart::Thinking { text }),
        );
    }
    let content = ["content", "parts", "text"].into_iter().find_map(|name| value.get(name));
    parts.extend(parse_content(content.unwrap_or(&Value::Null)));
    if get_str(value, "type").is_some_and(|kind| kind.contains("call")) && content.is_none() {
        parts.push(parse_part(value));
    }
    parts.extend(get_array(value, "tool_calls").iter().map(parse_call));
    parts.extend(value.get("function_call").filter(|call| call.is_object()).map(parse_call));
    parts
}

fn parse_content(content: &Value) -> Vec<MessagePart> {
    match content {
        Value::Null => Vec::new(),
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![MessagePart::Text { text: text.clone() }],
        Value::Array(all) => all
            .iter()
            .flat_map(|one| match one {
                Value::Object(_) => vec![parse_part(one)],
                other => parse_content(other),
            })
            .collect(),
        Value::Object(fields) => match fields.get("parts").or_else(|| fields.get("content")) {
            Some(inner) if !fields.contains_key("type") => parse_content(inner),
            _ => vec![parse_part(content)],
        },
        other => vec![MessagePart::Other { value: other.clone() }],
    }
}

fn parse_part(value: &Value) -> MessagePart {
    let kind = get_str(value, "type").unwrap_or_default();
    let words =
        ["text", "thinking", "reasoning", "content"].into_iter().find_map(|name| get_string(value, name));
    let is_thought = get_bool(value, "thought") || matches!(kind, "thinking" | "reasoning");
    let inside = |names: [&str; 2]| names.into_iter().find_map(|name| value.get(name));
    match (kind, words) {
        (_, Some(text)) if is_thought => MessagePart::Thinking { text },
        (
            "tool_result"
            | "tool_call_response"
            | "tool-result"
            | "toolResult"
            | "function_call_output"
            | "custom_tool_call_output",
            _,
        ) => parse_result(value),
        (
            "tool_use" | "tool_call" | "tool-call" | "toolCall" | "function_call" | "custom_tool_call"
            | "function",
            _,
        ) => parse_call(value),
        ("" | "text" | "input_text" | "output_text" | "refusal", Some(text)) => MessagePart::Text { text },
        _ => match (
            inside(["functionCall", "function_call"]),
            inside(["functionResponse", "function_response"]),
        ) {
            (Some(asked), _) => parse_call(asked),
            (_, Some(answer)) => parse_result(answer),
            _ => MessagePart::Other { value: value.clone() },
        },
    }
}

/// Reads a call, in the format of any of the APIs.
fn parse_call(value: &Value) -> MessagePart {
    let function = value.get("function").filter(|function| function.is_object()).unwrap_or(value);
    let input = ["input", "arguments", "args", "parameters"].into_iter().find_map(|name| function.get(name));
    let input = match input {
        // OpenAI sends the arguments as JSON in a string.
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_else(|_| text.clone().into()),
        other => other.cloned().unwrap_or_default(),
    };
    let name = ["name", "tool_name", "toolName"].into_iter().find_map(|name| get_string(function, name));
    MessagePart::ToolCall { id: call_id(value), name: name.unwrap_or_default(), input, at: None }
}

/// Reads the result of a tool call.
fn parse_result(value: &Value) -> MessagePart {
    let output = ["content", "output", "response", "result"].into_iter().find_map(|name| value.get(name));
    let failed = has_failed(value);
    MessagePart::ToolResult {
        id: call_id(value),
        output: output.cloned().unwrap_or_default(),
        failed,
        at: None,
    }
}

fn call_id(value: &Value) -> String {
    let names = ["tool_use_id", "tool_call_id", "call_id", "toolCallId", "id"];
    names.into_iter().find_map(|name| get_string(value, name)).unwrap_or_default()
}

fn has_failed(value: &Value) -> bool {
    get_bool(value, "is_error") || get_bool(value, "isError") || get_str(value, "status") == Some("error")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_usual_ways_to_write_a_message_are_read_alike() {
        for (line, role, text) in [
            (json!({ "role": "user", "content": "fix it" }), MessageRole::User, "fix it"),
            (json!({ "role": "human", "text": "fix it" }), MessageRole::User, "fix it"),
            (json!({ "type": "ai", "content": "done" }), MessageRole::Assistant, "done"),
            (
                json!({ "role": "model", "parts": [{ "text": "a" }, { "text": "b" }] }),
                MessageRole::Assistant,
                "a\nb",
            ),
            (
                json!({ "role": "user", "parts": [{ "type": "text", "content": "a" }, "b"] }),
                MessageRole::User,
                "a\nb",
            ),
            (
                json!({ "role": "user", "content": ["a", { "type": "input_text", "text": "b" }] }),
                MessageRole::User,
                "a\nb",
            ),
            (
                json!({ "role": "assistant", "content": { "type": "text", "text": "a" } }),
                MessageRole::Assistant,
                "a",
            ),
            (
                json!({ "content": { "role": "model", "parts": [{ "text": "a" }] } }),
                MessageRole::Assistant,
                "a",
            ),
            (
                json!({ "message": { "role": "developer", "content": "a" }, "id": "m1" }),
                MessageRole::System,
                "a",
            ),
            (json!({ "role": "assistant", "content": null }), MessageRole::Assistant, ""),
        ] {
            let message = parse_message(0, &line).unwrap();
            assert_eq!((message.role, message.text().as_str()), (role, text), "{line}");
        }
        assert_eq!(parse_message(0, &json!({ "speaker": "me" })), None);
    }

    #[test]
    fn calls_and_their_results_are_found() {
        let lines = [
            json!({ "role": "assistant", "content": "Let me look.",
                "tool_calls": [{ "id": "c1", "type": "function", "function": { "name": "sh", "arguments": "{\"command\":\"ls\"}" } }] }),
            json!({ "role": "tool", "tool_call_id": "c1", "content": "a.txt" }),
            json!({ "role": "assistant", "content": [{ "type": "thinking", "thinking": "hm" },
                { "type": "tool_use", "id": "c2", "name": "sh", "input": {} }] }),
            json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": true }] }),
            json!({ "role": "model", "parts": [{ "functionCall": { "id": "c3", "name": "sh", "args": {} } }] }),
            json!({ "type": "function_call", "call_id": "c4", "name": "sh", "arguments": "{}" }),
            json!({ "type": "function_call_output", "call_id": "c4", "output": "ok" }),
        ];
        let all = parse_messages(lines.into_iter().enumerate());
        let calls: Vec<_> = all.iter().flat_map(TranscriptMessage::call_ids).collect();
        assert_eq!(calls, ["c1", "c2", "c3", "c4"]);
        let results: Vec<_> = all.iter().flat_map(TranscriptMessage::result_ids).collect();
        assert_eq!(results, ["c1", "c2", "c4"]);
        assert_eq!(all[3].role, MessageRole::Tool);
        let MessagePart::ToolCall { input, .. } = &all[0].parts[1] else { panic!("{:?}", all[0]) };
        assert_eq!(input["command"], "ls");
        assert!(matches!(&all[3].parts[0], MessagePart::ToolResult { failed: true, .. }));
        assert_eq!(all[1].display_text(), "a.txt");
    }
}
