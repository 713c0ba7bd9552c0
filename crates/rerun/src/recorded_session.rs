//! A recorded session, prepared for a rerun: its model calls and answers, its tool calls and results, and the user's prompts
//! and decisions.

use std::collections::HashMap;

use serde_json::Value;
use stepback_agents::breakpoints::timeout_refusal;
use stepback_agents::decisions::{DecidedCall, RecordedDecision, RecordedReply};
use stepback_agents::record::MESSAGE_PREFIX;
use stepback_engine::{EngineError, Workspace};
use stepback_llm_wire::Exchange;
use stepback_model::json;
use stepback_model::record::{Session, Step, StepKind};
use stepback_store::port::{StepQuery, StepRow};

use crate::replay_responder::recorded_results;

/// A recorded session.
#[derive(Debug)]
pub struct RecordedSession {
    /// Its session record.
    pub session: Session,
    /// Its steps, oldest first.
    pub steps: Vec<StepRow>,
    /// Model calls that have an answer, in the order they began.
    pub exchanges: Vec<Exchange>,
    /// Tool calls, in the order they began.
    pub calls: Vec<ToolCall>,
    /// The user's prompts, oldest first.
    pub prompts: Vec<RecordedPrompt>,
    /// The user's messages to the running agent, between prompts.
    pub injections: Vec<Injection>,
}

/// A message that the user left for a running agent, and that the agent got before it called its model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Injection {
    /// The number of the step that recorded it.
    pub number: u64,
    /// The id of the first model call whose request contains it.
    pub call: String,
    /// Text of the message.
    pub text: String,
}

/// A recorded tool call.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ToolCall {
    /// The numbers of the steps at which it began and ended; `None` if it did not end.
    pub steps: (u64, Option<u64>),
    /// The agent's id of the call, if it has one.
    pub id: Option<String>,
    /// Name of the tool.
    pub tool: String,
    /// The sub-agent that called; `None` for the main agent.
    pub worker: Option<String>,
    /// Input of the call.
    pub input: Value,
    /// Its output, as the agent reported it.
    pub output: Option<Value>,
    /// The user's decision and messages before it ran.
    pub before: RecordedReply,
    /// The user's decision and messages after it ran.
    pub after: RecordedReply,
}

/// A prompt of the user.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedPrompt {
    /// The number of its step.
    pub number: u64,
    /// Text of the prompt.
    pub text: String,
    /// Other messages that the model got with it.
    pub messages: Vec<String>,
}

impl RecordedSession {
    /// Reads a session of `workspace`.
    pub fn load(workspace: &Workspace, session: Session) -> Result<Self, EngineError> {
        let query = StepQuery { session: Some(session.id), ..StepQuery::default() };
        let mut steps = workspace.store().steps(workspace.record.id, &query)?;
        steps.sort_by_key(|stored| stored.step.number);
        let mut recorded = Self {
            session,
            steps: Vec::new(),
            exchanges: Vec::new(),
            calls: Vec::new(),
            prompts: Vec::new(),
            injections: Vec::new(),
        };
        let mut requests: HashMap<String, Value> = HashMap::new();
        let mut order: Vec<String> = Vec::new();
        let mut answered: HashMap<String, Exchange> = HashMap::new();
        let mut waiting: Vec<(u64, String)> = Vec::new();
        let mut stopped = String::new();
        for stored in &steps {
            let step = &stored.step;
            let call = step.meta.call.clone();
            match step.kind {
                StepKind::ModelStart => {
                    if let Some(id) = &call {
                        let injections = waiting.drain(..);
                        let injections =
                            injections.map(|(number, text)| Injection { number, call: id.clone(), text });
                        recorded.injections.extend(injections);
                    }
                    if let (Some(id), Some(input)) = (call, load_detail(workspace, stored)?.remove("input")) {
                        order.push(id.clone());
                        requests.insert(id, input);
                    }
                }
                StepKind::ModelEnd => {
                    let Some(id) = call else { continue };
                    let output = load_detail(workspace, stored)?.remove("output");
                    let request_and_output = requests.remove(&id).zip(output);
                    let exchange = request_and_output.and_then(|(request, response)| {
                        stepback_agents::model_call_inbox::parse_exchange(&id, &request, &response)
                    });
                    answered.extend(exchange.map(|exchange| (id, exchange)));
                }
                StepKind::ToolStart => recorded.calls.push(ToolCall {
                    steps: (step.number, None),
                    id: call,
                    tool: step.meta.tool.clone().unwrap_or_default(),
                    worker: step.meta.worker.clone(),
                    input: load_detail(workspace, stored)?.remove("input").unwrap_or_default(),
                    ..ToolCall::default()
                }),
                StepKind::ToolEnd => {
                    let output = load_detail(workspace, stored)?.remove("output");
                    let open =
                        recorded.calls.iter_mut().find(|open| open.steps.1.is_none() && open.id == call);
                    if let Some(open) = open {
                        open.steps.1 = Some(step.number);
                        open.output = output;
                    }
                }
                StepKind::UserInput => {
                    let input = load_detail(workspace, stored)?.remove("input").unwrap_or_default();
                    let text = input["prompt"].as_str().unwrap_or(&step.summary).to_owned();
                    recorded.prompts.push(RecordedPrompt { number: step.number, text, messages: Vec::new() });
                }
                StepKind::BreakpointHit => stopped.clone_from(&step.summary),
                StepKind::Decision => {
                    let input = load_detail(workspace, stored)?.remove("input").unwrap_or_default();
                    recorded.add_decision(step, input, &stopped);
                }
                StepKind::AgentStep if step.summary.starts_with(MESSAGE_PREFIX) => {
                    let mut input = load_detail(workspace, stored)?.remove("input").unwrap_or_default();
                    if let Value::String(text) = input["text"].take() {
                        waiting.extend(recorded.add_message(&input, text).map(|text| (step.number, text)));
                    }
                }
                _ => {}
            }
        }
        recorded.exchanges = order.iter().filter_map(|id| answered.remove(id)).collect();
        recorded.find_refusals();
        recorded.steps = steps;
        Ok(recorded)
    }

