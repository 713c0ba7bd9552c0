//! What is unusual in a session, so that an agent notices that it goes in circles.

use serde_json::json;
use stepback_analysis::anomalies::{AnomalyQuery, anomalies_document, load_anomalies};
use stepback_analysis::prices::load_prices;
use stepback_model::escape::safe;

use super::{Args, READ_ONLY, Tool, ToolReply, limit_schema, page_limit};
use crate::schema::{array, integer, number, object, string};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// Anomalies that are listed if no other number is asked for.
const DEFAULT_ROWS: usize = 10;

pub(super) fn anomalies_tool() -> Tool {
    Tool {
        name: "anomalies",
        title: "What is unusual?",
        description: "What is unusual in your session: loops of the same calls with the same results, edits that undo each other, a check that keeps failing in the same way, bursts of errors, calls that were far slower or dearer than others like them, a context that grows without use. Call it when you seem to go in circles. Everything is inferred; each anomaly names its evidence.",
        input: object(&[("limit", limit_schema(DEFAULT_ROWS as u64, 100))], &[]),
        output: object(
            &[
                (
                    "anomalies",
                    array(
                        "The newest first",
                        object(
                            &[
                                ("id", string("")),
                                ("kind", string("loop, error-burst, no-progress, …")),
                                ("severity", string("low, medium or high")),
                                ("rule", string("The rule by which it was inferred")),
                                ("evidence", string("What happened, with the numbers")),
                                ("measured", number("")),
                                ("limit", number("From where on it is an anomaly")),
                                ("unit", string("What both count")),
                                ("steps", array("Its first steps", integer(""))),
                                ("last", integer("Its last step")),
                                ("count", integer("How many calls belong to it")),
                            ],
                            &["id", "kind", "severity", "rule", "evidence", "steps", "last"],
                        ),
                    ),
                ),
                ("total", integer("How many there are")),
            ],
            &["anomalies", "total"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: show_anomalies,
    }
}

fn show_anomalies(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let session = context.target_session()?;
    let engine = &context.workspace.engine;
    let query = AnomalyQuery {
        workspace: Some(session.workspace),
        session: Some(session.id),
        ..AnomalyQuery::default()
    };
    let found = load_anomalies(engine, &load_prices(engine.store().local_dir())?, &query)?;
    let document = anomalies_document(&found, &engine.anomaly_limits, page_limit(args, DEFAULT_ROWS));
    let lines: Vec<String> = document
        .items
        .iter()
        .map(|one| {
            let first = one.steps.first().copied().unwrap_or(one.last);
            format!("- {} ({}), #{first} to #{}: {}", one.kind, one.severity, one.last, safe(&one.evidence))
        })
        .collect();
    let text = match lines.is_empty() {
        true => "Nothing unusual was found.".to_owned(),
        false => format!("Inferred from the recorded calls:\n{}", lines.join("\n")),
    };
    let items: Vec<_> = document
        .items
        .iter()
        .map(|one| {
            json!({
                "id": one.id, "kind": one.kind, "severity": one.severity, "rule": one.rule,
                "evidence": one.evidence, "measured": one.measured, "limit": one.limit, "unit": one.unit,
                "steps": one.steps, "last": one.last, "count": one.count,
            })
        })
        .collect();
    Ok(ToolReply { text, structured: json!({ "anomalies": items, "total": document.total }) })
}
