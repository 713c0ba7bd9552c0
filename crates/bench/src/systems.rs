//! The systems that are compared, behind one interface.
//!
//! Each works on its own copy of a tree and keeps its own store beside it. Peers run as the git commands
//! their source issues, without Node around them, which favours them; docs/benchmarks/README.md lists
//! every deviation. Only the commands of an operation are on the clock.

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
    /// A place of its own for `system` under `area`.
    pub fn new(area: &Path, system: &str) -> Self {
        Self { tree: area.join(system).join("tree"), store: area.join(system).join("store") }
    }
}

/// What a system under measurement can do. `None` means it has no such operation.
pub trait System {
    /// The system's name in the report.
    fn name(&self) -> &'static str;

    /// Where it works.
    fn work_dirs(&self) -> &SystemDirs;

    /// Removes all checkpoints and sets up an empty store; not on the clock.
    fn reset(&mut self) -> Result<()>;

    /// Takes a checkpoint and says how to name it later.
    fn checkpoint(&mut self, label: &str) -> Result<(String, Cost)>;

    /// Lets the system's caches catch up with the clock; not on the clock.
    fn refresh_caches(&mut self) -> Result<()> {
        Ok(())
    }

    /// Brings the tree back to a checkpoint. Systems that restore recorded files use `touched`.
    fn restore(&mut self, point: &str, touched: &[String]) -> Result<Option<Cost>> {
        let _ = (point, touched);
        Ok(None)
    }

    /// Brings one file back to a checkpoint without looking at the others.
    fn restore_path(&mut self, point: &str, path: &str) -> Result<Option<Cost>> {
        let _ = (point, path);
        Ok(None)
    }

    /// Summarises the difference between two checkpoints.
    fn diff(&mut self, from: &str, to: &str) -> Result<Option<Cost>> {
        let _ = (from, to);
        Ok(None)
    }

    /// Runs the system's own garbage collection; false when it has none that matters here.
    fn compact(&mut self) -> Result<bool> {
        Ok(false)
    }
}

/// Makes a system by name; `binary` is the stepback to measure.
pub fn by_name(name: &str, area: &Path, binary: &Path) -> Result<Box<dyn System>> {
    let place = SystemDirs::new(area, name);
    Ok(match name {
        "stepback" => Box::new(stepback::Stepback { place, binary: binary.to_path_buf() }),
        "limit" => Box::new(Limit { place }),
        "cline" => Box::new(shadow::Cline { place }),
        "gemini" => Box::new(shadow::Gemini { place }),
        "opencode" => Box::new(opencode::Opencode { place }),
        "restic" => Box::new(backup::Restic { place }),
        "borg" => Box::new(backup::Borg { place }),
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
    place: SystemDirs,
}

impl System for Limit {
    fn name(&self) -> &'static str {
        "limit"
    }

    fn work_dirs(&self) -> &SystemDirs {
        &self.place
    }

    fn reset(&mut self) -> Result<()> {
        Ok(())
    }

    fn checkpoint(&mut self, _label: &str) -> Result<(String, Cost)> {
        let (_, cost) = limit::walk(&self.place.tree)?;
        Ok((String::new(), cost))
    }
}
