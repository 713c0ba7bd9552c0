//! A recorded session, ready to be done again: what was asked of the model and what it said, what was called and what came
//! of it, what the person said.

use std::collections::HashMap;

use serde_json::Value;
use stepback_engine::{EngineError, Workspace};
use stepback_exchange::Exchange;
use stepback_model::json;
use stepback_model::record::{Session, StepKind};
use stepback_store::port::{Query, StoredCheckpoint};

/// A recorded session.
#[derive(Debug)]
pub struct Tape {
    /// The session.
    pub session: Session,
    /// Its steps, oldest first.
    pub steps: Vec<StoredCheckpoint>,
    /// Model calls that have an answer, in the order they began.
    pub exchanges: Vec<Exchange>,
    /// Tool calls, in the order they began.
    pub calls: Vec<ToolCall>,
    /// What the person said.
    pub prompts: Vec<Prompt>,
}

/// A tool call.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolCall {
    /// The numbers of the steps at which it began and ended.
    pub steps: (u64, Option<u64>),
    /// The agent's id of it.
    pub id: Option<String>,
    /// The tool.
    pub tool: String,
    /// The sub-agent that called.
    pub worker: Option<String>,
    /// What went in.
    pub input: Value,
    /// What came out, as the agent reported it.
    pub output: Option<Value>,
}

/// Something the person said.
#[derive(Clone, PartialEq, Debug)]
pub struct Prompt {
    /// The number of its step.
    pub number: u64,
    /// What.
    pub text: String,
}

impl Tape {
    /// Reads a session of `workspace`.
    pub fn of(workspace: &Workspace<'_>, session: Session) -> Result<Self, EngineError> {
        let query = Query { session: Some(session.id), ..Query::default() };
        let mut steps = workspace.store().steps(workspace.record.id, &query)?;
        steps.sort_by_key(|stored| stored.checkpoint.step.number);
        let mut tape = Self {
            session,
            steps: Vec::new(),
            exchanges: Vec::new(),
            calls: Vec::new(),
            prompts: Vec::new(),
        };
        let mut asked: HashMap<String, Value> = HashMap::new();
        let mut order: Vec<String> = Vec::new();
        let mut answered: HashMap<String, Exchange> = HashMap::new();
        for stored in &steps {
            let step = &stored.checkpoint.step;
            let call = step.facts.call.clone();
            match step.kind {
                StepKind::ModelStart => {
                    if let (Some(id), Some(input)) = (call, detail(workspace, stored)?.remove("input")) {
                        order.push(id.clone());
                        asked.insert(id, input);
                    }
                }
                StepKind::ModelEnd => {
                    let Some(id) = call else { continue };
                    let output = detail(workspace, stored)?.remove("output");
                    let both = asked.remove(&id).zip(output);
                    let exchange = both.and_then(|(request, response)| {
                        stepback_agents::carried::exchange(&id, &request, &response)
                    });
                    answered.extend(exchange.map(|exchange| (id, exchange)));
                }
                StepKind::ToolStart => tape.calls.push(ToolCall {
                    steps: (step.number, None),
                    id: call,
                    tool: step.facts.tool.clone().unwrap_or_default(),
                    worker: step.facts.worker.clone(),
                    input: detail(workspace, stored)?.remove("input").unwrap_or_default(),
                    output: None,
                }),
                StepKind::ToolEnd => {
                    let output = detail(workspace, stored)?.remove("output");
                    let open = tape.calls.iter_mut().find(|open| open.steps.1.is_none() && open.id == call);
                    if let Some(open) = open {
                        open.steps.1 = Some(step.number);
                        open.output = output;
                    }
                }
                StepKind::UserInput => {
                    let input = detail(workspace, stored)?.remove("input").unwrap_or_default();
                    let text = input["prompt"].as_str().unwrap_or(&step.summary).to_owned();
                    tape.prompts.push(Prompt { number: step.number, text });
                }
                _ => {}
            }
        }
        tape.exchanges = order.iter().filter_map(|id| answered.remove(id)).collect();
        tape.steps = steps;
        Ok(tape)
    }

    /// The step with this number.
    pub fn step(&self, number: u64) -> Option<&StoredCheckpoint> {
        self.steps.iter().find(|stored| stored.checkpoint.step.number == number)
    }

    /// The call that begins or ends at the step with this number.
    pub fn call_at(&self, number: u64) -> Option<&ToolCall> {
        self.calls.iter().find(|call| call.steps.0 == number || call.steps.1 == Some(number))
    }

    /// The prompt that was being worked on at the step with this number; which one of all.
    pub fn prompt_at(&self, number: u64) -> Option<usize> {
        self.prompts.iter().rposition(|prompt| prompt.number <= number)
    }
}

/// What is known of a step besides its place in history.
pub(crate) fn detail(
    workspace: &Workspace<'_>,
    stored: &StoredCheckpoint,
) -> Result<serde_json::Map<String, Value>, EngineError> {
    let Some(hash) = stored.checkpoint.step.facts.detail else { return Ok(serde_json::Map::new()) };
    let value = json::load(workspace.store(), hash)
        .map_err(|error| EngineError::Input(format!("a step cannot be read: {error}")))?;
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Ok(serde_json::Map::new()),
    }
}
