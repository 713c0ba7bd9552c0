//! opencode: a line is a message with its parts, and a tool's result is part of the message that requested it.

use serde_json::Value;
use stepback_model::event::ReportedError;

use super::message::{MessagePart, MessageRole, MessageUsage, TranscriptMessage};
use super::value::{count, flag, list, moment, owned, text};

pub(super) fn messages(lines: impl Iterator<Item = (usize, Value)>) -> Vec<TranscriptMessage> {
    lines.filter_map(|(at, line)| read(at, &line)).collect()
}

fn read(at: usize, line: &Value) -> Option<TranscriptMessage> {
    let info = line.get("info")?;
    let mut message = TranscriptMessage::new(MessageRole::Assistant, at);
    message.id = owned(info, "id");
    message.record.clone_from(&message.id);
    message.at = info.get("time").and_then(|time| moment(time, "created"));
    message.parts = list(line, "parts").iter().flat_map(parts).collect();
    match text(info, "role")? {
        "user" => {
            let own = message.parts.iter().any(|part| !matches!(part, MessagePart::Compaction { .. }));
            message.role = if own { MessageRole::User } else { MessageRole::System };
        }
        "assistant" => {
            message.model = owned(info, "modelID");
            message.usage = info.get("tokens").map(usage);
            if let Some(error) = info.get("error").filter(|error| ReportedError::reported(error).is_some()) {
                let said = error.get("data").and_then(|data| owned(data, "message"));
                let text = said.or_else(|| owned(error, "name")).unwrap_or_else(|| error.to_string());
                message.parts.push(MessagePart::Failure { text });
            }
        }
        _ => return None,
    }
    Some(message)
}

fn parts(part: &Value) -> Vec<MessagePart> {
    match text(part, "type") {
        // Text that opencode itself adds to a prompt.
        Some("text") if flag(part, "synthetic") => Vec::new(),
        Some("text") => vec![MessagePart::Text { text: owned(part, "text").unwrap_or_default() }],
        Some("reasoning") => vec![MessagePart::Thinking { text: owned(part, "text").unwrap_or_default() }],
        Some("tool") => call(part),
        Some("compaction") => vec![MessagePart::Compaction { text: String::new() }],
        Some("step-start" | "step-finish" | "snapshot" | "patch") | None => Vec::new(),
        Some(_) => vec![MessagePart::Other { value: part.clone() }],
    }
}

fn call(part: &Value) -> Vec<MessagePart> {
    let id = owned(part, "callID").unwrap_or_default();
    let state = part.get("state").unwrap_or(&Value::Null);
    let time = |key| state.get("time").and_then(|time| moment(time, key));
    let input = state.get("input").cloned().unwrap_or_default();
    let asked = MessagePart::ToolCall {
        id: id.clone(),
        name: owned(part, "tool").unwrap_or_default(),
        input,
        at: time("start"),
    };
    let (key, status) = match text(state, "status") {
        Some("completed") => ("output", false),
        Some("error") => ("error", true),
        _ => return vec![asked],
    };
    let exit = state.get("metadata").and_then(|data| data.get("exit")).and_then(Value::as_i64);
    let failed = status || exit.is_some_and(|code| code != 0);
    let output = state.get(key).cloned().unwrap_or_default();
    vec![asked, MessagePart::ToolResult { id, output, failed, at: time("end") }]
}

fn usage(tokens: &Value) -> MessageUsage {
    let cache = tokens.get("cache").unwrap_or(&Value::Null);
    MessageUsage {
        input: count(tokens, "input"),
        output: count(tokens, "output") + count(tokens, "reasoning"),
        cache_read: count(cache, "read"),
        cache_write: count(cache, "write"),
    }
}
