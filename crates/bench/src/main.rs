//! Benchmarks: stepback and the tools it replaces, in one run, on the same machine.
//!
//! `cargo xtask bench` builds this program with optimisations and starts it: the minimum cost on this machine is measured
//! in this process, and without optimisation it would make all others look better. It depends on no crate of the
//! workspace; code that has to read a store is an example of the crate concerned, started as a process.
//!
//! Read in this order: [`options`] for the command line, [`input`] for the trees and the changes to them, [`systems`] for
//! the compared systems, [`benchmarks`] for the measurements, [`measure`] for clocks and the state of the machine,
//! [`report`] for goals and tables. docs/benchmarks/README.md says how to read the numbers.

mod benchmarks;
mod input;
mod measure;
mod options;
mod paths;
mod report;
mod run;
mod systems;

use std::process::ExitCode;

use anyhow::{Result, bail};

use benchmarks::NAMES;
use options::Options;
use paths::Paths;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run_bench(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_bench(args: &[String]) -> Result<()> {
    let Some((name, rest)) = args.split_first() else {
        bail!("say what to measure, one of: {}; `bench --help` explains them", NAMES.join(", "))
    };
    if args.iter().any(|arg| matches!(arg.as_str(), "--help" | "-h" | "help")) {
        print!("{}", options::HELP);
        return Ok(());
    }
    let options = Options::parse(rest)?;
    if !NAMES.contains(&name.as_str()) {
        bail!("there is no benchmark `{name}`; choose one of: {}", NAMES.join(", "));
    }
    if cfg!(debug_assertions) {
        bail!("this build is not optimised; `cargo xtask bench` makes one that is, and starts it");
    }
    // SAFETY: no other thread runs yet. Restored modes depend on the mask, so it is the usual one.
    unsafe { libc::umask(0o022) };
    benchmarks::run(name, &Paths::find()?, &options)
}
