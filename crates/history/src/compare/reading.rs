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
use super::align::{AlignmentKey, number_of};
use super::side::ComparedRun;
use crate::error::HistoryError;

/// The data of a side that is compared and counted.
pub struct SideSummary {
    /// One print for each step.
    pub prints: Vec<Print>,
    /// Tokens and cost of the model calls.
    pub spent: Vec<CallUsage>,
    /// The last text that the model answered, if any.
    pub last_words: Option<String>,
}

/// What a step is compared by. Ids, times and directories are not included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Print {
    kind: StepKind,
    tool: u64,
    input: u64,
    output: u64,
    failed: bool,
    summary: u64,
    /// The subject: tool and program, or tool and path. Used only for pairing.
    about: u64,
}

impl Print {
    /// Returns how two paired steps differ.
    pub fn differs(&self, other: &Self) -> Vec<StepDifference> {
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
struct OpenSide {
    input: u64,
    wire: Option<Wire>,
}

impl SideSummary {
    /// Reads the details of all steps.
    pub fn of(source: &dyn ObjectSource, side: &ComparedRun) -> Result<Self, HistoryError> {
        let mut reading =
            Self { prints: Vec::with_capacity(side.steps.len()), spent: Vec::new(), last_words: None };
        let mut begun: HashMap<&str, OpenSide> = HashMap::new();
        let source = LastRead::new(source);
        for step in &side.steps {
            let detail = match step.meta.detail {
                Some(hash) => value::load(&source, hash)?,
                None => Value::Null,
            };
            let call = step.meta.call.as_deref();
            let start = call.and_then(|call| begun.get(call)).cloned().unwrap_or_default();
            reading.take(side, step, &detail, &start);
            if let (StepKind::ToolStart | StepKind::ModelStart, Some(call)) = (step.kind, call) {
                let input = reading.prints.last().map_or(0, |print| print.input);
                let wire = detail.pointer("/input/wire").cloned();
                let wire = wire.and_then(|wire| serde_json::from_value(wire).ok());
                begun.insert(call, OpenSide { input, wire });
            }
        }
        Ok(reading)
    }

    /// Returns the keys by which steps are aligned.
    pub fn keys(&self) -> Vec<AlignmentKey> {
        let key = |print: &Print| {
            let kind = number_of(&print.kind);
            [
                number_of(&(kind, print.tool, print.input, print.summary)),
                number_of(&(kind, print.tool, print.about)),
                number_of(&(kind, print.tool)),
                kind,
            ]
        };
        self.prints.iter().map(key).collect()
    }

    fn take(&mut self, side: &ComparedRun, step: &Step, detail: &Value, start: &OpenSide) {
        let get = |name: &str| detail.get(name).filter(|value| !value.is_null());
        let print = |value: Option<Value>| value.map_or(0, |value| number_of(&value.to_string()));
        let normal = |name: &str| get(name).map(|value| side.normal(value));
        let spent = (step.kind != StepKind::ModelStart).then(|| CallUsage::of(detail)).flatten();
        let mut tool = step.meta.tool.as_ref().map(|tool| tool.to_lowercase());
        let mut said = None;
        let (input, output, summary) = match step.kind {
            StepKind::ToolStart => (print(normal("input")), 0, 0),
            StepKind::ToolEnd => {
                let output = json!([normal("output"), get("error").map(|error| side.normal(error))]);
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
                let answer = answer(side, get("output"), start.wire);
                said = answer.text;
                (0, print(Some(answer.meaning)), 0)
            }
            StepKind::UserInput => (print(normal("input")), 0, 0),
            _ => {
                if step.kind == StepKind::AgentStep {
                    said = get("output").and_then(Value::as_str).map(str::to_string);
                }
                let mut input = normal("input");
                // Some agents give the call of a decision another id in every run.
                if let Some(Value::Object(fields)) = &mut input {
                    fields.remove("call");
                }
                (print(input), print(normal("output")), number_of(&side.plain(&step.summary)))
            }
        };
        if let Some(said) = said.filter(|said| !said.trim().is_empty()) {
            self.last_words = Some(said);
        }
        self.spent.extend(spent);
        self.prints.push(Print {
            kind: step.kind,
            tool: number_of(&tool),
            input,
            output,
            failed: step.meta.failed,
            summary,
            about: number_of(&side.plain(&step.summary).split_whitespace().take(2).collect::<Vec<_>>()),
        });
    }
}

/// The answer of a model, without ids, times and the way it was split into chunks.
struct Answer {
    meaning: Value,
    text: Option<String>,
}

fn answer(side: &ComparedRun, output: Option<&Value>, wire: Option<Wire>) -> Answer {
    let Some(output) = output else { return Answer { meaning: Value::Null, text: None } };
    let Some(answered) = parse_answer(output, wire) else {
        // Agents report the text; for an unknown wire format, only the body is available.
        let body = output.get("body").unwrap_or(output);
        return Answer { meaning: side.normal(body), text: output.as_str().map(str::to_string) };
    };
    let mut text = String::new();
    let mut pieces: Vec<Value> = Vec::new();
    for said in answered.said {
        match said {
            ContentPart::Model(words) => {
                pieces.push(json!(side.plain(&words)));
                text.push_str(&words);
            }
            ContentPart::Call(call) => pieces.push(json!([call.name, side.normal(&call.input)])),
            _ => {}
        }
    }
    let meaning = json!([pieces, answered.stop, answered.error, answered.complete]);
    Answer { meaning, text: Some(text) }
}
