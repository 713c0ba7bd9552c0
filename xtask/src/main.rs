//! The project's own tasks, run as `cargo xtask <task>`.
//!
//! Everything a contributor or the CI has to do beyond plain cargo lives here, in Rust, so that one
//! command works the same everywhere. Nothing in the workspace depends on this crate. Start reading at
//! [`check`] and [`mod@test`] for the checks, [`tidy`] for the architecture rules, [`mod@bench`] and [`powerloss`] for starting the
//! benchmarks and the power-loss tests,
//! [`agents`], [`mcp`], [`postgres`] and [`python`] for the programs that tests drive, [`studio`] for the web pages.

mod agents;
mod bench;
mod check;
mod mcp;
mod npm;
mod postgres;
mod powerloss;
mod python;
mod stages;
mod studio;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
Tasks of the stepback workspace

Usage: cargo xtask <TASK> [ARGS]

Tasks:
  check            The fast loop: format check, lints, tidy, unit tests, engine tests; installs and downloads nothing
  test [-- ARGS]   Format check, lints, tidy, all tests, documentation; ARGS go to the test runner
  tidy             Check crate layers, module docs, sizes, type names, and dependencies (deny.toml)
  bench NAME       Measure stepback beside other tools; `bench --help` lists the benchmarks
  powerloss        Cut the power at every write of every command; `powerloss --help` lists the options (root)
  agents install   Install the real coding agents that the tests drive (npm, about 1 GB)
  mcp install      Install the official MCP conformance suite and inspector (npm, about 470 MB)
  postgres install Install the database server that the tests start (apt-get)
  python install   Install the Python packages that the tests run (pip, about 50 MB)
  studio install   Install what the Studio is checked with (npm, Chromium)
  studio test      Drive the Studio's pages in Chromium against the program
  help             Print this text
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match args.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("help", &[][..]),
    };
    let outcome = match task {
        "check" => check::run(rest),
        "test" => test::run(rest),
        "tidy" => tidy::run(),
        "agents" => run_install_task(task, rest, agents::HELP, agents::install),
        "mcp" => run_install_task(task, rest, mcp::HELP, mcp::install),
        "postgres" => run_install_task(task, rest, postgres::HELP, postgres::install),
        "python" => run_install_task(task, rest, python::HELP, python::install),
        "studio" => studio::run(rest),
        "bench" => bench::run(rest),
        "powerloss" => powerloss::run(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(anyhow::anyhow!("there is no task `{other}`; `cargo xtask help` lists them")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task with a single command: installing something for the tests.
fn run_install_task(
    task: &str,
    args: &[String],
    help: &str,
    install: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["install"] => install(),
        [] | ["help" | "--help" | "-h"] => {
            print!("{help}");
            Ok(())
        }
        [other, ..] => {
            anyhow::bail!(
                "`cargo xtask {task}` knows no `{other}`; `cargo xtask {task} --help` says what it can do"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_is_refused() {
        let error = run_install_task("agents", &["remove".to_owned()], "", || Ok(())).unwrap_err();
        assert!(error.to_string().contains("remove"), "{error}");
    }
}
