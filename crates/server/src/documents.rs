//! The JSON documents of records: the same on the command line and over the network.

pub mod branches;
pub mod control;
pub mod files;
pub mod find;
pub mod mind;
pub mod plans;
pub mod timeline;

use serde::Serialize;
use serde_json::Value;
use stepback_engine::Engine;
use stepback_model::record::StepRow;
use stepback_model::record::{OpStatus, Operation, Session, WorkspaceRecord};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

use crate::problem::Problem;

/// A directory tree that agents work in.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct WorkspaceDocument {
    /// The workspace id.
    pub id: String,
    /// The path of its root directory.
    pub root: String,
    /// When it was registered.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

impl WorkspaceDocument {
    /// The document of a workspace.
    pub fn of(workspace: &WorkspaceRecord) -> Self {
        Self {
            id: workspace.id.to_string(),
            root: stepback_model::path::display_bytes(&workspace.root).into_owned(),
            created_at: workspace.created_at,
        }
    }
}

/// One recorded run of one agent.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SessionDocument {
    /// The session id.
    pub id: String,
    /// The id of its workspace.
    pub workspace: String,
    /// The name of the agent.
    pub agent: String,
    /// The agent's own id of the session.
    pub agent_session: Option<String>,
    /// The first prompt, shortened.
    pub title: Option<String>,
    /// The model, as last reported.
    pub model: Option<String>,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it was last active.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub seen_at: Option<Timestamp>,
    /// When it ended; none if the agent did not report an end.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// `active`, `idle` (no activity for an hour), `stopped` (at a breakpoint), `ended` or `prepared` (a fork that was never
    /// started).
    pub status: String,
    /// Number of model turns so far.
    pub iterations: u64,
    /// The cost so far, in dollars; 0 if it is not known.
    pub cost_usd: f64,
    /// Whether it was imported from the agent's own transcript.
    pub imported: bool,
    /// The id of the session it was forked from.
    pub forked_from: Option<String>,
    /// Number of steps, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Number of steps that failed, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
}

impl SessionDocument {
    /// The document of a session with its status.
    pub fn of(session: &Session, status: &str) -> Self {
        let info = &session.info;
        Self {
            id: session.id.to_string(),
            workspace: session.workspace.to_string(),
            agent: session.agent.clone(),
            agent_session: info.external.clone(),
            title: info.title.clone(),
            model: info.model.clone(),
            started_at: session.started_at,
            seen_at: info.seen_at,
            ended_at: info.ended_at,
            status: status.to_owned(),
            iterations: info.iteration,
            cost_usd: info.cost as f64 / 1e6,
            imported: info.imported,
            forked_from: info.forked_from.map(|(session, _)| session.to_string()),
            steps: None,
            errors: None,
        }
    }
}

/// One entry in a session's log.
#[derive(Clone, Debug, Serialize, ToSchema)]
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
    /// Whether it failed.
    pub failed: bool,
    /// How long it took, in microseconds.
    pub duration_us: Option<u64>,
    /// Whether it is a checkpoint, with files of its own.
    pub checkpoint: bool,
}

impl StepDocument {
    /// The document of a step.
    pub fn of(stored: &StepRow) -> Self {
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
            failed: step.meta.failed,
            duration_us: step.meta.duration,
            checkpoint: stored.trigger.is_some(),
        }
    }
}

/// A step with all its details.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct StepDetailDocument {
    /// The step.
    #[serde(flatten)]
    pub step: StepDocument,
    /// The input of the call.
    #[schema(value_type = Option<Object>)]
    pub input: Option<Value>,
    /// The output of the call.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// The error, if it failed.
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
    /// Tokens, cost, trace ids and the like.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
}

/// An operation of stepback itself, such as a rewind.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OperationDocument {
    /// The operation id.
    pub id: String,
    /// The number, counting up within the workspace.
    pub number: u64,
    /// `rewind`, `undo`, `checkpoint-create`, …
    pub kind: String,
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// One line for people.
    pub summary: String,
    /// `done`, `reverted`, or `applying` while it is in progress.
    pub status: String,
    /// Whether it was undone.
    pub undone: bool,
    /// The step that holds the files before it, if it changed files.
    pub before: Option<String>,
    /// The step that holds the files after it, if it changed files.
    pub after: Option<String>,
}

impl OperationDocument {
    /// The document of an operation.
    pub fn of(operation: &Operation) -> Self {
        let moved = operation.action.moved();
        let status = match operation.status {
            OpStatus::Applying => "applying",
            OpStatus::Done => "done",
            OpStatus::Reverted => "reverted",
        };
        Self {
            id: operation.id.to_string(),
            number: operation.number,
            kind: operation.action.kind().to_owned(),
            at: operation.at,
            summary: operation.summary.clone(),
            status: status.to_owned(),
            undone: operation.undone,
            before: moved.map(|moved| moved.before.to_string()),
            after: moved.map(|moved| moved.after.to_string()),
        }
    }

    /// The document of an operation as it is in the store, with its number.
    pub fn stored(engine: &Engine, operation: &Operation) -> Result<Self, Problem> {
        Ok(Self::of(engine.store.operation(operation.id)?.as_ref().unwrap_or(operation)))
    }
}
