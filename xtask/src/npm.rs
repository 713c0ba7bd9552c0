//! Packages from npm that tests run, at exactly the versions that are pinned.
//!
//! `xtask/NAME/package.json` pins them, and the lock file next to it has the hashes of all dependencies; it names no
//! download host, so that they are fetched from whatever registry npm is configured to use. They are installed into
//! `NAME` in cargo's target directory, and no install script is run.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Marks a complete installation: a copy of the lock file that it was made from.
const MARKER: &str = "installed.json";

/// Packages that belong together.
pub struct NpmPackages {
    /// The folder below `xtask` that pins them, and the one below the target directory that they go to.
    pub name: &'static str,
    /// What they are.
    pub description: &'static str,
    /// How much room they take.
    pub size: &'static str,
}

/// Installs packages unless they are installed; `after` does what an install script would have done.
pub fn install(pinned: &NpmPackages, after: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let NpmPackages { name, description, size } = pinned;
    let source = workspace::root().join("xtask").join(name);
    let target = workspace::load()?.target.join(name);
    let lock = fs::read_to_string(source.join("package-lock.json"))
        .with_context(|| format!("cannot read the lock of {description}"))?;
    if fs::read_to_string(target.join(MARKER)).is_ok_and(|installed| installed == lock) {
        eprintln!("Installed already: {}.", pinned_versions(&lock)?.join(", "));
        return Ok(());
    }
    let started = Instant::now();
    eprintln!("Installing {} into {} ({size}).", pinned_versions(&lock)?.join(", "), target.display());
    fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
    match fs::remove_file(target.join(MARKER)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).context("cannot remove the marker of an older installation");
        }
        _ => {}
    }
    for file in ["package.json", "package-lock.json"] {
        fs::copy(source.join(file), target.join(file)).with_context(|| format!("cannot copy {file}"))?;
    }
    run_npm(pinned, &target)?;
    after(&target)?;
    fs::write(target.join(MARKER), &lock).context("cannot write the marker of the installation")?;
    eprintln!("Installed in {:.1} s.", started.elapsed().as_secs_f64());
    Ok(())
}

fn run_npm(pinned: &NpmPackages, target: &Path) -> Result<()> {
    let NpmPackages { name, description, .. } = pinned;
    let mut command = Command::new("npm");
    command
        .args([
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--omit-lockfile-registry-resolved",
            "--prefix",
        ])
        .arg(target);
    let output = match command.current_dir(target).stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "npm is not installed, and tests run {description}, which come from it; install Node.js 20 or newer with npm \
                 and run `cargo xtask {name} install` again"
            )
        }
        Err(error) => return Err(error).context("cannot start npm"),
    };
    if !output.status.success() {
        bail!(
            "npm cannot install {description} ({}); with a working registry, `cargo xtask {name} install` tries again:\n{}",
            output.status,
            output_text(&output)
        );
    }
    Ok(())
}

/// All that a command said.
pub fn output_text(output: &Output) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    text.trim_end().to_owned()
}

/// `name version` of every package that a lock pins.
fn pinned_versions(lock: &str) -> Result<Vec<String>> {
    let lock: serde_json::Value = serde_json::from_str(lock).context("the lock is no JSON")?;
    let dependencies =
        lock["packages"][""]["dependencies"].as_object().context("the lock names no packages")?;
    Ok(dependencies
        .iter()
        .map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or("?")))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_agree_with_their_packages_and_name_no_host() {
        for name in ["agents", "mcp"] {
            let pinned = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            let lock = fs::read_to_string(pinned.join("package-lock.json")).unwrap();
            let package: serde_json::Value =
                serde_json::from_str(&fs::read_to_string(pinned.join("package.json")).unwrap()).unwrap();
            let wanted: Vec<String> = package["dependencies"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, version)| format!("{name} {}", version.as_str().unwrap()))
                .collect();
            assert_eq!(pinned_versions(&lock).unwrap(), wanted);
            assert!(
                !lock.contains("://"),
                "the lock of {name} names a host; make it with --omit-lockfile-registry-resolved"
            );
            assert!(
                wanted.iter().all(|package| !package.contains(['^', '~', '*'])),
                "pin exact versions: {wanted:?}"
            );
        }
    }
}
