//! Messages between agents, as the calls of Claude Code's tools tell them: a task for a sub-agent, its answer, and what
//! teammates send to each other.
//!
//! A message is a step of its own beside the call, so that it is drawn from the lane of its sender to that of its receiver.
//! The id of a sub-agent is known only when it answers; until then it is called by its kind.

use serde_json::{Value, json};
use stepback_model::event::AgentEvent;
use stepback_model::message::AgentMessage;
use stepback_model::record::StepKind;

use crate::agent::Agent;
use crate::payload::{HookEvent, summary_line};

/// Tools that give a task to a sub-agent.
const DELEGATING_TOOLS: [&str; 2] = ["Task", "Agent"];

/// Returns the event of the message that a hook event tells of, if it does.
pub fn message_event(hook_event: &HookEvent) -> Option<AgentEvent> {
    let event = &hook_event.event;
    let (tool, call) = (event.tool.as_deref()?, event.call.as_deref()?);
    if event.agent != Agent::Claude.name() {
        return None;
    }
    let input = event.input.as_ref().unwrap_or(&Value::Null);
    let (message, what) = match event.kind {
        StepKind::ToolStart if DELEGATING_TOOLS.contains(&tool) => (request(event, input, call), "asked"),
        StepKind::ToolEnd if DELEGATING_TOOLS.contains(&tool) => (answer(event, input, call)?, "answered"),
        StepKind::ToolEnd if tool == "SendMessage" && event.error.is_none() => {
            (sent(event, input, call)?, "sent")
        }
        _ => return None,
    };
    let summary = summary_line(&message.summary());
    let key = Some(format!("{call} {what}"));
    Some(AgentEvent { key, summary, ..AgentEvent::of_message(&event.agent, &event.session, message) })
}

/// The task that a call gives to a sub-agent.
fn request(event: &AgentEvent, input: &Value, call: &str) -> AgentMessage {
    AgentMessage {
        sender: event.worker.clone(),
        receiver: Some(kind_of_sub_agent(input)),
        performative: "achieve".into(),
        content: input.get("prompt").or_else(|| input.get("description")).cloned().unwrap_or_default(),
        id: Some(call.to_owned()),
        answers: None,
    }
}

/// The answer of a sub-agent, when its call has ended; none if it goes on in the background.
fn answer(event: &AgentEvent, input: &Value, call: &str) -> Option<AgentMessage> {
    let output = event.output.as_ref().unwrap_or(&Value::Null);
    let failure = event.error.as_ref().map(|error| json!(error.message));
    let said = join_parts(output.get("content").unwrap_or(output));
    let performative = if failure.is_some() { "sorry" } else { "reply" };
    let id = output.get("agentId").and_then(Value::as_str).map(str::to_owned);
    Some(AgentMessage {
        sender: Some(id.unwrap_or_else(|| kind_of_sub_agent(input))),
        receiver: event.worker.clone(),
        performative: performative.into(),
        content: failure.or(said)?,
        id: None,
        answers: Some(call.to_owned()),
    })
}

/// What an agent sends to a teammate, to a sub-agent, or to all.
fn sent(event: &AgentEvent, input: &Value, call: &str) -> Option<AgentMessage> {
    let text = |name: &str| input.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let content = input.get("message").or_else(|| input.get("content"))?;
    let kind = content.get("type").and_then(Value::as_str).or_else(|| text("type")).unwrap_or("message");
    let receiver = text("to").or_else(|| text("recipient"));
    let performative = match kind {
        "broadcast" => "broadcast",
        _ if receiver == Some("*") => "broadcast",
        kind if kind.ends_with("_request") => "achieve",
        kind if kind.ends_with("_response") => "reply",
        _ => "tell",
    };
    let answers = content.get("request_id").and_then(Value::as_str).or_else(|| text("request_id"));
    Some(AgentMessage {
        sender: event.worker.clone(),
        receiver: Some(receiver.unwrap_or("*").to_owned()),
        performative: performative.into(),
        content: content.clone(),
        id: Some(call.to_owned()),
        answers: answers.filter(|_| performative == "reply").map(str::to_owned),
    })
}

