//! What model calls used and cost, so that an agent can see what its own work costs.

use serde_json::json;
use stepback_analysis::cost::{CostGrouping, CostRequest, cost_document};
use stepback_api::cost::{CostDocument, CostSumDocument};

use super::{Args, READ_ONLY, Tool, ToolReply, first_line, limit_schema, page_limit, parse_time};
use crate::schema::{any_number, array, boolean, integer, object, string, string_enum};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

pub(super) fn cost_tool() -> Tool {
    let groupings = CostGrouping::ALL.map(CostGrouping::as_str);
    Tool {
        name: "cost",
        title: "What it cost",
        description: "Tokens and money of recorded model calls, by model, tool, agent, session, branch, prompt or day. A tool costs what later requests pay for its results. Of your session, or of all sessions here (everyone).",
        input: object(
            &[
                ("by", string_enum("What the rows are about (default tool)", &groupings)),
                ("since", string("Only since then: 2 hours ago, 2026-01-23T12:00")),
                ("everyone", boolean("All sessions in this workspace")),
                ("limit", limit_schema(20, 200)),
            ],
            &[],
        ),
        output: object(
            &[
                ("rows", array("The most expensive first", row_schema())),
                ("total", row_schema()),
                ("rule", string("How inferred rows were computed")),
            ],
            &["rows", "total"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: report,
    }
}

fn row_schema() -> serde_json::Value {
    object(
        &[
            ("label", string("What the row is about")),
            ("basis", string("recorded or inferred")),
            ("calls", integer("Model calls; of a tool, its calls")),
            ("input", integer("Input tokens that were not cached, with those written to a cache")),
            ("cached", integer("Input tokens read from a cache")),
            ("output", integer("Output tokens")),
            ("cost_usd", any_number("As far as it is known")),
            ("unknown_calls", integer("Model calls whose cost or tokens are unknown")),
        ],
        &["label", "calls", "cost_usd"],
    )
}

fn report(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let session = match args.flag("everyone") {
        true => None,
        false => Some(context.target_session()?.id),
    };
    let request = CostRequest {
        by: args.text("by").and_then(CostGrouping::parse).unwrap_or(CostGrouping::Tool),
        since: parse_time(context, args, "since")?,
        workspace: Some(context.workspace.record.id),
        session,
        limit: page_limit(args, 20),
        ..CostRequest::default()
    };
    let document = cost_document(&context.workspace.engine, &request)?;
    let row = |label: &str, basis: &str, sum: &CostSumDocument| {
        json!({
            "label": first_line(label, 120),
            "basis": basis,
            "calls": sum.calls,
            "input": sum.input.saturating_add(sum.cache_write),
            "cached": sum.cache_read,
            "output": sum.output,
            "cost_usd": sum.cost_usd,
            "unknown_calls": sum.unpriced_calls + sum.uncounted_calls,
        })
    };
    let rows: Vec<_> =
        document.rows.iter().map(|found| row(&found.label, &found.basis, &found.sum)).collect();
    let mut structured = json!({ "rows": rows, "total": row("total", "recorded", &document.total) });
    if let Some(rule) = &document.rule {
        structured["rule"] = json!(rule);
    }
    Ok(ToolReply { text: describe(&document), structured })
}

fn describe(document: &CostDocument) -> String {
    if document.total.calls == 0 {
        return "No model calls are recorded.".to_owned();
    }
    let line = |label: &str, sum: &CostSumDocument| {
        let unknown = sum.unpriced_calls + sum.uncounted_calls;
        let more = if unknown > 0 { " or more" } else { "" };
        let input = sum.input.saturating_add(sum.cache_write).saturating_add(sum.cache_read);
        format!(
            "{}: ${:.4}{more}, {input} tokens in, {} out",
            first_line(label, 80),
            sum.cost_usd,
            sum.output
        )
    };
    let rows = document.rows.iter().map(|row| line(&row.label, &row.sum));
    rows.chain([line("total", &document.total)]).collect::<Vec<_>>().join("\n")
}
