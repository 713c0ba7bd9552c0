//! The four wires: how a request contains a conversation, and how an answer is written.
//!
//! Each wire is a module with the same two functions: `read` parses a request's body into [`ConversationItem`]s, `write`
//! converts a [`ScriptedAnswer`] to the wire's format. Everything else works on items, so that the history of a request
//! means the same for every agent.

pub mod chat;
pub mod gemini;
pub mod messages;
pub mod responses;

use serde_json::Value;

use super::http::HttpReply;
use super::tools::AgentToolCall;
use super::{ReceivedRequest, ScriptedAgent};

/// Who an item of a conversation is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemRole {
    /// A prompt, or a message that the agent sends as the user.
    User,
    /// Text of the model.
    Model,
    /// The model calls a tool: its name and its input.
    Call,
    /// What the tool gave back.
    Result,
}

/// One piece of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationItem {
    /// Who it is from.
    pub role: ItemRole,
    /// What it says.
    pub text: String,
    /// All items of one answer of the model have the same key.
    pub turn: String,
}

impl ConversationItem {
    fn new(role: ItemRole, text: impl Into<String>, turn: impl ToString) -> Self {
        Self { role, text: text.into(), turn: turn.to_string() }
    }

    fn call(name: &Value, input: &Value, turn: impl ToString) -> Self {
        let name = name.as_str().unwrap_or_default();
        let input = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
        Self::new(ItemRole::Call, format!("{name} {input}"), turn)
    }
}

/// The answer of the model, in the agent's format.
#[derive(Clone, Debug)]
pub struct ScriptedAnswer {
    /// Unique in the conversation; every id in the answer is derived from it.
    pub key: String,
    /// What it says.
    pub text: Option<String>,
    /// The tools it calls.
    pub calls: Vec<AgentToolCall>,
    /// The model's name, as the request gave it.
    pub model: String,
}

/// The conversation in a request, without what the agent adds on its own: instructions, environment, reminders.
pub fn history(agent: ScriptedAgent, request: &ReceivedRequest) -> Vec<(ItemRole, String)> {
    items(agent, &request.body).into_iter().map(|item| (item.role, item.text)).collect()
}

/// The items of the conversation in a request's body.
pub fn items(agent: ScriptedAgent, body: &Value) -> Vec<ConversationItem> {
    let mut items = match agent {
        ScriptedAgent::Claude => messages::read(body),
        ScriptedAgent::Codex => responses::read(body),
        ScriptedAgent::Gemini => gemini::read(body),
        ScriptedAgent::Opencode => chat::read(body),
    };
    for item in &mut items {
        item.text = remove_reminders(&item.text);
    }
    items.retain(|item| !is_added_by_agent(item));
    items
}

/// Converts an answer to the agent's wire format, as a stream or as one document.
pub fn write(agent: ScriptedAgent, answer: &ScriptedAnswer, stream: bool) -> HttpReply {
    match agent {
        ScriptedAgent::Claude => messages::write(answer, stream),
        ScriptedAgent::Codex => responses::write(answer, stream),
        ScriptedAgent::Gemini => gemini::write(answer, stream),
        ScriptedAgent::Opencode => chat::write(answer, stream),
    }
}

/// How many answers of the model there are among `items`.
pub fn turns(items: &[ConversationItem]) -> usize {
    let mut keys: Vec<&str> = Vec::new();
    for item in items.iter().filter(|item| matches!(item.role, ItemRole::Model | ItemRole::Call)) {
        if !keys.contains(&item.turn.as_str()) {
            keys.push(&item.turn);
        }
    }
    keys.len()
}

/// The tools that a request offers to the model.
pub fn offered(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().into_iter().flatten();
    let declared = |tool: &Value| -> Vec<Value> {
        let nested = tool["functionDeclarations"].as_array().or(tool["function_declarations"].as_array());
        nested.cloned().unwrap_or_else(|| vec![tool.clone()])
    };
    tools
        .flat_map(declared)
        .filter_map(|tool| tool["name"].as_str().or(tool["function"]["name"].as_str()).map(str::to_owned))
        .collect()
}

/// A text without the reminders that Claude Code inserts.
fn remove_reminders(text: &str) -> String {
    let (open, close) = ("<system-reminder>", "</system-reminder>");
    let mut rest = text;
    let mut cleaned = String::new();
    while let Some((text_before, text_after)) = rest.split_once(open) {
        cleaned.push_str(text_before);
        rest = text_after.split_once(close).map_or("", |(_, text_after)| text_after);
    }
    cleaned.push_str(rest);
    cleaned.trim().to_owned()
}

/// Whether an item was added by the agent, and comes neither from the user nor from the model.
fn is_added_by_agent(item: &ConversationItem) -> bool {
    const AGENT_TEXT_PREFIXES: [&str; 4] =
        ["<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<session_context>"];
    const PLACEHOLDER_ANSWER_PREFIXES: [&str; 2] =
        ["No response requested.", "[The previous response was interrupted"];
    let starts_with_any = |starts: &[&str]| starts.iter().any(|start| item.text.starts_with(start));
    match item.role {
        ItemRole::User => item.text.is_empty() || starts_with_any(&AGENT_TEXT_PREFIXES),
        ItemRole::Model => item.text.is_empty() || starts_with_any(&PLACEHOLDER_ANSWER_PREFIXES),
        ItemRole::Call | ItemRole::Result => false,
    }
}

/// The text of a content that is a string or a list of blocks with texts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str().or(block.as_str()));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reminders_and_environments_are_no_history() {
        let body = json!({ "messages": [
            { "role": "user", "content": [
                { "type": "text", "text": "<system-reminder>a</system-reminder>" },
                { "type": "text", "text": "go" },
            ] },
            { "role": "assistant", "content": [
                { "type": "text", "text": "well" },
                { "type": "tool_use", "id": "t", "name": "Bash", "input": { "command": "ls" } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "t", "content": "x\n<system-reminder>b</system-reminder>" },
            ] },
            { "role": "assistant", "content": "No response requested." },
        ] });
        let items = items(ScriptedAgent::Claude, &body);
        let texts: Vec<_> = items.iter().map(|item| (item.role, item.text.as_str())).collect();
        let expected = [
            (ItemRole::User, "go"),
            (ItemRole::Model, "well"),
            (ItemRole::Call, "Bash {\"command\":\"ls\"}"),
            (ItemRole::Result, "x"),
        ];
        assert_eq!(texts, expected);
        assert_eq!(turns(&items), 1);
    }

    #[test]
    fn calls_made_at_once_are_one_turn_even_if_their_results_come_between() {
        let call =
            |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" });
        let output = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "o" });
        let body = json!({ "input": [
            { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "go" }] },
            call("call_c0t0n0"), output("call_c0t0n0"), call("call_c0t0n1"), output("call_c0t0n1"),
            call("call_c0t1n0"), output("call_c0t1n0"),
        ] });
        assert_eq!(turns(&items(ScriptedAgent::Codex, &body)), 2);
    }

    #[test]
    fn tools_are_found_in_every_wire() {
        assert_eq!(offered(&json!({ "tools": [{ "name": "a" }] })), ["a"]);
        assert_eq!(
            offered(&json!({ "tools": [{ "type": "function", "function": { "name": "a" } }] })),
            ["a"]
        );
        assert_eq!(
            offered(&json!({ "tools": [{ "functionDeclarations": [{ "name": "a" }, { "name": "b" }] }] })),
            ["a", "b"]
        );
        assert!(offered(&json!({ "tools": [] })).is_empty());
    }
}
