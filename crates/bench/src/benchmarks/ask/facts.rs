//! Questions about many recorded steps: their numbers and what they cost, with nothing kept and from what is kept.
//!
//! The work is done by an example of the `analysis` crate, which also makes the store.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::measure::clock::run_untimed;
use crate::report::goals::{Goal, at_most};
use crate::report::markdown::MarkdownTable;
use crate::run::Run;

/// Steps of the store.
const STEPS: u32 = 100_000;

/// The results of this benchmark.
pub struct FactsResults(Value);

/// Makes the store, asks, and returns the numbers.
pub fn measure(run: &mut Run<'_>) -> Result<FactsResults> {
    let mut command = run.paths.build_example("stepback-analysis", "ask")?;
    run.monitor.begin_block("ask");
    let steps = if run.options.quick { STEPS / 10 } else { STEPS };
    let stdout = run_untimed(command.arg(run.area.join("ask")).arg(steps.to_string()))?;
    serde_json::from_slice(&stdout).map(FactsResults).context("the example printed no JSON document")
}

impl FactsResults {
    fn numeric_field(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap_or_default()
    }

    /// Everything that was measured.
    pub fn to_json(&self) -> Value {
        self.0.clone()
    }

    /// The goals. With fewer steps they are not judged.
    pub fn judge_goals(&self) -> Vec<Goal> {
        let value_of = |name: &str| {
            (self.numeric_field("steps") >= f64::from(STEPS)).then_some(self.numeric_field(name))
        };
        let goal = |label: &str, name: &str, most| at_most(label.into(), value_of(name), most, "ms");
        vec![
            goal("facts of 100,000 steps with nothing kept: under 2 s", "facts_cold_ms", 2000.0),
            goal("facts of 100,000 steps from what is kept: under 200 ms", "facts_kept_ms", 200.0),
            goal("cost by tool with nothing kept: under 2 s", "cost_cold_ms", 2000.0),
            goal("cost by tool from what is kept: under 200 ms", "cost_by_tool_kept_ms", 200.0),
            goal("cost by prompt from what is kept: under 200 ms", "cost_by_prompt_kept_ms", 200.0),
            goal("cost by branch from what is kept: under 200 ms", "cost_by_branch_kept_ms", 200.0),
        ]
    }

    /// The table of the report.
    pub fn render_table(&self) -> String {
        let milliseconds = |name: &str| format!("{:.1} ms", self.numeric_field(name));
        let mut table = MarkdownTable::new(["", "median"].into_iter());
        let mut row = |label: &str, value: String| table.rows.push(vec![label.to_owned(), value]);
        row("steps", format!("{}", self.numeric_field("steps")));
        row("facts, nothing kept", milliseconds("facts_cold_ms"));
        row("facts, kept", milliseconds("facts_kept_ms"));
        row("cost by tool, nothing kept", milliseconds("cost_cold_ms"));
        row("cost by tool, kept", milliseconds("cost_by_tool_kept_ms"));
        row("cost by model, kept", milliseconds("cost_by_model_kept_ms"));
        row("cost by prompt, kept", milliseconds("cost_by_prompt_kept_ms"));
        row("cost by branch, kept", milliseconds("cost_by_branch_kept_ms"));
        row("what is kept", format!("{:.1} MB", self.numeric_field("kept_bytes") / 1e6));
        table.to_markdown()
    }
}
