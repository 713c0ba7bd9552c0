//! Codex: a rollout has what was sent to the model (`response_item`) and what was displayed (`event_msg`).
//!
//! Only the former become messages; the latter add what the former lack: exit codes, tokens, errors. The items of one answer
//! have no common id, so an answer is a run of items that ends with its token record, with an output, or with a prompt.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::message::{MessagePart, MessageRole, MessageUsage, TranscriptMessage};
use super::value::{get_array, get_str, get_string, get_timestamp, get_u64};

/// Whether a line comes right before a prompt and belongs to its turn.
pub(super) fn is_prompt_preamble(line: &Value) -> bool {
    let Some(payload) = line.get("payload") else { return false };
    match get_str(line, "type") {
        Some("turn_context" | "world_state") => true,
        Some("event_msg") => {
            matches!(get_str(payload, "type"), Some("task_started" | "thread_settings_applied"))
        }
        Some("response_item") => {
            get_str(payload, "type") == Some("message") && author_role(payload) == MessageRole::System
        }
        _ => false,
    }
}

pub(super) fn parse_messages(lines: impl Iterator<Item = (usize, Value)>) -> Vec<TranscriptMessage> {
    let mut reading = RolloutParser::default();
    for (at, line) in lines {
        if let Some(payload) = line.get("payload") {
            reading.read_line(at, &line, payload);
        }
    }
    reading.out
}

#[derive(Default)]
struct RolloutParser {
    out: Vec<TranscriptMessage>,
    /// The answer that is being read.
    open: Option<usize>,
    /// The line at which the display of an answer began whose items are still to come.
    lead: Option<usize>,
    model: Option<String>,
    /// Whether each call failed, by its id.
    failed: HashMap<String, bool>,
}

impl RolloutParser {
    fn read_line(&mut self, at: usize, line: &Value, payload: &Value) {
        let lead = self.lead.take();
        match get_str(line, "type") {
            Some("response_item") => {
                self.lead = lead;
                self.read_item(at, line, payload);
                self.lead = None;
            }
            Some("event_msg") => self.read_event(at, line, payload, lead),
            Some("turn_context") => {
                self.open = None;
                self.model = get_string(payload, "model").or(self.model.take());
            }
            Some("token_usage_record") => {
                self.set_usage(payload.get("usage"), true);
                self.open = None;
            }
            Some("compacted") => {
                let text = get_string(payload, "message").unwrap_or_default();
                self.push_single_part(MessageRole::System, at, line, MessagePart::Compaction { text });
            }
            _ => {}
        }
    }

    fn read_event(&mut self, at: usize, line: &Value, payload: &Value, lead: Option<usize>) {
        let item = payload.get("item").unwrap_or(payload);
        let shown = matches!(
            get_str(item, "type"),
            Some("AgentMessage" | "Reasoning" | "agent_message" | "agent_reasoning")
        );
        if shown && self.open.is_none() {
            self.lead = lead.or(Some(at));
        }
        if let Some(id) = get_str(item, "id").or_else(|| get_str(item, "call_id")) {
            let code = item.get("exit_code").and_then(Value::as_i64);
            let status = get_str(item, "status").map(|status| matches!(status, "failed" | "declined"));
            if let Some(failed) = code.map(|code| code != 0).or(status) {
                self.failed.insert(id.to_owned(), failed);
            }
        }
        match get_str(payload, "type") {
            Some("token_count") => {
                self.set_usage(payload.get("info").and_then(|info| info.get("last_token_usage")), false)
            }
            Some("task_started" | "task_complete" | "turn_aborted") => self.open = None,
            Some("error") => {
                let text = get_string(payload, "message").unwrap_or_default();
                self.push_single_part(MessageRole::System, at, line, MessagePart::Failure { text });
            }
            Some("thread_rolled_back") => self.roll_back(get_u64(payload, "num_turns")),
            _ => {}
        }
    }

