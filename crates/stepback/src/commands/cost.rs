//! The command `stepback cost`: what model calls used and cost.

use serde_json::json;
use stepback_analysis::cost::{CostRequest, cost_document};
use stepback_api::cost::{CostDocument, CostRowDocument, CostSumDocument};
use stepback_model::clip;
use stepback_model::escape::safe;
use stepback_model::quantity::{count, grouped};
use stepback_model::time_expr;

use super::{CommandResult, DONE};
use crate::args::cost::CostArgs;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// The width of the column with what a row is about.
const LABEL_CHARS: usize = 38;

/// Runs `stepback cost`.
pub fn cost(context: &Context, arguments: &CostArgs) -> CommandResult {
    let since = arguments.since.as_ref().map(|text| {
        time_expr::parse(text, context.now(), &jiff::tz::TimeZone::system()).map_err(|error| {
            CommandFailure::new(FailureKind::Usage, format!("--since: {error}"))
                .with_hint("2 hours ago, yesterday 14:00, 2026-01-23")
        })
    });
    if arguments.all_workspaces {
        // What hooks reported here is recorded first; other workspaces are only read.
        let _ = context.open_workspace();
    }
    let (workspace, session) = match &arguments.session {
        Some(text) if arguments.all_workspaces => {
            (None, Some(context.engine().find_session_in_store(text)?.id))
        }
        Some(text) => {
            let workspace = context.open_workspace()?;
            (Some(workspace.record.id), Some(workspace.find_session(text)?.id))
        }
        None if arguments.all_workspaces => (None, None),
        None => (Some(context.open_workspace()?.record.id), None),
    };
    let request = CostRequest {
        by: arguments.by.into(),
        since: since.transpose()?,
        workspace,
        session,
        reruns: arguments.reruns,
        limit: arguments.limit,
    };
    let document = cost_document(context.engine(), &request)?;
    if context.json {
        output::print_document(&json!(document));
        return DONE;
    }
    if document.total.calls == 0 && document.replayed.calls == 0 && document.reruns.calls == 0 {
        output::print_status(
            "No model calls are recorded here. \"stepback run\" records them, and so do agents that keep token counts in their conversations.",
        );
        return DONE;
    }
    print_table(&document);
    print_notes(context, &document);
    DONE
}

fn print_table(document: &CostDocument) {
    let paint = Paint::stdout();
    let calls = if document.by == "tool" { "calls" } else { "answers" };
    output::print_line(paint.dim(format!(
        "{:<LABEL_CHARS$} {calls:>8} {:>13} {:>13} {:>11} {:>11}",
        document.by, "input", "cached", "output", "cost"
    )));
    for row in &document.rows {
        print_row(paint, &row_label(row), &row.sum, row.kind == "group");
    }
    print_row(paint, "total", &document.total, true);
}

fn row_label(row: &CostRowDocument) -> String {
    let mark = if row.basis == "inferred" { "~" } else { "" };
    let label = match row.step {
        Some(step) => format!("#{step} {}", row.label),
        None => row.label.clone(),
    };
    clip::first(&safe(&format!("{mark}{label}")).to_string(), LABEL_CHARS)
}

fn print_row(paint: Paint, label: &str, sum: &CostSumDocument, is_group: bool) {
    let input = sum.input.saturating_add(sum.cache_write);
    let label = format!("{label:<LABEL_CHARS$}");
    output::print_line(format!(
        "{} {:>8} {:>13} {:>13} {:>11} {:>11}",
        if is_group { paint.name(label) } else { paint.dim(label) },
        if sum.calls == 0 { "-".to_owned() } else { grouped(sum.calls) },
        grouped(input),
        grouped(sum.cache_read),
        grouped(sum.output),
        money(sum),
    ));
}

/// A cost; with a sign if there is more that is not known, and a question mark if nothing is known.
fn money(sum: &CostSumDocument) -> String {
    let known = dollars(sum.cost_usd);
    match (sum.unpriced_calls + sum.uncounted_calls, sum.cost_usd > 0.0) {
        (0, _) => known,
        (_, true) => format!(">{known}"),
        (_, false) => "?".to_owned(),
    }
}

fn dollars(usd: f64) -> String {
    if usd > 0.0 && usd < 0.01 { format!("${usd:.4}") } else { format!("${usd:.2}") }
}

/// What the numbers rest on, and what is not in them.
fn print_notes(context: &Context, document: &CostDocument) {
    let total = &document.total;
    let unknown = total.unpriced_calls + total.uncounted_calls;
    if unknown > 0 {
        output::print_status(format!("At least {} is known.", dollars(total.cost_usd)));
    }
    for model in &document.unpriced {
        let name =
            model.model.as_deref().map_or("an unknown model".to_owned(), |name| safe(name).to_string());
        let (calls, tokens) = (count(model.calls, "call"), grouped(model.tokens));
        output::print_status(format!("{calls} of {name} ({tokens} tokens) have no price."));
    }
    if total.unpriced_calls > 0 {
        let file = context.store_location().local_dir().join("prices.json");
        output::print_status(format!(
            "Add prices in dollars per million tokens to {}: {{\"MODEL\": {{\"input\": 3.0, \"output\": 15.0}}}}",
            safe(&file.display().to_string())
        ));
    }
    if total.uncounted_calls > 0 {
        output::print_status(format!("{} without token counts.", count(total.uncounted_calls, "call")));
    }
    if total.priced_usd > 0.0 {
        output::print_status(format!(
            "{} of it was not recorded but computed from recorded tokens, with prices of {}.",
            dollars(total.priced_usd),
            document.prices_of
        ));
    }
    if document.replayed.calls > 0 {
        let calls = count(document.replayed.calls, "answer");
        output::print_status(format!("{calls} came from recordings and cost nothing."));
    }
    let reruns = &document.reruns;
    if reruns.calls > 0 {
        let calls = count(reruns.calls, "call");
        output::print_status(format!("Reruns asked models: {calls}, {}.", money(reruns)));
    }
    if document.shared_answers > 0 {
        let answers = count(document.shared_answers, "answer");
        output::print_status(format!("{answers} that several sessions have are counted once."));
    }
    if document.impossible_usage > 0 {
        let calls = count(document.impossible_usage, "call");
        output::print_status(format!("The usage of {calls} is impossible and was left out."));
    }
    if let Some(rule) = &document.rule {
        output::print_wrapped(&format!("~ inferred: {rule}."));
    }
}
