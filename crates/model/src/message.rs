//! Messages between agents: who says what to whom, and with what intention.
//!
//! The intention is a *performative*, as KQML calls it (`ask-one`, `tell`, `achieve`, `reply`, `sorry`, …), or the name of a
//! method of the Agent2Agent protocol (`message/send`, `tasks/cancel`, …). Other languages have further ones, so any name is
//! kept; those of these two are written in one way, whatever way an agent writes them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest name of an agent or a performative, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// The performatives of KQML.
pub const KQML: [&str; 41] = [
    "achieve",
    "advertise",
    "ask-about",
    "ask-all",
    "ask-if",
    "ask-one",
    "break",
    "broadcast",
    "broker-all",
    "broker-one",
    "delete-all",
    "delete-one",
    "deny",
    "discard",
    "eos",
    "error",
    "evaluate",
    "forward",
    "generator",
    "insert",
    "monitor",
    "next",
    "pipe",
    "ready",
    "recommend-all",
    "recommend-one",
    "recruit-all",
    "recruit-one",
    "register",
    "reply",
    "rest",
    "sorry",
    "standby",
    "stream-about",
    "stream-all",
    "subscribe",
    "tell",
    "unachieve",
    "undelete",
    "unregister",
    "untell",
];

/// The methods of the Agent2Agent protocol, with their names over gRPC.
pub const A2A: [(&str, &str); 11] = [
    ("message/send", "SendMessage"),
    ("message/stream", "SendStreamingMessage"),
    ("tasks/get", "GetTask"),
    ("tasks/list", "ListTasks"),
    ("tasks/cancel", "CancelTask"),
    ("tasks/resubscribe", "TaskSubscription"),
    ("tasks/pushNotificationConfig/set", "CreateTaskPushNotificationConfig"),
    ("tasks/pushNotificationConfig/get", "GetTaskPushNotificationConfig"),
    ("tasks/pushNotificationConfig/list", "ListTaskPushNotificationConfig"),
    ("tasks/pushNotificationConfig/delete", "DeleteTaskPushNotificationConfig"),
    ("agent/getAuthenticatedExtendedCard", "GetAgentCard"),
];

/// A message from one agent to another.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentMessage {
    /// The agent that sends it; `None` for the main agent of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The agent that gets it; `None` for the main agent of the session, `*` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<String>,
    /// The intention; see [`performative`].
    pub performative: String,
    /// What is said.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub content: Value,
    /// The id of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The id of the message that it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<String>,
}

impl AgentMessage {
    /// One line for display: `main → tester: achieve: run the tests`.
    pub fn summary(&self) -> String {
        let name = |agent: &Option<String>| agent.clone().unwrap_or_else(|| "main".into());
        let said = match &self.content {
            Value::Null => String::new(),
            Value::String(text) => format!(": {text}"),
            other => format!(": {other}"),
        };
        format!("{} → {}: {}{said}", name(&self.sender), name(&self.receiver), self.performative)
    }
}

/// Returns the name of a performative as stepback writes it: `ASK_ONE` as `ask-one`, `SendMessage` as `message/send`; names of
/// other languages unchanged.
pub fn performative(name: &str) -> String {
    let name = name.trim();
    if let Some((method, _)) =
        A2A.iter().find(|(method, grpc)| method.eq_ignore_ascii_case(name) || *grpc == name)
    {
        return (*method).to_owned();
    }
    let written = name.to_ascii_lowercase().replace(['_', ' '], "-");
    if KQML.contains(&written.as_str()) { written } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn performatives_are_written_in_one_way() {
        for (name, written) in [
            ("ASK_ONE", "ask-one"),
            ("tell", "tell"),
            ("Stream All", "stream-all"),
            ("SendMessage", "message/send"),
            ("Tasks/Cancel", "tasks/cancel"),
            ("cfp", "cfp"),
            ("accept-Proposal", "accept-Proposal"),
        ] {
            assert_eq!(performative(name), written);
        }
        assert!(KQML.is_sorted());
    }

    #[test]
    fn a_message_says_who_tells_whom() {
        let message = AgentMessage {
            receiver: Some("tester".into()),
            performative: "achieve".into(),
            content: json!("run the tests"),
            ..AgentMessage::default()
        };
        assert_eq!(message.summary(), "main → tester: achieve: run the tests");
        let answer = AgentMessage {
            sender: Some("tester".into()),
            performative: "sorry".into(),
            ..AgentMessage::default()
        };
        assert_eq!(answer.summary(), "tester → main: sorry");
    }
}
