//! stepback itself, as a user or a hook would run it: one new process per operation.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{System, SystemDirs};
use crate::input::trees::remove;
use crate::measure::clock::{Clock, Cost};

/// The stepback binary with a store of its own.
pub struct Stepback {
    /// Tree and store.
    pub dirs: SystemDirs,
    /// The program to measure.
    pub binary: PathBuf,
}

impl Stepback {
    fn command(&self, args: &[&str]) -> Command {
        let dirs = &self.dirs;
        let mut command = Command::new(&self.binary);
        // Does not use the user's own store, and runs without a watcher: the work of the command itself is measured.
        command
            .env("STEPBACK_HOME", &dirs.store)
            .env("STEPBACK_WATCHER", "off")
            .arg("-C")
            .arg(&dirs.tree)
            .arg("--store")
            .arg(&dirs.store);
        command.args(args);
        command
    }
}

impl System for Stepback {
    fn name(&self) -> &'static str {
        "stepback"
    }

    fn work_dirs(&self) -> &SystemDirs {
        &self.dirs
    }

    fn reset(&mut self) -> Result<()> {
        remove(&self.dirs.store)
    }

    fn checkpoint(&mut self, label: &str) -> Result<(String, Cost)> {
        let mut command = self.command(&["checkpoint", "create", label, "--json"]);
        let mut clock = Clock::start();
        let stdout = clock.run(&mut command)?;
        let cost = clock.stop();
        let document: serde_json::Value =
            serde_json::from_slice(&stdout).context("`checkpoint create --json` printed no JSON document")?;
        let id = document["id"].as_str().context("`checkpoint create --json` printed no `id`")?;
        Ok((id.to_owned(), cost))
    }

    fn restore(&mut self, point: &str, _touched: &[String]) -> Result<Option<Cost>> {
        let mut command = self.command(&["rewind", point, "--yes", "--json"]);
        let mut clock = Clock::start();
        clock.run(&mut command)?;
        Ok(Some(clock.stop()))
    }

    fn restore_path(&mut self, point: &str, path: &str) -> Result<Option<Cost>> {
        let mut command = self.command(&["rewind", point, "--path", path, "--yes", "--json"]);
        let mut clock = Clock::start();
        clock.run(&mut command)?;
        Ok(Some(clock.stop()))
    }

    fn diff(&mut self, from: &str, to: &str) -> Result<Option<Cost>> {
        let mut command = self.command(&["diff", from, to, "--stat", "--json"]);
        let mut clock = Clock::start();
        clock.run(&mut command)?;
        Ok(Some(clock.stop()))
    }
}
