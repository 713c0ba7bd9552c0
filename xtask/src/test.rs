//! `cargo xtask test`: everything a change has to pass, in the order that fails fastest.
//!
//! The CI runs exactly this. Each stage prints a heading and its time, and the first failure ends the
//! run with the command that failed, so that it can be repeated by hand.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{agents, mcp, postgres, python, studio, tidy, workspace};

/// Runs all stages; arguments after `--` go to the test runner.
pub fn run(args: &[String]) -> Result<()> {
    let extra: &[String] = match args.split_first() {
        None => &[],
        Some((first, rest)) if first == "--" => rest,
        Some((first, _)) => {
            bail!("`cargo xtask test` takes no `{first}`; arguments for the test runner go after `--`")
        }
    };
    let started = Instant::now();
    install_components()?;

    stage("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    stage("lints", &mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    heading("tidy");
    tidy::run()?;
    heading("agents");
    agents::install()?;
    heading("mcp");
    mcp::install()?;
    heading("postgres");
    postgres::install()?;
    heading("python");
    python::install()?;
    heading("studio");
    studio::install()?;
    if nextest() {
        stage("tests", cargo(&["nextest", "run", "--workspace", "--no-fail-fast"]).args(extra))?;
        stage("documentation tests", &mut cargo(&["test", "--doc", "--workspace"]))?;
    } else {
        stage("tests", cargo(&["test", "--workspace"]).args(extra))?;
    }
    heading("studio tests");
    studio::test(&[])?;
    let mut doc = cargo(&["doc", "--workspace", "--no-deps"]);
    stage("documentation", doc.env("RUSTDOCFLAGS", "-D warnings"))?;

    eprintln!("\nAll checks passed in {:.1} s.", started.elapsed().as_secs_f64());
    Ok(())
}

fn cargo(args: &[&str]) -> Command {
    let mut command = workspace::cargo();
    command.args(args).current_dir(workspace::root());
    command
}

fn heading(name: &str) {
    eprintln!("\n=== {name} ===");
}

fn stage(name: &str, command: &mut Command) -> Result<()> {
    heading(name);
    let started = Instant::now();
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !status.success() {
        bail!("stage \"{name}\" failed ({status}); to repeat it: {}", shown(command));
    }
    eprintln!("--- {name}: {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

fn shown(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(key, value)| Some(format!("{}={:?}", key.to_string_lossy(), value?.to_str()?)));
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    variables.chain(["cargo".to_owned()]).chain(arguments).collect::<Vec<_>>().join(" ")
}

fn works(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn nextest() -> bool {
    works(&mut cargo(&["nextest", "--version"]))
}

/// A minimal toolchain lacks the formatter and the linter; without rustup there is nothing to install with.
fn install_components() -> Result<()> {
    for (component, check) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if works(&mut cargo(&[check, "--version"])) {
            continue;
        }
        eprintln!("{component} is missing: installing it with rustup.");
        let status = Command::new("rustup").args(["component", "add", component]).status();
        if !status.is_ok_and(|status| status.success()) {
            bail!(
                "cannot install {component}; install it (`rustup component add {component}`) and run again"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_stage_names_the_command_to_repeat() {
        let mut command = cargo(&["doc", "--no-deps"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(shown(&command), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --no-deps");
    }

    #[test]
    fn an_unknown_argument_is_refused_before_anything_runs() {
        let error = run(&["--fast".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("after `--`"), "{error}");
    }
}
