//! Steps: the entries in the log of a session, and the events that announce them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_model::record::StepRow;
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// One entry in a session's log.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StepDocument {
    /// The step id.
    pub id: String,
    /// The number in its workspace: `#1`, `#2`, …
    pub number: u64,
    /// The kind of step: `tool-start`, `user-input`, …
    pub kind: String,
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// A short name that points can use.
    pub label: Option<String>,
    /// Free text.
    pub note: Option<String>,
    /// Tags.
    pub tags: Vec<String>,
    /// What created the checkpoint; none for a step that is not a checkpoint.
    pub trigger: Option<String>,
    /// One line for people.
    pub summary: String,
    /// The id of the step it grew from.
    pub parent: Option<String>,
    /// The id of its session.
    pub session: String,
    /// The hash of the state; equal states have equal hashes.
    pub state: String,
    /// The number of the model turn.
    pub iteration: u64,
    /// The sub-agent; none for the main agent.
    pub worker: Option<String>,
    /// The agent's own id of the call.
    pub call: Option<String>,
    /// The name of the tool or model.
    pub tool: Option<String>,
    /// The id of the task that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The id of the trace that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The id of its span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_id: Option<String>,
    /// The id of the span around that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
    /// Whether it failed.
    pub failed: bool,
    /// How long it took, in microseconds.
    pub duration_us: Option<u64>,
    /// Whether it is a checkpoint, with files of its own.
    pub checkpoint: bool,
}

impl StepDocument {
    /// The document of a step.
    pub fn from_row(stored: &StepRow) -> Self {
        let (step, annotation) = (&stored.step, &stored.annotation);
        Self {
            id: step.id.to_string(),
            number: step.number,
            kind: step.kind.as_str().to_owned(),
            at: step.at,
            label: annotation.label.clone(),
            note: annotation.note.clone(),
            tags: annotation.tags.clone(),
            trigger: stored.trigger.map(|trigger| trigger.as_str().to_owned()),
            summary: step.summary.clone(),
            parent: step.parent.map(|parent| parent.to_string()),
            session: step.session.to_string(),
            state: step.state.to_string(),
            iteration: step.meta.iteration,
            worker: step.meta.worker.clone(),
            call: step.meta.call.clone(),
            tool: step.meta.tool.clone(),
            task: step.meta.context.task.clone(),
            trace_id: step.meta.context.trace.clone(),
            span_id: step.meta.context.span.clone(),
            parent_span_id: step.meta.context.parent_span.clone(),
            failed: step.meta.failed,
            duration_us: step.meta.duration,
            checkpoint: stored.trigger.is_some(),
        }
    }

    /// Whether the step failed, as the engine's `timeline::is_error` decides: a gap in the recording is not an error of the
    /// agent.
    pub fn is_error(&self) -> bool {
        self.kind != "gap" && (self.failed || self.kind == "error")
    }
}

/// A step with all its details.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StepDetailDocument {
    /// The step.
    #[serde(flatten)]
    pub step: StepDocument,
    /// The input of the tool or model call, or the text of a prompt.
    #[schema(value_type = Option<Object>)]
    pub input: Option<Value>,
    /// The output of the call; none for a step that starts one.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// The error of the step; none if it did not fail.
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
    /// The message from one agent to another, if the step is one.
    pub message: Option<AgentMessageDocument>,
    /// Tokens, cost, trace ids and the like.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// Which of input and output were cut, each with the size of the whole in `bytes`; none if both are whole.
    #[schema(value_type = Option<Object>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Value>,
    /// The parts of the event that the recorder's settings leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_recorded: Vec<String>,
    /// How many events of the session were skipped before this step, by kind; none if there was none.
    #[schema(value_type = Option<Object>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Value>,
    /// Where the step is in its session; only where one step is requested.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub position: Option<StepPositionDocument>,
}

/// Where a step is among the steps of its session.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StepPositionDocument {
    /// Its place, counted from 1; the number of the step counts the steps of all sessions of the workspace.
    pub position: u64,
    /// The number of steps of the session.
    pub total: u64,
    /// Whether a step follows.
    pub can_forward: bool,
    /// Whether a step precedes it.
    pub can_backward: bool,
}

impl StepDetailDocument {
    /// Builds the document from a row of the log and the step's detail, an object with `input`, `output`, `error` and
    /// `metadata`; other fields of it are left out.
    pub fn from_row(stored: &StepRow, detail: Option<Value>) -> Self {
        let mut fields = match detail {
            Some(Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        Self {
            step: StepDocument::from_row(stored),
            input: fields.remove("input"),
            output: fields.remove("output"),
            error: fields.remove("error"),
            message: fields.remove("message").and_then(|message| serde_json::from_value(message).ok()),
            metadata: fields.remove("metadata"),
            truncated: fields.remove("truncated"),
            not_recorded: fields
                .remove("not_recorded")
                .and_then(|parts| serde_json::from_value(parts).ok())
                .unwrap_or_default(),
            skipped: fields.remove("skipped"),
            position: None,
        }
    }
}

impl StepPositionDocument {
    /// Builds the document from a place, counted from 1, and the number of all steps.
    pub fn new(position: u64, total: u64) -> Self {
        Self { position, total, can_forward: position < total, can_backward: position > 1 }
    }
}

/// A message from one agent to another.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct AgentMessageDocument {
    /// The agent that sends it; none for the main agent.
    pub sender: Option<String>,
    /// The agent that gets it; none for the main agent, `*` for all.
    pub receiver: Option<String>,
    /// The intention, by its name in KQML or A2A.
    pub performative: String,
    /// What is said.
    #[schema(value_type = Option<Object>)]
    pub content: Value,
    /// The id of the message.
    pub id: Option<String>,
    /// The id of the message that it answers.
    pub answers: Option<String>,
}

/// A step, and its position in the log.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StepEventDocument {
    /// The position in the log; the `id` of the event.
    pub position: u64,
    /// The id of the workspace.
    pub workspace: String,
    /// The step.
    #[serde(flatten)]
    pub step: StepDocument,
}

/// One event, as it is sent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StreamEventDocument {
    /// The type of the event: `step`, `stops` or `changed`.
    pub event: Option<String>,
    /// The position in the log up to which all steps were sent.
    pub id: Option<String>,
    /// For a `step`, a `StepEventDocument` as JSON; for `stops`, a page of `StopDocument`.
    pub data: Option<String>,
}
