//! `bench bisect`: how long it takes to set up a past state for a probe, compared with git.
//!
//! stepback and git record the same thousand states of equal copies of a tree. stepback then searches for the step that
//! broke something; git sets up the same states in the same order, as `git bisect` does: by checking out one after the
//! other in one worktree, which is created for the first.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::input::changes::Candidates;
use crate::input::git;
use crate::input::trees::{SourceTree, remove};
use crate::measure::clock::{Clock, run_untimed};
use crate::report::goals::{Goal, at_most};
use crate::report::markdown::{MarkdownTable, goal_list};
use crate::report::results::{median, ms};
use crate::run::{Run, flush};
use crate::systems::{self, System};

/// A quick command, so that most of the time is spent on setting up states.
const COMMAND: &str = "test ! -e broken";
/// The probed states are far apart; therefore one checkpoint in `n` has ten changes instead of three.
const MANY_CHANGES: usize = 10;

/// After files were removed, ext4 does not reuse their inodes for some time, but checks each of them for every new file.
/// Without this pause the benchmark would measure the removal.
const EXT4_REUSE_DELAY: Duration = Duration::from_secs(310);

/// The results of this benchmark.
#[derive(Default)]
pub struct BisectResults {
    files: usize,
    checkpoints: usize,
    /// The numbers of the probed checkpoints, in the order of the probes.
    order: Vec<usize>,
    /// For each probe, the milliseconds of each round.
    stepback: Vec<Vec<f64>>,
    checkout: Vec<Vec<f64>>,
    /// The duration of the whole search in milliseconds, one value per round.
    search: Vec<f64>,
    git_search: Vec<f64>,
    peak: u64,
}

/// The same history twice.
struct History {
    ours: Box<dyn System>,
    theirs: std::path::PathBuf,
    /// Ids of checkpoints and of commits, in order.
    points: Vec<(String, String)>,
    broken: usize,
}

/// Runs this benchmark.
pub fn measure(run: &mut Run<'_>, tree: &SourceTree) -> Result<BisectResults> {
    let area = run.area.join("bisect");
    eprintln!("  recording {} checkpoints of {} files", run.options.turns, tree.files);
    let history = record_history(&area, &run.binary, tree, run.options.turns)?;
    let mut measured =
        BisectResults { files: tree.files, checkpoints: history.points.len(), ..BisectResults::default() };
    let rounds = if run.options.quick { 1 } else { 2 };
    for round in 0..rounds {
        for turn in 0..2 {
            flush(&run.area);
            // stepback removes its scratch directory afterwards, and recording removes files too.
            if !run.options.quick {
                std::thread::sleep(EXT4_REUSE_DELAY);
            }
            run.monitor.begin_block("bisect");
            // stepback runs first, because its search decides which states git has to set up.
            if (round + turn) % 2 == 0 {
                measure_stepback(&area, &run.binary, &history, &mut measured)?;
            } else {
                measure_git(&area, round, &history, &mut measured)?;
            }
        }
    }
    remove(&area)?;
    Ok(measured)
}

