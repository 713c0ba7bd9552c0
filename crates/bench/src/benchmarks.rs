//! The benchmarks, one module each, and what all of them go through: prepare the trees, measure, report.

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
pub const NAMES: [&str; 10] =
    ["files", "hook", "session", "proxy", "bisect", "watcher", "server", "tui", "studio", "mind"];

/// Runs one of them, prints its report, and keeps it if that was asked for.
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
            let found = hook::measure(run, trees)?;
            let report = format!(
                "A fresh process from start to exit, all in turns.\n\n{}",
                found.render_report(trees)
            );
            Findings::new("processes", found.to_json(), found.judge_goals(trees), report)
        }
        "session" => {
            let found = session::measure(run)?;
            let report = session::render_report(&found);
            Findings::new("session", found, Vec::new(), report)
        }
        "proxy" => {
            let found = proxy::measure(run)?;
            Findings::new("proxy", found.to_json(), found.judge_goals(), found.render_report())
        }
        "bisect" => {
            let found = bisect::measure(run, &trees[0])?;
            Findings::new("bisect", found.to_json(), found.judge_goals(), found.render_report())
        }
        "watcher" => {
            let found = watcher::measure(run, &trees[0], &trees[1])?;
            Findings::new("watcher", found.to_json(), found.judge_goals(), found.render_report())
        }
        "server" => {
            let found = server::measure(run)?;
            Findings::new("server", found.to_json(), found.judge_goals(), found.render_report())
        }
        "tui" => {
            let found = tui::measure(run)?;
            Findings::new("tui", found.to_json(), found.judge_goals(), found.render_report())
        }
        "studio" => {
            let found = studio::measure(run)?;
            Findings::new("studio", found.to_json(), found.judge_goals(), found.render_report())
        }
        _ => {
            let found = mind::measure(run)?;
            Findings::new("mind", found.to_json(), found.judge_goals(), found.render_report())
        }
    })
}

/// The trees that a benchmark works on: those on the command line, or generated ones.
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
