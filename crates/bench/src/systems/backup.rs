//! Backup programs, if installed: they are not made for checkpoints, but widely used.
//!
//! They run without compression tuning and with a local repository. Their restores are not measured: they
//! rewrite whole trees and would only look bad for something they are not used for.

use std::process::Command;

use anyhow::Result;

use super::{System, SystemDirs};
use crate::input::trees::remove;
use crate::measure::clock::{Clock, Cost, run_untimed};

/// restic with a local repository.
pub struct Restic {
    /// The directories of its tree and its repository.
    pub dirs: SystemDirs,
}

impl Restic {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("restic");
        command
            .env("RESTIC_PASSWORD", "bench")
            .env("RESTIC_CACHE_DIR", self.dirs.store.with_file_name("cache"))
            .arg("--quiet")
            .arg("--repo")
            .arg(&self.dirs.store)
            .current_dir(&self.dirs.tree)
            .args(args);
        command
    }
}

impl System for Restic {
    fn name(&self) -> &'static str {
        "restic"
    }

    fn work_dirs(&self) -> &SystemDirs {
        &self.dirs
    }

    fn reset(&mut self) -> Result<()> {
        remove(&self.dirs.store)?;
        remove(&self.dirs.store.with_file_name("cache"))?;
        run_untimed(&mut self.command(&["init"]))?;
        Ok(())
    }

    fn checkpoint(&mut self, _label: &str) -> Result<(String, Cost)> {
        let mut clock = Clock::start();
        clock.run(&mut self.command(&["backup", "."]))?;
        Ok(("latest".to_owned(), clock.stop()))
    }
}

/// borg with a local repository, without encryption.
pub struct Borg {
    /// The directories of its tree and its repository.
    pub dirs: SystemDirs,
}

impl Borg {
    fn command(&self) -> Command {
        let mut command = Command::new("borg");
        command
            .env("BORG_BASE_DIR", self.dirs.store.with_file_name("base"))
            .env("BORG_REPO", &self.dirs.store)
            .env("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes")
            .env("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes")
            .current_dir(&self.dirs.tree);
        command
    }
}

impl System for Borg {
    fn name(&self) -> &'static str {
        "borg"
    }

    fn work_dirs(&self) -> &SystemDirs {
        &self.dirs
    }

    fn reset(&mut self) -> Result<()> {
        remove(&self.dirs.store)?;
        remove(&self.dirs.store.with_file_name("base"))?;
        run_untimed(self.command().args(["init", "--encryption", "none"]))?;
        Ok(())
    }

    fn checkpoint(&mut self, label: &str) -> Result<(String, Cost)> {
        let mut clock = Clock::start();
        clock.run(self.command().args(["create", &format!("::{label}"), "."]))?;
        Ok((label.to_owned(), clock.stop()))
    }
}
