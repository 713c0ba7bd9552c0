//! Codex: a rollout has what was sent to the model (`response_item`) and what was displayed (`event_msg`).
//!
//! Only the former become messages; the latter add what the former lack: exit codes, tokens, errors. The items of one answer
//! have no common id, so an answer is a run of items that ends with its token record, with an output, or with a prompt.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::message::{MessagePart, MessageRole, MessageUsage, TranscriptMessage};
use super::value::{count, list, moment, owned, text};

/// Whether a line comes right before a prompt and belongs to its turn.
pub(super) fn leads_prompt(line: &Value) -> bool {
    let Some(payload) = line.get("payload") else { return false };
    match text(line, "type") {
        Some("turn_context" | "world_state") => true,
        Some("event_msg") => {
            matches!(text(payload, "type"), Some("task_started" | "thread_settings_applied"))
        }
        Some("response_item") => {
            text(payload, "type") == Some("message") && said_by(payload) == MessageRole::System
        }
        _ => false,
    }
}

pub(super) fn messages(lines: impl Iterator<Item = (usize, Value)>) -> Vec<TranscriptMessage> {
    let mut reading = Reading::default();
    for (at, line) in lines {
        if let Some(payload) = line.get("payload") {
            reading.line(at, &line, payload);
        }
    }
    reading.out
}

#[derive(Default)]
struct Reading {
    out: Vec<TranscriptMessage>,
    /// The answer that is being read.
    open: Option<usize>,
    /// The line at which the display of an answer began whose items are still to come.
    lead: Option<usize>,
    model: Option<String>,
    /// Whether each call failed, by its id.
    failed: HashMap<String, bool>,
}

impl Reading {
    fn line(&mut self, at: usize, line: &Value, payload: &Value) {
        let lead = self.lead.take();
        match text(line, "type") {
            Some("response_item") => {
                self.lead = lead;
                self.item(at, line, payload);
                self.lead = None;
            }
            Some("event_msg") => self.event(at, line, payload, lead),
            Some("turn_context") => {
                self.open = None;
                self.model = owned(payload, "model").or(self.model.take());
            }
            Some("token_usage_record") => {
                self.usage(payload.get("usage"), true);
                self.open = None;
            }
            Some("compacted") => {
                let text = owned(payload, "message").unwrap_or_default();
                self.alone(MessageRole::System, at, line, MessagePart::Compaction { text });
            }
            _ => {}
        }
    }

    fn event(&mut self, at: usize, line: &Value, payload: &Value, lead: Option<usize>) {
        let item = payload.get("item").unwrap_or(payload);
        let shown = matches!(
            text(item, "type"),
            Some("AgentMessage" | "Reasoning" | "agent_message" | "agent_reasoning")
        );
        if shown && self.open.is_none() {
            self.lead = lead.or(Some(at));
        }
        if let Some(id) = text(item, "id").or_else(|| text(item, "call_id")) {
            let code = item.get("exit_code").and_then(Value::as_i64);
            let status = text(item, "status").map(|status| matches!(status, "failed" | "declined"));
            if let Some(failed) = code.map(|code| code != 0).or(status) {
                self.failed.insert(id.to_owned(), failed);
            }
        }
        match text(payload, "type") {
            Some("token_count") => {
                self.usage(payload.get("info").and_then(|info| info.get("last_token_usage")), false)
            }
            Some("task_started" | "task_complete" | "turn_aborted") => self.open = None,
            Some("error") => {
                let text = owned(payload, "message").unwrap_or_default();
                self.alone(MessageRole::System, at, line, MessagePart::Failure { text });
            }
            Some("thread_rolled_back") => self.roll_back(count(payload, "num_turns")),
            _ => {}
        }
    }

    fn item(&mut self, at: usize, line: &Value, payload: &Value) {
        let get = |key| owned(payload, key).unwrap_or_default();
        let when = moment(line, "timestamp");
        let call = |name: String, input| MessagePart::ToolCall { id: get("call_id"), name, input, at: when };
        match text(payload, "type") {
            Some("message") => {
                let role = said_by(payload);
                let parts = list(payload, "content").iter().map(content);
                if role == MessageRole::Assistant {
                    let open = self.answer(at, line, payload);
                    open.parts.extend(parts);
                } else {
                    self.open = None;
                    let mut message = begin(role, at, line, payload);
                    message.parts = parts.collect();
                    self.out.push(message);
                }
            }
            Some("reasoning") => {
                let open = self.answer(at, line, payload);
                let texts = list(payload, "summary").iter().chain(list(payload, "content"));
                open.parts.extend(
                    texts.filter_map(|part| Some(MessagePart::Thinking { text: owned(part, "text")? })),
                );
            }
            Some("function_call") => {
                let arguments = get("arguments");
                let input = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
                self.answer(at, line, payload).parts.push(call(get("name"), input));
            }
            Some("custom_tool_call") => {
                let input = payload.get("input").cloned().unwrap_or_default();
                self.answer(at, line, payload).parts.push(call(get("name"), input));
            }
            Some("local_shell_call") => {
                let input = payload.get("action").cloned().unwrap_or_default();
                self.answer(at, line, payload).parts.push(call("local_shell".into(), input));
            }
            Some("function_call_output" | "custom_tool_call_output") => {
                let id = get("call_id");
                let output = payload.get("output").cloned().unwrap_or_default();
                let failed = self.failed.get(&id).copied().unwrap_or_else(|| looks_failed(&output));
                let mut message = begin(MessageRole::Tool, at, line, payload);
                message.parts.push(MessagePart::ToolResult { id, output, failed, at: when });
                self.open = None;
                self.out.push(message);
            }
            Some(_) if text(payload, "id").is_some() => {
                let kind = json!({"type": payload["type"]});
                self.answer(at, line, payload).parts.push(MessagePart::Other { value: kind });
            }
            _ => {}
        }
    }

