//! `bench watcher`: a checkpoint of a large tree in which one file changed, with and without a server that watches it,
//! and an agent's hooks with the watcher that they start themselves ([`automatic`]).
//!
//! There are two equal copies, each with its own store, and a small tree that shows the cost of a checkpoint with next to
//! nothing to scan. All take turns; the server runs all the time.

mod automatic;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::input::changes::Candidates;
use crate::input::trees::{SourceTree, remove};
use crate::measure::clock::{Clock, Cost, run_untimed};
use crate::report::goals::{Goal, at_most};
use crate::report::markdown::{MarkdownTable, goal_list};
use crate::report::results::{ms, percentile, samples_json};
use crate::run::{Run, SETTLE, flush};
use crate::systems::SystemDirs;
use automatic::AutomaticCosts;

/// The name of the rows for a large tree.
pub const FILES: usize = 62_163;

/// A workspace and its store.
struct BenchWorkspace<'a> {
    name: &'static str,
    binary: &'a Path,
    dirs: SystemDirs,
    candidates: Candidates,
    watched: bool,
    unchanged_costs: Vec<Cost>,
    changed_costs: Vec<Cost>,
}

/// A server that ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The results of this benchmark.
pub struct WatcherResults {
    files: usize,
    directories: u64,
    rows: Vec<(&'static str, Vec<Cost>, Vec<Cost>)>,
    automatic: AutomaticCosts,
}

impl<'a> BenchWorkspace<'a> {
    fn prepare(
        area: &Path,
        name: &'static str,
        binary: &'a Path,
        tree: &SourceTree,
        watched: bool,
    ) -> Result<Self> {
        let dirs = SystemDirs::new(area, name);
        tree.copy_to(&dirs.tree)?;
        let candidates = Candidates::find(&tree.origin, 6)?;
        let desk = Self {
            name,
            binary,
            dirs,
            candidates,
            watched,
            unchanged_costs: Vec::new(),
            changed_costs: Vec::new(),
        };
        run_untimed(&mut desk.command(&["checkpoint", "create"]))?;
        Ok(desk)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.binary);
        command.env("STEPBACK_HOME", &self.dirs.store).arg("-C").arg(&self.dirs.tree).args(words);
        command.env("STEPBACK_WATCHER", if self.watched { "ask" } else { "off" });
        command
    }

    fn time_checkpoint(&self) -> Result<Cost> {
        thread::sleep(SETTLE);
        let mut clock = Clock::start();
        clock.run(&mut self.command(&["checkpoint", "create"]))?;
        Ok(clock.stop())
    }

    fn run_round(&mut self) -> Result<()> {
        let cost = self.time_checkpoint()?;
        self.unchanged_costs.push(cost);
        self.candidates.next_script(1).apply(&self.dirs.tree)?;
        let cost = self.time_checkpoint()?;
        self.changed_costs.push(cost);
        Ok(())
    }