fn record_history(area: &Path, binary: &Path, tree: &SourceTree, steps: usize) -> Result<History> {
    let mut stepback_system = systems::by_name("stepback", area, binary)?;
    let git_tree = area.join("git").join("tree");
    tree.copy_to(&stepback_system.work_dirs().tree)?;
    tree.copy_to(&git_tree)?;
    stepback_system.reset()?;
    let mut candidates = Candidates::find(&tree.origin, 11)?;
    let broken = steps * 7 / 10;
    let mut ids = Vec::new();
    for number in 0..steps {
        let script = candidates.next_script(if number % MANY_CHANGES == 0 { 10 } else { 3 });
        for root in [&stepback_system.work_dirs().tree, &git_tree] {
            script.apply(root)?;
            if number == broken {
                std::fs::write(root.join("broken"), "by this step\n")?;
            }
        }
        let (id, _) = stepback_system.checkpoint(&format!("step {number}"))?;
        let touched = script.touched_paths();
        let broken = (number == broken).then_some("broken");
        let paths = touched.iter().map(String::as_str).chain(broken);
        run_untimed(git::command().args(["add", "-A", "--"]).args(paths).current_dir(&git_tree))?;
        run_untimed(
            git::command().args(["commit", "-q", "-m", &format!("step {number}")]).current_dir(&git_tree),
        )?;
        ids.push(id);
    }
    let commits = run_untimed(git::command().args(["rev-list", "--reverse", "HEAD"]).current_dir(&git_tree))?;
    let commits = String::from_utf8_lossy(&commits).into_owned();
    // The first commit is the generated tree.
    let points: Vec<_> = ids.into_iter().zip(commits.lines().skip(1).map(str::to_owned)).collect();
    ensure!(points.len() == steps, "git has not as many commits as there are checkpoints");
    // In git's favour: a repository in daily use is not always packed.
    run_untimed(git::command().args(["gc", "-q"]).current_dir(&git_tree))?;
    Ok(History { ours: stepback_system, theirs: git_tree, points, broken })
}

fn measure_stepback(
    area: &Path,
    binary: &Path,
    history: &History,
    measured: &mut BisectResults,
) -> Result<()> {
    let dirs = history.ours.work_dirs();
    let scratch = area.join("scratch");
    std::fs::create_dir_all(&scratch)?;
    let mut command = Command::new(binary);
    // The scratch directory is on the same file system as everything else.
    command
        .env("STEPBACK_HOME", &dirs.store)
        .env("STEPBACK_WATCHER", "off")
        .env("TMPDIR", &scratch)
        .arg("-C")
        .arg(&dirs.tree);
    command.args(["bisect", "--run", COMMAND, "--good", &history.points[0].0, "--json"]);
    let mut clock = Clock::start();
    let stdout = clock.run(&mut command)?;
    let cost = clock.stop();
    measured.search.push(ms(cost.wall));
    measured.peak = measured.peak.max(cost.peak_memory);
    let document: Value =
        serde_json::from_slice(&stdout).context("`bisect --json` printed no JSON document")?;
    let found = document["id"].as_str().unwrap_or_default();
    ensure!(found == history.points[history.broken].0, "bisect found {found}, which is not the broken step");
    let numbers: HashMap<&str, usize> =
        history.points.iter().enumerate().map(|(number, (id, _))| (id.as_str(), number)).collect();
    // The newest probe comes first.
    let probes: Vec<&Value> = document["items"].as_array().into_iter().flatten().rev().collect();
    measured.order.clear();
    measured.stepback.resize(probes.len(), Vec::new());
    for (probe, samples) in probes.into_iter().zip(&mut measured.stepback) {
        let id = probe["id"].as_str().unwrap_or_default();
        measured.order.push(*numbers.get(id).with_context(|| format!("{id} was not recorded"))?);
        samples.push(probe["set_up_ms"].as_f64().context("a probe without a time")?);
    }
    Ok(())
}

fn measure_git(area: &Path, round: usize, history: &History, measured: &mut BisectResults) -> Result<()> {
    // A new directory each time; none is removed before the end.
    let worktree = area.join("git").join(format!("worktree{round}"));
    let commit = |number: usize| history.points[number].1.as_str();
    measured.checkout.resize(measured.order.len(), Vec::new());
    for (index, number) in measured.order.iter().enumerate() {
        let mut set_up = git::command();
        match index {
            0 => set_up
                .args(["worktree", "add", "-q", "--detach"])
                .arg(&worktree)
                .arg(commit(*number))
                .current_dir(&history.theirs),
            _ => set_up.args(["checkout", "-q", "--detach", commit(*number)]).current_dir(&worktree),
        };
        measured.checkout[index].push(time_command(&mut set_up)?);
    }
    let last = commit(history.points.len() - 1);
    let mut clock = Clock::start();
    clock.run(git::command().args(["bisect", "start", last, commit(0)]).current_dir(&worktree))?;
    let output =
        clock.run(git::command().args(["bisect", "run", "sh", "-c", COMMAND]).current_dir(&worktree))?;
    measured.git_search.push(ms(clock.stop().wall));
    let first = format!("{} is the first bad commit", commit(history.broken));
    ensure!(String::from_utf8_lossy(&output).contains(&first), "git found another commit");
    Ok(())
}

