//! The benchmarks, one module each, and their common course: prepare the trees, measure, report.

mod ask;
mod bisect;
pub mod files;
mod guard_server;
mod hook;
mod mind;
mod proxy;
mod server;
mod session;
mod stores;
mod studio;
mod tui;
mod watcher;

use std::fs;

use anyhow::Result;

use crate::input::trees::{self, SourceTree};
use crate::options::Options;
use crate::paths::Paths;
use crate::run::{Findings, Run};

/// All benchmarks.
pub const NAMES: [&str; 11] =
    ["files", "hook", "session", "proxy", "bisect", "watcher", "server", "tui", "studio", "mind", "ask"];

/// Runs one of them, prints its report, and stores it if requested.
pub fn run(name: &str, paths: &Paths, options: &Options) -> Result<()> {
    let trees = prepare_trees(name, paths, options)?;
    let mut run = Run::start(paths, options)?;
    let findings = measure_benchmark(name, &mut run, &trees)?;
    run.finish(name, &findings)
}

fn measure_benchmark(name: &str, run: &mut Run<'_>, trees: &[SourceTree]) -> Result<Findings> {
    Ok(match name {
        "files" => files::measure(run, trees)?,
        "hook" => {
            let results = hook::measure(run, trees)?;
            let report = format!(
                "A fresh process from start to exit, all in turns.\n\n{}",
                results.render_report(trees)
            );
            Findings::new("processes", results.to_json(), results.judge_goals(trees), report)
        }
        "session" => {
            let results = session::measure(run)?;
            let report = session::render_report(&results);
            Findings::new("session", results, Vec::new(), report)
        }
        "proxy" => {
            let results = proxy::measure(run)?;
            Findings::new("proxy", results.to_json(), results.judge_goals(), results.render_report())
        }
        "bisect" => {
            let results = bisect::measure(run, &trees[0])?;
            Findings::new("bisect", results.to_json(), results.judge_goals(), results.render_report())
        }
        "watcher" => {
            let results = watcher::measure(run, &trees[0], &trees[1])?;
            Findings::new("watcher", results.to_json(), results.judge_goals(), results.render_report())
        }
        "server" => {
            let results = server::measure(run)?;
            Findings::new("server", results.to_json(), results.judge_goals(), results.render_report())
        }
        "tui" => {
            let results = tui::measure(run)?;
            Findings::new("tui", results.to_json(), results.judge_goals(), results.render_report())
        }
        "studio" => {
            let results = studio::measure(run)?;
            Findings::new("studio", results.to_json(), results.judge_goals(), results.render_report())
        }
        "ask" => {
            let results = ask::measure(run)?;
            Findings::new("ask", results.to_json(), results.judge_goals(), results.render_report())
        }
        _ => {
            let results = mind::measure(run)?;
            Findings::new("mind", results.to_json(), results.judge_goals(), results.render_report())
        }
    })
}

/// The trees that a benchmark uses: those on the command line, or generated ones.
fn prepare_trees(name: &str, paths: &Paths, options: &Options) -> Result<Vec<SourceTree>> {
    let cache = paths.target.join("bench-trees");
    fs::create_dir_all(&cache)?;
    let generated = |(name, files): (&str, usize)| trees::load_or_generate(&cache, name, files);
    let [small, middle, _] = trees::GENERATED;
    let of_themselves: Vec<(&str, usize)> = match name {
        "files" if options.quick => vec![small, middle],
        "files" => trees::GENERATED.to_vec(),
        "hook" => vec![small, middle],
        "bisect" => vec![if options.quick { small } else { middle }],
        "watcher" => vec![("huge", watcher::FILES)],
        _ => return Ok(Vec::new()),
    };
    let mut trees: Vec<SourceTree> = match options.trees.is_empty() {
        true => of_themselves.into_iter().map(generated).collect::<Result<_>>()?,
        false => {
            options.trees.iter().map(|directory| trees::from_directory(directory)).collect::<Result<_>>()?
        }
    };
    if name == "watcher" {
        trees.truncate(1);
        trees.push(generated(small)?);
    }
    Ok(trees)
}
