//! Power-loss tests: every command of stepback, cut at every write.
//!
//! `cargo xtask powerloss` builds this program and starts it. It depends on no crate of the workspace and drives the program
//! as a user does. A file system lies on a disk in memory that records what the kernel writes and flushes; afterwards the
//! recording is cut at any moment, under three models of what a disk loses, and the program has to cope with the rest.
//!
//! The order of reading: [`disk`] and [`fuse`] for the recording, [`cuts`] for the models, [`workload`] for the commands and
//! what they promise, [`check`] for what has to be true, [`run`] for one run, [`namespace`] for how everything goes away.
//! docs/how-it-is-tested.md has results.

mod check;
mod cuts;
mod disk;
mod filesystem;
mod fuse;
mod namespace;
mod options;
mod program;
mod run;
mod tree;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use options::PowerlossOptions;
use run::FileSystemReport;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match start(&args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs outside of the namespace first, then inside.
fn start(args: &[String]) -> Result<u8> {
    if args.iter().any(|arg| matches!(arg.as_str(), "--help" | "-h" | "help")) {
        print!("{}", options::HELP);
        return Ok(0);
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let options = PowerlossOptions::parse(args, clock)?;
    if namespace::is_inside() {
        return run_all(&options);
    }
    if let Some(reason) = namespace::missing() {
        println!("Power-loss tests skipped: {reason}.");
        return Ok(0);
    }
    namespace::run_inside(args)
}

fn run_all(options: &PowerlossOptions) -> Result<u8> {
    let executable = find_stepback(options)?;
    let root = namespace::make_private_root(&executable)?;
    println!("Seed: {}", options.seed);
    let started = Instant::now();
    let mut reports = Vec::new();
    for kind in options.file_systems.iter().copied() {
        if let Some(reason) = kind.missing() {
            println!("{} skipped: {reason}.", kind.name());
            continue;
        }
        reports.push(run::run(kind, &executable, &root, options)?);
    }
    print_commands(&reports);
    let (cuts, failed) = print_table(&reports);
    println!(
        "{cuts} cuts, {failed} failed, in {:.0} s; seed {}",
        started.elapsed().as_secs_f64(),
        options.seed
    );
    Ok(u8::from(failed > 0))
}

fn print_commands(reports: &[FileSystemReport]) {
    let Some(first) = reports.first() else { return };
    let names: Vec<&str> = reports.iter().map(|report| report.file_system.name()).collect();
    println!("\nCuts by command (failed):\n\n| command | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    for (index, command) in first.commands.iter().enumerate() {
        let counts: Vec<String> = reports
            .iter()
            .filter_map(|report| report.commands.get(index))
            .map(|count| format!("{} ({})", count.cuts, count.failed))
            .collect();
        println!("| {} | {} |", command.name, counts.join(" | "));
    }
}

fn print_table(reports: &[FileSystemReport]) -> (usize, usize) {
    println!(
        "\n| file system | writes | flushes | model | cuts | acknowledged checked | trees compared | failed |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut totals = (0, 0);
    for report in reports {
        let (writes, flushes) = report.writes;
        for (model, tally) in &report.tallies {
            totals.0 += tally.cuts;
            totals.1 += tally.failed;
            println!(
                "| {} | {writes} | {flushes} | {} | {} | {} | {} | {} |",
                report.file_system.name(),
                model.name(),
                tally.cuts,
                tally.checked.promises,
                tally.checked.trees,
                tally.failed
            );
        }
    }
    totals
}

/// The program under test: the one that was named, or the one that cargo built beside this one.
fn find_stepback(options: &PowerlossOptions) -> Result<PathBuf> {
    let path = match &options.program {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe().context("cannot find this program")?.with_file_name("stepback"),
    };
    ensure!(path.is_file(), "there is no {}; build it with `cargo build --package stepback`", path.display());
    path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
}
