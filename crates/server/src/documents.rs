//! How records look outside: the same documents on the command line and over the network.

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
use stepback_model::record::{OpStatus, Operation, Session, Workspace};
use stepback_model::time::Timestamp;
use stepback_store::port::StoredCheckpoint;
use utoipa::ToSchema;

use crate::problem::Problem;

/// A directory tree that agents work in.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct WorkspaceDocument {
    /// Its id.
    pub id: String,
    /// Where it is.
    pub root: String,
    /// When stepback first saw it.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

impl WorkspaceDocument {
    /// Of a record.
    pub fn of(workspace: &Workspace) -> Self {
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
    /// Its id.
    pub id: String,
    /// Where it ran.
    pub workspace: String,
    /// Who ran.
    pub agent: String,
    /// The agent's own id of it.
    pub agent_session: Option<String>,
    /// The first prompt, shortened.
    pub title: Option<String>,
    /// The model, as last seen.
    pub model: Option<String>,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it last did something.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub seen_at: Option<Timestamp>,
    /// When it ended, if it said so.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// `active`, `idle` (nothing was heard of it for an hour), `stopped` (at a breakpoint), `ended` or `prepared`
    /// (a fork that was never started).
    pub status: String,
    /// Model turns so far.
    pub iterations: u64,
    /// What it costs so far, in dollars; nothing if nobody knows.
    pub cost_usd: f64,
    /// Whether it was taken from the agent's own record.
    pub imported: bool,
    /// The session it was forked from.
    pub forked_from: Option<String>,
    /// How many steps it has, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// How many of them went wrong, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
}

impl SessionDocument {
    /// Of a record, and how the session is doing.
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

/// One fact in a session's log.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct StepDocument {
    /// Its id.
    pub id: String,
    /// `#1`, `#2`, … in its workspace.
    pub number: u64,
    /// What it is.
    pub kind: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// A short name that points can use.
    pub label: Option<String>,
    /// Free text.
    pub note: Option<String>,
    /// Tags.
    pub tags: Vec<String>,
    /// What made it a checkpoint; none for a light step.
    pub trigger: Option<String>,
    /// One line for people.
    pub summary: String,
    /// The step it grew from.
    pub parent: Option<String>,
    /// The session it belongs to.
    pub session: String,
    /// Equal states have equal hashes.
    pub state: String,
    /// The model turn.
    pub iteration: u64,
    /// The sub-agent.
    pub worker: Option<String>,
    /// The agent's id of the call.
    pub call: Option<String>,
    /// The tool or model.
    pub tool: Option<String>,
    /// Whether it went wrong.
    pub failed: bool,
    /// How long it took, in microseconds.
    pub duration_us: Option<u64>,
    /// Whether it has files of its own.
    pub checkpoint: bool,
}

impl StepDocument {
    /// Of a row.
    pub fn of(stored: &StoredCheckpoint) -> Self {
        let checkpoint = &stored.checkpoint;
        let (step, annotation) = (&checkpoint.step, &checkpoint.annotation);
        Self {
            id: step.id.to_string(),
            number: step.number,
            kind: step.kind.as_str().to_owned(),
            at: step.at,
            label: annotation.label.clone(),
            note: annotation.note.clone(),
            tags: annotation.tags.clone(),
            trigger: checkpoint.trigger.map(|trigger| trigger.as_str().to_owned()),
            summary: step.summary.clone(),
            parent: step.parent.map(|parent| parent.to_string()),
            session: step.session.to_string(),
            state: step.state.to_string(),
            iteration: step.facts.iteration,
            worker: step.facts.worker.clone(),
            call: step.facts.call.clone(),
            tool: step.facts.tool.clone(),
            failed: step.facts.failed,
            duration_us: step.facts.duration,
            checkpoint: checkpoint.trigger.is_some(),
        }
    }
}

/// A step with everything that is known of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct StepDetailDocument {
    /// The step.
    #[serde(flatten)]
    pub step: StepDocument,
    /// What went in.
    #[schema(value_type = Option<Object>)]
    pub input: Option<Value>,
    /// What came out.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// What went wrong.
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
    /// Tokens, cost, trace ids and the like.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
}

/// Something stepback itself did.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OperationDocument {
    /// Its id.
    pub id: String,
    /// Counts up within the workspace.
    pub number: u64,
    /// `rewind`, `undo`, `checkpoint-create`, …
    pub kind: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// One line for people.
    pub summary: String,
    /// `done`, `reverted`, or `applying` while it is under way.
    pub status: String,
    /// Whether an undo has taken it back.
    pub undone: bool,
    /// The step that holds the files before it, if it changed files.
    pub before: Option<String>,
    /// The step that holds the files after it, if it changed files.
    pub after: Option<String>,
}

impl OperationDocument {
    /// Of a record.
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

    /// Of a record as the store has it, with its number.
    pub fn stored(engine: &Engine<'_>, operation: &Operation) -> Result<Self, Problem> {
        Ok(Self::of(engine.store.operation(operation.id)?.as_ref().unwrap_or(operation)))
    }
}
