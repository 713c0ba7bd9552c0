//! `bench hook`: what an agent waits for when a hook takes a checkpoint before a tool runs.
//!
//! A fresh process each time, from start to exit, with one file changed before, on a small tree. Beside it
//! stand processes that do nothing, because starting a process is the floor, and Node, because that is
//! what most hooks pay before their first line runs.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::changes::Candidates;
use super::clock::{Clock, Cost};
use super::files::{Run, SETTLE};
use super::report::Table;
use super::results::{ms, percentile, samples};
use super::systems::{self, Place};
use super::trees::{Tree, remove};

/// The goal for the median, in milliseconds.
const GOAL: f64 = 6.0;

/// Starting Node takes long and varies little: fewer runs are enough.
const SLOW_RUNS: usize = 40;

/// The samples of one kind of process.
pub struct Timed {
    name: &'static str,
    costs: Vec<Cost>,
}

/// Measures and returns the report and its numbers.
pub fn measure(run: &mut Run<'_>, tree: &Tree) -> Result<(String, Value)> {
    let area = run.area.join("hook");
    let place = Place::new(&area, "stepback");
    let with_stepback = run.options.runs_system("stepback");
    let mut candidates = None;
    if with_stepback {
        tree.copy_to(&place.tree)?;
        let mut system = systems::make("stepback", &area, &run.binary)?;
        system.reset()?;
        system.checkpoint("first")?;
        candidates = Some(Candidates::find(&place.tree, 6)?);
    }
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).status().is_ok();
    let mut all: Vec<Timed> =
        ["stepback", "true", "git", "node"].map(|name| Timed { name, costs: Vec::new() }).into();
    all.retain(|timed| match timed.name {
        "stepback" => with_stepback,
        "node" => node,
        _ => true,
    });
    for number in 0..run.options.runs {
        if number % 10 == 0 {
            run.monitor.sample("hook");
        }
        for timed in &mut all {
            let mut command = match timed.name {
                "stepback" => {
                    if let Some(candidates) = &mut candidates {
                        candidates.script(1).apply(&place.tree)?;
                        thread::sleep(SETTLE);
                    }
                    systems::stepback_command(&run.binary, &place, &["checkpoint", "create", "--json"])
                }
                "true" => Command::new("/bin/true"),
                "git" => command("git", &["--version"]),
                _ if number < SLOW_RUNS => command("node", &["-e", "0"]),
                _ => continue,
            };
            // Let the machine come to rest, as it would between two steps of an agent.
            thread::sleep(Duration::from_millis(2));
            let mut clock = Clock::start();
            clock.run(&mut command)?;
            timed.costs.push(clock.stop());
        }
    }
    remove(&area)?;
    Ok((
        report(&all),
        json!(
            all.iter()
                .map(|timed| (timed.name, samples(&timed.costs)))
                .collect::<std::collections::BTreeMap<_, _>>()
        ),
    ))
}

fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

fn report(all: &[Timed]) -> String {
    let mut table = Table::new(["process", "runs", "p50 ms", "p90 ms", "p99 ms", "CPU p50 ms"].into_iter());
    let mut goal = "not measured: p50 of a checkpoint in a fresh process under 6 ms".to_owned();
    for timed in all {
        let wall: Vec<f64> = timed.costs.iter().map(|cost| ms(cost.wall)).collect();
        let cpu: Vec<f64> = timed.costs.iter().map(|cost| ms(cost.cpu)).collect();
        let shown = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let middle = percentile(&wall, 50.0);
        table.rows.push(vec![
            timed.name.to_owned(),
            wall.len().to_string(),
            shown(middle),
            shown(percentile(&wall, 90.0)),
            shown(percentile(&wall, 99.0)),
            shown(percentile(&cpu, 50.0)),
        ]);
        if let (Some(middle), "stepback") = (middle, timed.name) {
            let word = if middle < GOAL { "PASS" } else { "MISS" };
            goal = format!("{word}: p50 of a checkpoint in a fresh process under {GOAL} ms: {middle:.2} ms");
        }
    }
    format!("{}\n{goal}\n", table.markdown())
}
