//! `cargo xtask python install`: Python packages that the tests run.
//!
//! `xtask/python/requirements.txt` pins them with all dependencies. They are installed into a virtual environment,
//! `python` in cargo's target directory; the system's Python is not changed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The help text of `cargo xtask python`.
pub const HELP: &str = "\
Python packages for the tests

Usage: cargo xtask python install

Installs what is pinned in xtask/python/requirements.txt into target/python, unless it is there already.
";

/// Marks a complete installation: a copy of the list that it was made from.
const MARKER: &str = "installed.txt";

/// Installs the pinned packages unless they are installed.
pub fn install() -> Result<()> {
    let list = workspace::root().join("xtask/python/requirements.txt");
    let requirements = fs::read_to_string(&list).context("cannot read the list of Python packages")?;
    let target = workspace::load()?.target.join("python");
    let count = parse_packages(&requirements).count();
    if fs::read_to_string(target.join(MARKER)).is_ok_and(|installed| installed == requirements) {
        eprintln!("The Python packages are installed: {count}.");
        return Ok(());
    }
    let started = Instant::now();
    eprintln!("Installing {count} Python packages into {}.", target.display());
    if target.exists() {
        // An environment with other versions, or an incomplete one.
        fs::remove_dir_all(&target).with_context(|| format!("cannot remove {}", target.display()))?;
    }
    create_venv(&target)?;
    let mut pip = Command::new(target.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "-r"])
        .arg(&list);
    let output = pip.stdin(Stdio::null()).output().context("cannot start pip")?;
    if !output.status.success() {
        bail!(
            "pip cannot install the packages ({}); with a working index, `cargo xtask python install` tries again:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    fs::write(target.join(MARKER), &requirements).context("cannot write the marker of the installation")?;
    eprintln!("Installed in {:.1} s.", started.elapsed().as_secs_f64());
    Ok(())
}

/// Makes an empty environment with pip in it.
fn create_venv(target: &Path) -> Result<()> {
    let make = || Command::new("python3").args(["-m", "venv"]).arg(target).stdin(Stdio::null()).output();
    if make().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    if rustix::process::geteuid().is_root() && Path::new("/usr/bin/apt-get").exists() {
        eprintln!("Python or its venv module is missing: installing them with apt-get.");
        let mut apt = Command::new("apt-get");
        apt.args(["install", "--yes", "--no-install-recommends", "python3", "python3-venv"]);
        apt.env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .status()
            .context("cannot start apt-get")?;
    }
    let output = make()
        .context("python3 is not installed, and tests run Python packages; install Python 3.10 or newer")?;
    if !output.status.success() {
        bail!(
            "python3 cannot make an environment; install its venv module (Debian, Ubuntu: python3-venv):\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    Ok(())
}

fn parse_packages(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_pinned_and_no_host_is_named() {
        let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/requirements.txt");
        let list = fs::read_to_string(list).unwrap();
        assert!(parse_packages(&list).count() > 10);
        for package in parse_packages(&list) {
            let (name, version) = package.split_once("==").unwrap_or_default();
            assert!(!name.is_empty() && version.starts_with(|c: char| c.is_ascii_digit()), "{package}");
        }
        assert!(!list.contains("://"), "the list names a host");
    }
}
