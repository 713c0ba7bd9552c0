//! `cargo xtask bench`: builds the benchmarks (`crates/bench`) optimised, and starts them.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{studio, workspace};

/// Runs a benchmark with these arguments. Its own exit code becomes that of this process.
pub fn run(args: &[String]) -> Result<()> {
    let workspace = workspace::load()?;
    let mut cargo = workspace::cargo_command();
    cargo.args(["build", "--release", "--quiet", "--package", "stepback-bench"]).current_dir(&workspace.root);
    if !cargo.status().context("cannot start cargo")?.success() {
        bail!("cannot build the benchmarks");
    }
    let asks_for_help = args.iter().any(|arg| matches!(arg.as_str(), "--help" | "-h" | "help"));
    if args.first().is_some_and(|name| name == "studio") && !asks_for_help {
        studio::install()?;
    }
    let mut bench = Command::new(workspace.target.join("release/stepback-bench"));
    let status = bench.args(args).status().context("cannot start the benchmarks")?;
    if !status.success() {
        // The benchmark has already reported the error.
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(())
}
