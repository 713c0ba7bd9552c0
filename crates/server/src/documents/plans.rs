//! What will happen, and what has happened.

use serde::Serialize;
use stepback_model::plan::PlannedChange;
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

/// Exactly what will happen if somebody agrees.
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
    /// What was left alone, from the start or because somebody was faster.
    pub left_alone: Vec<LeftAloneDocument>,
    /// Whether something was left alone because of somebody else's change.
    pub partial: bool,
    /// How to take it back.
    pub undo: UndoDocument,
}
