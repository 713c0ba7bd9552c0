//! `cargo xtask postgres install`: the database server that the tests start.
//!
//! Tests start their own server from the programs of the system's package; nothing is started here, and no server of the
//! system is used. Without a known package manager, or without permission to use it, the task prints what to install.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The help text of `cargo xtask postgres`.
pub const HELP: &str = "\
The database server for the tests

Usage: cargo xtask postgres install

Installs the system's package of PostgreSQL unless a server is there already.
";

/// The directory in which Debian's packages install the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Installs a server unless there is one.
pub fn install() -> Result<()> {
    if let Some(version) = installed_version() {
        eprintln!("PostgreSQL is installed: {version}.");
        return Ok(());
    }
    const INSTALL_ADVICE: &str = "install PostgreSQL 13 or newer so that its programs are in /usr/lib/postgresql/VERSION/bin \
        (Debian, Ubuntu: apt-get install --no-install-recommends postgresql)";
    if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
        bail!("PostgreSQL is not installed, and the tests start a server of their own; {INSTALL_ADVICE}");
    }
    eprintln!("PostgreSQL is missing: installing it with apt-get.");
    let install = || {
        Command::new("apt-get")
            .args(["install", "-y", "--no-install-recommends", "postgresql"])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .status()
            .context("cannot start apt-get")
    };
    if !install()?.success() {
        // The package lists were never fetched, or are out of date.
        Command::new("apt-get").arg("update").status().context("cannot start apt-get")?;
        if !install()?.success() {
            bail!("apt-get cannot install PostgreSQL; {INSTALL_ADVICE}");
        }
    }
    if installed_version().is_none() {
        bail!("apt-get installed PostgreSQL, but there is no server in {VERSIONS}; {INSTALL_ADVICE}");
    }
    Ok(())
}

/// The newest version that is there.
fn installed_version() -> Option<u32> {
    let versions = fs::read_dir(VERSIONS).ok()?.flatten();
    versions
        .filter(|entry| entry.path().join("bin/initdb").exists())
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .max()
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