fn kind_of_sub_agent(input: &Value) -> String {
    let text = |name: &str| input.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    text("name").or_else(|| text("subagent_type")).unwrap_or("sub-agent").to_owned()
}

/// Returns the text of an answer: a text, or the texts of its parts.
fn join_parts(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) if !text.is_empty() => Some(json!(text)),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            (!texts.is_empty()).then(|| json!(texts.join("\n")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload;

    fn message(payload: Value) -> Option<AgentMessage> {
        let mut whole = json!({ "session_id": "s", "tool_use_id": "c1" });
        whole.as_object_mut().unwrap().extend(payload.as_object().unwrap().clone());
        let event = message_event(&payload::read(Agent::Claude, &whole).unwrap())?;
        assert_eq!(event.kind, StepKind::Message);
        event.message.map(|message| *message)
    }

    #[test]
    fn a_sub_agent_gets_its_task_and_answers() {
        let input = json!({ "subagent_type": "Explore", "prompt": "find the parser", "description": "look" });
        let asked = json!({ "hook_event_name": "PreToolUse", "tool_name": "Agent", "tool_input": input });
        let request = message(asked).unwrap();
        assert_eq!(request.summary(), "main → Explore: achieve: find the parser");
        let response = json!({ "status": "completed", "agentId": "a0d6", "content": [{ "type": "text", "text": "src/p.rs" }] });
        let ended = json!({ "hook_event_name": "PostToolUse", "tool_name": "Agent", "tool_input": input, "tool_response": response });
        let reply = message(ended.clone()).unwrap();
        assert_eq!(reply.summary(), "a0d6 → main: reply: src/p.rs");
        assert_eq!(reply.answers, request.id);
        let mut launched = ended;
        launched["tool_response"] = json!({ "status": "async_launched", "agentId": "a0d6" });
        assert_eq!(message(launched), None, "it goes on in the background");
        let failed = json!({ "hook_event_name": "PostToolUseFailure", "tool_name": "Task", "tool_input": input, "error": "no model" });
        assert_eq!(message(failed).unwrap().summary(), "Explore → main: sorry: no model");
    }

    #[test]
    fn teammates_tell_ask_and_answer() {
        let sent = |input: Value| {
            message(
                json!({ "hook_event_name": "PostToolUse", "tool_name": "SendMessage", "tool_input": input,
                "agent_id": "lead", "tool_response": { "success": true } }),
            )
            .unwrap()
        };
        assert_eq!(
            sent(json!({ "to": "tester", "message": "go on" })).summary(),
            "lead → tester: tell: go on"
        );
        assert_eq!(sent(json!({ "to": "*", "message": "stop" })).performative, "broadcast");
        assert_eq!(sent(json!({ "type": "broadcast", "content": "stop" })).receiver.as_deref(), Some("*"));
        let request = json!({ "type": "shutdown_request", "reason": "done" });
        assert_eq!(sent(json!({ "to": "tester", "message": request })).performative, "achieve");
        let reply = sent(
            json!({ "to": "lead", "message": { "type": "shutdown_response", "request_id": "r1", "approve": true } }),
        );
        assert_eq!((reply.performative.as_str(), reply.answers.as_deref()), ("reply", Some("r1")));
    }

    #[test]
    fn other_calls_are_no_messages() {
        let bash = json!({ "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": { "command": "ls" } });
        assert_eq!(message(bash), None);
        assert_eq!(
            message(
                json!({ "hook_event_name": "PostToolUse", "tool_name": "SendMessage", "tool_input": {} })
            ),
            None
        );
        assert_eq!(message(json!({ "hook_event_name": "Stop" })), None);
    }
}
