//! What commands print with `--json`: the documents of the API, with what scripts get in addition.
//!
//! Here every object has an `id`, which is the path where the object is about a path, and the reason why a path is not
//! stored is a name and not a description.

use serde::Serialize;
use serde_json::{Value, json};
use stepback_api::changes::NumberedChangeDocument;
use stepback_api::files::{ChangeDocument, FileDocument, SkippedPathDocument};
use stepback_api::operations::OperationDocument;
use stepback_api::plans::{ChangeOutcomeDocument, KeptChangeDocument, PlannedChangeDocument};
use stepback_api::steps::StepDocument;
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
    let mut value = json!(StepDocument::of(stored));
    value["detail"] = json!(stored.step.meta.detail);
    value
}

/// Returns an operation, with everything about the move that it made.
pub fn operation(operation: &Operation) -> Value {
    let mut value = json!(OperationDocument::of(operation));
    value["moved"] = json!(operation.action.moved());
    value
}

/// Returns a document about a path, with the path as its id.
fn about_path(document: impl Serialize) -> Value {
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
    let mut value = about_path(FileDocument::of(path, node));
    adapt_node(&mut value, Some(node));
    value
}

/// Returns a change.
pub fn change(change: &PathChange) -> Value {
    let mut value = about_path(ChangeDocument::of(change));
    adapt_node(&mut value["before"], change.before.as_ref());
    adapt_node(&mut value["after"], change.after.as_ref());
    value
}

/// Returns a change with its number, which is its id.
pub fn numbered(numbered: &NumberedChange) -> Value {
    let mut value = json!(NumberedChangeDocument::of(numbered));
    value["id"] = json!(numbered.number);
    adapt_node(&mut value["before"], numbered.change.before.as_ref());
    adapt_node(&mut value["after"], numbered.change.after.as_ref());
    value
}

/// Returns a path that a plan changes.
pub fn planned(change: &PlannedChange) -> Value {
    let mut value = about_path(PlannedChangeDocument::of(change));
    adapt_node(&mut value["now"], change.now.as_ref());
    adapt_node(&mut value["then"], change.then.as_ref());
    value
}

/// Returns the result for a path.
pub fn outcome(outcome: &(PlannedChange, ChangeOutcome)) -> Value {
    let document = ChangeOutcomeDocument::of(outcome);
    let result = if document.done { "done" } else { "left alone" };
    let mut value = about_path(document);
    value["result"] = json!(result);
    value
}

/// Returns a path that was left alone, and the reason.
pub fn left_alone(item: &SkippedPath) -> Value {
    about_path(SkippedPathDocument::of(item))
}

/// Returns a change that a rewind keeps.
pub fn kept(change: &KeptChange) -> Value {
    about_path(KeptChangeDocument::of(change))
}
