//! The answer of a hook, in each agent's own format.
//!
//! There is no way to answer "allow": that would skip the permission check the user relies on. An empty answer lets the agent
//! continue as if stepback were not there.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::payload::HookPoint;

/// The content of an answer; empty by default.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HookAnswer {
    /// Do not run the call, for this reason.
    pub deny: Option<String>,
    /// Run the call with this input.
    pub input: Option<Value>,
    /// Message for the model.
    pub context: Option<String>,
    /// Message for the user.
    pub note: Option<String>,
}

impl HookAnswer {
    /// Returns the text to print for the agent; `None` if there is nothing to print.
    pub fn render(&self, agent: Agent, event: &str, point: HookPoint) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        let value = match agent {
            Agent::Claude => self.to_claude_json(event, point),
            Agent::Codex => self.to_codex_json(event, point),
            Agent::Gemini => self.to_gemini_json(event, point),
            Agent::Opencode => self.to_opencode_json(),
        };
        value.as_object().is_some_and(|fields| !fields.is_empty()).then(|| value.to_string())
    }

    fn to_claude_json(&self, event: &str, gate: HookPoint) -> Value {
        let mut specific = json!({ "hookEventName": event });
        let mut answer = json!({});
        match (&self.deny, gate) {
            (Some(reason), HookPoint::Before) => {
                specific["permissionDecision"] = json!("deny");
                specific["permissionDecisionReason"] = json!(reason);
            }
            (Some(reason), HookPoint::After | HookPoint::Prompt) => {
                answer["decision"] = json!("block");
                answer["reason"] = json!(reason);
            }
            _ => {}
        }
        if let (Some(input), HookPoint::Before) = (&self.input, gate) {
            specific["updatedInput"] = input.clone();
        }
        if let (Some(context), HookPoint::Before | HookPoint::After | HookPoint::Prompt) =
            (&self.context, gate)
        {
            specific["additionalContext"] = json!(context);
        }
        if specific.as_object().is_some_and(|fields| fields.len() > 1) {
            answer["hookSpecificOutput"] = specific;
        }
        if let Some(note) = &self.note {
            answer["systemMessage"] = json!(note);
        }
        answer
    }

    fn to_codex_json(&self, event: &str, gate: HookPoint) -> Value {
        match gate {
            HookPoint::Before => {
                let deny = self.refusal_reason(Agent::Codex).map(Cow::into_owned);
                Self { deny, input: None, ..self.clone() }.to_claude_json(event, gate)
            }
            _ => self.to_claude_json(event, gate),
        }
    }

    /// Whether an agent can run a call with a different input than the model gave it.
    ///
    /// Codex accepts a changed input only together with an "allow", which stepback never sends; the model is asked to call
    /// again instead.
    pub fn can_change_input(agent: Agent) -> bool {
        agent != Agent::Codex
    }

    /// Returns why a call that is about to run will not, if this answer means that for the agent.
    pub fn refusal_reason(&self, agent: Agent) -> Option<Cow<'_, str>> {
        match (&self.deny, &self.input) {
            (Some(reason), _) => Some(reason.into()),
            (None, Some(input)) if !Self::can_change_input(agent) => Some(Cow::Owned(format!(
                "The user changed the input of this call. Call the tool again with exactly this input: {input}"
            ))),
            _ => None,
        }
    }

    fn to_gemini_json(&self, event: &str, gate: HookPoint) -> Value {
        let mut answer = json!({});
        if let Some(reason) = &self.deny {
            answer["decision"] = json!("deny");
            answer["reason"] = json!(reason);
        }
        if let (Some(input), HookPoint::Before) = (&self.input, gate) {
            answer["hookSpecificOutput"] = json!({ "hookEventName": event, "tool_input": input });
        }
        if let (Some(context), HookPoint::After | HookPoint::Prompt) = (&self.context, gate) {
            answer["hookSpecificOutput"] = json!({ "hookEventName": event, "additionalContext": context });
        }
        if let Some(note) = &self.note {
            answer["systemMessage"] = json!(note);
        }
        answer
    }

    fn to_opencode_json(&self) -> Value {
        let mut answer = json!({});
        if let Some(reason) = &self.deny {
            answer["decision"] = json!("deny");
            answer["reason"] = json!(reason);
        }
        if let Some(input) = &self.input {
            answer["tool_input"] = input.clone();
        }
        if let Some(context) = &self.context {
            answer["context"] = json!(context);
        }
        answer
    }

    /// Whether a message for the model can be delivered at this point.
    pub fn can_deliver_message(agent: Agent, point: HookPoint) -> bool {
        match agent {
            Agent::Claude | Agent::Codex => {
                matches!(point, HookPoint::Before | HookPoint::After | HookPoint::Prompt)
            }
            Agent::Gemini => matches!(point, HookPoint::After | HookPoint::Prompt),
            Agent::Opencode => point == HookPoint::After,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_say_is_no_output_and_nothing_ever_says_allow() {
        let answers = [
            HookAnswer::default(),
            HookAnswer { deny: Some("no".into()), ..HookAnswer::default() },
            HookAnswer { input: Some(json!({"command": "ls"})), ..HookAnswer::default() },
            HookAnswer { context: Some("hint".into()), note: Some("saved".into()), ..HookAnswer::default() },
        ];
        for agent in Agent::ALL {
            for gate in
                [HookPoint::Before, HookPoint::After, HookPoint::Prompt, HookPoint::Done, HookPoint::Other]
            {
                assert_eq!(answers[0].render(agent, "PreToolUse", gate), None);
                for answer in &answers {
                    let text = answer.render(agent, "PreToolUse", gate).unwrap_or_default();
                    assert!(!text.contains("allow") && !text.contains("approve"), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_refusal_is_one_in_every_dialect() {
        let answer = HookAnswer { deny: Some("not now".into()), ..HookAnswer::default() };
        let claude = answer.render(Agent::Claude, "PreToolUse", HookPoint::Before).unwrap();
        assert!(claude.contains(r#""permissionDecision":"deny""#), "{claude}");
        let gemini = answer.render(Agent::Gemini, "BeforeTool", HookPoint::Before).unwrap();
        assert!(gemini.contains(r#""decision":"deny""#), "{gemini}");
    }

    #[test]
    fn codex_is_asked_to_call_again_with_the_new_input() {
        let answer = HookAnswer { input: Some(json!({"command": "ls"})), ..HookAnswer::default() };
        let text = answer.render(Agent::Codex, "PreToolUse", HookPoint::Before).unwrap();
        assert!(text.contains("deny") && text.contains("ls"), "{text}");
        // So Codex will not run this call; an agent that accepts the new input will.
        assert!(answer.refusal_reason(Agent::Codex).is_some_and(|reason| reason.contains("ls")));
        assert_eq!(answer.refusal_reason(Agent::Claude), None);
    }
}
