//! The systems that are compared, behind one interface.
//!
//! Each works on its own copy of a tree and has its own store. The other tools run as the git commands that their source
//! issues, without Node, which is in their favour; docs/benchmarks/README.md lists every deviation. Only the commands of
//! an operation are timed.

mod backup;
mod limit;
mod opencode;
mod shadow;
mod stepback;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::measure::clock::Cost;

/// Every system, in the order of the report.
pub const ALL: [&str; 7] = ["stepback", "limit", "cline", "opencode", "gemini", "restic", "borg"];

/// The systems that are built on git.
pub const GIT: [&str; 3] = ["cline", "opencode", "gemini"];

/// Peers: every system but stepback and the limit.
pub fn is_peer(name: &str) -> bool {
    !matches!(name, "stepback" | "limit")
}

/// Where one system works.
#[derive(Clone, Debug)]
pub struct SystemDirs {
    /// The copy of the tree.
    pub tree: PathBuf,
    /// The system's store.
    pub store: PathBuf,
}

impl SystemDirs {
    /// The directories of `system` under `area`.
    pub fn new(area: &Path, system: &str) -> Self {
        Self { tree: area.join(system).join("tree"), store: area.join(system).join("store") }
    }
}

/// The operations of a system. `None` means that it lacks the operation.
pub trait System {
    /// The system's name in the report.
    fn name(&self) -> &'static str;

    /// Where it works.
    fn work_dirs(&self) -> &SystemDirs;

    /// Removes all checkpoints and sets up an empty store; not on the clock.
    fn reset(&mut self) -> Result<()>;

    /// Makes a checkpoint and returns its name.
    fn checkpoint(&mut self, label: &str) -> Result<(String, Cost)>;

    /// Lets the system's caches catch up with the clock; not on the clock.
    fn refresh_caches(&mut self) -> Result<()> {
        Ok(())
    }

    /// Restores the tree to a checkpoint. Systems that restore recorded files use `touched`.
    fn restore(&mut self, point: &str, touched: &[String]) -> Result<Option<Cost>> {
        let _ = (point, touched);
        Ok(None)
    }

    /// Restores one file from a checkpoint without reading the others.
    fn restore_path(&mut self, point: &str, path: &str) -> Result<Option<Cost>> {
        let _ = (point, path);
        Ok(None)
    }

    /// Summarises the difference between two checkpoints.
    fn diff(&mut self, from: &str, to: &str) -> Result<Option<Cost>> {
        let _ = (from, to);
        Ok(None)
    }

    /// Runs the system's own garbage collection; returns false if it has none that matters here.
    fn compact(&mut self) -> Result<bool> {
        Ok(false)
    }
}

/// Creates a system by name; `binary` is the stepback to measure.
pub fn by_name(name: &str, area: &Path, binary: &Path) -> Result<Box<dyn System>> {
    let dirs = SystemDirs::new(area, name);
    Ok(match name {
        "stepback" => Box::new(stepback::Stepback { dirs, binary: binary.to_path_buf() }),
        "limit" => Box::new(Limit { dirs }),
        "cline" => Box::new(shadow::Cline { dirs }),
        "gemini" => Box::new(shadow::Gemini { dirs }),
        "opencode" => Box::new(opencode::Opencode { dirs }),
        "restic" => Box::new(backup::Restic { dirs }),
        "borg" => Box::new(backup::Borg { dirs }),
        other => bail!("there is no system `{other}`; choose from {}", ALL.join(", ")),
    })
}

/// Whether a system can run on this machine.
pub fn is_installed(name: &str) -> bool {
    let program = match name {
        "restic" => "restic",
        "borg" => "borg",
        "cline" | "opencode" | "gemini" => "git",
        _ => return true,
    };
    let mut command = Command::new(program);
    // restic has no `--version`, the others no `version`.
    command.arg(if program == "restic" { "version" } else { "--version" });
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The bare limit, dressed as a system so that it takes part in every round.
struct Limit {
    dirs: SystemDirs,
}

impl System for Limit {
    fn name(&self) -> &'static str {
        "limit"
    }

    fn work_dirs(&self) -> &SystemDirs {
        &self.dirs
    }

    fn reset(&mut self) -> Result<()> {
        Ok(())
    }

    fn checkpoint(&mut self, _label: &str) -> Result<(String, Cost)> {
        let (_, cost) = limit::walk(&self.dirs.tree)?;
        Ok((String::new(), cost))
    }
}