fn time_command(command: &mut Command) -> Result<f64> {
    let mut clock = Clock::start();
    clock.run(command)?;
    Ok(ms(clock.stop().wall))
}

impl BisectResults {
    fn median_per_probe(rounds: &[Vec<f64>]) -> Vec<f64> {
        rounds.iter().filter_map(|round| median(round.iter().copied())).collect()
    }

    /// All numbers.
    pub fn to_json(&self) -> Value {
        json!({
            "files": self.files, "checkpoints": self.checkpoints, "probed": self.order, "stepback_ms": self.stepback,
            "git_ms": self.checkout, "search_ms": self.search,
            "git_bisect_ms": self.git_search, "peak_memory_bytes": self.peak,
        })
    }

    /// The goals, judged.
    pub fn judge_goals(&self) -> Vec<Goal> {
        let stepback_medians = Self::median_per_probe(&self.stepback);
        let slowest = stepback_medians.iter().copied().reduce(f64::max);
        let later = |values: &[f64]| median(values.iter().skip(1).copied());
        let ratio = later(&stepback_medians)
            .zip(later(&Self::median_per_probe(&self.checkout)))
            .map(|(stepback_medians, git)| stepback_medians / git);
        let description = format!("{} files, {} checkpoints", self.files, self.checkpoints);
        vec![
            at_most(format!("{description}: every probe set up in 300 ms"), slowest, 300.0, "ms"),
            at_most(format!("{description}, after the first: no slower than git checkout"), ratio, 1.0, "×"),
        ]
    }

    /// The tables of the report.
    pub fn render_report(&self) -> String {
        let (stepback_medians, checkout) =
            (Self::median_per_probe(&self.stepback), Self::median_per_probe(&self.checkout));
        let mut table =
            MarkdownTable::new(["probe", "checkpoint", "stepback", "git", "git ÷ stepback"].into_iter());
        let format_ms = |value: Option<&f64>| value.map_or("–".to_owned(), |value| format!("{value:.1}"));
        for (index, number) in self.order.iter().enumerate() {
            let ratio = checkout
                .get(index)
                .zip(stepback_medians.get(index))
                .map(|(git, stepback_medians)| git / stepback_medians);
            table.rows.push(vec![
                (index + 1).to_string(),
                format!("{} of {}", number + 1, self.checkpoints),
                format_ms(stepback_medians.get(index)),
                format_ms(checkout.get(index)),
                ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2} ×")),
            ]);
        }
        let mut search_table = MarkdownTable::new(["whole search, ms", "median"].into_iter());
        let middle = |values: &[f64]| format_ms(median(values.iter().copied()).as_ref());
        search_table
            .rows
            .push(vec!["stepback bisect --run, first and last probe included".into(), middle(&self.search)]);
        search_table.rows.push(vec![
            "git bisect run in a worktree that was there, first and last not tried".into(),
            middle(&self.git_search),
        ]);
        let mut text = format!(
            "{} files, {} checkpoints of three or ten changes; {} probes. Setting up a probe, median of {} rounds, in ms. \
             Peak memory of stepback: {:.1} MB.\n\n{}\n{}",
            self.files,
            self.checkpoints,
            self.order.len(),
            self.search.len(),
            self.peak as f64 / 1e6,
            table.to_markdown(),
            search_table.to_markdown()
        );
        goal_list(&mut text, &self.judge_goals());
        text
    }
}
