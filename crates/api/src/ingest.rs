//! Events that agents report over the network, and the answer to a batch of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_model::event::ReportedError;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// A batch of events, in the order in which they happened.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EventBatch {
    /// The workspace: the id or root of one in the store, or the name of one that is not a directory on this machine.
    pub workspace: Option<String>,
    /// The agent of events that name none.
    pub agent: Option<String>,
    /// The events.
    pub events: Vec<NewStep>,
}

/// One event that an agent reports.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewStep {
    /// The agent's name; that of the batch if none is given.
    pub agent: Option<String>,
    /// The agent's own id of the session.
    pub session: String,
    /// What happened: `tool-start`, `tool-end`, `model-start`, `model-end`, `user-input`, `error`, …
    #[schema(value_type = String)]
    pub kind: StepKind,
    /// Identifies the event among those of its kind in the session: the same event delivered again is stored once.
    pub id: Option<String>,
    /// When it happened; the time of arrival if none is given.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Timestamp>,
    /// The id by which the start and the end of a call are paired.
    pub call: Option<String>,
    /// The name of the tool or model.
    pub tool: Option<String>,
    /// The sub-agent that did it; none for the main agent.
    pub worker: Option<String>,
    /// One line for people; generated from the other fields if there is none.
    pub summary: Option<String>,
    /// The input of the call.
    #[schema(value_type = Option<Object>)]
    pub input: Option<Value>,
    /// The output of the call.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// The error: a text, an object or a flag. An empty one means no error.
    pub error: Option<NewStepError>,
    /// How long it took, in microseconds.
    pub duration_us: Option<u64>,
    /// The id of the task that it is part of; the task that its worker is working on if none is given.
    pub task: Option<String>,
    /// The id of the trace that it is part of. This and the next two can be in `metadata` as well.
    pub trace_id: Option<String>,
    /// The id of its span.
    pub span_id: Option<String>,
    /// The id of the span around that one.
    pub parent_span_id: Option<String>,
    /// Tokens and other named values.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// The message from one agent to another; only of a step of kind `message`, which has one.
    pub message: Option<NewAgentMessage>,
    /// The model that the session uses now.
    pub model: Option<String>,
    /// The cost to add to the session, in dollars.
    pub cost_usd: Option<f64>,
    /// Whether the session is over.
    #[serde(default)]
    pub ended: bool,
    /// The messages that the conversation grew by since the last step.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub messages: Vec<Value>,
    /// The agent's whole memory as it is now.
    #[schema(value_type = Option<Object>)]
    pub memory: Option<Value>,
    /// The whole task list as it is now.
    #[schema(value_type = Option<Object>)]
    pub tasks: Option<Value>,
    /// The names of the tools and variables that the session has.
    #[schema(value_type = Option<Object>)]
    pub environment: Option<Value>,
}

/// A message from one agent to another.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgentMessage {
    /// The agent that sends it; the `worker` of the step, or the main agent, if none is given.
    pub sender: Option<String>,
    /// The agent that gets it; the main agent if none is given, `*` for all.
    pub receiver: Option<String>,
    /// The intention, by its name in KQML (`tell`, `ask-one`, `achieve`, `reply`, …) or in A2A (`message/send`, …).
    pub performative: String,
    /// What is said.
    #[schema(value_type = Option<Object>)]
    pub content: Option<Value>,
    /// The id of the message.
    pub id: Option<String>,
    /// The id of the message that it answers.
    pub answers: Option<String>,
}

/// An error, in one of the forms that agents report it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum NewStepError {
    /// Whether there was an error.
    Flag(bool),
    /// The error message.
    Text(String),
    /// The error message, with details.
    Whole {
        /// The type of the error, if it has a name.
        name: Option<String>,
        /// The error message.
        message: String,
        /// The stack trace, if there is one.
        stack: Option<String>,
        /// The cause of the error.
        cause: Option<String>,
    },
}

impl NewStepError {
    /// Returns the error, or `None` if the report is empty.
    pub fn into_reported_error(self) -> Option<ReportedError> {
        match self {
            Self::Flag(is_set) => ReportedError::reported(&is_set.into()),
            Self::Text(message) => ReportedError::reported(&message.into()),
            Self::Whole { name, message, stack, cause } => {
                let is_empty =
                    |text: &Option<String>| text.as_ref().is_none_or(|text| text.trim().is_empty());
                let is_nothing =
                    message.trim().is_empty() && [&name, &stack, &cause].into_iter().all(is_empty);
                (!is_nothing).then_some(ReportedError { name, message, stack, cause })
            }
        }
    }
}

/// The result of a batch. Everything that has a number is durable.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct IngestReportDocument {
    /// The id of the workspace; none if nothing was stored.
    pub workspace: Option<String>,
    /// Events that are stored, now or by an earlier delivery.
    pub accepted: u64,
    /// Events that were rejected.
    pub rejected: u64,
    /// Events that updated the session and are no steps, because the recorder's settings leave them out.
    #[serde(default)]
    pub skipped: u64,
    /// The step number of each event, in order; none if it was rejected or skipped.
    pub steps: Vec<Option<u64>>,
    /// Why events were rejected, one entry for each.
    pub errors: Vec<RejectedEventDocument>,
    /// Bytes cut from long texts.
    pub left_out_bytes: u64,
}

/// Why one event was rejected.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RejectedEventDocument {
    /// The index of the event in the batch, counted from 0.
    pub index: u64,
    /// What is wrong with the event.
    pub detail: String,
}
