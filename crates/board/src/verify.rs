//! Runs checks: compares what is there with what should be, and records the outcome on the board.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use globset::{Glob, GlobSetBuilder};
use serde::Serialize;
use stepback_engine::board::{BoardEdit, BoardEditor};
use stepback_engine::{EngineError, Workspace};
use stepback_model::hex;
use stepback_reasoning::ids::{RunId, VerificationId};
use stepback_reasoning::item::{Check, CheckOutcome, Measured, Verification};
use stepback_reasoning::{BoardMutation, MindError, ReasoningBoard};

use crate::error::BoardError;
use crate::finding::{CheckFinding, check_close_to, check_exit_code, check_json_property};
use crate::process::{self, CommandEnd, MOST_OUTPUT};

/// The maximum number of files that the inputs of a check may match.
const MAX_INPUT_FILES: usize = 100_000;

/// The result of a check.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckReport {
    /// The check that was run.
    pub verification: VerificationId,
    /// Whether it passed, failed, timed out or could not be run.
    pub outcome: CheckOutcome,
    /// The reason for the outcome, as a sentence.
    pub reason: String,
    /// The earlier run whose outcome was used, because its inputs are the same; `None` if the check was run.
    pub cached: Option<RunId>,
    /// The recorded step and its effect on the board; `None` if an earlier run was used.
    #[serde(rename = "thought")]
    pub edit: Option<BoardEdit>,
}

/// Returns the checks on a board that were never run.
pub fn pending_checks(board: &ReasoningBoard) -> Vec<VerificationId> {
    let was_run = |id: VerificationId| board.runs.iter().any(|(_, run)| run.verification == id);
    let verifications = board.verifications.iter().map(|(number, _)| VerificationId(number));
    verifications.filter(|id| !was_run(*id)).collect()
}

/// Runs a check and records its outcome. Unless `fresh`, the outcome of an earlier run with the same inputs is used.
pub fn run_check(
    editor: &mut BoardEditor<'_>,
    id: VerificationId,
    fresh: bool,
) -> Result<CheckReport, BoardError> {
    let workspace = editor.workspace();
    if workspace.record.remote_name().is_some() {
        return Err(EngineError::NoDirectory { root: workspace.root.clone() }.into());
    }
    let runner = CheckRunner { workspace };
    let board = editor.board()?;
    let plan = board.verifications.require(id.0)?.clone();
    let key = runner.cache_key(&plan)?;
    let earlier_run = board.runs.iter().rev().find(|(_, run)| {
        run.verification == id
            && run.key.is_some()
            && run.key == key
            && matches!(run.outcome, CheckOutcome::Passed | CheckOutcome::Failed)
    });
    if let Some((number, run)) = earlier_run.filter(|_| !fresh) {
        return Ok(CheckReport {
            verification: id,
            outcome: run.outcome,
            reason: format!("{} (with the same inputs, in R{number})", run.reason),
            cached: Some(RunId(number)),
            edit: None,
        });
    }
    let started = Instant::now();
    let finding = runner.run(&plan)?;
    let elapsed = started.elapsed();
    let edit = editor.apply(&BoardMutation::RecordRun {
        verification: id,
        outcome: finding.outcome,
        reason: finding.reason.clone(),
        exit: finding.exit,
        took_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        output: finding.output,
        key,
    })?;
    let (outcome, reason) = (finding.outcome, finding.reason);
    Ok(CheckReport { verification: id, outcome, reason, cached: None, edit: Some(edit) })
}

/// Runs checks in a workspace.
struct CheckRunner<'w> {
    workspace: &'w Workspace,
}

