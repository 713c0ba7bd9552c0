//! Where the lines of a file come from.
//!
//! Each question is asked by a fresh process, as a user or an agent does. `blame` has a peer: git has the same history of
//! the same file, packed, and is asked in turns with stepback. The recording is made by an example of the `provenance`
//! crate, which can write a store.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::input::git;
use crate::measure::clock::{Clock, run_untimed};
use crate::report::goals::{Goal, at_most};
use crate::report::markdown::MarkdownTable;
use crate::report::results::{median, ms};
use crate::run::{Run, flush};

/// The file: its lines, its changes, and the sessions that made them.
const SIZE: [usize; 3] = [5000, 2000, 50];
/// The file whose lines are asked for.
const FILE: &str = "src/code.rs";

/// The results of this benchmark.
pub struct BlameResults {
    recording: Value,
    is_full: bool,
    blame: Vec<f64>,
    blame_one_line: Vec<f64>,
    git_blame: Vec<f64>,
}

/// Records the history, asks, and returns how long the answers took.
pub fn measure(run: &mut Run<'_>) -> Result<BlameResults> {
    let area = run.area.join("ask");
    let mut command = run.paths.build_example("stepback-provenance", "blame")?;
    let [lines, changes, sessions] = match run.options.quick {
        true => SIZE.map(|number| number / 10),
        false => SIZE,
    };
    eprintln!("  recording {changes} changes of a file with {lines} lines");
    let numbers = [lines, changes, sessions].map(|number| number.to_string());
    let stdout = run_untimed(command.arg(&area).args(numbers))?;
    let recording = serde_json::from_slice(&stdout).context("the example printed no JSON document")?;
    let repository = import_history(&area)?;
    flush(&run.area);
    run.monitor.begin_block("ask");
    let mut results = BlameResults {
        recording,
        is_full: !run.options.quick,
        blame: Vec::new(),
        blame_one_line: Vec::new(),
        git_blame: Vec::new(),
    };
    let rounds = if run.options.quick { 3 } else { 15 };
    for _ in 0..rounds {
        let answer = time(&mut results.blame, &mut stepback(&run.binary, &area, FILE))?;
        let document: Value = serde_json::from_slice(&answer).context("blame printed no JSON document")?;
        let count = document["lines"].as_array().map_or(0, Vec::len);
        ensure!(count as u64 == results.recording["lines"].as_u64().unwrap_or_default(), "lines are missing");
        time(
            &mut results.blame_one_line,
            &mut stepback(&run.binary, &area, &format!("{FILE}:{}", lines / 2)),
        )?;
        let mut peer = git::command();
        peer.args(["blame", "--porcelain", "main", "--", FILE]).current_dir(&repository);
        let answer = time(&mut results.git_blame, &mut peer)?;
        ensure!(!answer.is_empty(), "git printed nothing");
    }
    Ok(results)
}

/// The history in git, packed as a repository in long use is.
fn import_history(area: &Path) -> Result<std::path::PathBuf> {
    let repository = area.join("git");
    std::fs::create_dir_all(&repository)?;
    run_untimed(git::command().args(["init", "-q", "-b", "main"]).current_dir(&repository))?;
    let history = std::fs::File::open(area.join("history"))?;
    let mut import = git::command();
    import.args(["fast-import", "--quiet"]).current_dir(&repository).stdin(Stdio::from(history));
    ensure!(import.status()?.success(), "git cannot import the history");
    run_untimed(git::command().args(["gc", "-q"]).current_dir(&repository))?;
    Ok(repository)
}

fn stepback(binary: &Path, area: &Path, file: &str) -> Command {
    let mut command = Command::new(binary);
    command
        .env("STEPBACK_HOME", area.join("store"))
        .env("STEPBACK_WATCHER", "off")
        .arg("-C")
        .arg(area.join("work"))
        .args(["blame", file, "--json"]);
    command
}

fn time(times: &mut Vec<f64>, command: &mut Command) -> Result<Vec<u8>> {
    let mut clock = Clock::start();
    let stdout = clock.run(command)?;
    times.push(ms(clock.stop().wall));
    Ok(stdout)
}

fn middle(times: &[f64]) -> Option<f64> {
    median(times.iter().copied())
}

fn milliseconds(times: &[f64]) -> String {
    middle(times).map_or_else(|| "not measured".to_owned(), |time| format!("{time:.1} ms"))
}

impl BlameResults {
    /// Everything that was measured.
    pub fn to_json(&self) -> Value {
        json!({
            "recording": self.recording,
            "blame_ms": self.blame,
            "blame_one_line_ms": self.blame_one_line,
            "git_blame_ms": self.git_blame,
        })
    }

    /// The goals. With a smaller recording they are not judged.
    pub fn judge_goals(&self) -> Vec<Goal> {
        let value = middle(&self.blame).filter(|_| self.is_full);
        vec![at_most(
            "blame of 5,000 lines with 2,000 changes by 50 sessions: under 200 ms".into(),
            value,
            200.0,
            "ms",
        )]
    }

    /// The table of the report.
    pub fn render_table(&self) -> String {
        let mut table = MarkdownTable::new(["", "measured"].into_iter());
        let mut row = |label: &str, value: String| table.rows.push(vec![label.to_owned(), value]);
        for (label, name) in
            [("lines", "lines"), ("changes", "changes"), ("sessions", "sessions"), ("origins", "origins")]
        {
            row(label, self.recording[name].to_string());
        }
        row("blame of the file, p50", milliseconds(&self.blame));
        row("blame of one line, p50", milliseconds(&self.blame_one_line));
        row("git blame of the same history, p50", milliseconds(&self.git_blame));
        table.to_markdown()
    }
}