    /// Starts a server and waits until it watches the workspace.
    fn start_server(&self) -> Result<(Server, u64)> {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0", "--json"]);
        let child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("cannot start a server")?;
        let mut server = Server(child);
        let mut line = String::new();
        if let Some(stdout) = server.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        ensure!(line.contains("url"), "the server did not say where it listens");
        let started = Instant::now();
        loop {
            let status: Value =
                serde_json::from_slice(&run_untimed(&mut self.command(&["status", "--json"]))?)?;
            match status["watcher"]["directories"].as_u64() {
                Some(directories) if directories > 0 => return Ok((server, directories)),
                _ if started.elapsed() > Duration::from_secs(60) => {
                    bail!("not watched: {}", status["watcher"])
                }
                _ => thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

/// Runs this benchmark.
pub fn measure(run: &mut Run<'_>, large: &SourceTree, small: &SourceTree) -> Result<WatcherResults> {
    let area = run.area.join("watcher");
    eprintln!("  preparing two copies of {} files", large.files);
    let mut desks = [
        BenchWorkspace::prepare(&area, "watched", &run.binary, large, true)?,
        BenchWorkspace::prepare(&area, "not watched", &run.binary, large, false)?,
        BenchWorkspace::prepare(&area, "300 files", &run.binary, small, false)?,
    ];
    let (server, directories) = desks[0].start_server()?;
    // The first answer of a watcher is to scan everything.
    desks[0].time_checkpoint()?;
    desks[0].time_checkpoint()?;
    for number in 0..run.options.runs {
        if number % 10 == 0 {
            flush(&run.area);
            run.monitor.begin_block("watcher");
        }
        for desk in &mut desks {
            desk.run_round()?;
        }
    }
    drop(server);
    let rows = desks.into_iter().map(|desk| (desk.name, desk.unchanged_costs, desk.changed_costs)).collect();
    let automatic = automatic::measure(run, &area, large)?;
    remove(&area)?;
    Ok(WatcherResults { files: large.files, directories, rows, automatic })
}

impl WatcherResults {
    fn wall_percentile(&self, name: &str, changed: bool, percent: f64) -> Option<f64> {
        let (_, unchanged, one_change) = self.rows.iter().find(|(row, ..)| *row == name)?;
        let costs = if changed { one_change } else { unchanged };
        percentile(&costs.iter().map(|cost| ms(cost.wall)).collect::<Vec<_>>(), percent)
    }

    /// All numbers.
    pub fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|(name, unchanged, one_change)| {
            let value =
                json!({ "nothing changed": samples_json(unchanged), "one file changed": samples_json(one_change) });
            ((*name).to_owned(), value)
        });
        json!({ "files": self.files, "directories": self.directories, "checkpoints": Value::Object(rows.collect()), "hooks": self.automatic.to_json() })
    }

    /// The goals, judged.
    pub fn judge_goals(&self) -> Vec<Goal> {
        let p50 = |changed| self.wall_percentile("watched", changed, 50.0);
        let times = self.wall_percentile("not watched", true, 50.0).zip(p50(true)).map(|(a, b)| b / a * 10.0);
        let mut goals = vec![
            at_most(
                format!("watched, 1 of {} files changed, p50: under 10 ms", self.files),
                p50(true),
                10.0,
                "ms",
            ),
            at_most(
                format!("watched, {} files unchanged, p50: under 10 ms", self.files),
                p50(false),
                10.0,
                "ms",
            ),
            at_most(
                "watched, 1 file changed: less than a tenth of not watched (tenths)".into(),
                times,
                1.0,
                "",
            ),
        ];
        goals.extend(self.automatic.judge_goals());
        goals
    }

    /// The tables of the report.
    pub fn render_report(&self) -> String {
        let mut table = MarkdownTable::new(
            ["checkpoint create", "changed", "runs", "min ms", "p50 ms", "p99 ms", "CPU p50 ms", "÷ watched"]
                .into_iter(),
        );
        let format_ms = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        for (name, unchanged, one_change) in &self.rows {
            for (changed, costs) in [(false, unchanged), (true, one_change)] {
                let wall = |percent| self.wall_percentile(name, changed, percent);
                let cpu: Vec<f64> = costs.iter().map(|cost| ms(cost.cpu)).collect();
                let ratio = wall(50.0).zip(self.wall_percentile("watched", changed, 50.0));
                table.rows.push(vec![
                    (*name).to_owned(),
                    if changed { "1 file" } else { "nothing" }.to_owned(),
                    costs.len().to_string(),
                    format_ms(wall(0.0)),
                    format_ms(wall(50.0)),
                    format_ms(wall(99.0)),
                    format_ms(percentile(&cpu, 50.0)),
                    ratio.map_or("–".to_owned(), |(a, b)| format!("{:.1} ×", a / b)),
                ]);
            }
        }
        let mut text = format!(
            "{} files in {} watched directories, `.git` included. A fresh process from start to exit, all in turns.\n\n{}",
            self.files,
            self.directories,
            table.to_markdown()
        );
        text.push('\n');
        text.push_str(&self.automatic.render_report());
        goal_list(&mut text, &self.judge_goals());
        text
    }
}
