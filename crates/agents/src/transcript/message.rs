//! Messages of a conversation, in one form for all agents.

use std::ops::Range;

use serde::Serialize;
use serde_json::Value;
use stepback_model::time::Timestamp;

use super::{claude, codex, gemini, opencode, plain};
use crate::agent::Agent;

/// The author of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageRole {
    /// The user: a prompt.
    User,
    /// The model.
    Assistant,
    /// A tool that returns a result.
    Tool,
    /// The agent itself: added context, a compaction, an error.
    System,
    /// The message does not name its author.
    Unknown,
}

/// A part of a message.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum MessagePart {
    /// Plain text.
    Text {
        /// The text itself.
        text: String,
    },
    /// The model's reasoning, as far as it is shown.
    Thinking {
        /// The reasoning text.
        text: String,
    },
    /// The model requests a tool call.
    ToolCall {
        /// The id of the call.
        id: String,
        /// Name of the tool.
        name: String,
        /// Input of the call.
        input: Value,
        /// When the call was requested, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// The result of a tool call.
    ToolResult {
        /// The id of the call.
        id: String,
        /// Output of the call.
        output: Value,
        /// Whether the call failed or was refused.
        failed: bool,
        /// When the result arrived, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// The earlier conversation was replaced by a summary.
    Compaction {
        /// The summary, if known.
        text: String,
    },
    /// The model could not be called, or did not answer.
    Failure {
        /// The reported error.
        text: String,
    },
    /// Something else: an image, a file.
    Other {
        /// The part as the agent stores it.
        value: Value,
    },
}

/// Token counts of one answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MessageUsage {
    /// Input tokens that were not read from a cache.
    pub input: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// The output tokens that were reasoning, if the agent counts them.
    #[serde(skip_serializing_if = "is_zero")]
    pub reasoning: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One message of a conversation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TranscriptMessage {
    /// The agent's own id of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The agent's own id of the first line, which is unique where the id of the message is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// The author.
    pub role: MessageRole,
    /// The content, in order.
    pub parts: Vec<MessagePart>,
    /// When it was written, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Token counts, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<MessageUsage>,
    /// The sub-agent it belongs to; `None` for the main conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The lines it was read from. Lines of other messages may be between them.
    pub lines: Range<usize>,
}

impl TranscriptMessage {
    /// Returns an empty message read from one line.
    pub(super) fn new(role: MessageRole, line: usize) -> Self {
        let lines = line..line + 1;
        Self {
            id: None,
            record: None,
            role,
            parts: Vec::new(),
            at: None,
            model: None,
            usage: None,
            worker: None,
            lines,
        }
    }

    /// Whether the user said this in the main conversation.
    pub fn is_prompt(&self) -> bool {
        self.role == MessageRole::User && self.worker.is_none()
    }

    /// Returns all plain text in it.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            MessagePart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Returns the text to display: plain text, else the results of tools, else parts of unknown kinds as they are.
    pub fn display_text(&self) -> String {
        let text = self.text();
        if !text.is_empty() {
            return text;
        }
        let plain = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Array(parts) if parts.iter().any(|part| part.get("text").is_some()) => {
                let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
                texts.collect::<Vec<_>>().join("\n")
            }
            other => other.to_string(),
        };
        let shown = self.parts.iter().filter_map(|part| match part {
            MessagePart::ToolResult { output, .. } => Some(plain(output)),
            MessagePart::Other { value } if self.role == MessageRole::Unknown => Some(value.to_string()),
            _ => None,
        });
        shown.collect::<Vec<_>>().join("\n")
    }

    /// Returns the ids of the calls it requests.
    pub fn call_ids(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            MessagePart::ToolCall { id, .. } => Some(id.as_str()),
            _ => None,
        })
    }

    /// Returns the ids of the calls it has results of.
    pub fn result_ids(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            MessagePart::ToolResult { id, .. } => Some(id.as_str()),
            _ => None,
        })
    }
}

/// Reads the messages out of a chain of the agent with this name. An agent that stepback does not support writes plain
/// messages; so does a client that reports for a supported one over the network.
pub fn parse_agent_messages<S: AsRef<str>>(agent: &str, lines: &[S]) -> Vec<TranscriptMessage> {
    let Some(agent) = Agent::parse(agent) else {
        // Lines of unknown agents are all kept.
        let whole = |line: &S| serde_json::from_str(line.as_ref()).unwrap_or_else(|_| line.as_ref().into());
        return plain::parse_messages(lines.iter().map(whole).enumerate());
    };
    let values = lines.iter().enumerate();
    let values =
        values.filter_map(|(at, line)| Some((at, serde_json::from_str::<Value>(line.as_ref()).ok()?)));
    // None of the supported agents writes lines with the author at the top level.
    let (reported, own): (Vec<_>, Vec<_>) = values.partition(|(_, value)| value.get("role").is_some());
    let mut messages = parse_own_messages(agent, own.into_iter());
    messages.extend(reported.iter().filter_map(|(at, value)| plain::parse_message(*at, value)));
    messages.sort_by_key(|message| message.lines.start);
    messages
}

/// Reads the messages out of a chain. Lines of unknown kinds, and lines that are not JSON, are skipped.
pub fn parse_messages<S: AsRef<str>>(agent: Agent, lines: &[S]) -> Vec<TranscriptMessage> {
    let values = lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((at, serde_json::from_str(line.as_ref()).ok()?)));
    parse_own_messages(agent, values)
}

fn parse_own_messages(agent: Agent, values: impl Iterator<Item = (usize, Value)>) -> Vec<TranscriptMessage> {
    match agent {
        Agent::Claude => claude::parse_messages(values),
        Agent::Codex => codex::parse_messages(values),
        Agent::Gemini => gemini::parse_messages(values),
        Agent::Opencode => opencode::parse_messages(values),
    }
}
