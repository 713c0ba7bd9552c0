//! Spans that stepback itself exported: its own attributes say which steps a span stands for, so that the same steps come back.
//!
//! | `stepback.span` | steps |
//! |---|---|
//! | `session`, `conversation` | none: a frame around everything; an answer that is no step |
//! | `step` | one, of the kind `stepback.step.kind` |
//! | `call` | the start and the end of a call, as far as `stepback.start.number` and `stepback.end.number` say |

use serde::de::DeserializeOwned;
use serde_json::Value;
use stepback_model::event::ReportedError;
use stepback_model::message::AgentMessage;
use stepback_model::record::StepKind;

use crate::attributes::Attributes;

/// What a span stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportedShape {
    /// No step.
    None,
    /// One step.
    Step(StepKind),
    /// A call: whether its start and its end are steps.
    Call {
        /// Whether its start is a step.
        has_start: bool,
        /// Whether its end is a step.
        has_end: bool,
    },
}

/// What stepback's own attributes say.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportedSpan {
    /// What the span stands for.
    pub shape: ExportedShape,
    /// The line about the step, or about the end of the call.
    pub summary: Option<String>,
    /// The line about the start of the call.
    pub start_summary: Option<String>,
    /// The sub-agent.
    pub worker: Option<String>,
    /// The tool of a step that is no call.
    pub tool: Option<String>,
    /// The agent's id of the call.
    pub call: Option<String>,
    /// The input of the step.
    pub input: Option<Value>,
    /// The output of the step.
    pub output: Option<Value>,
    /// The error.
    pub error: Option<ReportedError>,
    /// The message from one agent to another.
    pub message: Option<AgentMessage>,
    /// How long the call took, without waiting, in microseconds.
    pub duration: Option<u64>,
    /// Whether the answer came from a recording.
    pub replayed: bool,
}

/// Takes stepback's own attributes out of those of a span; `None` if it did not write the span.
pub fn take(attributes: &mut Attributes) -> Option<ExportedSpan> {
    let shape = match attributes.text(&["stepback.span"])?.as_str() {
        "session" | "conversation" => ExportedShape::None,
        "step" => {
            let kind = attributes.text(&["stepback.step.kind"]).and_then(|kind| StepKind::parse(&kind));
            // Steps that only stepback makes are not reported by agents, and calls are spans of their own shape.
            let is_reportable = |kind: &StepKind| {
                !kind.is_own()
                    && !matches!(
                        kind,
                        StepKind::ToolStart | StepKind::ToolEnd | StepKind::ModelStart | StepKind::ModelEnd
                    )
            };
            ExportedShape::Step(kind.filter(is_reportable).unwrap_or(StepKind::AgentStep))
        }
        "call" => ExportedShape::Call {
            has_start: attributes.get("stepback.start.number").is_some(),
            has_end: attributes.get("stepback.end.number").is_some(),
        },
        _ => return None,
    };
    let exported = ExportedSpan {
        shape,
        summary: attributes.take_text(&["stepback.step.summary", "stepback.end.summary"]),
        start_summary: attributes.take_text(&["stepback.start.summary"]),
        worker: attributes.take_text(&["stepback.worker"]),
        tool: attributes.take_text(&["stepback.tool"]),
        call: attributes.take_text(&["stepback.call"]),
        input: take_stored(attributes, "stepback.input"),
        output: take_stored(attributes, "stepback.output"),
        error: take_stored(attributes, "stepback.error"),
        message: take_stored(attributes, "stepback.message"),
        duration: attributes.take_count(&["stepback.duration_us"]),
        replayed: attributes.take(&["stepback.replayed"]) == Some(Value::Bool(true)),
    };
    // The numbers are those of another store.
    for name in [
        "stepback.span",
        "stepback.step.kind",
        "stepback.step.number",
        "stepback.start.number",
        "stepback.end.number",
    ] {
        attributes.take(&[name]);
    }
    if matches!(exported.shape, ExportedShape::Step(_)) {
        // What the conventions say of it is in the step's own input.
        for name in ["gen_ai.operation.name", "gen_ai.agent.name", "gen_ai.input.messages", "error.type"] {
            attributes.take(&[name]);
        }
    }
    Some(exported)
}

/// Takes a value that was written as JSON.
fn take_stored<T: DeserializeOwned>(attributes: &mut Attributes, name: &str) -> Option<T> {
    match attributes.take(&[name])? {
        Value::String(text) => serde_json::from_str(&text).ok(),
        other => serde_json::from_value(other).ok(),
    }
}
