//! Claude Code: every line has one block of an answer; blocks with the same message id are joined.

use std::path::Path;

use serde_json::Value;

use super::message::{MessagePart, MessageRole, MessageUsage, TranscriptMessage};
use super::value::{count, flag, list, moment, owned, text};

/// Returns the folder under `projects` in which Claude Code keeps the conversations of a directory.
pub fn project_folder(cwd: &Path) -> String {
    const MAX_DIR_NAME_UNITS: usize = 200;
    let path = cwd.to_string_lossy();
    // Claude Code counts and hashes UTF-16 units, as JavaScript does.
    let units: Vec<u16> = path.encode_utf16().collect();
    let plain =
        |unit: &u16| u8::try_from(*unit).ok().filter(u8::is_ascii_alphanumeric).map_or('-', char::from);
    let name: String = units.iter().take(MAX_DIR_NAME_UNITS).map(plain).collect();
    if units.len() <= MAX_DIR_NAME_UNITS {
        return name;
    }
    let hash = units.iter().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(*unit)));
    format!("{name}-{}", base36(hash.unsigned_abs()))
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

/// Whether a line comes right before a prompt and belongs to it.
pub(super) fn leads_prompt(line: &Value) -> bool {
    match text(line, "type") {
        Some("queue-operation") => true,
        // Claude Code adds this when a conversation continues that ended in the middle of a turn.
        Some("user") => flag(line, "isMeta"),
        Some("assistant") => line.get("message").is_some_and(invented),
        _ => false,
    }
}

/// Whether an answer was made by Claude Code itself, not by a model.
fn invented(body: &Value) -> bool {
    text(body, "model") == Some("<synthetic>")
}

pub(super) fn messages(lines: impl Iterator<Item = (usize, Value)>) -> Vec<TranscriptMessage> {
    let mut out = Vec::new();
    for (at, line) in lines {
        match text(&line, "type") {
            Some("assistant") => answer(&mut out, at, &line),
            Some("user") => out.extend(said(at, &line)),
            Some("system") => out.extend(notice(at, &line)),
            _ => {}
        }
    }
    out
}

fn begin(role: MessageRole, at: usize, line: &Value) -> TranscriptMessage {
    let mut message = TranscriptMessage::new(role, at);
    message.record = owned(line, "uuid");
    message.id = message.record.clone();
    message.at = moment(line, "timestamp");
    if flag(line, "isSidechain") {
        message.worker = Some(owned(line, "agentId").unwrap_or_else(|| "sub-agent".into()));
    }
    message
}

/// Reads a line of an answer: a new message, or another block of the last one.
fn answer(out: &mut Vec<TranscriptMessage>, at: usize, line: &Value) {
    let Some(body) = line.get("message") else { return };
    let mut message = begin(MessageRole::Assistant, at, line);
    message.parts = blocks(body, line);
    if flag(line, "isApiErrorMessage") {
        let text = message.text();
        message.role = MessageRole::System;
        message.parts = vec![MessagePart::Failure { text }];
        out.push(message);
        return;
    }
    if invented(body) {
        message.role = MessageRole::System;
        out.push(message);
        return;
    }
    message.id = owned(body, "id").or(message.id);
    message.model = owned(body, "model");
    message.usage = body.get("usage").map(|usage| MessageUsage {
        input: count(usage, "input_tokens"),
        output: count(usage, "output_tokens"),
        cache_read: count(usage, "cache_read_input_tokens"),
        cache_write: count(usage, "cache_creation_input_tokens"),
    });
    // Results of its first calls may come between the blocks of an answer, but not another answer or a prompt.
    let last =
        out.iter_mut().rev().find(|last| last.role != MessageRole::Tool && last.worker == message.worker);
    match last {
        Some(last) if last.role == MessageRole::Assistant && last.id == message.id => {
            last.parts.append(&mut message.parts);
            last.usage = message.usage.or(last.usage);
            last.lines.end = at + 1;
        }
        _ => out.push(message),
    }
}

fn blocks(body: &Value, line: &Value) -> Vec<MessagePart> {
    if let Some(text) = text(body, "content") {
        return vec![MessagePart::Text { text: text.into() }];
    }
    list(body, "content").iter().map(|block| part(block, line)).collect()
}

fn part(block: &Value, line: &Value) -> MessagePart {
    let at = moment(line, "timestamp");
    let get = |key| owned(block, key).unwrap_or_default();
    match text(block, "type") {
        Some("text") => MessagePart::Text { text: get("text") },
        Some("thinking") => MessagePart::Thinking { text: get("thinking") },
        Some("tool_use" | "server_tool_use") => {
            let input = block.get("input").cloned().unwrap_or_default();
            MessagePart::ToolCall { id: get("id"), name: get("name"), input, at }
        }
        Some("tool_result") => {
            let output = block.get("content").cloned().unwrap_or_default();
            MessagePart::ToolResult { id: get("tool_use_id"), output, failed: flag(block, "is_error"), at }
        }
        _ => MessagePart::Other { value: block.clone() },
    }
}

/// Reads a prompt, the results of calls, or a message that Claude Code adds in the user's name.
fn said(at: usize, line: &Value) -> Option<TranscriptMessage> {
    let mut message = begin(MessageRole::User, at, line);
    message.parts = blocks(line.get("message")?, line);
    let text = message.text();
    if let Some(command) = command(&text) {
        message.parts = vec![MessagePart::Text { text: command }];
    }
    if message.results().next().is_some() {
        message.role = MessageRole::Tool;
    } else if flag(line, "isCompactSummary")
        || flag(line, "isMeta")
        || text.starts_with("[Request interrupted by user")
        || text.starts_with("<local-command-")
    {
        message.role = MessageRole::System;
    }
    Some(message)
}

/// Returns a slash command as it was typed.
fn command(text: &str) -> Option<String> {
    let inside = |tag: &str| {
        let rest = &text[text.find(&format!("<{tag}>"))? + tag.len() + 2..];
        Some(rest[..rest.find(&format!("</{tag}>"))?].trim())
    };
    let starts = text.starts_with("<command-name>") || text.starts_with("<command-message>");
    let name = inside("command-name").filter(|_| starts)?;
    Some(format!("{name} {}", inside("command-args").unwrap_or_default()).trim_end().to_owned())
}

fn notice(at: usize, line: &Value) -> Option<TranscriptMessage> {
    let said = owned(line, "content");
    let part = match text(line, "subtype")? {
        "compact_boundary" | "microcompact_boundary" => {
            MessagePart::Compaction { text: said.unwrap_or_default() }
        }
        "api_error" => {
            let cause = line
                .get("error")
                .and_then(|error| owned(error, "message").or_else(|| Some(error.to_string())));
            MessagePart::Failure { text: said.or(cause).unwrap_or_default() }
        }
        _ => return None,
    };
    let mut message = begin(MessageRole::System, at, line);
    message.parts.push(part);
    Some(message)
}
