//! Reads the steps of one side and reduces each to what it is compared by.

use std::collections::HashMap;

use serde_json::{Value, json};
use stepback_engine::read_cache::LastRead;
use stepback_llm_wire::Wire;
use stepback_llm_wire::recorded_call::{CallUsage, parse_answer};
use stepback_llm_wire::semantics::ContentPart;
use stepback_model::json as value;
use stepback_model::object::ObjectSource;
use stepback_model::record::{Step, StepKind};

use super::StepDifference;
use super::align::{AlignmentKey, hash_value};
use super::side::ComparedRun;
use crate::error::HistoryError;

/// The data of a side that is compared and counted.
pub struct SideSummary {
    /// One print for each step.
    pub fingerprints: Vec<StepFingerprint>,
    /// Tokens and cost of the model calls.
    pub usage: Vec<CallUsage>,
    /// The last text that the model answered, if any.
    pub last_answer: Option<String>,
}

/// What a step is compared by. Ids, times and directories are not included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepFingerprint {
    kind: StepKind,
    tool: u64,
    input: u64,
    output: u64,
    failed: bool,
    summary: u64,
    /// The subject: tool and program, or tool and path. Used only for pairing.
    subject: u64,
}

impl StepFingerprint {
    /// Returns how two paired steps differ.
    pub fn differences(&self, other: &Self) -> Vec<StepDifference> {
        let mut parts = Vec::new();
        let mut put = |differs: bool, part| {
            if differs {
                parts.push(part);
            }
        };
        put(self.tool != other.tool, StepDifference::Tool);
        put(self.input != other.input, StepDifference::Input);
        put(self.output != other.output, StepDifference::Output);
        put(self.failed != other.failed, StepDifference::Outcome);
        put(self.summary != other.summary, StepDifference::Summary);
        parts
    }
}

/// Data from the start of a call that is needed at its end.
#[derive(Clone, Default)]
struct CallStart {
    input: u64,
    wire: Option<Wire>,
}

impl SideSummary {
    /// Reads the details of all steps.
    pub fn read(source: &dyn ObjectSource, side: &ComparedRun) -> Result<Self, HistoryError> {
        let mut reading =
            Self { fingerprints: Vec::with_capacity(side.steps.len()), usage: Vec::new(), last_answer: None };
        let mut open_calls: HashMap<&str, CallStart> = HashMap::new();
        let source = LastRead::new(source);
        for step in &side.steps {
            let detail = match step.meta.detail {
                Some(hash) => value::load(&source, hash)?,
                None => Value::Null,
            };
            let call = step.meta.call.as_deref();
            let start = call.and_then(|call| open_calls.get(call)).cloned().unwrap_or_default();
            reading.add_step(side, step, &detail, &start);
            if let (StepKind::ToolStart | StepKind::ModelStart, Some(call)) = (step.kind, call) {
                let input = reading.fingerprints.last().map_or(0, |print| print.input);
                let wire = detail.pointer("/input/wire").cloned();
                let wire = wire.and_then(|wire| serde_json::from_value(wire).ok());
                open_calls.insert(call, CallStart { input, wire });
            }
        }
        Ok(reading)
    }

    /// Returns the keys by which steps are aligned.
    pub fn alignment_keys(&self) -> Vec<AlignmentKey> {
        let key = |print: &StepFingerprint| {
            let kind = hash_value(&print.kind);
            [
                hash_value(&(kind, print.tool, print.input, print.summary)),
                hash_value(&(kind, print.tool, print.subject)),
                hash_value(&(kind, print.tool)),
                kind,
            ]
        };
        self.fingerprints.iter().map(key).collect()
    }

    fn add_step(&mut self, side: &ComparedRun, step: &Step, detail: &Value, start: &CallStart) {
        let get = |name: &str| detail.get(name).filter(|value| !value.is_null());
        let print = |value: Option<Value>| value.map_or(0, |value| hash_value(&value.to_string()));
        let normal = |name: &str| get(name).map(|value| side.normalize_value(value));
        let spent = (step.kind != StepKind::ModelStart).then(|| CallUsage::of(detail)).flatten();
        let mut tool = step.meta.tool.as_ref().map(|tool| tool.to_lowercase());
        let mut answer_text = None;
        let (input, output, summary) = match step.kind {
            StepKind::ToolStart => (print(normal("input")), 0, 0),
            StepKind::ToolEnd => {
                let output = json!([normal("output"), get("error").map(|error| side.normalize_value(error))]);
                // An end without an input uses the input of the call's start.
                let input = if start.input == 0 { print(normal("input")) } else { start.input };
                (input, print(Some(output)), 0)
            }
            // The request contains the whole conversation so far, which the other steps already cover.
            StepKind::ModelStart => {
                let model = detail.pointer("/input/body/model").and_then(Value::as_str);
                tool = model.map(str::to_string).or(tool);
                (0, 0, 0)
            }
            StepKind::ModelEnd => {
                tool = spent.as_ref().and_then(|spent| spent.model.clone()).or(tool);
                let normalized = normalize_answer(side, get("output"), start.wire);
                answer_text = normalized.text;
                (0, print(Some(normalized.meaning)), 0)
            }
            StepKind::UserInput => (print(normal("input")), 0, 0),
            _ => {
                if step.kind == StepKind::AgentStep {
                    answer_text = get("output").and_then(Value::as_str).map(str::to_string);
                }
                let mut input = normal("input");
                // Some agents give the call of a decision another id in every run.
                if let Some(Value::Object(fields)) = &mut input {
                    fields.remove("call");
                }
                (print(input), print(normal("output")), hash_value(&side.normalize_text(&step.summary)))
            }
        };
        if let Some(answer_text) = answer_text.filter(|answer_text| !answer_text.trim().is_empty()) {
            self.last_answer = Some(answer_text);
        }
        self.usage.extend(spent);
        self.fingerprints.push(StepFingerprint {
            kind: step.kind,
            tool: hash_value(&tool),
            input,
            output,
            failed: step.meta.failed,
            summary,
            subject: hash_value(
                &side.normalize_text(&step.summary).split_whitespace().take(2).collect::<Vec<_>>(),
            ),
        });
    }
}

/// The answer of a model, without ids, times and the way it was split into chunks.
struct NormalizedAnswer {
    meaning: Value,
    text: Option<String>,
}

fn normalize_answer(side: &ComparedRun, output: Option<&Value>, wire: Option<Wire>) -> NormalizedAnswer {
    let Some(output) = output else { return NormalizedAnswer { meaning: Value::Null, text: None } };
    let Some(answered) = parse_answer(output, wire) else {
        // Agents report the text; for an unknown wire format, only the body is available.
        let body = output.get("body").unwrap_or(output);
        return NormalizedAnswer {
            meaning: side.normalize_value(body),
            text: output.as_str().map(str::to_string),
        };
    };
    let mut text = String::new();
    let mut pieces: Vec<Value> = Vec::new();
    for part in answered.content {
        match part {
            ContentPart::Model(words) => {
                pieces.push(json!(side.normalize_text(&words)));
                text.push_str(&words);
            }
            ContentPart::Call(call) => pieces.push(json!([call.name, side.normalize_value(&call.input)])),
            _ => {}
        }
    }
    let meaning = json!([pieces, answered.stop, answered.error, answered.complete]);
    NormalizedAnswer { meaning, text: Some(text) }
}
