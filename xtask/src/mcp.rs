//! `cargo xtask mcp install`: the official conformance suite and inspector, with which the MCP server is tested.
//!
//! Both need a newer Node than the system may have, so a package with one is installed too.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::npm;

/// What `cargo xtask mcp` says about itself.
pub const HELP: &str = "\
Counterparts of the MCP server for the tests

Usage: cargo xtask mcp install

Installs the versions pinned in xtask/mcp/package.json into target/mcp, unless they are there already.
";

/// Installs the pinned packages unless they are there.
pub fn install() -> Result<()> {
    let pinned = npm::NpmPackages {
        name: "mcp",
        description: "the counterparts of the MCP server",
        size: "about 470 MB",
    };
    npm::install(&pinned, link_node)
}

/// Puts a link to Node into `bin`.
fn link_node(target: &Path) -> Result<()> {
    let bin = target.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot make {}", bin.display()))?;
    let arch = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "x64" };
    let node = format!("node_modules/node-linux-{arch}/bin/node");
    anyhow::ensure!(
        target.join(&node).exists(),
        "npm installed the packages, but no Node for Linux on {arch}"
    );
    let link = bin.join("node");
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
    }
    std::os::unix::fs::symlink(Path::new("..").join(node), &link)
        .with_context(|| format!("cannot make {}", link.display()))
}
