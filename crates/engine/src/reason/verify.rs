//! Runs checks: compares what is there with what should be, and records the outcome on the board.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use globset::{Glob, GlobSetBuilder};
use serde::Serialize;
use serde_json::Value;
use stepback_model::hex;
use stepback_reasoning::ids::{RunId, VerificationId};
use stepback_reasoning::item::{Check, CheckOutcome, Measured, Verification};
use stepback_reasoning::{BoardMutation, MindError};

use super::editor::{BoardEdit, Thinker};
use super::process::{self, End, MOST_OUTPUT};
use crate::error::EngineError;

/// The maximum number of files that the inputs of a check may match.
const MOST_FILES: usize = 100_000;

/// The result of a check.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verified {
    /// The check that was run.
    pub verification: VerificationId,
    /// Whether it passed, failed, timed out or could not be run.
    pub outcome: CheckOutcome,
    /// The reason for the outcome, as a sentence.
    pub reason: String,
    /// The earlier run whose outcome was used, because its inputs are the same; `None` if the check was run.
    pub cached: Option<RunId>,
    /// The recorded step and its effect on the board; `None` if an earlier run was used.
    pub thought: Option<BoardEdit>,
}

/// The outcome of a check that was run.
struct Found {
    outcome: CheckOutcome,
    reason: String,
    exit: Option<i32>,
    output: String,
}

impl Found {
    fn new(outcome: CheckOutcome, reason: impl Into<String>) -> Self {
        Self { outcome, reason: reason.into(), exit: None, output: String::new() }
    }

    fn is(passed: bool, reason: impl Into<String>) -> Self {
        Self::new(if passed { CheckOutcome::Passed } else { CheckOutcome::Failed }, reason)
    }
}

