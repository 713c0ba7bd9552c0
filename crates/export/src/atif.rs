//! A session as a trajectory in ATIF, the Agent Trajectory Interchange Format (Harbor's RFC 0001), version 1.7.
//!
//! A step of a trajectory is a prompt, an answer of the model with the calls that it requests and their results, or something
//! that the system did. A sub-agent is a trajectory of its own inside that of the session. What is unknown is left out: a
//! trajectory has no zeros that were not recorded.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};
use stepback_llm_wire::prices::Prices;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::record::StepKind;

use crate::recording::{
    AnswerCost, CallEnding, ExportedAnswer, ItemContent, RecordedItem, SessionRecording, ToolCallRecord,
    plain_text,
};

/// The version of the format.
pub const SCHEMA_VERSION: &str = "ATIF-v1.7";

/// Returns a session as a trajectory.
pub fn trajectory(recording: &SessionRecording) -> Value {
    let session = &recording.session;
    let mut by_worker: BTreeMap<Option<&str>, Vec<&RecordedItem>> = BTreeMap::new();
    by_worker.entry(None).or_default();
    for item in &recording.items {
        by_worker.entry(item.worker.as_deref()).or_default().push(item);
    }
    let mut trajectories = by_worker.into_iter().map(|(worker, items)| one(recording, worker, &items));
    let mut main = trajectories.next().unwrap_or_default();
    let workers: Vec<Value> = trajectories.collect();
    main["session_id"] = json!(session.info.external.clone().unwrap_or_else(|| session.id.to_string()));
    let mut extra = json!({
        "stepback_session": session.id,
        "started_at": session.started_at,
        "steps_recorded": recording.steps,
    });
    if let Some(title) = &recording.title {
        extra["title"] = json!(title);
    }
    if recording.purged > 0 {
        extra["steps_without_files"] = json!(recording.purged);
    }
    main["extra"] = extra;
    main["final_metrics"] = final_metrics(recording, &main, !workers.is_empty());
    if !workers.is_empty() {
        main["notes"] = json!("total_steps counts the steps of this trajectory without those of sub-agents.");
        main["subagent_trajectories"] = json!(workers);
    }
    main
}

/// The trajectory of the main agent or of one sub-agent.
fn one(recording: &SessionRecording, worker: Option<&str>, items: &[&RecordedItem]) -> Value {
    let session = &recording.session;
    let mut steps = StepList::default();
    items.iter().for_each(|item| steps.add(item));
    if steps.steps.is_empty() {
        steps.push(json!({ "source": "system", "message": "Nothing was recorded in this session." }));
    }
    let model = session.info.model.clone().or_else(|| recording.totals.models.first().cloned());
    // The version of the agent is not recorded, and the format requires one.
    let mut agent = json!({ "name": worker.unwrap_or(&session.agent), "version": "unknown" });
    if let Some(model) = model {
        agent["model_name"] = json!(model);
    }
    let mut trajectory = json!({ "schema_version": SCHEMA_VERSION, "agent": agent, "steps": steps.steps });
    if let Some(worker) = worker {
        trajectory["trajectory_id"] = json!(format!("{}/{worker}", session.id));
    }
    trajectory
}

/// The steps of a trajectory, in order.
#[derive(Default)]
struct StepList {
    steps: Vec<Value>,
    /// Ids of the calls of the last step.
    last_calls: HashSet<String>,
    unnamed_calls: u64,
    /// Whether calls belong to the last step.
    is_collecting: bool,
}

impl StepList {
    fn push(&mut self, mut step: Value) {
        step["step_id"] = json!(self.steps.len() + 1);
        self.steps.push(step);
        self.last_calls.clear();
        self.is_collecting = false;
    }

    fn add(&mut self, item: &RecordedItem) {
        let mut step = Map::new();
        if let Some(at) = item.at {
            step.insert("timestamp".into(), json!(at.to_string()));
        }
        let mut extra = Map::new();
        if let Some(number) = item.step {
            extra.insert("stepback_step".into(), json!(number));
        }
        if let Some(checkpoint) = &item.checkpoint {
            extra.insert("stepback_checkpoint".into(), json!(checkpoint.step));
        }
        match &item.content {
            ItemContent::Prompt(text) => {
                step.insert("source".into(), json!("user"));
                step.insert("message".into(), json!(text));
            }
            ItemContent::Answer(answer) => add_answer(&mut step, &mut extra, answer),
            ItemContent::Call(call) => return self.add_call(item, call, step, extra),
            ItemContent::Event(event) => {
                let is_told = event.is_error
                    || matches!(
                        event.kind,
                        StepKind::StateChange
                            | StepKind::BreakpointHit
                            | StepKind::Rewind
                            | StepKind::Gap
                            | StepKind::Decision
                            | StepKind::Message
                    );
                if !is_told {
                    return;
                }
                let message = match &event.text {
                    Some(text) => format!("{}\n{text}", event.summary),
                    None => event.summary.clone(),
                };
                step.insert("source".into(), json!("system"));
                step.insert("message".into(), json!(message));
                extra.insert("kind".into(), json!(event.kind.as_str()));
            }
        }
        if !extra.is_empty() {
            step.insert("extra".into(), Value::Object(extra));
        }
        self.push(Value::Object(step));
        self.is_collecting = matches!(item.content, ItemContent::Answer(_));
    }

