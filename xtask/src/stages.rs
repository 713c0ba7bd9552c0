//! Stages of a check: each prints a heading and its time, and the first failure ends the run with the command that failed, so
//! that it can be repeated by hand.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Set for all tests that a check runs: a test fails instead of being skipped if something that it needs is missing.
const REQUIRE_ALL: &str = "STEPBACK_TEST_REQUIRE_ALL";

/// The stages of one run, with their times.
pub struct Stages {
    started: Instant,
    require_all: bool,
    times: Vec<(&'static str, f64)>,
}

impl Stages {
    /// Starts the clock.
    pub fn start() -> Self {
        Self { started: Instant::now(), require_all: false, times: Vec::new() }
    }

    /// From here on, a test that cannot run here fails.
    pub fn require_all(mut self) -> Self {
        self.require_all = true;
        self
    }

    /// Runs a command.
    pub fn run(&mut self, name: &'static str, command: &mut Command) -> Result<()> {
        if self.require_all {
            command.env(REQUIRE_ALL, "1");
        }
        self.run_task(name, || {
            let status =
                command.status().with_context(|| format!("cannot start `{}`", command_line(command)))?;
            if !status.success() {
                bail!("stage \"{name}\" failed ({status}); to repeat it: {}", command_line(command));
            }
            Ok(())
        })
    }

    /// Calls a function of ours.
    pub fn run_task(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        eprintln!("\n=== {name} ===");
        let started = Instant::now();
        work()?;
        let seconds = started.elapsed().as_secs_f64();
        eprintln!("--- {name}: {seconds:.1} s");
        self.times.push((name, seconds));
        Ok(())
    }

    /// Says how long everything took.
    pub fn finish(self) {
        let stages: Vec<String> =
            self.times.iter().map(|(name, seconds)| format!("{name} {seconds:.1} s")).collect();
        eprintln!(
            "\nAll checks passed in {:.1} s: {}.",
            self.started.elapsed().as_secs_f64(),
            stages.join(", ")
        );
    }
}

/// The cargo that runs this task, in the workspace.
pub fn cargo_command(args: &[&str]) -> Command {
    let mut command = workspace::cargo_command();
    command.args(args).current_dir(workspace::root());
    command
}

/// Whether tests can run in parallel processes.
pub fn has_nextest() -> bool {
    is_successful(&mut cargo_command(&["nextest", "--version"]))
}

/// Whether a command runs and succeeds, with nothing printed.
pub fn is_successful(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn command_line(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(key, value)| Some(format!("{}={:?}", key.to_string_lossy(), value?.to_str()?)));
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    variables.chain(["cargo".to_owned()]).chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_stage_names_the_command_to_repeat() {
        let mut command = cargo_command(&["doc", "--no-deps"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(command_line(&command), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --no-deps");
    }

    #[test]
    fn a_failure_ends_the_run_and_tests_have_to_run_where_all_are_required() {
        let mut stages = Stages::start().require_all();
        let error =
            stages.run("broken", &mut cargo_command(&["there-is-no-such-command"])).unwrap_err().to_string();
        assert!(error.contains("stage \"broken\" failed"), "{error}");
        assert!(error.contains("STEPBACK_TEST_REQUIRE_ALL=\"1\" cargo there-is-no-such-command"), "{error}");
        assert!(stages.times.is_empty());
    }
}