    fn read_item(&mut self, at: usize, line: &Value, payload: &Value) {
        let get = |key| get_string(payload, key).unwrap_or_default();
        let when = get_timestamp(line, "timestamp");
        let call = |name: String, input| MessagePart::ToolCall { id: get("call_id"), name, input, at: when };
        match get_str(payload, "type") {
            Some("message") => {
                let role = author_role(payload);
                let parts = get_array(payload, "content").iter().map(parse_content);
                if role == MessageRole::Assistant {
                    let open = self.open_answer(at, line, payload);
                    open.parts.extend(parts);
                } else {
                    self.open = None;
                    let mut message = new_message(role, at, line, payload);
                    message.parts = parts.collect();
                    self.out.push(message);
                }
            }
            Some("reasoning") => {
                let open = self.open_answer(at, line, payload);
                let texts = get_array(payload, "summary").iter().chain(get_array(payload, "content"));
                open.parts.extend(
                    texts.filter_map(|part| Some(MessagePart::Thinking { text: get_string(part, "text")? })),
                );
            }
            Some("function_call") => {
                let arguments = get("arguments");
                let input = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
                self.open_answer(at, line, payload).parts.push(call(get("name"), input));
            }
            Some("custom_tool_call") => {
                let input = payload.get("input").cloned().unwrap_or_default();
                self.open_answer(at, line, payload).parts.push(call(get("name"), input));
            }
            Some("local_shell_call") => {
                let input = payload.get("action").cloned().unwrap_or_default();
                self.open_answer(at, line, payload).parts.push(call("local_shell".into(), input));
            }
            Some("function_call_output" | "custom_tool_call_output") => {
                let id = get("call_id");
                let output = payload.get("output").cloned().unwrap_or_default();
                let failed = self.failed.get(&id).copied().unwrap_or_else(|| looks_failed(&output));
                let mut message = new_message(MessageRole::Tool, at, line, payload);
                message.parts.push(MessagePart::ToolResult { id, output, failed, at: when });
                self.open = None;
                self.out.push(message);
            }
            Some(_) if get_str(payload, "id").is_some() => {
                let kind = json!({"type": payload["type"]});
                self.open_answer(at, line, payload).parts.push(MessagePart::Other { value: kind });
            }
            _ => {}
        }
    }

    /// Returns the answer that this line belongs to: the one being read, or a new one.
    fn open_answer(&mut self, at: usize, line: &Value, payload: &Value) -> &mut TranscriptMessage {
        let index = self.open.unwrap_or_else(|| {
            let mut message = new_message(MessageRole::Assistant, at, line, payload);
            message.model.clone_from(&self.model);
            message.lines.start = self.lead.unwrap_or(at);
            self.out.push(message);
            self.out.len() - 1
        });
        self.open = Some(index);
        self.out[index].lines.end = at + 1;
        &mut self.out[index]
    }

    fn push_single_part(&mut self, role: MessageRole, at: usize, line: &Value, part: MessagePart) {
        self.open = None;
        let mut message = new_message(role, at, line, &Value::Null);
        message.parts.push(part);
        self.out.push(message);
    }

    /// Sets the tokens of the last answer. The displayed count is used only for rollouts without token records.
    fn set_usage(&mut self, usage: Option<&Value>, certain: bool) {
        let Some(usage) = usage else { return };
        let Some(last) = self.out.iter_mut().rev().find(|message| message.role == MessageRole::Assistant)
        else {
            return;
        };
        if certain || last.usage.is_none() {
            let cache_read = get_u64(usage, "cached_input_tokens");
            last.usage = Some(MessageUsage {
                input: get_u64(usage, "input_tokens").saturating_sub(cache_read),
                output: get_u64(usage, "output_tokens"),
                cache_read,
                cache_write: get_u64(usage, "cache_write_input_tokens"),
                reasoning: get_u64(usage, "reasoning_output_tokens"),
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

fn new_message(role: MessageRole, at: usize, line: &Value, payload: &Value) -> TranscriptMessage {
    let mut message = TranscriptMessage::new(role, at);
    message.id = get_string(payload, "id");
    message.record = line.get("ordinal").and_then(Value::as_u64).map(|ordinal| format!("line-{ordinal}"));
    message.record = message.record.or_else(|| message.id.clone());
    message.at = get_timestamp(line, "timestamp");
    message
}

fn parse_content(part: &Value) -> MessagePart {
    match get_string(part, "text") {
        Some(text) => MessagePart::Text { text },
        None => MessagePart::Other { value: part.clone() },
    }
}

/// Returns the author: Codex adds context in the user's name, and marks it only in its newer rollouts.
fn author_role(payload: &Value) -> MessageRole {
    match get_str(payload, "role") {
        Some("assistant") => return MessageRole::Assistant,
        Some("user") => {}
        _ => return MessageRole::System,
    }
    let kinds = payload
        .get("internal_chat_message_metadata_passthrough")
        .map(|meta| get_array(meta, "content_item_kinds"));
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
    let first =
        get_array(payload, "content").first().and_then(|part| get_str(part, "text")).unwrap_or_default();
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
