//! What will happen, and what has happened.

use serde::Serialize;
use stepback_engine::kept::{Audience, KeptChange, SessionName};
use stepback_model::plan::PlannedChange;
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

use super::OperationDocument;
use super::files::{LeftAloneDocument, NodeDocument};

/// A path that will change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct PlannedDocument {
    /// Where.
    pub path: String,
    /// `create`, `restore`, `delete`, `merge` or `set mode of`.
    pub action: String,
    /// What is there now.
    pub now: Option<NodeDocument>,
    /// What will be there.
    pub then: Option<NodeDocument>,
}

impl PlannedDocument {
    /// Of a planned change.
    pub fn of(change: &PlannedChange) -> Self {
        Self {
            path: change.path.display().into_owned(),
            action: change.verb().to_owned(),
            now: change.now.as_ref().map(NodeDocument::of),
            then: change.then.as_ref().map(NodeDocument::of),
        }
    }
}

/// A session by its id and agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct SessionNameDocument {
    /// Its id.
    pub id: String,
    /// The agent.
    pub agent: String,
}

/// A change that is kept because the rewind is not about its author.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct KeptDocument {
    /// The path.
    pub path: String,
    /// `user`, `session`, or `uncertain` if it is not known which of several.
    pub author: String,
    /// The author in words, such as `you` or `session claude 5c7c0a1b`.
    pub by: String,
    /// The sessions that may have made it; empty for the user.
    pub sessions: Vec<SessionNameDocument>,
    /// When the newest change of that author was found.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The number of the step that found it; none if no checkpoint has it yet.
    pub step_number: Option<u64>,
    /// Its number in the list of changes, if the plan is about changes by number.
    pub number: Option<u64>,
}

impl KeptDocument {
    /// Of a kept change.
    pub fn of(change: &KeptChange) -> Self {
        let session =
            |name: &SessionName| SessionNameDocument { id: name.id.to_string(), agent: name.agent.clone() };
        Self {
            path: change.path.display().into_owned(),
            author: change.author.kind().to_owned(),
            by: change.author.name(Audience::User),
            sessions: change.author.sessions.iter().map(session).collect(),
            at: change.at,
            step_number: change.step,
            number: change.number.map(|number| number as u64),
        }
    }
}

/// Exactly what will happen when the plan is applied.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
pub struct PlanDocument {
    /// Its id: another one as soon as the question or what would happen is another.
    pub id: String,
    /// `rewind`, `undo`, `redo` or `switch`.
    pub kind: String,
    /// Where.
    pub workspace: String,
    /// What it is, in words.
    pub summary: String,
    /// Whether git directories take part.
    pub git: bool,
    /// Every path that will change.
    pub items: Vec<PlannedDocument>,
    /// Paths that differ and stay as they are.
    pub left_alone: Vec<LeftAloneDocument>,
    /// What stays because the user or another session changed it.
    pub kept: Vec<KeptDocument>,
    /// Paths that the same plan with `everything` would change and this one does not, or only in part.
    pub everything_changes: Vec<String>,
    /// Why no path will change, if none will.
    pub unchanged_because: Option<String>,
    /// What one should know before agreeing.
    pub warnings: Vec<String>,
    /// The operation that is taken back or brought back.
    pub operation: Option<String>,
    /// Where to agree, with POST.
    pub apply: String,
}

/// What became of a path.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OutcomeDocument {
    /// Where.
    pub path: String,
    /// What was planned.
    pub action: String,
    /// Whether it was done.
    pub done: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How to take something back.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct UndoDocument {
    /// The method.
    pub method: String,
    /// The address.
    pub href: String,
    /// The body.
    #[schema(value_type = Object)]
    pub body: serde_json::Value,
}

/// What was done.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AppliedDocument {
    /// The operation.
    pub operation: OperationDocument,
    /// Number of the step that holds what was there before; none if no file was touched.
    pub before: Option<u64>,
    /// Number of the step that holds what is there now; none if no file was touched.
    pub after: Option<u64>,
    /// What became of every path.
    pub items: Vec<OutcomeDocument>,
    /// What was left alone, from the start or because another process changed it meanwhile.
    pub left_alone: Vec<LeftAloneDocument>,
    /// What stayed because the user or another session changed it.
    pub kept: Vec<KeptDocument>,
    /// Whether something was left alone because of a later change of another author.
    pub partial: bool,
    /// How to take it back.
    pub undo: UndoDocument,
}
