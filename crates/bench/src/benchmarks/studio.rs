//! `bench studio`: how soon the Studio is usable, how soon a session of 100,000 steps is on the screen, and how smoothly
//! it scrolls, in a real Chromium.
//!
//! `cargo xtask bench studio` installs the browser and its driver first. The browser is driven by
//! `studio/tests/speed.spec.ts`, which records the measurements. Times are measured by the driver, outside of the page:
//! from the navigation until the expected element is visible.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::report::goals::{Goal, at_least, at_most};
use crate::report::markdown::{MarkdownTable, goal_list};
use crate::report::results::percentile;
use crate::run::Run;

/// Steps of the session.
const STEPS: u64 = 100_000;
/// Size of the first page's scripts, compressed, in bytes.
const SCRIPTS: f64 = 300_000.0;

/// The results of this benchmark.
#[derive(Default)]
pub struct StudioResults {
    measurements: Value,
}

/// Runs this benchmark.
pub fn measure(run: &mut Run<'_>) -> Result<StudioResults> {
    run.monitor.begin_block("studio");
    let result = run.area.join("studio.json");
    let (runs, steps) = if run.options.quick { (3, STEPS / 10) } else { (10, STEPS) };
    let root = run.paths.root.join("studio");
    let mut node = std::process::Command::new("node");
    node.args([
        "node_modules/@playwright/test/cli.js",
        "test",
        "speed.spec.ts",
        "--workers=1",
        "--retries=0",
    ])
    .current_dir(&root)
    .env("STEPBACK_PROGRAM", &run.binary)
    .env("STEPBACK_STUDIO_OUT", run.area.join("studio"))
    .env("STEPBACK_STUDIO_BENCH", &result)
    .env("STEPBACK_STUDIO_BENCH_RUNS", runs.to_string())
    .env("STEPBACK_STUDIO_BENCH_STEPS", steps.to_string())
    .stdin(Stdio::null())
    // The driver's output is the report.
    .stdout(std::io::stderr());
    let status = node.status().context("node cannot be started; install Node 20.19 or newer")?;
    if !status.success() {
        bail!("the browser did not get through it ({status})");
    }
    let text = fs::read_to_string(&result).context("the browser wrote down nothing")?;
    Ok(StudioResults { measurements: serde_json::from_str(&text)? })
}

impl StudioResults {
    fn times(&self, name: &str) -> Vec<f64> {
        self.measurements[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    }

    /// All numbers.
    pub fn to_json(&self) -> Value {
        let percentile_of = |name: &str| {
            let times = self.times(name);
            json!({ "count": times.len(), "p50_ms": percentile(&times, 50.0), "p99_ms": percentile(&times, 99.0) })
        };
        json!({
            "steps": self.measurements["steps"], "ready": percentile_of("ready_ms"), "open": percentile_of("open_ms"),
            "script_bytes": self.measurements["script_bytes"], "requests": self.measurements["requests"],
            "moving": self.measurements["moving"], "scrubbing": self.measurements["scrubbing"],
        })
    }

    /// The goals, judged.
    pub fn judge_goals(&self) -> Vec<Goal> {
        let is_complete = self.measurements["steps"].as_u64().is_some_and(|steps| steps >= STEPS);
        let open = percentile(&self.times("open_ms"), 50.0).filter(|_| is_complete);
        let rate = |name: &str| self.measurements[name]["seen"].as_f64().filter(|_| is_complete);
        vec![
            at_most(
                "ready to use, p50: under 1 s".into(),
                percentile(&self.times("ready_ms"), 50.0),
                1000.0,
                "ms",
            ),
            at_most(
                "scripts of the first page: under 300 kB".into(),
                self.measurements["script_bytes"].as_f64(),
                SCRIPTS,
                "B",
            ),
            at_most("100,000 steps opened, p50: under 1 s".into(), open, 1000.0, "ms"),
            at_least("zooming and panning: above 30 frames/s".into(), rate("moving"), 30.0, "frames/s"),
            at_least("scrubbing: above 30 frames/s".into(), rate("scrubbing"), 30.0, "frames/s"),
        ]
    }

    /// The tables of the report.
    pub fn render_report(&self) -> String {
        let format_ms = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.0}"));
        let mut times = MarkdownTable::new(["ms", "count", "p50", "p99"].into_iter());
        for (what, name) in
            [("ready: the list of sessions is there", "ready_ms"), ("a session is opened", "open_ms")]
        {
            let took = self.times(name);
            let (p50, p99) = (percentile(&took, 50.0), percentile(&took, 99.0));
            times.rows.push(vec![what.to_owned(), took.len().to_string(), format_ms(p50), format_ms(p99)]);
        }
        let mut request_table =
            MarkdownTable::new(["of the last opening", "from ms", "to ms", "bytes"].into_iter());
        for request in self.measurements["requests"].as_array().into_iter().flatten() {
            let number = |name: &str| request[name].as_u64().unwrap_or_default().to_string();
            let path: String = request["path"].as_str().unwrap_or_default().chars().take(60).collect();
            request_table.rows.push(vec![path, number("from_ms"), number("to_ms"), number("bytes")]);
        }
        let text = |name: &str| self.measurements[name]["text"].as_str().unwrap_or_default().to_owned();
        let mut report = format!(
            "One session of {} steps, Chromium at 1440x900, nothing cached.\n\n{}\nZooming and panning: {}. Scrubbing: {}.\n\n{}\n",
            self.measurements["steps"],
            times.to_markdown(),
            text("moving"),
            text("scrubbing"),
            request_table.to_markdown()
        );
        goal_list(&mut report, &self.judge_goals());
        report
    }
}
