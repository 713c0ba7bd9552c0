//! Gemini CLI: messages are written again under the same id when they change, and lists of them are replaced as a whole.
//!
//! So the lines are first replayed into the resulting list, as Gemini CLI itself loads them, and then parsed.

use std::collections::HashSet;

use serde_json::Value;
use stepback_model::event::ReportedError;

use super::message::{MessagePart, MessageRole, MessageUsage, TranscriptMessage};
use super::value::{count, list, moment, owned, text};

/// The state of a message after some lines.
struct Entry {
    value: Value,
    lines: std::ops::Range<usize>,
    /// Whether this is not a message of Gemini CLI but marks where a part of the list was dropped.
    compaction: bool,
}

pub(super) fn messages(lines: impl Iterator<Item = (usize, Value)>) -> Vec<TranscriptMessage> {
    let mut entries = Vec::new();
    for (at, line) in lines {
        if let Some(to) = text(&line, "$rewindTo") {
            let from =
                entries.iter().position(|entry: &Entry| text(&entry.value, "id") == Some(to)).unwrap_or(0);
            entries.truncate(from);
        } else if line.get("id").is_some() {
            put(&mut entries, at, line);
        } else if let Some(set) = line.get("$set").filter(|set| set.get("messages").is_some()) {
            replace(&mut entries, at, list(set, "messages"));
        }
    }
    let mut out: Vec<TranscriptMessage> = entries.iter().filter_map(read).collect();
    answer_calls(&mut out, &entries);
    out
}

fn put(entries: &mut Vec<Entry>, at: usize, value: Value) {
    match entries.iter_mut().rev().find(|entry| entry.value.get("id") == value.get("id")) {
        Some(entry) => {
            entry.value = value;
            entry.lines.end = at + 1;
        }
        None => entries.push(Entry { value, lines: at..at + 1, compaction: false }),
    }
}

/// Replaces the whole list. Messages that were there keep their lines.
fn replace(entries: &mut Vec<Entry>, at: usize, messages: &[Value]) {
    let ids: HashSet<_> = messages.iter().filter_map(|message| text(message, "id")).collect();
    let lost = entries.iter().any(|entry| text(&entry.value, "id").is_some_and(|id| !ids.contains(id)));
    let old = std::mem::take(entries);
    if lost {
        entries.push(Entry { value: Value::Null, lines: at..at + 1, compaction: true });
    }
    for message in messages {
        let before = old.iter().find(|entry| entry.value.get("id") == message.get("id"));
        let lines = before.map_or(at..at + 1, |entry| entry.lines.clone());
        entries.push(Entry { value: message.clone(), lines, compaction: false });
    }
}

fn read(entry: &Entry) -> Option<TranscriptMessage> {
    let value = &entry.value;
    let mut message = TranscriptMessage::new(MessageRole::System, entry.lines.start);
    message.lines = entry.lines.clone();
    if entry.compaction {
        message.parts.push(MessagePart::Compaction { text: String::new() });
        return Some(message);
    }
    message.id = owned(value, "id");
    message.record.clone_from(&message.id);
    message.at = moment(value, "timestamp");
    match text(value, "type")? {
        "user" => {
            message.parts = contents(value, message.at);
            message.role = if message.results().next().is_some() {
                MessageRole::Tool
            } else if message.text().starts_with("<session_context>") {
                MessageRole::System
            } else {
                MessageRole::User
            };
        }
        "gemini" => {
            message.role = MessageRole::Assistant;
            message.model = owned(value, "model");
            message.usage = value.get("tokens").map(usage);
            message.parts = list(value, "thoughts").iter().map(thought).collect();
            message.parts.extend(contents(value, message.at));
            message.parts.extend(list(value, "toolCalls").iter().map(|call| MessagePart::ToolCall {
                id: owned(call, "id").unwrap_or_default(),
                name: owned(call, "name").unwrap_or_default(),
                input: call.get("args").cloned().unwrap_or_default(),
                at: message.at,
            }));
        }
        "error" => message.parts.push(MessagePart::Failure { text: plain(value) }),
        _ => return None,
    }
    Some(message)
}

/// The outcome of a call is stored with the call, and its output in a separate message, unless the turn was aborted before.
fn answer_calls(out: &mut [TranscriptMessage], entries: &[Entry]) {
    let answered: HashSet<String> =
        out.iter().flat_map(|message| message.results().map(str::to_owned)).collect();
    for call in entries.iter().flat_map(|entry| list(&entry.value, "toolCalls")) {
        let (Some(id), Some(status)) = (text(call, "id"), text(call, "status")) else { continue };
        if !matches!(status, "success" | "error" | "cancelled") {
            continue;
        }
        let bad = status != "success";
        let when = moment(call, "timestamp");
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
        } else if let Some(message) = out.iter_mut().find(|message| message.calls().any(|of| of == id)) {
            let output = call.get("result").cloned().unwrap_or_default();
            message.parts.push(MessagePart::ToolResult { id: id.into(), output, failed: bad, at: when });
        }
    }
}

fn contents(value: &Value, at: Option<stepback_model::time::Timestamp>) -> Vec<MessagePart> {
    if let Some(text) = text(value, "content") {
        return if text.is_empty() { Vec::new() } else { vec![MessagePart::Text { text: text.into() }] };
    }
    let part = |part: &Value| {
        if let Some(text) = owned(part, "text") {
            return MessagePart::Text { text };
        }
        let Some(answer) = part.get("functionResponse") else {
            return MessagePart::Other { value: part.clone() };
        };
        let response = answer.get("response").cloned().unwrap_or_default();
        let failed = response.get("error").and_then(ReportedError::reported).is_some();
        let output = response.get("output").cloned().unwrap_or(response);
        MessagePart::ToolResult { id: owned(answer, "id").unwrap_or_default(), output, failed, at }
    };
    list(value, "content").iter().map(part).collect()
}

fn plain(value: &Value) -> String {
    let texts = contents(value, None).into_iter().filter_map(|part| match part {
        MessagePart::Text { text } => Some(text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn thought(value: &Value) -> MessagePart {
    let words = [text(value, "subject"), text(value, "description")];
    MessagePart::Thinking { text: words.into_iter().flatten().collect::<Vec<_>>().join(": ") }
}

fn usage(tokens: &Value) -> MessageUsage {
    let cache_read = count(tokens, "cached");
    MessageUsage {
        input: count(tokens, "input").saturating_sub(cache_read),
        output: count(tokens, "output") + count(tokens, "thoughts"),
        cache_read,
        cache_write: 0,
    }
}
