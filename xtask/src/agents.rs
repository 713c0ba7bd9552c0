//! `cargo xtask agents install`: the real coding agents that the tests drive.
//!
//! `xtask/agents/package.json` pins one version of each, and its lock names the exact bytes of all they bring along;
//! it names no download host, so whatever registry npm is set up with serves them. They go into `agents` in
//! cargo's target directory, nothing of them is ever run here, and no install script is. Tests run them in a network
//! namespace with loopback alone, so this task also makes sure that there can be one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// What `cargo xtask agents` says about itself.
pub const HELP: &str = "\
Real coding agents for the tests

Usage: cargo xtask agents install

Installs the versions pinned in xtask/agents/package.json into target/agents, unless they are there already.
";

/// Where the program of each agent is below `node_modules`, the first that exists.
///
/// Two of the packages come with a launcher that only an install script would replace by the program itself; the
/// program is in the package for the platform, which is linked to directly.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("claude", &["@anthropic-ai/claude-code-OS-ARCH/claude"]),
    ("codex", &["@openai/codex/bin/codex.js"]),
    ("gemini", &["@google/gemini-cli/bundle/gemini.js"]),
    ("opencode", &["opencode-OS-ARCH/bin/opencode", "opencode-OS-ARCH-baseline/bin/opencode"]),
];

/// What says that an installation is complete: a copy of the lock it was made from.
const MARKER: &str = "installed.json";

/// Installs the pinned agents unless they are there, and checks that they can be kept off the network.
pub fn install() -> Result<()> {
    namespaces()?;
    let pinned = workspace::root().join("xtask/agents");
    let target = workspace::load()?.target.join("agents");
    let lock =
        fs::read_to_string(pinned.join("package-lock.json")).context("cannot read the lock of the agents")?;
    if fs::read_to_string(target.join(MARKER)).is_ok_and(|installed| installed == lock) {
        eprintln!("The agents are installed: {}.", versions(&lock)?.join(", "));
        return Ok(());
    }
    let started = Instant::now();
    eprintln!("Installing {} into {} (about 1 GB).", versions(&lock)?.join(", "), target.display());
    fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
    match fs::remove_file(target.join(MARKER)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).context("cannot remove the marker of an older installation");
        }
        _ => {}
    }
    for file in ["package.json", "package-lock.json"] {
        fs::copy(pinned.join(file), target.join(file)).with_context(|| format!("cannot copy {file}"))?;
    }
    npm(&target)?;
    link(&target)?;
    fs::write(target.join(MARKER), &lock).context("cannot write the marker of the installation")?;
    eprintln!("Installed in {:.1} s.", started.elapsed().as_secs_f64());
    Ok(())
}

fn npm(target: &Path) -> Result<()> {
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
                "npm is not installed, and the tests drive real coding agents that come from it; \
                 install Node.js 20 or newer with npm and run `cargo xtask agents install` again"
            )
        }
        Err(error) => return Err(error).context("cannot start npm"),
    };
    if !output.status.success() {
        bail!(
            "npm cannot install the agents ({}); with a working registry, `cargo xtask agents install` tries again:\n{}",
            output.status,
            said(&output)
        );
    }
    Ok(())
}

/// Puts one link for each agent into `bin`, which is what tests add to the search path.
fn link(target: &Path) -> Result<()> {
    let bin = target.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot make {}", bin.display()))?;
    let arch = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "x64" };
    let os = if std::env::consts::OS == "macos" { "darwin" } else { "linux" };
    // A program that uses instructions this processor lacks has a plain sibling.
    let plain = arch == "x64" && !fs::read_to_string("/proc/cpuinfo").is_ok_and(|cpu| cpu.contains("avx2"));
    for (name, places) in PROGRAMS {
        let mut places: Vec<String> =
            places.iter().map(|place| place.replace("OS", os).replace("ARCH", arch)).collect();
        if plain {
            places.reverse();
        }
        let found = places.iter().find(|place| target.join("node_modules").join(place).exists());
        let found = found.with_context(|| {
            format!("npm installed the agents, but there is no `{name}` for {os} on {arch} among them ({places:?})")
        })?;
        let link = bin.join(name);
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
        }
        std::os::unix::fs::symlink(Path::new("../node_modules").join(found), &link)
            .with_context(|| format!("cannot make {}", link.display()))?;
    }
    Ok(())
}

fn said(output: &Output) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    text.trim_end().to_owned()
}

/// `name version` of every agent the lock pins.
fn versions(lock: &str) -> Result<Vec<String>> {
    let lock: serde_json::Value = serde_json::from_str(lock).context("the lock of the agents is no JSON")?;
    let wanted =
        lock["packages"][""]["dependencies"].as_object().context("the lock of the agents names none")?;
    Ok(wanted.iter().map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or("?"))).collect())
}

/// Makes sure that a network namespace with loopback alone can be had.
fn namespaces() -> Result<()> {
    if isolated().is_ok() {
        return Ok(());
    }
    let root = rustix::process::geteuid().is_root();
    if root {
        eprintln!("iproute2 or unshare is missing: installing them with apt-get.");
        let mut apt = Command::new("apt-get");
        apt.args(["install", "--yes", "--no-install-recommends", "iproute2", "util-linux"]);
        let installed = apt.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).output();
        if let Err(error) = installed {
            eprintln!("apt-get cannot be started: {error}");
        }
    }
    isolated().context(
        "the tests run real agents in a network namespace with loopback alone, and there can be none here; \
         install `ip` (iproute2) and `unshare` (util-linux), and either run as root with CAP_SYS_ADMIN or \
         allow unprivileged user namespaces",
    )
}

fn isolated() -> Result<()> {
    let flags = if rustix::process::geteuid().is_root() { "-n" } else { "-rn" };
    let output = Command::new("unshare")
        .args([flags, "--", "ip", "link", "set", "lo", "up"])
        .stdin(Stdio::null())
        .output()
        .context("cannot start unshare")?;
    if !output.status.success() {
        bail!("`unshare {flags} -- ip link set lo up` failed: {}", said(&output));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_agrees_with_the_package_and_names_no_host() {
        let pinned = Path::new(env!("CARGO_MANIFEST_DIR")).join("agents");
        let lock = fs::read_to_string(pinned.join("package-lock.json")).unwrap();
        let package: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(pinned.join("package.json")).unwrap()).unwrap();
        let wanted: Vec<String> = package["dependencies"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, version)| format!("{name} {}", version.as_str().unwrap()))
            .collect();
        assert_eq!(versions(&lock).unwrap(), wanted);
        assert!(
            !lock.contains("://"),
            "the lock names a host; make it with --omit-lockfile-registry-resolved"
        );
        assert!(
            wanted.iter().all(|agent| !agent.contains(['^', '~', '*'])),
            "pin exact versions: {wanted:?}"
        );
    }
}
