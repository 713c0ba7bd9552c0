//! What was said, in words that are the same for every agent.

use std::ops::Range;

use serde::Serialize;
use serde_json::Value;
use stepback_model::time::Timestamp;

use super::{claude, codex, gemini, opencode, plain};
use crate::agent::Agent;

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A person: a prompt.
    User,
    /// The model.
    Assistant,
    /// A tool that answers a call.
    Tool,
    /// The agent itself: context it adds, a compaction, an error.
    System,
    /// The message does not say.
    Unknown,
}

/// A piece of a message.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum Part {
    /// Plain text.
    Text {
        /// It.
        text: String,
    },
    /// What the model thought, as far as it is shown.
    Thinking {
        /// It.
        text: String,
    },
    /// The model asks for a tool.
    ToolCall {
        /// The id of the call.
        id: String,
        /// The tool.
        name: String,
        /// What goes in.
        input: Value,
        /// When it was asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// A tool answers.
    ToolResult {
        /// The id of the call.
        id: String,
        /// What came out.
        output: Value,
        /// Whether it failed or was refused.
        failed: bool,
        /// When.
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// What was said before was replaced by a summary.
    Compaction {
        /// The summary, where it is known.
        text: String,
    },
    /// The model could not be asked, or did not answer.
    Failure {
        /// What was reported.
        text: String,
    },
    /// Something else: an image, a file.
    Other {
        /// As the agent keeps it.
        value: Value,
    },
}

/// Tokens of one answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Usage {
    /// Read, and not from a cache.
    pub input: u64,
    /// Written, thinking included.
    pub output: u64,
    /// Read from a cache.
    pub cache_read: u64,
    /// Written to a cache.
    pub cache_write: u64,
}

/// One message.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Message {
    /// The agent's own id of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The agent's own id of its first line, which is unique where the id of the message is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// Who speaks.
    pub role: Role,
    /// What.
    pub parts: Vec<Part>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The sub-agent it belongs to, if it is not the main conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The lines it was read from. Lines of other messages may lie between its own.
    pub lines: Range<usize>,
}

impl Message {
    /// An empty message read from one line.
    pub(super) fn new(role: Role, line: usize) -> Self {
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

    /// Whether a person said this to the main conversation.
    pub fn is_prompt(&self) -> bool {
        self.role == Role::User && self.worker.is_none()
    }

    /// All plain text in it.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// What to show of it as text: what was said, else what a tool answered, else what nobody can read, as it came.
    pub fn shown_text(&self) -> String {
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
            Part::ToolResult { output, .. } => Some(plain(output)),
            Part::Other { value } if self.role == Role::Unknown => Some(value.to_string()),
            _ => None,
        });
        shown.collect::<Vec<_>>().join("\n")
    }

    /// The ids of the calls it asks for.
    pub fn calls(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall { id, .. } => Some(id.as_str()),
            _ => None,
        })
    }

    /// The ids of the calls it answers.
    pub fn results(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolResult { id, .. } => Some(id.as_str()),
            _ => None,
        })
    }
}

/// Reads the messages out of a chain that belongs to the agent of this name. An agent that is not one of ours writes plain
/// messages; so does whoever reports for one of ours over the network.
pub fn messages_of<S: AsRef<str>>(agent: &str, lines: &[S]) -> Vec<Message> {
    let Some(agent) = Agent::parse(agent) else {
        // Nothing is left out of what nobody knows how to read.
        let whole = |line: &S| serde_json::from_str(line.as_ref()).unwrap_or_else(|_| line.as_ref().into());
        return plain::messages(lines.iter().map(whole).enumerate());
    };
    let mut own = messages(agent, lines);
    // None of the agents writes lines that say who speaks at the top.
    let values = lines.iter().enumerate();
    let values =
        values.filter_map(|(at, line)| Some((at, serde_json::from_str::<Value>(line.as_ref()).ok()?)));
    let reported = values.filter(|(_, value)| value.get("role").is_some());
    own.extend(reported.filter_map(|(at, value)| plain::read(at, &value)));
    own.sort_by_key(|message| message.lines.start);
    own
}

/// Reads the messages out of a chain. Lines of unknown kinds, and lines that are no JSON, are passed over.
pub fn messages<S: AsRef<str>>(agent: Agent, lines: &[S]) -> Vec<Message> {
    let values = lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((at, serde_json::from_str(line.as_ref()).ok()?)));
    match agent {
        Agent::Claude => claude::messages(values),
        Agent::Codex => codex::messages(values),
        Agent::Gemini => gemini::messages(values),
        Agent::Opencode => opencode::messages(values),
    }
}
