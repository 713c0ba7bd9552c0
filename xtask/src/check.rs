//! `cargo xtask check`: the fast part of `cargo xtask test`, for running between two edits.
//!
//! Formatting, lints, tidy, the unit tests of every crate and all tests of the engine. Nothing is installed and nothing is
//! downloaded, so it runs on a machine without Node, Python and PostgreSQL, and without a network.

use anyhow::{Result, bail};

use crate::stages::{Stages, cargo_command, has_nextest};
use crate::tidy;

/// Runs all stages.
pub fn run(args: &[String]) -> Result<()> {
    if let Some(first) = args.first() {
        bail!(
            "`cargo xtask check` takes no `{first}`; `cargo xtask test -- ARGS` passes arguments to the test runner"
        );
    }
    let mut stages = Stages::start();
    stages.run("format", &mut cargo_command(&["fmt", "--all", "--check"]))?;
    let lints = ["clippy", "--offline", "--workspace", "--all-targets", "--", "-D", "warnings"];
    stages.run("lints", &mut cargo_command(&lints))?;
    stages.run_task("tidy", tidy::run)?;
    let units = ["--offline", "--workspace", "--lib", "--bins"];
    let engine = ["--offline", "--package", "stepback-engine", "--tests"];
    let runner: &[&str] =
        if has_nextest() { &["nextest", "run", "--no-fail-fast"] } else { &["test", "--no-fail-fast"] };
    stages.run("unit tests", cargo_command(runner).args(units))?;
    stages.run("engine tests", cargo_command(runner).args(engine))?;
    stages.finish();
    Ok(())
}