impl Thinker<'_> {
    /// Runs a check and records its outcome. Unless `fresh`, the outcome of an earlier run with the same inputs is used.
    pub fn verify(&mut self, id: VerificationId, fresh: bool) -> Result<Verified, EngineError> {
        if self.workspace.record.remote_name().is_some() {
            return Err(EngineError::NoDirectory { root: self.workspace.root.clone() });
        }
        let mind = self.mind()?;
        let plan = mind.verifications.known(id.0)?.clone();
        let key = self.key(&plan)?;
        let known = mind.runs.iter().rev().find(|(_, run)| {
            run.verification == id
                && run.key.is_some()
                && run.key == key
                && matches!(run.outcome, CheckOutcome::Passed | CheckOutcome::Failed)
        });
        if let Some((number, run)) = known.filter(|_| !fresh) {
            return Ok(Verified {
                verification: id,
                outcome: run.outcome,
                reason: format!("{} (with the same inputs, in R{number})", run.reason),
                cached: Some(RunId(number)),
                thought: None,
            });
        }
        let begun = Instant::now();
        let found = self.look_at(&plan)?;
        let took = begun.elapsed();
        let thought = self.think(&BoardMutation::RecordRun {
            verification: id,
            outcome: found.outcome,
            reason: found.reason.clone(),
            exit: found.exit,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            output: found.output,
            key,
        })?;
        let (outcome, reason) = (found.outcome, found.reason);
        Ok(Verified { verification: id, outcome, reason, cached: None, thought: Some(thought) })
    }

    fn look_at(&self, plan: &Verification) -> Result<Found, EngineError> {
        let timeout = Duration::from_millis(plan.timeout_ms);
        Ok(match &plan.check {
            Check::Command { run, exit, contains, lacks } => {
                let (mut found, output) = match self.printed(run, timeout)? {
                    Ok((code, output)) => (exit_code(code, *exit), output),
                    Err(found) => return Ok(found),
                };
                let missing = contains.iter().find(|part| !output.contains(part.as_str()));
                let unwanted = lacks.iter().find(|part| output.contains(part.as_str()));
                match (found.outcome, missing, unwanted) {
                    (CheckOutcome::Passed, Some(part), _) => {
                        found = Found::is(false, format!("\"{part}\" is not in its output"))
                    }
                    (CheckOutcome::Passed, _, Some(part)) => {
                        found = Found::is(false, format!("\"{part}\" is in its output"))
                    }
                    _ => {}
                }
                Found { exit: found.exit.or(Some(*exit)), output, ..found }
            }
            Check::SameFiles { left, right } => self.same_files(left, right)?,
            Check::FileText { path, text, absent } => match self.read(path)? {
                Err(found) => found,
                Ok(bytes) => {
                    let there = String::from_utf8_lossy(&bytes).contains(text.as_str());
                    let is = if there { "is" } else { "is not" };
                    Found::is(there != *absent, format!("\"{text}\" {is} in {path}"))
                }
            },
            Check::Json { from, pointer, equals } => match self.measured(from, timeout)? {
                Err(found) => found,
                Ok(bytes) => json_property(&bytes, pointer, equals),
            },
            Check::Reference { from, reference, absolute, relative } => {
                match (self.measured(from, timeout)?, self.read(reference)?) {
                    (Err(found), _) | (_, Err(found)) => found,
                    (Ok(measured), Ok(wanted)) => close_to(&measured, &wanted, *absolute, *relative),
                }
            }
        })
    }

    /// Returns the exit code and the output of a command, or the outcome if it did not run to its end.
    fn printed(&self, command: &str, timeout: Duration) -> Result<Result<(i32, String), Found>, EngineError> {
        let done = match process::run(command, &self.workspace.root, timeout) {
            Ok(done) => done,
            Err(error) => {
                return Ok(Err(Found::new(CheckOutcome::Error, format!("sh cannot be run: {error}"))));
            }
        };
        let mut output = String::from_utf8_lossy(&done.output).into_owned();
        output = stepback_redact::redact(&output).into_owned();
        let found = match done.end {
            End::Exit(code @ (126 | 127)) => {
                Found::new(CheckOutcome::Error, format!("the command cannot be run (exit code {code})"))
            }
            End::Exit(code) => return Ok(Ok((code, output))),
            End::Signal(signal) => {
                Found::new(CheckOutcome::Error, format!("it was killed by signal {signal}"))
            }
            End::TimedOut => Found::new(
                CheckOutcome::TimedOut,
                format!(
                    "it timed out after {:.1} s and was killed with its child processes",
                    done.took.as_secs_f64()
                ),
            ),
            End::TooMuch => Found::new(
                CheckOutcome::Error,
                format!("it printed more than {} MiB and was killed", MOST_OUTPUT >> 20),
            ),
        };
        Ok(Err(Found { output, ..found }))
    }

    fn measured(&self, from: &Measured, timeout: Duration) -> Result<Result<Vec<u8>, Found>, EngineError> {
        match from {
            Measured::File(path) => self.read(path),
            Measured::Command(command) => Ok(match self.printed(command, timeout)? {
                Ok((0, output)) => Ok(output.into_bytes()),
                Ok((code, output)) => Err(Found {
                    output,
                    exit: Some(code),
                    ..Found::is(false, format!("its exit code is {code}, not 0"))
                }),
                Err(found) => Err(found),
            }),
        }
    }

    /// Returns the absolute path of a file in the workspace; fails if `path` leads out of it.
    fn path(&self, path: &str) -> Result<PathBuf, EngineError> {
        let relative = Path::new(path);
        let plain = relative
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir));
        match plain {
            true => Ok(self.workspace.root.join(relative)),
            false => Err(EngineError::Input(format!(
                "{path} is outside the workspace: use a path inside it, relative to {}",
                self.workspace.root.display()
            ))),
        }
    }

    /// Returns the content of a file, or the outcome if it cannot be read.
    fn read(&self, path: &str) -> Result<Result<Vec<u8>, Found>, EngineError> {
        let place = self.path(path)?;
        let read = || -> std::io::Result<Vec<u8>> {
            let file = File::open(&place)?;
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
        Ok(read().map_err(|error| Found::new(CheckOutcome::Error, format!("{path} cannot be read: {error}"))))
    }

    fn same_files(&self, left: &str, right: &str) -> Result<Found, EngineError> {
        Ok(match (self.read(left)?, self.read(right)?) {
            (Err(found), _) | (_, Err(found)) => found,
            (Ok(a), Ok(b)) if a == b => {
                Found::is(true, format!("{left} and {right} have the same {} bytes", a.len()))
            }
            (Ok(a), Ok(b)) => {
                let at = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
                let line = a[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
                Found::is(false, format!("{left} and {right} differ from byte {at} on (line {line})"))
            }
        })
    }

    /// Returns the cache key of a check: a hash of the check itself and of the content of its inputs. `None` if the check
    /// names no inputs.
    fn key(&self, plan: &Verification) -> Result<Option<String>, EngineError> {
        if plan.inputs.is_empty() {
            return Ok(None);
        }
        let mut globs = GlobSetBuilder::new();
        for input in &plan.inputs {
            self.path(input)?;
            let wrong =
                |error| EngineError::Input(format!("\"{input}\" is not a valid file pattern: {error}"));
            globs.add(Glob::new(input).map_err(wrong)?);
        }
        let globs = globs.build().map_err(|error| EngineError::Input(error.to_string()))?;
        let mut hasher = blake3::Hasher::new();
        let check =
            serde_json::to_vec(&plan.check).map_err(|error| MindError::Senseless(error.to_string()))?;
        hasher.update(&(check.len() as u64).to_le_bytes()).update(&check);
        for path in below(&self.workspace.root, |path| globs.is_match(path))? {
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

/// Returns the files below a directory that are `wanted`, sorted, relative to it. Links are not followed, and `.git`
/// directories are skipped.
fn below(root: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, EngineError> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(dir) = pending.pop() {
        let Ok(entries) = fs::read_dir(root.join(&dir)) else { continue };
        for entry in entries.flatten() {
            let path = dir.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && entry.file_name() != ".git" => pending.push(path),
                Ok(kind) if kind.is_file() && wanted(&path) => found.push(path),
                _ => {}
            }
        }
        if found.len() > MOST_FILES || pending.len() > MOST_FILES {
            return Err(EngineError::Input(format!(
                "the check has more than {MOST_FILES} input files; use fewer"
            )));
        }
    }
    found.sort();
    Ok(found)
}

fn exit_code(code: i32, wanted: i32) -> Found {
    let mut found = match code == wanted {
        true => Found::is(true, format!("its exit code is {code}")),
        false => Found::is(false, format!("its exit code is {code}, not {wanted}")),
    };
    found.exit = Some(code);
    found
}

fn json_property(bytes: &[u8], pointer: &str, equals: &Value) -> Found {
    let document: Value = match serde_json::from_slice(bytes) {
        Ok(document) => document,
        Err(error) => return Found::new(CheckOutcome::Error, format!("it is not valid JSON: {error}")),
    };
    match document.pointer(pointer) {
        None => Found::is(false, format!("there is nothing at {pointer}")),
        Some(value) => {
            let same =
                value == equals || matches!((value.as_f64(), equals.as_f64()), (Some(a), Some(b)) if a == b);
            let not = if same { String::new() } else { format!(", not {}", brief(equals)) };
            Found::is(same, format!("{pointer} is {}{not}", brief(value)))
        }
    }
}

fn brief(value: &Value) -> String {
    let mut text = value.to_string();
    stepback_model::clip::text(&mut text, 300);
    text
}

/// Returns the numbers in a text: every word between spaces, commas, brackets and the like that parses as one.
fn numbers(bytes: &[u8]) -> Vec<f64> {
    let text = String::from_utf8_lossy(bytes);
    let words = text.split(|c: char| c.is_whitespace() || ",;:[](){}\"'=".contains(c));
    words.filter_map(|word| word.parse::<f64>().ok()).filter(|number| number.is_finite()).collect()
}

fn close_to(measured: &[u8], reference: &[u8], absolute: f64, relative: f64) -> Found {
    let (measured, wanted) = (numbers(measured), numbers(reference));
    if wanted.is_empty() {
        return Found::new(CheckOutcome::Error, "the reference has no numbers");
    }
    if measured.len() != wanted.len() {
        let (is, should) = (measured.len(), wanted.len());
        return Found::is(false, format!("there are {is} numbers, but the reference has {should}"));
    }
    let off = |a: f64, b: f64| (a - b).abs() - absolute.max(relative * b.abs());
    let worst = measured
        .iter()
        .zip(&wanted)
        .enumerate()
        .max_by(|(_, (a, b)), (_, (c, d))| off(**a, **b).total_cmp(&off(**c, **d)));
    match worst {
        Some((at, (a, b))) if off(*a, *b) > 0.0 => Found::is(
            false,
            format!("number {} is {a}, and the reference has {b}: outside the tolerance", at + 1),
        ),
        Some((at, (a, b))) => {
            let count = wanted.len();
            let far = (a - b).abs();
            Found::is(
                true,
                format!(
                    "{count} numbers are within the tolerance; the largest difference is {far}, at number {}",
                    at + 1
                ),
            )
        }
        None => Found::new(CheckOutcome::Error, "the reference has no numbers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_within_either_tolerance() {
        let outcome = |a: &str, b: &str, absolute, relative| {
            close_to(a.as_bytes(), b.as_bytes(), absolute, relative).outcome
        };
        assert_eq!(outcome("1.0 2.0", "[1.0, 2.0]", 0.0, 0.0), CheckOutcome::Passed);
        assert_eq!(outcome("1.01 200", "1 199", 0.02, 0.01), CheckOutcome::Passed);
        assert_eq!(outcome("1.03", "1", 0.02, 0.01), CheckOutcome::Failed);
        assert_eq!(outcome("1 2", "1", 9.0, 9.0), CheckOutcome::Failed, "one too many");
        assert_eq!(outcome("nothing", "here", 0.0, 0.0), CheckOutcome::Error);
        assert_eq!(
            outcome("NaN inf", "1 2", 0.0, 0.0),
            CheckOutcome::Failed,
            "what is no number is not close to one"
        );
    }

    #[test]
    fn a_place_in_a_document_is_compared_as_a_value() {
        let document = br#"{"results": [{"passed": 3, "name": "a"}]}"#;
        let outcome = |pointer: &str, equals: Value| json_property(document, pointer, &equals).outcome;
        assert_eq!(outcome("/results/0/passed", 3.into()), CheckOutcome::Passed);
        assert_eq!(outcome("/results/0/passed", 3.0.into()), CheckOutcome::Passed);
        assert_eq!(outcome("/results/0/passed", "3".into()), CheckOutcome::Failed);
        assert_eq!(outcome("/results/1/passed", 3.into()), CheckOutcome::Failed);
        assert_eq!(json_property(b"{", "", &Value::Null).outcome, CheckOutcome::Error);
    }
}
