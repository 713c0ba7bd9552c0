//! Completion: suggests values for an argument of a prompt or a placeholder of a resource template.

use serde_json::{Map, Value};
use stepback_store::port::StepQuery;

use crate::rpc::Refusal;
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The most checkpoints that are read for suggestions.
const MAX_READ_CHECKPOINTS: u64 = 500;

/// Checks that the reference names something that has arguments to complete.
pub fn check_reference(reference: &Map<String, Value>) -> Result<(), Refusal> {
    match reference.get("type").and_then(Value::as_str) {
        Some("ref/prompt" | "ref/resource") => Ok(()),
        _ => Err(Refusal::invalid_params(
            "\"ref\" must be a prompt (ref/prompt) or a resource template (ref/resource)",
        )),
    }
}

/// Returns values for `argument` that start with `typed`.
pub fn complete_argument(
    context: &ToolContext<'_>,
    argument: &str,
    prefix: &str,
) -> Result<Vec<String>, ToolError> {
    let mut values = match argument {
        "session" => context.workspace.agent_sessions()?.iter().map(|session| session.id.short()).collect(),
        "point" => list_points(context)?,
        _ => Vec::new(),
    };
    values.retain(|value: &String| value.to_lowercase().starts_with(&prefix.to_lowercase()));
    Ok(values)
}

fn list_points(context: &ToolContext<'_>) -> Result<Vec<String>, ToolError> {
    let workspace = context.workspace;
    let query = StepQuery {
        checkpoint: Some(true),
        hidden: Some(false),
        limit: Some(MAX_READ_CHECKPOINTS),
        ..StepQuery::default()
    };
    let query = workspace.store().steps(workspace.record.id, &query)?;
    let mut points: Vec<String> = query.iter().filter_map(|stored| stored.annotation.label.clone()).collect();
    points.extend(workspace.branch_names()?);
    points.extend(["@".to_owned(), "error:last".to_owned()]);
    points.extend(query.iter().map(|stored| format!("#{}", stored.step.number)));
    Ok(points)
}
