//! Claude Code: every line has one block of an answer; blocks with the same message id are joined.

use std::path::Path;

use serde_json::Value;

use super::message::{MessagePart, MessageRole, MessageUsage, TranscriptMessage};
use super::value::{get_array, get_bool, get_str, get_string, get_timestamp, get_u64};

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
    format!("{name}-{}", to_base36(hash.unsigned_abs()))
}

fn to_base36(mut number: u32) -> String {
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
pub(super) fn is_prompt_preamble(line: &Value) -> bool {
    match get_str(line, "type") {
        Some("queue-operation") => true,
        // Claude Code adds this when a conversation continues that ended in the middle of a turn.
        Some("user") => get_bool(line, "isMeta"),
        Some("assistant") => line.get("message").is_some_and(is_synthetic),
        _ => false,
    }
}

/// Whether an answer was made by Claude Code itself, not by a model.
fn is_synthetic(body: &Value) -> bool {
    get_str(body, "model") == Some("<synthetic>")
}

pub(super) fn parse_messages(lines: impl Iterator<Item = (usize, Value)>) -> Vec<TranscriptMessage> {
    let mut out = Vec::new();
    for (at, line) in lines {
        match get_str(&line, "type") {
            Some("assistant") => add_answer_line(&mut out, at, &line),
            Some("user") => out.extend(parse_user_line(at, &line)),
            Some("system") => out.extend(parse_system_line(at, &line)),
            _ => {}
        }
    }
    out
}

fn new_message(role: MessageRole, at: usize, line: &Value) -> TranscriptMessage {
    let mut message = TranscriptMessage::new(role, at);
    message.record = get_string(line, "uuid");
    message.id = message.record.clone();
    message.at = get_timestamp(line, "timestamp");
    if get_bool(line, "isSidechain") {
        message.worker = Some(get_string(line, "agentId").unwrap_or_else(|| "sub-agent".into()));
    }
    message
}

/// Reads a line of an answer: a new message, or another block of the last one.
fn add_answer_line(out: &mut Vec<TranscriptMessage>, at: usize, line: &Value) {
    let Some(body) = line.get("message") else { return };
    let mut message = new_message(MessageRole::Assistant, at, line);
    message.parts = parse_blocks(body, line);
    if get_bool(line, "isApiErrorMessage") {
        let text = message.text();
        message.role = MessageRole::System;
        message.parts = vec![MessagePart::Failure { text }];
        out.push(message);
        return;
    }
    if is_synthetic(body) {
        message.role = MessageRole::System;
        out.push(message);
        return;
    }
    message.id = get_string(body, "id").or(message.id);
    message.model = get_string(body, "model");
    message.usage = body.get("usage").map(|usage| MessageUsage {
        input: get_u64(usage, "input_tokens"),
        output: get_u64(usage, "output_tokens"),
        cache_read: get_u64(usage, "cache_read_input_tokens"),
        cache_write: get_u64(usage, "cache_creation_input_tokens"),
        reasoning: 0,
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

fn parse_blocks(body: &Value, line: &Value) -> Vec<MessagePart> {
    if let Some(text) = get_str(body, "content") {
        return vec![MessagePart::Text { text: text.into() }];
    }
    get_array(body, "content").iter().map(|block| parse_block(block, line)).collect()
}

fn parse_block(block: &Value, line: &Value) -> MessagePart {
    let at = get_timestamp(line, "timestamp");
    let get = |key| get_string(block, key).unwrap_or_default();
    match get_str(block, "type") {
        Some("text") => MessagePart::Text { text: get("text") },
        Some("thinking") => MessagePart::Thinking { text: get("thinking") },
        Some("tool_use" | "server_tool_use") => {
            let input = block.get("input").cloned().unwrap_or_default();
            MessagePart::ToolCall { id: get("id"), name: get("name"), input, at }
        }
        Some("tool_result") => {
            let output = block.get("content").cloned().unwrap_or_default();
            MessagePart::ToolResult {
                id: get("tool_use_id"),
                output,
                failed: get_bool(block, "is_error"),
                at,
            }
        }
        _ => MessagePart::Other { value: block.clone() },
    }
}

/// Reads a prompt, the results of calls, or a message that Claude Code adds in the user's name.
fn parse_user_line(at: usize, line: &Value) -> Option<TranscriptMessage> {
    let mut message = new_message(MessageRole::User, at, line);
    message.parts = parse_blocks(line.get("message")?, line);
    let text = message.text();
    if let Some(command) = parse_slash_command(&text) {
        message.parts = vec![MessagePart::Text { text: command }];
    }
    if message.result_ids().next().is_some() {
        message.role = MessageRole::Tool;
    } else if get_bool(line, "isCompactSummary")
        || get_bool(line, "isMeta")
        || text.starts_with("[Request interrupted by user")
        || text.starts_with("<local-command-")
    {
        message.role = MessageRole::System;
    }
    Some(message)
}

/// Returns a slash command as it was typed.
fn parse_slash_command(text: &str) -> Option<String> {
    let inside = |tag: &str| {
        let rest = &text[text.find(&format!("<{tag}>"))? + tag.len() + 2..];
        Some(rest[..rest.find(&format!("</{tag}>"))?].trim())
    };
    let starts = text.starts_with("<command-name>") || text.starts_with("<command-message>");
    let name = inside("command-name").filter(|_| starts)?;
    Some(format!("{name} {}", inside("command-args").unwrap_or_default()).trim_end().to_owned())
}

fn parse_system_line(at: usize, line: &Value) -> Option<TranscriptMessage> {
    let said = get_string(line, "content");
    let part = match get_str(line, "subtype")? {
        "compact_boundary" | "microcompact_boundary" => {
            MessagePart::Compaction { text: said.unwrap_or_default() }
        }
        "api_error" => {
            let cause = line
                .get("error")
                .and_then(|error| get_string(error, "message").or_else(|| Some(error.to_string())));
            MessagePart::Failure { text: said.or(cause).unwrap_or_default() }
        }
        _ => return None,
    };
    let mut message = new_message(MessageRole::System, at, line);
    message.parts.push(part);
    Some(message)
}
