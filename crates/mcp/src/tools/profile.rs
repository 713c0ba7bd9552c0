//! Where the time of a session went.

use std::time::Duration;

use serde_json::json;
use stepback_analysis::profile::{SpanWindow, load_profile, profile_document};
use stepback_api::profile::{CallStatisticsDocument, ProfileDocument};
use stepback_model::escape::safe;
use stepback_model::quantity::{count, duration};

use super::{Args, READ_ONLY, Tool, ToolReply, limit_schema, page_limit};
use crate::schema::{any_value, array, integer, object, string, string_array};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The number of tools, models and parts of the critical path if no other is asked for.
const DEFAULT_ROWS: usize = 8;

pub(super) fn profile_tool() -> Tool {
    Tool {
        name: "profile",
        title: "Where the time went",
        description: "Where the time of your session went: per category (model, tool, hook, breakpoint, user, idle), the slowest tools and models with percentiles, and what the end depended on.",
        input: object(&[("limit", limit_schema(DEFAULT_ROWS as u64, 50))], &[]),
        output: object(
            &[
                ("wall_us", integer("The length of the session in microseconds")),
                ("categories", array("Together wall_us", any_value(""))),
                ("tools", array("Those that took the most time first", any_value(""))),
                ("models", array("", any_value(""))),
                ("critical_path", array("Its longest parts", any_value(""))),
                ("notes", string_array("What is inferred, and by which rule; what is uncertain")),
                ("session", string("")),
            ],
            &["wall_us", "categories", "tools", "models"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: show_profile,
    }
}

fn show_profile(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let session = context.target_session()?;
    let (facts, profile) = load_profile(&context.workspace.engine, &session)?;
    let window = SpanWindow { limit: 0, ..SpanWindow::default() };
    let mut document = profile_document(&facts, &profile, window);
    let rows = page_limit(args, DEFAULT_ROWS);
    document.tools.truncate(rows);
    document.models.truncate(rows);
    document.critical_path.segments.sort_by_key(|segment| std::cmp::Reverse(segment.us));
    document.critical_path.segments.truncate(rows);
    let inferred = document.rules.iter().map(|rule| format!("{} inferred: {}", words(rule.us), rule.rule));
    let notes: Vec<String> = inferred.chain(document.caveats.iter().cloned()).collect();
    Ok(ToolReply {
        text: describe(&document, &notes),
        structured: json!({
            "session": document.session,
            "wall_us": document.wall_us,
            "categories": document.categories,
            "tools": document.tools,
            "models": document.models,
            "critical_path": document.critical_path.segments,
            "notes": notes,
        }),
    })
}

fn words(micros: u64) -> String {
    duration(Duration::from_micros(micros))
}

fn describe(document: &ProfileDocument, notes: &[String]) -> String {
    let mut lines = vec![format!("{} in all:", words(document.wall_us))];
    lines.extend(
        (document.categories.iter().filter(|time| time.us > 0))
            .map(|time| format!("- {}: {}", time.category, words(time.us))),
    );
    lines.extend(document.tools.iter().chain(&document.models).map(describe_calls));
    lines.extend(document.critical_path.segments.iter().map(|segment| {
        let what = segment.name.as_deref().unwrap_or(&segment.category);
        let about = segment.subject.as_deref().unwrap_or_default();
        format!("critical: #{} {} {} {}", segment.step, safe(what), safe(about), words(segment.us))
    }));
    lines.extend(notes.iter().cloned());
    lines.join("\n")
}

fn describe_calls(one: &CallStatisticsDocument) -> String {
    let name = safe(one.name.as_deref().unwrap_or("(not recorded)"));
    let times = one.durations.as_ref().map_or_else(
        || "for an unknown time".to_owned(),
        |times| {
            format!(
                "{} (p50 {}, p95 {}, max {})",
                words(times.total_us),
                words(times.p50_us),
                words(times.p95_us),
                words(times.max_us)
            )
        },
    );
    let failed = if one.failed > 0 { format!(", {} failed", one.failed) } else { String::new() };
    format!("{name}: {}, {times}{failed}", count(one.calls, "call"))
}