    /// Returns the answer that this line belongs to: the one being read, or a new one.
    fn answer(&mut self, at: usize, line: &Value, payload: &Value) -> &mut TranscriptMessage {
        let index = self.open.unwrap_or_else(|| {
            let mut message = begin(MessageRole::Assistant, at, line, payload);
            message.model.clone_from(&self.model);
            message.lines.start = self.lead.unwrap_or(at);
            self.out.push(message);
            self.out.len() - 1
        });
        self.open = Some(index);
        self.out[index].lines.end = at + 1;
        &mut self.out[index]
    }

    fn alone(&mut self, role: MessageRole, at: usize, line: &Value, part: MessagePart) {
        self.open = None;
        let mut message = begin(role, at, line, &Value::Null);
        message.parts.push(part);
        self.out.push(message);
    }

    /// Sets the tokens of the last answer. The displayed count is used only for rollouts without token records.
    fn usage(&mut self, usage: Option<&Value>, certain: bool) {
        let Some(usage) = usage else { return };
        let Some(last) = self.out.iter_mut().rev().find(|message| message.role == MessageRole::Assistant)
        else {
            return;
        };
        if certain || last.usage.is_none() {
            let cache_read = count(usage, "cached_input_tokens");
            last.usage = Some(MessageUsage {
                input: count(usage, "input_tokens").saturating_sub(cache_read),
                output: count(usage, "output_tokens"),
                cache_read,
                cache_write: count(usage, "cache_write_input_tokens"),
            });
        }
    }

    fn roll_back(&mut self, turns: u64) {
        for _ in 0..turns {
            let Some(prompt) = self.out.iter().rposition(TranscriptMessage::is_prompt) else { return };
            self.out.truncate(prompt);
        }
        self.open = None;
    }
}

fn begin(role: MessageRole, at: usize, line: &Value, payload: &Value) -> TranscriptMessage {
    let mut message = TranscriptMessage::new(role, at);
    message.id = owned(payload, "id");
    message.record = line.get("ordinal").and_then(Value::as_u64).map(|ordinal| format!("line-{ordinal}"));
    message.record = message.record.or_else(|| message.id.clone());
    message.at = moment(line, "timestamp");
    message
}

fn content(part: &Value) -> MessagePart {
    match owned(part, "text") {
        Some(text) => MessagePart::Text { text },
        None => MessagePart::Other { value: part.clone() },
    }
}

/// Returns the author: Codex adds context in the user's name, and marks it only in its newer rollouts.
fn said_by(payload: &Value) -> MessageRole {
    match text(payload, "role") {
        Some("assistant") => return MessageRole::Assistant,
        Some("user") => {}
        _ => return MessageRole::System,
    }
    let kinds = payload
        .get("internal_chat_message_metadata_passthrough")
        .map(|meta| list(meta, "content_item_kinds"));
    if let Some(kinds) = kinds.filter(|kinds| !kinds.is_empty()) {
        let own = kinds.iter().any(|kind| kind.as_str().is_some_and(|kind| kind.starts_with("user.")));
        return if own { MessageRole::User } else { MessageRole::System };
    }
    let added = [
        "<environment_context>",
        "<user_instructions>",
        "<turn_aborted>",
        "<subagent_notification>",
        "# AGENTS.md",
    ];
    let first = list(payload, "content").first().and_then(|part| text(part, "text")).unwrap_or_default();
    if added.iter().any(|start| first.starts_with(start)) { MessageRole::System } else { MessageRole::User }
}

/// Whether the content of an output shows that the command failed.
fn looks_failed(output: &Value) -> bool {
    if let Some(success) = output.get("success").and_then(Value::as_bool) {
        return !success;
    }
    let head = output.as_str().unwrap_or_default().lines().take(5);
    head.filter_map(|line| {
        line.strip_prefix("Process exited with code ").or(line.strip_prefix("Exit code: "))
    })
    .any(|code| code.trim() != "0")
}
