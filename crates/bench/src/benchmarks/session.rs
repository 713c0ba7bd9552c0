//! `bench session`: the disk space of a session of a thousand turns, and the time to read any of its past states.
//!
//! The work is done by an example of the `agents` crate, which can read the store; this crate depends on no other crate
//! of the workspace.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::measure::clock::run_untimed;
use crate::report::markdown::MarkdownTable;
use crate::run::Run;

/// Records the session and returns its measurements.
pub fn measure(run: &mut Run<'_>) -> Result<Value> {
    run.monitor.begin_block("session");
    let mut command = run.paths.build_example("stepback-agents", "session")?;
    let stdout = run_untimed(command.arg(run.area.join("session")).arg(run.options.turns.to_string()))?;
    serde_json::from_slice(&stdout).context("the session printed no JSON document")
}

/// The tables of the report.
pub fn render_report(document: &Value) -> String {
    let number = |name: &str| document[name].as_f64().unwrap_or_default();
    let megabytes = |name: &str| format!("{:.2} MB", number(name) / 1e6);
    let ratio = |a: &str, b: &str| format!("{:.3} ×", number(a) / number(b).max(1.0));
    let milliseconds = |name: &str| format!("{:.2} ms", number(name));
    let mut table = MarkdownTable::new(["", "measured"].into_iter());
    let mut row = |label: &str, value: String| table.rows.push(vec![label.to_owned(), value]);
    row("turns", format!("{}", number("turns")));
    row("steps", format!("{}", number("steps")));
    row("messages", format!("{}", number("messages")));
    row("unique message bytes", megabytes("message_bytes"));
    row("message objects, before compression", megabytes("stored_message_bytes"));
    row("the same ÷ unique message bytes", ratio("stored_message_bytes", "message_bytes"));
    row("all objects, before compression", megabytes("raw_bytes"));
    row("all objects, as stored", megabytes("stored_bytes"));
    row("store on disk, database included", megabytes("disk_bytes"));
    row("the same ÷ unique message bytes", ratio("disk_bytes", "message_bytes"));
    row("recording one turn, p50", milliseconds("turn_p50_ms"));
    row("recording one turn, p99", milliseconds("turn_p99_ms"));
    row("last hundred turns ÷ first hundred", format!("{:.2} ×", number("slowdown")));
    row("loading a past conversation, p50", milliseconds("load_p50_ms"));
    row("loading a past conversation, p99", milliseconds("load_p99_ms"));
    row("loading the whole conversation", milliseconds("load_whole_ms"));
    table.to_markdown()
}
