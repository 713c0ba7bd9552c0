//! `cargo xtask powerloss`: builds stepback and the power-loss tests (`crates/powerloss`) optimised, and starts them.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Runs the tests with these arguments. Their own exit code becomes that of this process.
pub fn run(args: &[String]) -> Result<()> {
    let workspace = workspace::load()?;
    let mut cargo = workspace::cargo_command();
    let packages = ["--package", "stepback", "--package", "stepback-powerloss"];
    cargo.args(["build", "--release", "--quiet"]).args(packages).current_dir(&workspace.root);
    if !cargo.status().context("cannot start cargo")?.success() {
        bail!("cannot build the power-loss tests");
    }
    let mut tests = Command::new(workspace.target.join("release/stepback-powerloss"));
    let status = tests.args(args).status().context("cannot start the power-loss tests")?;
    if !status.success() {
        // The tests have already reported the error.
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(())
}
