//! `cargo xtask agents install`: the real coding agents that the tests drive.
//!
//! `xtask/agents/package.json` pins one version of each. They are installed into `agents` in cargo's target directory and
//! not run here. Tests run them in a network namespace with only a loopback interface, so this task also checks that such
//! a namespace can be created.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::npm::{self, output_text};

/// The help text of `cargo xtask agents`.
pub const HELP: &str = "\
Real coding agents for the tests

Usage: cargo xtask agents install

Installs the versions pinned in xtask/agents/package.json into target/agents, unless they are there already.
";

/// The path of each agent's program below `node_modules`, the first that exists.
///
/// Two of the packages come with a launcher that only an install script would replace by the program itself; the
/// program is in the package for the platform, which is linked to directly.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("claude", &["@anthropic-ai/claude-code-OS-ARCH/claude"]),
    ("codex", &["@openai/codex/bin/codex.js"]),
    ("gemini", &["@google/gemini-cli/bundle/gemini.js"]),
    ("opencode", &["opencode-OS-ARCH/bin/opencode", "opencode-OS-ARCH-baseline/bin/opencode"]),
];

/// Installs the pinned agents unless they are installed, and checks that they can be isolated from the network.
pub fn install() -> Result<()> {
    ensure_namespaces()?;
    npm::install(
        &npm::NpmPackages { name: "agents", description: "the agents", size: "about 1 GB" },
        link_programs,
    )
}

/// Creates one link for each agent in `bin`, which tests add to the search path.
fn link_programs(target: &Path) -> Result<()> {
    let bin = target.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot make {}", bin.display()))?;
    let arch = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "x64" };
    let os = if std::env::consts::OS == "macos" { "darwin" } else { "linux" };
    // Where a program uses instructions that this processor lacks, the package has a baseline variant.
    let needs_baseline =
        arch == "x64" && !fs::read_to_string("/proc/cpuinfo").is_ok_and(|cpu| cpu.contains("avx2"));
    for (name, candidates) in PROGRAMS {
        let mut candidates: Vec<String> =
            candidates.iter().map(|candidate| candidate.replace("OS", os).replace("ARCH", arch)).collect();
        if needs_baseline {
            candidates.reverse();
        }
        let program =
            candidates.iter().find(|candidate| target.join("node_modules").join(candidate).exists());
        let program = program.with_context(|| {
            format!("npm installed the agents, but there is no `{name}` for {os} on {arch} among them ({candidates:?})")
        })?;
        let link = bin.join(name);
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
        }
        std::os::unix::fs::symlink(Path::new("../node_modules").join(program), &link)
            .with_context(|| format!("cannot make {}", link.display()))?;
    }
    Ok(())
}

/// Checks that a network namespace with only a loopback interface can be created.
fn ensure_namespaces() -> Result<()> {
    if try_isolation().is_ok() {
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
    try_isolation().context(
        "the tests run real agents in a network namespace with loopback alone, and there can be none here; \
         install `ip` (iproute2) and `unshare` (util-linux), and either run as root with CAP_SYS_ADMIN or \
         allow unprivileged user namespaces",
    )
}

fn try_isolation() -> Result<()> {
    let flags = if rustix::process::geteuid().is_root() { "-n" } else { "-rn" };
    let output = Command::new("unshare")
        .args([flags, "--", "ip", "link", "set", "lo", "up"])
        .stdin(Stdio::null())
        .output()
        .context("cannot start unshare")?;
    if !output.status.success() {
        bail!("`unshare {flags} -- ip link set lo up` failed: {}", output_text(&output));
    }
    Ok(())
}
