//! One run of a benchmark: its directory, its lock, and where its results go.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::input::trees;
use crate::measure::machine::{self, Monitor};
use crate::options::Options;
use crate::paths::Paths;
use crate::report::goals::{self, Goal};
use crate::report::markdown;
use crate::report::results::Results;
use crate::systems;

/// Long enough for every timestamp granularity in use: afterwards no system has to distrust a file.
pub const SETTLE: Duration = Duration::from_millis(30);

/// One run: its options and results.
pub struct Run<'a> {
    /// Where the workspace and cargo's results are.
    pub paths: &'a Paths,
    /// The command line.
    pub options: &'a Options,
    /// Where copies and stores are put.
    pub area: PathBuf,
    /// Held for the whole run: the area belongs to one benchmark at a time.
    _lock: fs::File,
    /// The stepback under measurement.
    pub binary: PathBuf,
    /// What has been found so far.
    pub results: Results,
    /// Watches for other work on the machine.
    pub monitor: Monitor,
}

/// The results of a benchmark, ready to be reported.
pub struct Findings {
    key: &'static str,
    numbers: Value,
    goals: Vec<Goal>,
    report: String,
}

impl Findings {
    /// `key` is the name of the results in the JSON document.
    pub fn new(key: &'static str, numbers: Value, goals: Vec<Goal>, report: String) -> Self {
        Self { key, numbers, goals, report }
    }
}

impl<'a> Run<'a> {
    /// Builds stepback if it takes part, and empties the directory for copies and stores.
    pub fn start(paths: &'a Paths, options: &'a Options) -> Result<Self> {
        let binary = match &options.binary {
            Some(binary) => {
                binary.canonicalize().with_context(|| format!("cannot find {}", binary.display()))?
            }
            None if options.runs_system("stepback") => paths.build_stepback()?,
            None => paths.target.join("release/stepback"),
        };
        for name in systems::ALL.iter().filter(|name| !systems::is_installed(name)) {
            eprintln!("{name} is not installed and takes no part.");
        }
        let area = paths.target.join("bench");
        let lock = fs::File::create(paths.target.join("bench.lock"))?;
        if lock.try_lock().is_err() {
            bail!("another benchmark is running; two at once would only measure each other");
        }
        trees::remove(&area)?;
        fs::create_dir_all(&area)?;
        let (results, monitor) = (Results::default(), Monitor::start());
        Ok(Self { paths, options, area, _lock: lock, binary, results, monitor })
    }

    /// Prints the report and stores it if the command line says so. Fails if stepback failed.
    pub fn finish(self, name: &str, findings: &Findings) -> Result<()> {
        let Self { paths, options, area, binary, results, monitor, .. } = self;
        let verdict = monitor.finish();
        let machine = machine::describe(&area, options.runs_system("stepback").then_some(binary.as_path()));
        let date = machine::today();
        let line = markdown::machine_line(&machine);
        let text = format!("# bench {name}, {date}\n\n{line}\n\n{}\n\n{}", verdict.text(), findings.report);
        print!("{text}");
        let document = json!({
            "benchmark": name, "date": date, "quick": options.quick, "machine": machine,
            "quiet": verdict.to_json(), findings.key: findings.numbers, "goals": goals::to_json(&findings.goals),
        });
        let document = serde_json::to_string_pretty(&document)? + "\n";
        if let Some(path) = &options.json {
            write(path, &document)?;
        }
        if options.keep {
            let directory = paths.root.join("docs/benchmarks");
            write(&directory.join(format!("{date}-{name}.json")), &document)?;
            write(&directory.join(format!("{date}-{name}.md")), &text)?;
        }
        match results.failures.is_empty() {
            true => Ok(()),
            false => bail!("stepback failed: {}", results.failures.join("; ")),
        }
    }
}

fn write(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("Wrote {}", path.display());
    Ok(())
}

/// Syncs all data, so that the dirty pages of one system are not written while another is measured.
pub fn flush(area: &Path) {
    // If this fails, only the timing is affected, which the machine monitor would show.
    if let Ok(directory) = fs::File::open(area) {
        let _ = rustix::fs::syncfs(directory);
    }
}