    /// Stores the user's decision about a call that was stopped.
    fn add_decision(&mut self, step: &Step, input: Value, stopped: &str) {
        // Agents report decisions of their own, which have no answer.
        if input.get("answer").is_none() {
            return;
        }
        let tool = step.meta.tool.as_deref().unwrap_or_default();
        let id = input["call"].as_str();
        let is_it = |call: &&mut ToolCall| match id {
            Some(id) => call.id.as_deref() == Some(id),
            None => call.tool == tool && call.input == input["before"],
        };
        let Some(call) = self.calls.iter_mut().rev().find(is_it) else { return };
        let summary = step.summary.clone();
        let timeout = Some(timeout_refusal(stopped.strip_prefix("stopped: ").unwrap_or(stopped)));
        call.current_reply().decision = Some(RecordedDecision { summary, input, timeout });
    }

    /// Stores a message of the user to the agent: with a call, or with a prompt. Returns the text if it belongs to neither,
    /// but to the next model call.
    fn add_message(&mut self, input: &Value, text: String) -> Option<String> {
        let call = input["call"].as_str();
        let call =
            self.calls.iter_mut().rev().find(|candidate| call.is_some() && candidate.id.as_deref() == call);
        let reply = match (call, self.prompts.last_mut()) {
            // A call that was refused has ended by then.
            (Some(call), _) if input["with"] == "start" => &mut call.before.told,
            (Some(call), _) => &mut call.after.told,
            (None, Some(prompt)) if input["with"] == "prompt" => &mut prompt.messages,
            _ => return Some(text),
        };
        reply.push(text);
        None
    }

    /// Finds calls that the agent or its user did not let run: they began, never ended, and the model got a refusal as their
    /// result.
    fn find_refusals(&mut self) {
        let is_open = |call: &ToolCall| call.steps.1.is_none() && call.before.decision.is_none();
        if !self.calls.iter().any(is_open) {
            return;
        }
        let results = recorded_results(&self.exchanges);
        for call in self.calls.iter_mut().filter(|call| is_open(call)) {
            let result = call.id.as_ref().and_then(|id| results.get(id));
            call.before.refused = result.and_then(refusal_text);
        }
    }

    /// Returns all calls with the decisions about them.
    pub fn decided_calls(&self) -> Vec<DecidedCall> {
        let decided = |call: &ToolCall| DecidedCall {
            number: call.steps.0,
            id: call.id.clone(),
            tool: call.tool.clone(),
            input: call.input.clone(),
            before: call.before.clone(),
            after: call.after.clone(),
        };
        self.calls.iter().map(decided).collect()
    }

    /// Returns the step with this number.
    pub fn step(&self, number: u64) -> Option<&StepRow> {
        self.steps.iter().find(|stored| stored.step.number == number)
    }

    /// Returns the index of the prompt that the agent worked on at the step with this number.
    pub fn prompt_at(&self, number: u64) -> Option<usize> {
        self.prompts.iter().rposition(|prompt| prompt.number <= number)
    }
}

/// Texts by which agents tell a model that a call did not run.
const REFUSALS: [&str; 7] = [
    "doesn't want to proceed with this tool use",
    "doesn't want to take this action",
    "has been denied",
    "permission denied by",
    "rejected by user",
    "rejected by the user",
    "[Operation Cancelled]",
];

/// Returns the text of a result that says that the call did not run.
fn refusal_text(result: &Value) -> Option<String> {
    let text = match result.get("content").or_else(|| result.get("output")) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => result.to_string(),
    };
    REFUSALS.iter().any(|words| text.contains(words)).then_some(text)
}

impl ToolCall {
    /// Returns the reply for the call's current state: until the call has ended, decisions are about its start.
    fn current_reply(&mut self) -> &mut RecordedReply {
        if self.steps.1.is_some() { &mut self.after } else { &mut self.before }
    }
}

/// Returns the recorded details of a step.
pub(crate) fn load_detail(
    workspace: &Workspace,
    stored: &StepRow,
) -> Result<serde_json::Map<String, Value>, EngineError> {
    let Some(hash) = stored.step.meta.detail else { return Ok(serde_json::Map::new()) };
    match json::load(workspace.store(), hash)? {
        Value::Object(fields) => Ok(fields),
        _ => Ok(serde_json::Map::new()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_that_says_that_the_call_did_not_run_is_known() {
        let text = "The user doesn't want to proceed with this tool use. The tool use was rejected.";
        let of = |content: Value| {
            refusal_text(&json!({ "tool_use_id": "t", "is_error": true, "content": content }))
        };
        assert_eq!(of(json!(text)).as_deref(), Some(text));
        assert_eq!(of(json!([{ "type": "text", "text": text }])).as_deref(), Some(text));
        assert_eq!(of(json!("make: *** [all] Error 2")), None);
        let output = json!({ "call_id": "c", "type": "function_call_output", "output": "rejected by user" });
        assert_eq!(refusal_text(&output).as_deref(), Some("rejected by user"));
    }
}
