//! `cargo xtask test`: everything a change has to pass, in the order that fails fastest.
//!
//! CI runs the same. What the tests need is installed first, so that no test is skipped.

use std::process::Command;

use anyhow::{Result, bail};

use crate::stages::{Stages, cargo_command, has_nextest, is_successful};
use crate::{agents, mcp, postgres, python, studio, tidy};

/// Runs all stages; arguments after `--` are passed to the test runner.
pub fn run(args: &[String]) -> Result<()> {
    let extra: &[String] = match args.split_first() {
        None => &[],
        Some((first, rest)) if first == "--" => rest,
        Some((first, _)) => {
            bail!("`cargo xtask test` takes no `{first}`; arguments for the test runner go after `--`")
        }
    };
    install_components()?;

    let mut stages = Stages::start().require_all();
    stages.run("format", &mut cargo_command(&["fmt", "--all", "--check"]))?;
    stages.run(
        "lints",
        &mut cargo_command(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    )?;
    stages.run_task("tidy", tidy::run)?;
    stages.run_task("agents", agents::install)?;
    stages.run_task("mcp", mcp::install)?;
    stages.run_task("postgres", postgres::install)?;
    stages.run_task("python", python::install)?;
    stages.run_task("studio", studio::install)?;
    if has_nextest() {
        stages
            .run("tests", cargo_command(&["nextest", "run", "--workspace", "--no-fail-fast"]).args(extra))?;
        stages.run("documentation tests", &mut cargo_command(&["test", "--doc", "--workspace"]))?;
    } else {
        stages.run("tests", cargo_command(&["test", "--workspace"]).args(extra))?;
    }
    stages.run_task("studio tests", || studio::test(&[]))?;
    let mut doc = cargo_command(&["doc", "--workspace", "--no-deps"]);
    stages.run("documentation", doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    stages.finish();
    Ok(())
}

/// A minimal toolchain lacks the formatter and the linter; without rustup they cannot be installed.
fn install_components() -> Result<()> {
    for (component, check) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if is_successful(&mut cargo_command(&[check, "--version"])) {
            continue;
        }
        eprintln!("{component} is missing: installing it with rustup.");
        let status = Command::new("rustup").args(["component", "add", component]).status();
        if !status.is_ok_and(|status| status.success()) {
            bail!(
                "cannot install {component}; install it (`rustup component add {component}`) and run again"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_argument_is_refused_before_anything_runs() {
        let error = run(&["--fast".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("after `--`"), "{error}");
    }
}
