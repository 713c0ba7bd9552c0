//! `cargo xtask bench`: stepback beside the tools it replaces, in one run, on the same machine.
//!
//! The order of reading: [`options`] for what can be asked, [`trees`] and [`changes`] for what is measured
//! on, [`systems`] for who is measured, [`files`], [`stores`], [`hook`], [`session`], [`proxy`], [`bisect`],
//! [`watcher`], [`server`], [`tui`], [`studio`] and [`mind`] for how, [`goals`] and [`report`]
//! for what comes out. docs/benchmarks/README.md says how to read the numbers.

mod bisect;
mod changes;
mod clock;
mod files;
mod git;
mod goals;
mod hook;
mod limit;
mod machine;
mod manifest;
mod mind;
mod options;
mod proxy;
mod report;
mod results;
mod server;
mod session;
mod stores;
mod studio;
mod systems;
mod text;
mod trees;
mod tui;
mod watcher;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::workspace::{self, Workspace};
use files::Run;
use machine::Monitor;
use options::Options;
use results::Results;
use trees::Tree;

/// All benchmarks.
const NAMES: [&str; 10] =
    ["files", "hook", "session", "proxy", "bisect", "watcher", "server", "tui", "studio", "mind"];

/// Runs a benchmark.
pub fn run(args: &[String]) -> Result<()> {
    let Some((which, rest)) = args.split_first() else {
        bail!("say what to measure, one of: {}; `bench --help` explains them", NAMES.join(", "))
    };
    if args.iter().any(|arg| matches!(arg.as_str(), "--help" | "-h" | "help")) {
        print!("{}", options::HELP);
        return Ok(());
    }
    let options = Options::parse(rest)?;
    if !NAMES.contains(&which.as_str()) {
        bail!("there is no benchmark `{which}`; choose one of: {}", NAMES.join(", "));
    }
    let workspace = workspace::load()?;
    if cfg!(debug_assertions) {
        return run_optimised(&workspace, args);
    }
    // SAFETY: no other thread runs yet. Restored modes depend on the mask, so it is the usual one.
    unsafe { libc::umask(0o022) };
    match which.as_str() {
        "files" => bench_files(&workspace, &options),
        "session" => bench_session(&workspace, &options),
        "proxy" => bench_proxy(&workspace, &options),
        "bisect" => bench_bisect(&workspace, &options),
        "watcher" => bench_watcher(&workspace, &options),
        "server" => bench_server(&workspace, &options),
        "tui" => bench_tui(&workspace, &options),
        "studio" => bench_studio(&workspace, &options),
        "mind" => bench_mind(&workspace, &options),
        _ => bench_hook(&workspace, &options),
    }
}

/// The bare limit is measured in this process: without optimisation it would flatter everybody else.
fn run_optimised(workspace: &Workspace, args: &[String]) -> Result<()> {
    build(workspace, "xtask")?;
    let status = std::process::Command::new(workspace.target.join("release/xtask"))
        .arg("bench")
        .args(args)
        .env("CARGO_MANIFEST_DIR", workspace.root.join("xtask"))
        .status()
        .context("cannot start the optimised benchmark")?;
    if !status.success() {
        // It has already said why.
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(())
}

fn build(workspace: &Workspace, package: &str) -> Result<()> {
    let status = workspace::cargo()
        .args(["build", "--release", "--quiet", "--package", package])
        .current_dir(&workspace.root)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("cannot build {package}");
    }
    Ok(())
}

/// A program that can look into a store, which the tasks cannot: they depend on no crate of the workspace.
fn example(workspace: &Workspace, package: &str, name: &str) -> Result<std::process::Command> {
    let status = workspace::cargo()
        .args(["build", "--release", "--quiet", "--package", package, "--example", name])
        .current_dir(&workspace.root)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("cannot build the example {name}");
    }
    Ok(std::process::Command::new(workspace.target.join("release/examples").join(name)))
}

