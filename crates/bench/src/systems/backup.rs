//! Backup programs, when installed: not made for checkpoints, but what people have.
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
    /// Tree and repository.
    pub place: SystemDirs,
}

impl Restic {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("restic");
        command
            .env("RESTIC_PASSWORD", "bench")
            .env("RESTIC_CACHE_DIR", self.place.store.with_file_name("cache"))
            .arg("--quiet")
            .arg("--repo")
            .arg(&self.place.store)
            .current_dir(&self.place.tree)
            .args(args);
        command
    }
}

impl System for Restic {
    fn name(&self) -> &'static str {
        "restic"
    }

    fn work_dirs(&self) -> &SystemDirs {
        &self.place
    }

    fn reset(&mut self) -> Result<()> {
        remove(&self.place.store)?;
        remove(&self.place.store.with_file_name("cache"))?;
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
    /// Tree and repository.
    pub place: SystemDirs,
}

impl Borg {
    fn command(&self) -> Command {
        let mut command = Command::new("borg");
        command
            .env("BORG_BASE_DIR", self.place.store.with_file_name("base"))
            .env("BORG_REPO", &self.place.store)
            .env("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes")
            .env("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes")
            .current_dir(&self.place.tree);
        command
    }
}

impl System for Borg {
    fn name(&self) -> &'static str {
        "borg"
    }

    fn work_dirs(&self) -> &SystemDirs {
        &self.place
    }

    fn reset(&mut self) -> Result<()> {
        remove(&self.place.store)?;
        remove(&self.place.store.with_file_name("base"))?;
        run_untimed(self.command().args(["init", "--encryption", "none"]))?;
        Ok(())
    }

    fn checkpoint(&mut self, label: &str) -> Result<(String, Cost)> {
        let mut clock = Clock::start();
        clock.run(self.command().args(["create", &format!("::{label}"), "."]))?;
        Ok((label.to_owned(), clock.stop()))
    }
}
