//! What commands print with `--json`: the documents of the API, with what scripts get in addition.
//!
//! Here every object has an `id`, which is the path where the object is about a path, and the reason why a path is not
//! stored is a name and not a description.

use serde::Serialize;
use serde_json::{Value, json};
use stepback_api::changes::NumberedChangeDocument;
use stepback_api::files::{ChangeDocument, FileDocument, SkippedPathDocument};
use stepback_api::operations::OperationDocument;
use stepback_api::plans::{
    ChangeOutcomeDocument, KeptChangeDocument, MergeConflictDocument, PlannedChangeDocument,
};
use stepback_api::steps::StepDocument;
use stepback_engine::branch_merge::MergeConflict;
use stepback_engine::changes::NumberedChange;
use stepback_engine::kept::KeptChange;
use stepback_model::change::PathChange;
use stepback_model::path::RelPath;
use stepback_model::plan::{PlannedChange, SkippedPath};
use stepback_model::record::{Operation, StepRow};
use stepback_model::tree::{Content, TreeNode};
use stepback_worktree::apply::ChangeOutcome;

/// Returns a step, with the hash of its detail.
pub fn step(stored: &StepRow) -> Value {
    let mut value = json!(StepDocument::from_row(stored));
    value["detail"] = json!(stored.step.meta.detail);
    value
}

/// Returns an operation, with everything about the move that it made.
pub fn operation(operation: &Operation) -> Value {
    let mut value = json!(OperationDocument::from_operation(operation));
    value["moved"] = json!(operation.action.moved());
    value
}

/// Returns a document about a path, with the path as its id.
fn with_path_id(document: impl Serialize) -> Value {
    let mut value = json!(document);
    value["id"] = value["path"].clone();
    value
}

/// Replaces what scripts get in another form than other readers of a node.
fn adapt_node(value: &mut Value, node: Option<&TreeNode>) {
    match node {
        Some(TreeNode::Skipped { reason }) => value["reason"] = json!(reason),
        Some(TreeNode::File { content: Content::Vaulted, .. }) => value["hash"] = Value::Null,
        _ => {}
    }
}

/// Returns the file, directory or link at a path.
pub fn file(path: &RelPath, node: &TreeNode) -> Value {
    let mut value = with_path_id(FileDocument::from_node(path, node));
    adapt_node(&mut value, Some(node));
    value
}

/// Returns a path that both branches of a merge changed.
pub fn merge_conflict(conflict: &MergeConflict) -> Value {
    let mut value = with_path_id(MergeConflictDocument::from_conflict(conflict));
    for (name, node) in [("base", &conflict.base), ("ours", &conflict.ours), ("theirs", &conflict.theirs)] {
        adapt_node(&mut value[name], node.as_ref());
    }
    value
}

/// Returns a change.
pub fn change(change: &PathChange) -> Value {
    let mut value = with_path_id(ChangeDocument::from_change(change));
    adapt_node(&mut value["before"], change.before.as_ref());
    adapt_node(&mut value["after"], change.after.as_ref());
    value
}

/// Returns a change with its number, which is its id.
pub fn numbered_change(numbered: &NumberedChange) -> Value {
    let mut value = json!(NumberedChangeDocument::from_change(numbered));
    value["id"] = json!(numbered.number);
    adapt_node(&mut value["before"], numbered.change.before.as_ref());
    adapt_node(&mut value["after"], numbered.change.after.as_ref());
    value
}

/// Returns a path that a plan changes.
pub fn planned_change(change: &PlannedChange) -> Value {
    let mut value = with_path_id(PlannedChangeDocument::from_change(change));
    adapt_node(&mut value["now"], change.now.as_ref());
    adapt_node(&mut value["then"], change.then.as_ref());
    value
}

/// Returns the result for a path.
pub fn change_outcome(outcome: &(PlannedChange, ChangeOutcome)) -> Value {
    let document = ChangeOutcomeDocument::from_outcome(outcome);
    let result = if document.done { "done" } else { "left alone" };
    let mut value = with_path_id(document);
    value["result"] = json!(result);
    value
}

/// Returns a path that was left alone, and the reason.
pub fn skipped_path(item: &SkippedPath) -> Value {
    with_path_id(SkippedPathDocument::from_skipped_path(item))
}

/// Returns a change that a rewind keeps.
pub fn kept_change(change: &KeptChange) -> Value {
    with_path_id(KeptChangeDocument::from_change(change))
}
