//! opencode: a line is a message with its parts, and a tool's result is part of the message that requested it.

use serde_json::Value;
use stepback_model::event::ReportedError;

use super::message::{MessagePart, MessageRole, MessageUsage, TranscriptMessage};
use super::value::{get_array, get_bool, get_str, get_string, get_timestamp, get_u64};

pub(super) fn parse_messages(lines: impl Iterator<Item = (usize, Value)>) -> Vec<TranscriptMessage> {
    lines.filter_map(|(at, line)| parse_message(at, &line)).collect()
}

fn parse_message(at: usize, line: &Value) -> Option<TranscriptMessage> {
    let info = line.get("info")?;
    let mut message = TranscriptMessage::new(MessageRole::Assistant, at);
    message.id = get_string(info, "id");
    message.record.clone_from(&message.id);
    message.at = info.get("time").and_then(|time| get_timestamp(time, "created"));
    message.parts = get_array(line, "parts").iter().flat_map(parse_part).collect();
    match get_str(info, "role")? {
        "user" => {
            let own = message.parts.iter().any(|part| !matches!(part, MessagePart::Compaction { .. }));
            message.role = if own { MessageRole::User } else { MessageRole::System };
        }
        "assistant" => {
            message.model = get_string(info, "modelID");
            message.usage = info.get("tokens").map(parse_usage);
            if let Some(error) = info.get("error").filter(|error| ReportedError::reported(error).is_some()) {
                let said = error.get("data").and_then(|data| get_string(data, "message"));
                let text = said.or_else(|| get_string(error, "name")).unwrap_or_else(|| error.to_string());
                message.parts.push(MessagePart::Failure { text });
            }
        }
        _ => return None,
    }
    Some(message)
}

fn parse_part(part: &Value) -> Vec<MessagePart> {
    match get_str(part, "type") {
        // Text that opencode itself adds to a prompt.
        Some("text") if get_bool(part, "synthetic") => Vec::new(),
        Some("text") => vec![MessagePart::Text { text: get_string(part, "text").unwrap_or_default() }],
        Some("reasoning") => {
            vec![MessagePart::Thinking { text: get_string(part, "text").unwrap_or_default() }]
        }
        Some("tool") => parse_call(part),
        Some("compaction") => vec![MessagePart::Compaction { text: String::new() }],
        Some("step-start" | "step-finish" | "snapshot" | "patch") | None => Vec::new(),
        Some(_) => vec![MessagePart::Other { value: part.clone() }],
    }
}

fn parse_call(part: &Value) -> Vec<MessagePart> {
    let id = get_string(part, "callID").unwrap_or_default();
    let state = part.get("state").unwrap_or(&Value::Null);
    let time = |key| state.get("time").and_then(|time| get_timestamp(time, key));
    let input = state.get("input").cloned().unwrap_or_default();
    let asked = MessagePart::ToolCall {
        id: id.clone(),
        name: get_string(part, "tool").unwrap_or_default(),
        input,
        at: time("start"),
    };
    let (key, status) = match get_str(state, "status") {
        Some("completed") => ("output", false),
        Some("error") => ("error", true),
        _ => return vec![asked],
    };
    let exit = state.get("metadata").and_then(|data| data.get("exit")).and_then(Value::as_i64);
    let failed = status || exit.is_some_and(|code| code != 0);
    let output = state.get(key).cloned().unwrap_or_default();
    vec![asked, MessagePart::ToolResult { id, output, failed, at: time("end") }]
}

fn parse_usage(tokens: &Value) -> MessageUsage {
    let cache = tokens.get("cache").unwrap_or(&Value::Null);
    MessageUsage {
        input: get_u64(tokens, "input"),
        output: get_u64(tokens, "output").saturating_add(get_u64(tokens, "reasoning")),
        cache_read: get_u64(cache, "read"),
        cache_write: get_u64(cache, "write"),
        reasoning: get_u64(tokens, "reasoning"),
    }
}
