//! The watcher that hooks start by themselves: what an agent waits for before and after its commands in a large tree, with it
//! and with watching turned off.
//!
//! Both sessions take turns, each in its own copy of the tree. The first calls are listed separately, because the watcher
//! is not running yet; all other numbers are for the calls from the third on.

use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::Result;
use serde_json::{Value, json};

use crate::benchmarks::hook::HookSession;
use crate::input::changes::Candidates;
use crate::input::trees::SourceTree;
use crate::measure::clock::{Cost, run_untimed};
use crate::report::goals::{Goal, at_most};
use crate::report::markdown::MarkdownTable;
use crate::report::results::{ms, percentile, samples_json};
use crate::run::{Run, SETTLE, flush};

/// Calls before these numbers count.
const WARMUP_CALLS: usize = 2;

/// The hooks of all calls of one session, in order.
struct SessionCosts {
    name: &'static str,
    before: Vec<Cost>,
    after: Vec<Cost>,
}

/// The results of this benchmark.
pub struct AutomaticCosts {
    files: usize,
    sessions: Vec<SessionCosts>,
    /// The watcher's own report at the end.
    watcher: Value,
}

/// Measures both sessions.
pub fn measure(run: &mut Run<'_>, area: &Path, tree: &SourceTree) -> Result<AutomaticCosts> {
    let mut sessions = [
        (SessionCosts { name: "automatic", before: Vec::new(), after: Vec::new() }, "auto"),
        (SessionCosts { name: "off", before: Vec::new(), after: Vec::new() }, "off"),
    ]
    .into_iter()
    .map(|(costs, mode)| {
        let session = HookSession::new(area, &format!("hooks-{mode}"), &run.binary, tree, mode)?;
        Ok((costs, session, Candidates::find(&tree.origin, 6)?))
    })
    .collect::<Result<Vec<_>>>()?;
    for number in 0..run.options.runs + WARMUP_CALLS {
        if number % 10 == 0 {
            flush(&run.area);
            run.monitor.begin_block("watcher, hooks");
        }
        for (costs, session, candidates) in &mut sessions {
            thread::sleep(SETTLE);
            costs.before.push(session.run_pre_hook()?);
            candidates.next_script(1).apply(session.tree())?;
            thread::sleep(SETTLE);
            costs.after.push(session.run_post_hook()?);
        }
    }
    let query_status = |words: &[&str]| {
        let mut command = Command::new(&run.binary);
        command.args(words).arg("--store").arg(sessions[0].1.store());
        run_untimed(&mut command)
    };
    let status: Value = serde_json::from_slice(&query_status(&["watcher", "--json"])?)?;
    query_status(&["watcher", "stop"])?;
    let mut watcher = status["watcher"].clone();
    if let Some(fields) = watcher.as_object_mut() {
        // Paths of this machine do not belong in a stored report.
        fields.remove("roots");
    }
    let sessions = sessions.into_iter().map(|(costs, ..)| costs).collect();
    Ok(AutomaticCosts { files: tree.files, sessions, watcher })
}

impl SessionCosts {
    fn hook_costs(&self) -> [(&'static str, &[Cost]); 2] {
        [("before", &self.before), ("after", &self.after)]
    }
}

fn wall_percentile(costs: &[Cost], percent: f64) -> Option<f64> {
    let counted = costs.get(WARMUP_CALLS..).unwrap_or_default();
    percentile(&counted.iter().map(|cost| ms(cost.wall)).collect::<Vec<_>>(), percent)
}

impl AutomaticCosts {
    /// All numbers.
    pub fn to_json(&self) -> Value {
        let sessions = self.sessions.iter().map(|session| {
            let hooks = session.hook_costs().map(|(moment, costs)| {
                let value = json!({
                    "first calls": samples_json(&costs[..WARMUP_CALLS.min(costs.len())]),
                    "later calls": samples_json(costs.get(WARMUP_CALLS..).unwrap_or_default()),
                });
                (moment.to_owned(), value)
            });
            (session.name.to_owned(), Value::Object(hooks.into_iter().collect()))
        });
        json!({ "sessions": Value::Object(sessions.collect()), "watcher": self.watcher })
    }

    /// The goals, judged.
    pub fn judge_goals(&self) -> Vec<Goal> {
        let Some(automatic) = self.sessions.first() else { return Vec::new() };
        automatic
            .hook_costs()
            .map(|(moment, costs)| {
                let description = format!(
                    "hook {moment} a command, {} files, from the third call on, p50: under 12 ms",
                    self.files
                );
                at_most(description, wall_percentile(costs, 50.0), 12.0, "ms")
            })
            .into_iter()
            .collect()
    }

    /// The tables of the report.
    pub fn render_report(&self) -> String {
        let mut table = MarkdownTable::new(
            ["hook", "watcher", "calls 1, 2, 3 ms", "runs", "min ms", "p50 ms", "p99 ms", "CPU p50 ms"]
                .into_iter(),
        );
        let format_ms = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        for phase in 0..2 {
            for session in &self.sessions {
                let (moment, costs) = session.hook_costs()[phase];
                let first: Vec<_> =
                    costs.iter().take(3).map(|cost| format!("{:.0}", ms(cost.wall))).collect();
                let counted = costs.get(WARMUP_CALLS..).unwrap_or_default();
                let cpu: Vec<f64> = counted.iter().map(|cost| ms(cost.cpu)).collect();
                table.rows.push(vec![
                    format!("{moment} a command"),
                    session.name.to_owned(),
                    first.join(", "),
                    counted.len().to_string(),
                    format_ms(wall_percentile(costs, 0.0)),
                    format_ms(wall_percentile(costs, 50.0)),
                    format_ms(wall_percentile(costs, 99.0)),
                    format_ms(percentile(&cpu, 50.0)),
                ]);
            }
        }
        format!(
            "## Hooks, with a watcher that they start themselves\n\n\
             The first call of each session makes the first checkpoint. One file changes between the two hooks of a call; \
             numbers are of the calls from the third on. At the end, the watcher had {:.1} MB of memory.\n\n{}",
            self.watcher["memory_bytes"].as_f64().unwrap_or_default() / 1e6,
            table.to_markdown()
        )
    }
}
