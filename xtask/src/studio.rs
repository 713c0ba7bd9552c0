//! `cargo xtask studio`: the tools that the Studio is checked with, and the checks: types against the API's description,
//! and the pages in a real browser against the newly built program.
//!
//! Packages go into `studio/node_modules` at the versions of the lock. The browser is the system's Chromium; where there is
//! none, it is installed from the system's packages or by Playwright. Pictures of all pages are left in `studio` in cargo's
//! target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The help text of `cargo xtask studio`.
pub const HELP: &str = "\
Checks of the web Studio

Usage: cargo xtask studio install
       cargo xtask studio test [ARGS]

install puts the packages of studio/package-lock.json into studio/node_modules, and Chromium into the system, unless they are there.
test builds the program, checks types and drives the pages in Chromium; ARGS go to Playwright.
Pictures of every page are in target/studio/screens afterwards.
";

/// Marks a complete installation: a copy of the lock file that it was made from.
const MARKER: &str = "node_modules/.installed.json";
/// Where a Chromium of the system may be.
const BROWSERS: [&str; 3] = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/// Runs what is asked for.
pub fn run(args: &[String]) -> Result<()> {
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["install"] => install(),
        ["test", rest @ ..] => {
            install()?;
            test(rest)
        }
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        [other, ..] => {
            bail!("`cargo xtask studio` knows no `{other}`; `cargo xtask studio --help` says what it can do")
        }
    }
}

/// Installs packages and the browser unless they are installed.
pub fn install() -> Result<()> {
    install_packages()?;
    install_browser()
}

fn install_packages() -> Result<()> {
    let studio = workspace::root().join("studio");
    let lock_file = studio.join("package-lock.json");
    let lock = fs::read_to_string(&lock_file).context("cannot read the lock of the Studio")?;
    if fs::read_to_string(studio.join(MARKER)).is_ok_and(|installed| installed == lock) {
        eprintln!("The packages of the Studio are installed.");
        return Ok(());
    }
    let started = Instant::now();
    eprintln!("Installing the packages of the Studio.");
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(&studio)
        .stdin(Stdio::null());
    let status = npm.status().context("npm cannot be started; install Node 20.19 or newer with npm")?;
    // npm adds entries for other systems, as this machine's registry reports them; the lock file in the repository must
    // not change.
    fs::write(&lock_file, &lock).context("cannot put the lock of the Studio back")?;
    if !status.success() {
        bail!(
            "npm cannot install the packages ({status}); with a working registry, `cargo xtask studio install` tries again"
        );
    }
    fs::write(studio.join(MARKER), &lock).context("cannot write the marker of the installation")?;
    eprintln!("Installed in {:.1} s.", started.elapsed().as_secs_f64());
    Ok(())
}

fn install_browser() -> Result<()> {
    if let Some(path) = BROWSERS.iter().find(|path| Path::new(path).exists()) {
        eprintln!("The browser is {path}.");
        return Ok(());
    }
    if std::env::var_os("STEPBACK_CHROMIUM").is_some() || by_playwright(&["install", "--list"], "chromium") {
        return Ok(());
    }
    let is_root = rustix::process::geteuid().is_root();
    if is_root && Path::new("/usr/bin/apt-get").exists() {
        eprintln!("Chromium is missing: installing it with apt-get.");
        let apt = |words: &[&str]| {
            let mut apt = Command::new("apt-get");
            apt.args(words).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).status()
        };
        let install = ["install", "--yes", "--no-install-recommends", "chromium"];
        if apt(&install).is_ok_and(|status| status.success()) {
            return Ok(());
        }
        // The package lists were never fetched, or are out of date.
        apt(&["update"]).context("cannot start apt-get")?;
        if apt(&install).is_ok_and(|status| status.success()) {
            return Ok(());
        }
    }
    eprintln!("Chromium is missing: Playwright downloads it.");
    let words: &[&str] =
        if is_root { &["install", "--with-deps", "chromium"] } else { &["install", "chromium"] };
    match by_playwright(words, "") {
        true => Ok(()),
        false => bail!(
            "there is no Chromium; install it (Debian: apt-get install chromium), or name one in STEPBACK_CHROMIUM"
        ),
    }
}

/// Whether Playwright's own command succeeds and prints `says`.
fn by_playwright(words: &[&str], says: &str) -> bool {
    let mut command = Command::new("node");
    command
        .arg("node_modules/@playwright/test/cli.js")
        .args(words)
        .current_dir(workspace::root().join("studio"));
    let output = command.stdin(Stdio::null()).output();
    output
        .is_ok_and(|output| output.status.success() && String::from_utf8_lossy(&output.stdout).contains(says))
}

/// Builds the program, checks types, and runs the browser tests.
pub fn test(args: &[&str]) -> Result<()> {
    let target = workspace::load()?.target;
    run_checked(workspace::cargo_command().args(["build", "-p", "stepback"]).current_dir(workspace::root()))?;
    run_checked(npm_command(&["run", "check"], &target))?;
    run_checked(npm_command(&["test", "--"], &target).args(args))?;
    eprintln!("Pictures of every page are in {}.", target.join("studio/screens").display());
    Ok(())
}

fn npm_command(words: &[&str], target: &Path) -> Command {
    let program: PathBuf = target.join("debug/stepback");
    let mut npm = Command::new("npm");
    npm.args(words).current_dir(workspace::root().join("studio"));
    npm.env("STEPBACK_PROGRAM", program).env("STEPBACK_STUDIO_OUT", target.join("studio"));
    npm
}

fn run_checked(mut command: impl std::borrow::BorrowMut<Command>) -> Result<()> {
    let command = command.borrow_mut();
    let status =
        command.stdin(Stdio::null()).status().with_context(|| format!("cannot start {command:?}"))?;
    match status.success() {
        true => Ok(()),
        false => bail!("{command:?} failed ({status}); `cargo xtask studio test` repeats it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_names_no_host_and_holds_everything() {
        let studio = Path::new(env!("CARGO_MANIFEST_DIR")).join("../studio");
        let lock = fs::read_to_string(studio.join("package-lock.json")).unwrap();
        assert!(!lock.contains("\"resolved\""), "the lock names a host");
        let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
        let wanted: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(studio.join("package.json")).unwrap()).unwrap();
        for part in ["dependencies", "devDependencies"] {
            assert_eq!(lock["packages"][""][part], wanted[part], "say `npm install` in studio/");
        }
    }
}
