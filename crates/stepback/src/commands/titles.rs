//! Steps and changes on one line, the same in every command.

use stepback_model::change::PathChange;
use stepback_model::escape::safe;
use stepback_model::record::StepRow;
use stepback_model::tree::TreeNode;

/// Returns label, note and tags on one line.
pub fn step_title(stored: &StepRow) -> String {
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
