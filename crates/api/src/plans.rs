//! Requests to rewind, undo, redo or switch; the plans made for them; and what applying a plan did.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_model::plan::PlannedChange;
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

use crate::files::{NodeDocument, SkippedPathDocument};
use crate::operations::OperationDocument;

/// What to rewind. Exactly one of `point`, `changes`, `last` and `all` must be given.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewRewind {
    /// The point to rewind to.
    pub point: Option<String>,
    /// Changes to take back, by number.
    pub changes: Vec<usize>,
    /// Take back the last so many changes of agents, or of `session`; those of any author with `everything`.
    pub last: Option<usize>,
    /// Take back all changes of agents, or of `session`; those of any author with `everything`.
    pub all: bool,
    /// Only these paths (globs; a directory includes its contents).
    pub paths: Vec<String>,
    /// Rewind git directories too.
    pub git: bool,
    /// Take back changes of the user and of other sessions too.
    pub everything: bool,
    /// Only what this session changed; errors, calls and iterations in `point` are counted in it.
    pub session: Option<String>,
    /// Only these hunks of the one change that is chosen, counted from 1.
    pub hunks: Vec<usize>,
    /// Replace databases although a process has them open.
    pub force: bool,
}

/// How a branch is to be merged into the present one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewMerge {
    /// Write conflict markers into text files that both branches changed in the same lines.
    pub markers: bool,
    /// Merge only the files, and not what was concluded on the branch.
    pub files_only: bool,
    /// The session into whose board conclusions are merged; the running agent's, else the user's, if none is given.
    pub session: Option<String>,
    /// Replace databases although a process has them open.
    pub force: bool,
}

/// What to undo.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewUndo {
    /// The operation, by id or number; the newest in force if none is given.
    pub operation: Option<String>,
    /// Replace databases although a process has them open.
    pub force: bool,
}

/// Options of a plan that takes no other input.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanOptions {
    /// Replace databases although a process has them open.
    pub force: bool,
}

/// A path that will change.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PlannedChangeDocument {
    /// The path, for display.
    pub path: String,
    /// `create`, `restore`, `delete`, `merge` or `set mode of`.
    pub action: String,
    /// What is there now; none if nothing is.
    pub now: Option<NodeDocument>,
    /// What will be there; none if it will be deleted.
    pub then: Option<NodeDocument>,
}

impl PlannedChangeDocument {
    /// The document of a planned change.
    pub fn from_change(change: &PlannedChange) -> Self {
        Self {
            path: change.path.display().into_owned(),
            action: change.verb().to_owned(),
            now: change.now.as_ref().map(NodeDocument::from_node),
            then: change.then.as_ref().map(NodeDocument::from_node),
        }
    }
}

/// A session by its id and agent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SessionNameDocument {
    /// The session id.
    pub id: String,
    /// The name of the agent.
    pub agent: String,
}

/// A change that is kept because the rewind does not cover its author.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct KeptChangeDocument {
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

/// A path that both branches of a merge changed in ways that do not fit together.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MergeConflictDocument {
    /// The path, for display.
    pub path: String,
    /// Why the versions do not fit together, as a phrase.
    pub reason: String,
    /// Whether conflict markers show both versions; otherwise the path stays as it is.
    pub marked: bool,
    /// What was there where the branches diverged; none if nothing was.
    pub base: Option<NodeDocument>,
    /// What is there on the present branch; none if nothing is.
    pub ours: Option<NodeDocument>,
    /// What is there on the branch that is merged; none if nothing is.
    pub theirs: Option<NodeDocument>,
}

/// What a merge changes on the reasoning board.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MergedBoardDocument {
    /// Items that both sides changed, each in a sentence; they stay as they are here.
    pub conflicts: Vec<String>,
    /// What changes, each in a sentence.
    pub changes: Vec<String>,
}

/// Exactly what applying the plan will do.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PlanDocument {
    /// The plan id; it changes whenever the request or the plan changes.
    pub id: String,
    /// `rewind`, `undo`, `redo` or `switch`.
    pub kind: String,
    /// The id of the workspace.
    pub workspace: String,
    /// The plan in words.
    pub summary: String,
    /// Of a merge: the paths that both branches changed in ways that do not fit together.
    #[serde(default)]
    pub conflicts: Vec<MergeConflictDocument>,
    /// Of a merge: what changes on the reasoning board; none if no board takes part.
    #[serde(default)]
    pub board: Option<MergedBoardDocument>,
    /// Whether git directories are included.
    pub git: bool,
    /// Every path that will change.
    pub items: Vec<PlannedChangeDocument>,
    /// Paths that differ but stay as they are.
    pub left_alone: Vec<SkippedPathDocument>,
    /// Changes that are kept because the user or another session made them.
    pub kept: Vec<KeptChangeDocument>,
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
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ChangeOutcomeDocument {
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

/// The request that undoes an operation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct UndoRequestDocument {
    /// The HTTP method.
    pub method: String,
    /// The path of the URL.
    pub href: String,
    /// The JSON body.
    #[schema(value_type = Object)]
    pub body: Value,
}

/// The result of applying a plan.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AppliedPlanDocument {
    /// The operation that was recorded.
    pub operation: OperationDocument,
    /// The number of the step with the files before it; none if no file was touched.
    pub before: Option<u64>,
    /// The number of the step with the files after it; none if no file was touched.
    pub after: Option<u64>,
    /// The result for every path.
    pub items: Vec<ChangeOutcomeDocument>,
    /// Paths left alone, from the start or because another process changed them meanwhile.
    pub left_alone: Vec<SkippedPathDocument>,
    /// Changes that were kept because the user or another session made them.
    pub kept: Vec<KeptChangeDocument>,
    /// Whether something was left alone because of a later change of another author, or has conflict markers now.
    pub partial: bool,
    /// What changed on the reasoning board, if it moved along.
    #[serde(default)]
    pub board: Option<MergedBoardDocument>,
    /// How to undo it.
    pub undo: UndoRequestDocument,
}
