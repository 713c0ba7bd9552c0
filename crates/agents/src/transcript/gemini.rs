//! Gemini CLI: messages are written again under the same id when they change, and lists of them are replaced as a whole.
//!
//! So the lines are first replayed into the resulting list, as Gemini CLI itself loads them, and then parsed.

use std::collections::HashSet;

use serde_json::Value;
use stepback_model::event::ReportedError;

use super::message::{MessagePart, MessageRole, MessageUsage, TranscriptMessage};
use super::value::{get_array, get_str, get_string, get_timestamp, get_u64};

/// The state of a message after some lines.
struct MessageEntry {
    value: Value,
    lines: std::ops::Range<usize>,
    /// Whether this is not a message of Gemini CLI but marks where a part of the list was dropped.
    compaction: bool,
}

pub(super) fn parse_messages(lines: impl Iterator<Item = (usize, Value)>) -> Vec<TranscriptMessage> {
    let mut entries = Vec::new();
    for (at, line) in lines {
        if let Some(to) = get_str(&line, "$rewindTo") {
            let from = entries
                .iter()
                .position(|entry: &MessageEntry| get_str(&entry.value, "id") == Some(to))
                .unwrap_or(0);
            entries.truncate(from);
        } else if line.get("id").is_some() {
            upsert_entry(&mut entries, at, line);
        } else if let Some(set) = line.get("$set").filter(|set| set.get("messages").is_some()) {
            replace_entries(&mut entries, at, get_array(set, "messages"));
        }
    }
    let mut out: Vec<TranscriptMessage> = entries.iter().filter_map(parse_entry).collect();
    attach_results(&mut out, &entries);
    out
}

fn upsert_entry(entries: &mut Vec<MessageEntry>, at: usize, value: Value) {
    match entries.iter_mut().rev().find(|entry| entry.value.get("id") == value.get("id")) {
        Some(entry) => {
            entry.value = value;
            entry.lines.end = at + 1;
        }
        None => entries.push(MessageEntry { value, lines: at..at + 1, compaction: false }),
    }
}

/// Replaces the whole list. Messages that were there keep their lines.
fn replace_entries(entries: &mut Vec<MessageEntry>, at: usize, messages: &[Value]) {
    let ids: HashSet<_> = messages.iter().filter_map(|message| get_str(message, "id")).collect();
    let lost = entries.iter().any(|entry| get_str(&entry.value, "id").is_some_and(|id| !ids.contains(id)));
    let old = std::mem::take(entries);
    if lost {
        entries.push(MessageEntry { value: Value::Null, lines: at..at + 1, compaction: true });
    }
    for message in messages {
        let before = old.iter().find(|entry| entry.value.get("id") == message.get("id"));
        let lines = before.map_or(at..at + 1, |entry| entry.lines.clone());
        entries.push(MessageEntry { value: message.clone(), lines, compaction: false });
    }
}

fn parse_entry(entry: &MessageEntry) -> Option<TranscriptMessage> {
    let value = &entry.value;
    let mut message = TranscriptMessage::new(MessageRole::System, entry.lines.start);
    message.lines = entry.lines.clone();
    if entry.compaction {
        message.parts.push(MessagePart::Compaction { text: String::new() });
        return Some(message);
    }
    message.id = get_string(value, "id");
    message.record.clone_from(&message.id);
    message.at = get_timestamp(value, "timestamp");
    match get_str(value, "type")? {
        "user" => {
            message.parts = parse_contents(value, message.at);
            message.role = if message.result_ids().next().is_some() {
                MessageRole::Tool
            } else if message.text().starts_with("<session_context>") {
                MessageRole::System
            } else {
                MessageRole::User
            };
        }
        "gemini" => {
            message.role = MessageRole::Assistant;
            message.model = get_string(value, "model");
            message.usage = value.get("tokens").map(parse_usage);
            message.parts = get_array(value, "thoughts").iter().map(parse_thought).collect();
            message.parts.extend(parse_contents(value, message.at));
            message.parts.extend(get_array(value, "toolCalls").iter().map(|call| MessagePart::ToolCall {
                id: get_string(call, "id").unwrap_or_default(),
                name: get_string(call, "name").unwrap_or_default(),
                input: call.get("args").cloned().unwrap_or_default(),
                at: message.at,
            }));
        }
        "error" => message.parts.push(MessagePart::Failure { text: join_texts(value) }),
        _ => return None,
    }
    Some(message)
}

/// The outcome of a call is stored with the call, and its output in a separate message, unless the turn was aborted before.
fn attach_results(out: &mut [TranscriptMessage], entries: &[MessageEntry]) {
    let answered: HashSet<String> =
        out.iter().flat_map(|message| message.result_ids().map(str::to_owned)).collect();
    for call in entries.iter().flat_map(|entry| get_array(&entry.value, "toolCalls")) {
        let (Some(id), Some(status)) = (get_str(call, "id"), get_str(call, "status")) else { continue };
        if !matches!(status, "success" | "error" | "cancelled") {
            continue;
        }
        let bad = status != "success";
        let when = get_timestamp(call, "timestamp");
        if answered.contains(id) {
            for part in out.iter_mut().flat_map(|message| &mut message.parts) {
                match part {
                    MessagePart::ToolResult { id: of, failed, at, .. } if of == id => {
                        *failed |= bad;
                        *at = when.or(*at);
                    }
                    _ => {}
                }
            }
        } else if let Some(message) = out.iter_mut().find(|message| message.call_ids().any(|of| of == id)) {
            let output = call.get("result").cloned().unwrap_or_default();
            message.parts.push(MessagePart::ToolResult { id: id.into(), output, failed: bad, at: when });
        }
    }
}

fn parse_contents(value: &Value, at: Option<stepback_model::time::Timestamp>) -> Vec<MessagePart> {
    if let Some(text) = get_str(value, "content") {
        return if text.is_empty() { Vec::new() } else { vec![MessagePart::Text { text: text.into() }] };
    }
    let part = |part: &Value| {
        if let Some(text) = get_string(part, "text") {
            return MessagePart::Text { text };
        }
        let Some(answer) = part.get("functionResponse") else {
            return MessagePart::Other { value: part.clone() };
        };
        let response = answer.get("response").cloned().unwrap_or_default();
        let failed = response.get("error").and_then(ReportedError::reported).is_some();
        let output = response.get("output").cloned().unwrap_or(response);
        MessagePart::ToolResult { id: get_string(answer, "id").unwrap_or_default(), output, failed, at }
    };
    get_array(value, "content").iter().map(part).collect()
}

fn join_texts(value: &Value) -> String {
    let texts = parse_contents(value, None).into_iter().filter_map(|part| match part {
        MessagePart::Text { text } => Some(text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn parse_thought(value: &Value) -> MessagePart {
    let words = [get_str(value, "subject"), get_str(value, "description")];
    MessagePart::Thinking { text: words.into_iter().flatten().collect::<Vec<_>>().join(": ") }
}

fn parse_usage(tokens: &Value) -> MessageUsage {
    let cache_read = get_u64(tokens, "cached");
    MessageUsage {
        input: get_u64(tokens, "input").saturating_sub(cache_read),
        output: get_u64(tokens, "output").saturating_add(get_u64(tokens, "thoughts")),
        cache_read,
        cache_write: 0,
        reasoning: get_u64(tokens, "thoughts"),
    }
}