    /// Adds a call to the answer above it; without one, as a step whose answer was not recorded.
    fn add_call(
        &mut self,
        item: &RecordedItem,
        call: &ToolCallRecord,
        mut step: Map<String, Value>,
        extra: Map<String, Value>,
    ) {
        let recorded = call.id.clone().filter(|id| !id.is_empty());
        let is_repeated = recorded.as_ref().is_some_and(|id| self.last_calls.contains(id));
        if !self.is_collecting || is_repeated {
            step.insert("source".into(), json!("agent"));
            step.insert("message".into(), json!(""));
            self.push(Value::Object(step));
            self.is_collecting = true;
        }
        let id = recorded.unwrap_or_else(|| {
            self.unnamed_calls += 1;
            format!("call-{}", self.unnamed_calls)
        });
        self.last_calls.insert(id.clone());
        let Some(step) = self.steps.last_mut() else { return };
        let mut tool_call =
            json!({ "tool_call_id": id, "function_name": call.tool, "arguments": arguments(&call.input) });
        let mut facts = extra;
        facts.insert("status".into(), json!(status(call.status)));
        if let Some(took) = call.duration {
            facts.insert("duration_us".into(), json!(took));
        }
        if let Some(number) = item.end_step {
            facts.insert("stepback_end_step".into(), json!(number));
        }
        tool_call["extra"] = Value::Object(facts);
        push_to(step, "/tool_calls", "tool_calls", tool_call);
        if call.status != CallEnding::Open {
            let result = json!({ "source_call_id": id, "content": result_text(call) });
            if step.get("observation").is_none() {
                step["observation"] = json!({ "results": [] });
            }
            push_to(&mut step["observation"], "/results", "results", result);
        }
    }
}

fn push_to(value: &mut Value, pointer: &str, name: &str, item: Value) {
    match value.pointer_mut(pointer).and_then(Value::as_array_mut) {
        Some(items) => items.push(item),
        None => value[name] = json!([item]),
    }
}

fn add_answer(step: &mut Map<String, Value>, extra: &mut Map<String, Value>, answer: &ExportedAnswer) {
    step.insert("source".into(), json!("agent"));
    step.insert("message".into(), json!(answer.text()));
    let thoughts = answer.thoughts();
    if !thoughts.is_empty() {
        step.insert("reasoning_content".into(), json!(thoughts));
    }
    if let Some(model) = &answer.model {
        step.insert("model_name".into(), json!(model));
    }
    let mut metrics = answer.usage.map_or_else(Map::new, token_metrics);
    match answer.cost {
        Some(AnswerCost::Recorded(micros)) => {
            metrics.insert("cost_usd".into(), dollars(micros));
        }
        Some(AnswerCost::Listed(micros)) => {
            metrics.insert("cost_usd".into(), dollars(micros));
            let basis = format!("list prices of {}", Prices::table_date());
            metrics.insert("extra".into(), json!({ "cost_basis": basis }));
        }
        None => {}
    }
    // An answer from a recording called no model.
    if answer.replayed {
        extra.insert("replayed".into(), json!(true));
        if thoughts.is_empty() {
            step.insert("llm_call_count".into(), json!(0));
        }
    } else {
        step.insert("llm_call_count".into(), json!(1));
        if !metrics.is_empty() {
            step.insert("metrics".into(), Value::Object(metrics));
        }
    }
    if let Some(error) = &answer.error {
        extra.insert("error".into(), json!(error));
    }
    if let Some(took) = answer.duration {
        extra.insert("duration_us".into(), json!(took));
    }
}

/// Token counts; those of the prompt include what was read from and written to a cache.
fn token_metrics(usage: TokenUsage) -> Map<String, Value> {
    let prompt = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    let mut metrics = Map::new();
    metrics.insert("prompt_tokens".into(), json!(prompt));
    metrics.insert("completion_tokens".into(), json!(usage.output));
    metrics.insert("cached_tokens".into(), json!(usage.cache_read));
    metrics
}

fn final_metrics(recording: &SessionRecording, main: &Value, has_workers: bool) -> Value {
    let totals = &recording.totals;
    let mut metrics = Map::new();
    for (name, value) in totals.tokens.map_or_else(Map::new, token_metrics) {
        metrics.insert(format!("total_{name}"), value);
    }
    if let Some(cost) = totals.cost {
        metrics.insert("total_cost_usd".into(), dollars(cost));
    }
    metrics.insert("total_steps".into(), json!(main["steps"].as_array().map_or(0, Vec::len)));
    let mut extra = Map::new();
    if totals.answers_without_usage > 0 {
        extra.insert("answers_without_usage".into(), json!(totals.answers_without_usage));
    }
    if totals.answers_without_cost > 0 {
        extra.insert("answers_without_cost".into(), json!(totals.answers_without_cost));
    }
    if has_workers {
        extra.insert("includes_subagents".into(), json!(true));
    }
    if !extra.is_empty() {
        metrics.insert("extra".into(), Value::Object(extra));
    }
    Value::Object(metrics)
}

fn dollars(micros: u64) -> Value {
    json!(micros as f64 / 1e6)
}

fn status(ending: CallEnding) -> &'static str {
    match ending {
        CallEnding::Open => "no end recorded",
        CallEnding::Done => "done",
        CallEnding::Failed => "failed",
    }
}

/// The arguments of a call, which must be an object.
fn arguments(input: &Value) -> Value {
    match input {
        Value::Object(_) => input.clone(),
        Value::Null => json!({}),
        other => json!({ "input": other }),
    }
}

fn result_text(call: &ToolCallRecord) -> String {
    let output = match &call.output {
        Value::Null => None,
        output => Some(plain_text(output).unwrap_or_else(|| output.to_string())),
    };
    match (&call.error, output) {
        (Some(error), Some(output)) if *error != output => format!("{output}\n{error}"),
        (Some(error), _) => error.clone(),
        (None, output) => output.unwrap_or_default(),
    }
}
