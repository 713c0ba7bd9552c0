//! The command line of `cargo xtask bench`.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::benchmarks::files::OPERATIONS;
use crate::systems;

/// Printed by `cargo xtask bench --help`.
pub const HELP: &str = "\
Measure stepback beside other tools, in one run, each on its own copy of the tree

Usage: cargo xtask bench files [OPTIONS]
       cargo xtask bench hook [--quick] [--runs N] [--keep]
       cargo xtask bench session [--quick] [--runs N] [--keep]
       cargo xtask bench proxy [--quick] [--runs N] [--keep]
       cargo xtask bench bisect [--quick] [--tree DIR] [--runs N] [--keep]
       cargo xtask bench watcher [--quick] [--tree DIR] [--runs N] [--keep]
       cargo xtask bench server [--quick] [--runs N] [--keep]
       cargo xtask bench tui [--quick] [--runs N] [--keep]
       cargo xtask bench studio [--quick] [--keep]
       cargo xtask bench mind [--quick] [--keep]
       cargo xtask bench ask [--quick] [--keep]

Options:
  --tree DIR       Measure on a copy of DIR instead of the generated trees (can be repeated)
  --quick          Only the small and the middle tree, fewer repetitions
  --only OPS       Only these operations, separated by commas; a prefix is enough:
                   first, none, change-1, change-10, change-1000, restore-1, restore-10,
                   restore-1000, path, diff-1, diff-1000, big, disk
  --systems NAMES  Only these systems, separated by commas:
                   stepback, limit, cline, opencode, gemini, restic, borg
  --binary FILE    Measure this stepback instead of building one
  --json FILE      Write all numbers to FILE
  --keep           Write the results to docs/benchmarks/
  --runs N         Runs of `bench hook` and `bench watcher` (200; 40 with --quick), turns of `bench session` (1000; 100),
                   fifths of the single calls of `bench proxy` (200; 40), checkpoints of `bench bisect`
                   (1000; 100), single appends and questions of `bench server` (200; 40),
                   keys of `bench tui` (200; 40)
  --help           Print this text

The exit code is 1 when a restore by stepback was not exact or one of its commands failed.
";

/// The parsed command line.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directories to measure on; empty for the generated trees.
    pub trees: Vec<PathBuf>,
    /// Fewer trees and repetitions.
    pub quick: bool,
    /// Prefixes of the operations to run; empty for all.
    pub only: Vec<String>,
    /// Systems to run; empty for all that are installed.
    pub systems: Vec<String>,
    /// A stepback binary to use instead of building one.
    pub binary: Option<PathBuf>,
    /// Where to write the numbers.
    pub json: Option<PathBuf>,
    /// Whether to keep the results in the repository.
    pub keep: bool,
    /// Runs of the hook benchmark.
    pub runs: usize,
    /// Turns of the session benchmark, checkpoints of the one of bisect.
    pub turns: usize,
}

impl Options {
    /// Reads the arguments after `bench files` or `bench hook`.
    pub fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut runs = None;
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (flag, attached) = match arg.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (arg.as_str(), None),
            };
            let mut value = || match attached.clone().or_else(|| args.next().cloned()) {
                Some(value) => Ok(value),
                None => bail!("{flag} needs a value; `cargo xtask bench --help` explains it"),
            };
            match flag {
                "--tree" => options.trees.push(value()?.into()),
                "--quick" => options.quick = true,
                "--only" => options.only.extend(split_list(&value()?)),
                "--systems" => options.systems.extend(split_list(&value()?)),
                "--binary" => options.binary = Some(value()?.into()),
                "--json" => options.json = Some(value()?.into()),
                "--keep" => options.keep = true,
                "--runs" => runs = Some(value()?.parse()?),
                other => bail!("`bench` has no option `{other}`; `cargo xtask bench --help` lists them"),
            }
        }
        for chosen in &options.only {
            let selection = Self { only: vec![chosen.clone()], ..Self::default() };
            let operations = OPERATIONS.into_iter().chain(["big", "disk"]);
            if !operations.clone().any(|operation| selection.runs_operation(operation)) {
                bail!(
                    "there is no operation `{chosen}`; choose from {}",
                    operations.collect::<Vec<_>>().join(", ")
                );
            }
        }
        for name in &options.systems {
            if !systems::ALL.contains(&name.as_str()) {
                bail!("there is no system `{name}`; choose from {}", systems::ALL.join(", "));
            }
        }
        options.runs = runs.unwrap_or(if options.quick { 40 } else { 200 });
        options.turns = runs.unwrap_or(if options.quick { 100 } else { 1_000 });
        if options.runs == 0 {
            bail!("--runs needs at least 1");
        }
        Ok(options)
    }

    /// Whether an operation was asked for.
    pub fn runs_operation(&self, operation: &str) -> bool {
        let matches = |prefix: &String| {
            operation
                .strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        self.only.is_empty() || self.only.iter().any(matches)
    }

    /// Whether a system was asked for and can run here.
    pub fn runs_system(&self, name: &str) -> bool {
        let chosen = self.systems.is_empty() || self.systems.iter().any(|system| system == name);
        chosen && systems::is_installed(name)
    }
}

fn split_list(value: &str) -> Vec<String> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn operations_are_chosen_by_whole_words() {
        let options = parse(&["--only", "change-1,restore", "--tree=a", "--tree", "b"]).unwrap();
        assert!(options.runs_operation("change-1") && options.runs_operation("restore-1000"));
        assert!(!options.runs_operation("change-10") && !options.runs_operation("none"));
        assert_eq!(options.trees.len(), 2);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse(&["--fast"]).unwrap_err().to_string().contains("--fast"));
        assert!(parse(&["--systems", "svn"]).unwrap_err().to_string().contains("svn"));
        assert!(parse(&["--only", "chang"]).unwrap_err().to_string().contains("`chang`"));
        assert!(parse(&["--only"]).unwrap_err().to_string().contains("needs a value"));
    }
}
