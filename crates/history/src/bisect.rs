//! Finds the checkpoint that broke something, by running a command at a few of the checkpoints between a good and a bad one.

mod scratch;
mod search;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stepback_engine::Workspace;
use stepback_engine::workspace::describe_checkpoint;
use stepback_model::record::StepRow;

use self::scratch::ScratchDir;
use self::search::BisectSearch;
use crate::error::HistoryError;

pub use self::search::{BisectResult, ProbeVerdict};

/// The exit code with which a command says that it cannot judge a checkpoint, as in git.
const CANNOT_JUDGE: i32 = 125;

/// The result of running the command at one checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// What the exit code means.
    pub verdict: ProbeVerdict,
    /// The exit code of the command.
    pub code: i32,
    /// How long it took to bring the directory to the checkpoint.
    pub setup_time: Duration,
    /// How long the command ran.
    pub run_time: Duration,
}

/// What happens during a search.
#[derive(Clone, Copy, Debug)]
pub enum BisectEvent {
    /// The checkpoint at this index was probed.
    Probed(usize, Probe),
    /// This many checkpoints are undecided. Never 0.
    Undecided(usize),
}

/// Returns the checkpoints from `good`, or the first whose files are still there, to `bad`, oldest first.
pub fn find_candidates(
    workspace: &Workspace,
    good: Option<&StepRow>,
    bad: &StepRow,
) -> Result<Vec<StepRow>, HistoryError> {
    let bad = workspace.nearest_checkpoint(bad)?;
    let mut line = workspace.ancestry(&bad)?;
    line.reverse();
    let first_kept = line.iter().rposition(|stored| stored.purged).map_or(0, |index| index + 1);
    line.drain(..first_kept);
    if let Some(good) = good {
        let good = workspace.nearest_checkpoint(good)?;
        let index = line.iter().position(|stored| stored.step.id == good.step.id);
        let unrelated =
            || HistoryError::Unrelated { good: describe_checkpoint(&good), bad: describe_checkpoint(&bad) };
        line.drain(..index.ok_or_else(unrelated)?);
    }
    match line.len() {
        0 | 1 => Err(HistoryError::NothingBetween),
        _ => Ok(line),
    }
}

/// Searches for the first of `line` at which `command` fails, with at most `jobs` probes at a time, in directories below `dir`.
/// The first checkpoint must be good and the last one bad. The caller holds a lock of the workspace.
pub fn find_first_bad(
    workspace: &Workspace,
    line: &[StepRow],
    command: &str,
    dir: &Path,
    jobs: usize,
    on_event: &mut dyn FnMut(BisectEvent),
) -> Result<BisectResult, HistoryError> {
    let mut scratches: Vec<ScratchDir<'_>> =
        (0..jobs.max(1)).map(|number| ScratchDir::new(workspace, dir.join(number.to_string()))).collect();
    let (first, last) = (0, line.len() - 1);
    for (moment, expected) in [(first, ProbeVerdict::Good), (last, ProbeVerdict::Bad)] {
        let probe = run_probe(workspace, &mut scratches[0], &line[moment], command)?;
        on_event(BisectEvent::Probed(moment, probe));
        if probe.verdict != expected {
            let description = describe_checkpoint(&line[moment]);
            return Err(match expected {
                ProbeVerdict::Good => HistoryError::NotGood { what: description },
                _ => HistoryError::NotBad { what: description },
            });
        }
    }
    let mut search = BisectSearch::new(first, last);
    loop {
        let next = search.next(scratches.len());
        if next.is_empty() {
            return Ok(search.result());
        }
        let results: Vec<Result<Probe, HistoryError>> = std::thread::scope(|scope| {
            let running: Vec<_> = next
                .iter()
                .zip(&mut scratches)
                .map(|(moment, scratch)| {
                    scope.spawn(|| run_probe(workspace, scratch, &line[*moment], command))
                })
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(HistoryError::ProbePanicked)))
                .collect()
        });
        for (moment, results) in next.into_iter().zip(results) {
            let probe = results?;
            search.record_verdict(moment, probe.verdict);
            on_event(BisectEvent::Probed(moment, probe));
        }
        if search.remaining() > 0 {
            on_event(BisectEvent::Undecided(search.remaining()));
        }
    }
}

fn run_probe(
    workspace: &Workspace,
    scratch: &mut ScratchDir<'_>,
    stored: &StepRow,
    command: &str,
) -> Result<Probe, HistoryError> {
    let started = Instant::now();
    scratch.switch_to_state(&workspace.load_state(stored)?)?;
    let set_up = started.elapsed();
    let started = Instant::now();
    let status = Command::new("sh")
        .args(["-c", command])
        .current_dir(scratch.dir())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    let ran = started.elapsed();
    // A command that was killed or not found says nothing about the files.
    let code = status.code().ok_or_else(|| HistoryError::Killed { command: command.to_owned() })?;
    let verdict = match code {
        126 | 127 => return Err(HistoryError::CannotRun { command: command.to_owned(), code }),
        0 => ProbeVerdict::Good,
        CANNOT_JUDGE => ProbeVerdict::Skip,
        _ => ProbeVerdict::Bad,
    };
    Ok(Probe { verdict, code, setup_time: set_up, run_time: ran })
}