impl CheckRunner<'_> {
    fn run(&self, plan: &Verification) -> Result<CheckFinding, BoardError> {
        let timeout = Duration::from_millis(plan.timeout_ms);
        Ok(match &plan.check {
            Check::Command { run, exit, contains, lacks } => {
                let (mut finding, output) = match self.run_command(run, timeout)? {
                    Ok((code, output)) => (check_exit_code(code, *exit), output),
                    Err(finding) => return Ok(finding),
                };
                let missing = contains.iter().find(|part| !output.contains(part.as_str()));
                let unwanted = lacks.iter().find(|part| output.contains(part.as_str()));
                match (finding.outcome, missing, unwanted) {
                    (CheckOutcome::Passed, Some(part), _) => {
                        finding = CheckFinding::from_passed(false, format!("\"{part}\" is not in its output"))
                    }
                    (CheckOutcome::Passed, _, Some(part)) => {
                        finding = CheckFinding::from_passed(false, format!("\"{part}\" is in its output"))
                    }
                    _ => {}
                }
                CheckFinding { exit: finding.exit.or(Some(*exit)), output, ..finding }
            }
            Check::SameFiles { left, right } => self.compare_files(left, right)?,
            Check::FileText { path, text, absent } => match self.read_file(path)? {
                Err(finding) => finding,
                Ok(bytes) => {
                    let is_contained = String::from_utf8_lossy(&bytes).contains(text.as_str());
                    let verb = if is_contained { "is" } else { "is not" };
                    CheckFinding::from_passed(is_contained != *absent, format!("\"{text}\" {verb} in {path}"))
                }
            },
            Check::Json { from, pointer, equals } => match self.measure(from, timeout)? {
                Err(finding) => finding,
                Ok(bytes) => check_json_property(&bytes, pointer, equals),
            },
            Check::Reference { from, reference, absolute, relative } => {
                match (self.measure(from, timeout)?, self.read_file(reference)?) {
                    (Err(finding), _) | (_, Err(finding)) => finding,
                    (Ok(measured), Ok(expected)) => {
                        check_close_to(&measured, &expected, *absolute, *relative)
                    }
                }
            }
        })
    }

    /// Returns the exit code and the output of a command, or the outcome if it did not run to its end.
    fn run_command(
        &self,
        command: &str,
        timeout: Duration,
    ) -> Result<Result<(i32, String), CheckFinding>, BoardError> {
        let process_end = match process::run_command(command, &self.workspace.root, timeout) {
            Ok(process_end) => process_end,
            Err(error) => {
                return Ok(Err(CheckFinding::new(CheckOutcome::Error, format!("sh cannot be run: {error}"))));
            }
        };
        let mut output = String::from_utf8_lossy(&process_end.output).into_owned();
        output = stepback_redact::redact(&output).into_owned();
        let finding = match process_end.end {
            CommandEnd::Exit(code @ (126 | 127)) => CheckFinding::new(
                CheckOutcome::Error,
                format!("the command cannot be run (exit code {code})"),
            ),
            CommandEnd::Exit(code) => return Ok(Ok((code, output))),
            CommandEnd::Signal(signal) => {
                CheckFinding::new(CheckOutcome::Error, format!("it was killed by signal {signal}"))
            }
            CommandEnd::TimedOut => CheckFinding::new(
                CheckOutcome::TimedOut,
                format!(
                    "it timed out after {:.1} s and was killed with its child processes",
                    process_end.elapsed.as_secs_f64()
                ),
            ),
            CommandEnd::OutputLimitExceeded => CheckFinding::new(
                CheckOutcome::Error,
                format!("it printed more than {} MiB and was killed", MOST_OUTPUT >> 20),
            ),
        };
        Ok(Err(CheckFinding { output, ..finding }))
    }

    fn measure(
        &self,
        from: &Measured,
        timeout: Duration,
    ) -> Result<Result<Vec<u8>, CheckFinding>, BoardError> {
        match from {
            Measured::File(path) => self.read_file(path),
            Measured::Command(command) => Ok(match self.run_command(command, timeout)? {
                Ok((0, output)) => Ok(output.into_bytes()),
                Ok((code, output)) => Err(CheckFinding {
                    output,
                    exit: Some(code),
                    ..CheckFinding::from_passed(false, format!("its exit code is {code}, not 0"))
                }),
                Err(finding) => Err(finding),
            }),
        }
    }

    /// Returns the absolute path of a file in the workspace; fails if `path` leads out of it.
    fn resolve_path(&self, path: &str) -> Result<PathBuf, BoardError> {
        let relative = Path::new(path);
        let is_plain = relative
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir));
        match is_plain {
            true => Ok(self.workspace.root.join(relative)),
            false => {
                Err(BoardError::OutsideWorkspace { path: path.to_owned(), root: self.workspace.root.clone() })
            }
        }
    }

    /// Returns the content of a file, or the outcome if it cannot be read.
    fn read_file(&self, path: &str) -> Result<Result<Vec<u8>, CheckFinding>, BoardError> {
        let absolute = self.resolve_path(path)?;
        let read = || -> std::io::Result<Vec<u8>> {
            let file = File::open(&absolute)?;
            if !file.metadata()?.is_file() {
                return Err(std::io::Error::other("it is not a file"));
            }
            let mut bytes = Vec::new();
            file.take(MOST_OUTPUT + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > MOST_OUTPUT {
                return Err(std::io::Error::other(format!("it is larger than {} MiB", MOST_OUTPUT >> 20)));
            }
            Ok(bytes)
        };
        Ok(read().map_err(|error| {
            CheckFinding::new(CheckOutcome::Error, format!("{path} cannot be read: {error}"))
        }))
    }

    fn compare_files(&self, left: &str, right: &str) -> Result<CheckFinding, BoardError> {
        Ok(match (self.read_file(left)?, self.read_file(right)?) {
            (Err(finding), _) | (_, Err(finding)) => finding,
            (Ok(a), Ok(b)) if a == b => {
                CheckFinding::from_passed(true, format!("{left} and {right} have the same {} bytes", a.len()))
            }
            (Ok(a), Ok(b)) => {
                let index = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
                let line = a[..index].iter().filter(|byte| **byte == b'\n').count() + 1;
                CheckFinding::from_passed(
                    false,
                    format!("{left} and {right} differ from byte {index} on (line {line})"),
                )
            }
        })
    }

    /// Returns the cache key of a check: a hash of the check itself and of the content of its inputs. `None` if the check
    /// names no inputs.
    fn cache_key(&self, plan: &Verification) -> Result<Option<String>, BoardError> {
        if plan.inputs.is_empty() {
            return Ok(None);
        }
        let mut globs = GlobSetBuilder::new();
        for input in &plan.inputs {
            self.resolve_path(input)?;
            let pattern_error = |error| BoardError::Pattern { pattern: input.clone(), error };
            globs.add(Glob::new(input).map_err(pattern_error)?);
        }
        let globs = globs.build().map_err(BoardError::Patterns)?;
        let mut hasher = blake3::Hasher::new();
        let check =
            serde_json::to_vec(&plan.check).map_err(|error| MindError::Senseless(error.to_string()))?;
        hasher.update(&(check.len() as u64).to_le_bytes()).update(&check);
        for path in list_files(&self.workspace.root, |path| globs.is_match(path))? {
            let name = path.as_os_str().as_encoded_bytes();
            hasher.update(&(name.len() as u64).to_le_bytes()).update(name);
            match fs::read(self.workspace.root.join(&path)) {
                Ok(bytes) => hasher.update(blake3::hash(&bytes).as_bytes()),
                Err(_) => hasher.update(b"cannot be read"),
            };
        }
        Ok(Some(hex::encode(&hasher.finalize().as_bytes()[..16])))
    }
}

/// Returns the files below a directory that are `is_wanted`, sorted, relative to it. Links are not followed, and `.git`
/// directories are skipped.
fn list_files(root: &Path, is_wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, BoardError> {
    let mut files = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(dir) = pending.pop() {
        let Ok(entries) = fs::read_dir(root.join(&dir)) else { continue };
        for entry in entries.flatten() {
            let path = dir.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && entry.file_name() != ".git" => pending.push(path),
                Ok(kind) if kind.is_file() && is_wanted(&path) => files.push(path),
                _ => {}
            }
        }
        if files.len() > MAX_INPUT_FILES || pending.len() > MAX_INPUT_FILES {
            return Err(BoardError::TooManyInputs { most: MAX_INPUT_FILES });
        }
    }
    files.sort();
    Ok(files)
}
