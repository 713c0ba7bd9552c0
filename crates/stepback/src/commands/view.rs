//! How records are shown as JSON and as lines, the same in every command.

use serde_json::{Value, json};
use stepback_engine::kept::{Audience, KeptChange, SessionName};
use stepback_model::change::PathChange;
use stepback_model::escape::safe;
use stepback_model::path::RelPath;
use stepback_model::plan::SkippedPath;
use stepback_model::record::Operation;
use stepback_model::record::StepRow;
use stepback_model::tree::{Content, TreeNode};

/// Returns a checkpoint as JSON.
pub fn checkpoint(stored: &StepRow) -> Value {
    let step = &stored.step;
    json!({
        "id": step.id,
        "number": step.number,
        "kind": step.kind,
        "at": step.at,
        "label": stored.annotation.label,
        "note": stored.annotation.note,
        "tags": stored.annotation.tags,
        "trigger": stored.trigger,
        "summary": step.summary,
        "parent": step.parent,
        "session": step.session,
        "state": step.state,
    })
}

/// Returns a step as JSON, with what is recorded about the agent's action.
pub fn step(stored: &StepRow) -> Value {
    let facts = &stored.step.meta;
    let mut value = checkpoint(stored);
    value["iteration"] = json!(facts.iteration);
    value["worker"] = json!(facts.worker);
    value["call"] = json!(facts.call);
    value["tool"] = json!(facts.tool);
    value["failed"] = json!(facts.failed);
    value["duration_us"] = json!(facts.duration);
    value["detail"] = json!(facts.detail);
    value["checkpoint"] = json!(stored.is_checkpoint());
    value
}

/// Returns an operation as JSON.
pub fn operation(operation: &Operation) -> Value {
    json!({
        "id": operation.id,
        "number": operation.number,
        "kind": operation.action.kind(),
        "at": operation.at,
        "summary": operation.summary,
        "status": operation.status,
        "undone": operation.undone,
        "moved": operation.action.moved(),
    })
}

/// Returns a change as JSON.
pub fn change(change: &PathChange) -> Value {
    let mut value = json!({
        "id": change.path,
        "path": change.path,
        "kind": change.kind(),
        "before": change.before.as_ref().map(node),
        "after": change.after.as_ref().map(node),
    });
    if let Some(from) = &change.from {
        value["from"] = json!(from);
    }
    value
}

/// Returns a node as JSON.
pub fn node(node: &TreeNode) -> Value {
    match node {
        TreeNode::File { mode, size, content } => {
            let hash = match content {
                Content::Whole(hash) | Content::Chunked(hash) => Some(hash),
                Content::Vaulted => None,
            };
            json!({ "type": "file", "mode": octal(*mode), "size": size, "hash": hash })
        }
        TreeNode::Dir { mode, .. } => json!({ "type": "directory", "mode": octal(*mode) }),
        TreeNode::Symlink { target } => {
            json!({ "type": "symlink", "target": stepback_model::path::display_bytes(target) })
        }
        TreeNode::Skipped { reason } => json!({ "type": "excluded", "reason": reason }),
    }
}

/// Returns a path that was left alone, and the reason, as JSON.
pub fn left_alone(item: &SkippedPath) -> Value {
    json!({ "id": item.path, "path": item.path, "reason": item.reason })
}

/// Returns a change that a rewind keeps, as JSON.
pub fn kept(change: &KeptChange) -> Value {
    let session = |session: &SessionName| json!({ "id": session.id, "agent": session.agent });
    json!({
        "id": change.path,
        "path": change.path,
        "author": change.author.kind(),
        "by": change.author.name(Audience::User),
        "sessions": change.author.sessions.iter().map(session).collect::<Vec<_>>(),
        "at": change.at,
        "step_number": change.step,
        "number": change.number,
    })
}

/// Formats permission bits the way `chmod` takes them.
pub fn octal(mode: u32) -> String {
    format!("{mode:04o}")
}

/// Returns label, note and tags on one line.
pub fn title(stored: &StepRow) -> String {
    let annotation = &stored.annotation;
    let mut parts = Vec::new();
    match &annotation.label {
        Some(label) => parts.push(format!("\"{}\"", safe(label))),
        None => parts.push(stored.step.summary.clone()),
    }
    if let Some(note) = &annotation.note {
        parts.push(safe(note));
    }
    if !annotation.tags.is_empty() {
        parts.push(format!("[{}]", annotation.tags.join(", ")));
    }
    parts.join("  ")
}

/// Returns a change on one line, without its kind.
pub fn change_path(change: &PathChange) -> String {
    match &change.from {
        Some(from) => format!("{from} → {}", change.path),
        None => match change.after.as_ref().or(change.before.as_ref()) {
            Some(TreeNode::Dir { .. }) => format!("{}/", change.path),
            _ => change.path.to_string(),
        },
    }
}

/// Parses a path from the command line.
pub fn parse_path(path: &str) -> Result<RelPath, crate::failure::CommandFailure> {
    RelPath::parse(path).map_err(|error| {
        crate::failure::CommandFailure::new(crate::failure::FailureKind::Usage, format!("{path}: {error}"))
            .hint("use a path inside the workspace")
    })
}