fn start<'a>(workspace: &Workspace, options: &'a Options) -> Result<Run<'a>> {
    let binary = match &options.binary {
        Some(binary) => binary.canonicalize().with_context(|| format!("cannot find {}", binary.display()))?,
        None => {
            if options.runs_system("stepback") {
                build(workspace, "stepback")?;
            }
            workspace.target.join("release/stepback")
        }
    };
    for name in systems::ALL.iter().filter(|name| !systems::installed(name)) {
        eprintln!("{name} is not installed and takes no part.");
    }
    let area = workspace.target.join("bench");
    let lock = fs::File::create(workspace.target.join("bench.lock"))?;
    if lock.try_lock().is_err() {
        bail!("another benchmark is running; two at once would only measure each other");
    }
    trees::remove(&area)?;
    fs::create_dir_all(&area)?;
    Ok(Run { options, area, _lock: lock, binary, results: Results::default(), monitor: Monitor::start() })
}

fn bench_files(workspace: &Workspace, options: &Options) -> Result<()> {
    let trees = chosen_trees(workspace, options)?;
    let mut run = start(workspace, options)?;
    for tree in &trees {
        run.tree(tree)?;
    }
    if let Some(middle) = trees.iter().min_by_key(|tree| tree.files.abs_diff(8_000)) {
        run.stores(middle)?;
    }
    run.large_file()?;

    let Run { results, monitor, area, binary, .. } = run;
    let verdict = monitor.verdict();
    let machine = machine::describe(&area, options.runs_system("stepback").then_some(binary.as_path()));
    let goals = goals::judge(&results);
    let date = machine::today();
    let text = report::markdown(&format!("bench files, {date}"), &machine, &verdict, &results, &goals);
    print!("{text}");
    let document = json!({
        "benchmark": "files", "date": date, "quick": options.quick, "machine": machine,
        "quiet": verdict.json(), "results": results.json(), "goals": goals::json(&goals),
    });
    keep(workspace, options, &format!("{date}-files"), &document, &text)?;
    if !results.failures.is_empty() {
        bail!("stepback failed: {}", results.failures.join("; "));
    }
    Ok(())
}

fn bench_hook(workspace: &Workspace, options: &Options) -> Result<()> {
    let trees: Result<Vec<Tree>> = match options.trees.is_empty() {
        true => trees::GENERATED.into_iter().take(2).map(|tree| generated(workspace, tree)).collect(),
        false => options.trees.iter().map(|directory| trees::given(directory)).collect(),
    };
    let trees = trees?;
    let mut run = start(workspace, options)?;
    let measured = hook::measure(&mut run, &trees)?;
    let Run { monitor, area, binary, .. } = run;
    let verdict = monitor.verdict();
    let machine = machine::describe(&area, options.runs_system("stepback").then_some(binary.as_path()));
    let date = machine::today();
    let text = format!(
        "# bench hook, {date}\n\n{}\n\n{}\n\nA fresh process from start to exit, all in turns.\n\n{}",
        report::machine_line(&machine),
        verdict.text(),
        measured.report(&trees)
    );
    print!("{text}");
    let document = json!({
        "benchmark": "hook", "date": date, "quick": options.quick, "machine": machine,
        "quiet": verdict.json(), "processes": measured.json(), "goals": goals::json(&measured.goals(&trees)),
    });
    keep(workspace, options, &format!("{date}-hook"), &document, &text)
}

fn bench_session(workspace: &Workspace, options: &Options) -> Result<()> {
    let monitor_area = workspace.target.join("bench");
    let mut run = start(workspace, options)?;
    run.monitor.sample("session");
    let document = session::measure(workspace, &run, options)?;
    let Run { monitor, .. } = run;
    let verdict = monitor.verdict();
    let machine = machine::describe(&monitor_area, None);
    let date = machine::today();
    let text = format!(
        "# bench session, {date}\n\n{}\n\n{}\n\n{}",
        report::machine_line(&machine),
        verdict.text(),
        session::report(&document)
    );
    print!("{text}");
    let document = json!({
        "benchmark": "session", "date": date, "machine": machine, "quiet": verdict.json(), "session": document,
    });
    keep(workspace, options, &format!("{date}-session"), &document, &text)
}

fn bench_proxy(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut run = start(workspace, options)?;
    let measured = proxy::measure(&mut run)?;
    finish(workspace, run, "proxy", &measured.report(), &measured.json(), &measured.goals())
}

