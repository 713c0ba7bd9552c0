//! Documents of plans, and of what applying them did.

use serde::Serialize;
use stepback_engine::kept::{Audience, KeptChange, SessionName};
use stepback_model::plan::PlannedChange;
use stepback_model::time::Timestamp;
use stepback_worktree::apply::ChangeOutcome;
use utoipa::ToSchema;

use super::OperationDocument;
use super::files::{LeftAloneDocument, NodeDocument};

/// A path that will change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct PlannedDocument {
    /// The path, for display.
    pub path: String,
    /// `create`, `restore`, `delete`, `merge` or `set mode of`.
    pub action: String,
    /// What is there now; none if nothing is.
    pub now: Option<NodeDocument>,
    /// What will be there; none if it will be deleted.
    pub then: Option<NodeDocument>,
}

impl PlannedDocument {
    /// The document of a planned change.
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
    /// The session id.
    pub id: String,
    /// The name of the agent.
    pub agent: String,
}

/// A change that is kept because the rewind does not cover its author.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct KeptDocument {
    /// The path, for display.
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
    /// The document of a kept change.
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

/// Exactly what applying the plan will do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
pub struct PlanDocument {
    /// The plan id; it changes whenever the request or the plan changes.
    pub id: String,
    /// `rewind`, `undo`, `redo` or `switch`.
    pub kind: String,
    /// The id of the workspace.
    pub workspace: String,
    /// The plan in words.
    pub summary: String,
    /// Whether git directories are included.
    pub git: bool,
    /// Every path that will change.
    pub items: Vec<PlannedDocument>,
    /// Paths that differ but stay as they are.
    pub left_alone: Vec<LeftAloneDocument>,
    /// Changes that are kept because the user or another session made them.
    pub kept: Vec<KeptDocument>,
    /// Paths that the same plan with `everything` would change and this one does not, or only in part.
    pub everything_changes: Vec<String>,
    /// Why no path will change, if none will.
    pub unchanged_because: Option<String>,
    /// Warnings to read before applying it.
    pub warnings: Vec<String>,
    /// The operation that is undone or redone.
    pub operation: Option<String>,
    /// The path to POST to in order to apply it.
    pub apply: String,
}

/// The result for one path.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OutcomeDocument {
    /// The path, for display.
    pub path: String,
    /// The planned action.
    pub action: String,
    /// Whether it was done.
    pub done: bool,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl OutcomeDocument {
    /// The document of a planned change and its outcome.
    pub fn of((change, outcome): &(PlannedChange, ChangeOutcome)) -> Self {
        let reason = match outcome {
            ChangeOutcome::Done => None,
            ChangeOutcome::LeftAlone(reason) => Some(reason.clone()),
        };
        Self {
            path: change.path.display().into_owned(),
            action: change.verb().to_owned(),
            done: reason.is_none(),
            reason,
        }
    }
}

/// The request that undoes an operation.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct UndoDocument {
    /// The HTTP method.
    pub method: String,
    /// The path of the URL.
    pub href: String,
    /// The JSON body.
    #[schema(value_type = Object)]
    pub body: serde_json::Value,
}

/// The result of applying a plan.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AppliedDocument {
    /// The operation that was recorded.
    pub operation: OperationDocument,
    /// The number of the step with the files before it; none if no file was touched.
    pub before: Option<u64>,
    /// The number of the step with the files after it; none if no file was touched.
    pub after: Option<u64>,
    /// The result for every path.
    pub items: Vec<OutcomeDocument>,
    /// Paths left alone, from the start or because another process changed them meanwhile.
    pub left_alone: Vec<LeftAloneDocument>,
    /// Changes that were kept because the user or another session made them.
    pub kept: Vec<KeptDocument>,
    /// Whether something was left alone because of a later change of another author.
    pub partial: bool,
    /// How to undo it.
    pub undo: UndoDocument,
}
