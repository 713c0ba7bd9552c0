//! `bench mind`: the cost of keeping a board over ten thousand changes, and the time to read a past one.
//!
//! The work is done by an example of the `engine` crate, as for `bench session`.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::measure::clock::run_untimed;
use crate::report::goals::{Goal, at_most};
use crate::report::markdown::{MarkdownTable, goal_list};
use crate::run::Run;

/// Changes of the session.
const CHANGES: u32 = 10_000;

/// The results of this benchmark.
pub struct MindResults(Value);

/// Makes the changes and returns the numbers.
pub fn measure(run: &mut Run<'_>) -> Result<MindResults> {
    let mut command = run.paths.build_example("stepback-board", "board")?;
    run.monitor.begin_block("mind");
    let changes = if run.options.quick { CHANGES / 10 } else { CHANGES };
    let stdout = run_untimed(command.arg(run.area.join("mind")).arg(changes.to_string()))?;
    serde_json::from_slice(&stdout).map(MindResults).context("the example printed no JSON document")
}

impl MindResults {
    fn numeric_field(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap_or_default()
    }

    /// Everything that was measured.
    pub fn to_json(&self) -> Value {
        self.0.clone()
    }

    /// The goals. With fewer changes they are not judged.
    pub fn judge_goals(&self) -> Vec<Goal> {
        let value_of = |name: &str| {
            let value = self.numeric_field(name);
            (self.numeric_field("changes") >= f64::from(CHANGES)).then_some(value)
        };
        let percent = value_of("store_of_full_copies").map(|part| part * 100.0);
        vec![
            at_most("a change with its step, p50: under 5 ms".into(), value_of("change_p50_ms"), 5.0, "ms"),
            at_most(
                "the board at a past moment, p99: under 20 ms".into(),
                value_of("load_past_p99_ms"),
                20.0,
                "ms",
            ),
            at_most(
                "the board at the last moment: under 20 ms".into(),
                value_of("load_newest_ms"),
                20.0,
                "ms",
            ),
            at_most("the whole store, beside full copies: under 50 %".into(), percent, 50.0, "%"),
        ]
    }

    /// The tables of the report.
    pub fn render_report(&self) -> String {
        let milliseconds = |name: &str| format!("{:.2} ms", self.numeric_field(name));
        let megabytes = |name: &str| format!("{:.2} MB", self.numeric_field(name) / 1e6);
        let mut table = MarkdownTable::new(["", "measured"].into_iter());
        let mut row = |label: &str, value: String| table.rows.push(vec![label.to_owned(), value]);
        row("changes", format!("{}", self.numeric_field("changes")));
        row("items on the board in the end", format!("{}", self.numeric_field("items")));
        row("a change with its step, p50", milliseconds("change_p50_ms"));
        row("a change with its step, p99", milliseconds("change_p99_ms"));
        row("the same, first hundred, p50", milliseconds("change_first_hundred_p50_ms"));
        row("the same, last hundred, p50", milliseconds("change_last_hundred_p50_ms"));
        row("the board at a past moment, p50", milliseconds("load_past_p50_ms"));
        row("the board at a past moment, p99", milliseconds("load_past_p99_ms"));
        row("the board at the last moment", milliseconds("load_newest_ms"));
        row("the recovery page", milliseconds("recovery_ms"));
        row("objects, as stored", megabytes("stored_bytes"));
        row("store on disk, database included", megabytes("store_bytes"));
        row("a full copy of the board for each change", megabytes("full_copies_bytes"));
        row("store ÷ full copies", format!("{:.2} %", self.numeric_field("store_of_full_copies") * 100.0));
        let mut text = format!("{}\n", table.to_markdown());
        goal_list(&mut text, &self.judge_goals());
        text
    }
}