fn bench_bisect(workspace: &Workspace, options: &Options) -> Result<()> {
    let tree = match options.trees.first() {
        Some(directory) => trees::given(directory)?,
        None => generated(workspace, trees::GENERATED[if options.quick { 0 } else { 1 }])?,
    };
    let mut run = start(workspace, options)?;
    let measured = bisect::measure(&mut run, &tree)?;
    finish(workspace, run, "bisect", &measured.report(), &measured.json(), &measured.goals())
}

fn bench_watcher(workspace: &Workspace, options: &Options) -> Result<()> {
    let large = match options.trees.first() {
        Some(directory) => trees::given(directory)?,
        None => generated(workspace, ("huge", watcher::FILES))?,
    };
    let small = generated(workspace, trees::GENERATED[0])?;
    let mut run = start(workspace, options)?;
    let measured = watcher::measure(&mut run, &large, &small)?;
    finish(workspace, run, "watcher", &measured.report(), &measured.json(), &measured.goals())
}

fn bench_server(workspace: &Workspace, options: &Options) -> Result<()> {
    let cache = workspace.target.join("bench-peers");
    fs::create_dir_all(&cache)?;
    let mut run = start(workspace, options)?;
    let measured = server::measure(workspace, &mut run, &cache)?;
    finish(workspace, run, "server", &measured.report(), &measured.json(), &measured.goals())
}

fn bench_tui(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut run = start(workspace, options)?;
    let measured = tui::measure(&mut run)?;
    finish(workspace, run, "tui", &measured.report(), &measured.json(), &measured.goals())
}

fn bench_studio(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut run = start(workspace, options)?;
    let measured = studio::measure(&mut run)?;
    finish(workspace, run, "studio", &measured.report(), &measured.json(), &measured.goals())
}

fn bench_mind(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut run = start(workspace, options)?;
    let measured = mind::measure(workspace, &mut run)?;
    finish(workspace, run, "mind", &measured.report(), &measured.json(), &measured.goals())
}

/// Prints a report and keeps it.
fn finish(
    workspace: &Workspace,
    run: Run<'_>,
    name: &str,
    report: &str,
    measured: &serde_json::Value,
    goals: &[goals::Goal],
) -> Result<()> {
    let Run { monitor, area, binary, options, .. } = run;
    let verdict = monitor.verdict();
    let machine = machine::describe(&area, Some(&binary));
    let date = machine::today();
    let line = report::machine_line(&machine);
    let text = format!("# bench {name}, {date}\n\n{line}\n\n{}\n\n{report}", verdict.text());
    print!("{text}");
    let document = json!({
        "benchmark": name, "date": date, "quick": options.quick, "machine": machine,
        "quiet": verdict.json(), name: measured, "goals": goals::json(goals),
    });
    keep(workspace, options, &format!("{date}-{name}"), &document, &text)
}

fn chosen_trees(workspace: &Workspace, options: &Options) -> Result<Vec<Tree>> {
    // The stores and the large file need no tree of their own to be walked.
    if !options.trees.is_empty() {
        return options.trees.iter().map(|directory| trees::given(directory)).collect();
    }
    let count = if options.quick { 2 } else { 3 };
    trees::GENERATED.into_iter().take(count).map(|tree| generated(workspace, tree)).collect()
}

fn generated(workspace: &Workspace, (name, files): (&str, usize)) -> Result<Tree> {
    let cache = workspace.target.join("bench-trees");
    fs::create_dir_all(&cache)?;
    trees::generated(&cache, name, files)
}

fn keep(
    workspace: &Workspace,
    options: &Options,
    name: &str,
    document: &serde_json::Value,
    text: &str,
) -> Result<()> {
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    let pretty = serde_json::to_string_pretty(document)? + "\n";
    if let Some(path) = &options.json {
        files.push((path.clone(), pretty.clone()));
    }
    if options.keep {
        let directory = workspace.root.join("docs/benchmarks");
        files.push((directory.join(format!("{name}.json")), pretty));
        files.push((directory.join(format!("{name}.md")), text.to_owned()));
    }
    for (path, content) in files {
        write(&path, &content)?;
        eprintln!("Wrote {}", path.display());
    }
    Ok(())
}

fn write(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}
