//! Shadow git repositories: a second git directory whose work tree is the user's directory.
//!
//! Cline's classic checkpoints and Gemini CLI's both `add .` and commit there; they differ in what they
//! run around it and in how they restore.

use std::fs;
use std::process::Command;

use anyhow::Result;

use super::{System, SystemDirs};
use crate::input::git;
use crate::input::trees::remove;
use crate::measure::clock::{Clock, Cost, run_untimed};

/// Cline's classic way.
pub struct Cline {
    /// The directories of its tree and its shadow repository.
    pub dirs: SystemDirs,
}

impl Cline {
    /// Runs in the shadow repository, whose configuration names the work tree.
    fn git(&self, args: &[&str]) -> Command {
        let mut command = git::command();
        command.current_dir(&self.dirs.store).args(args);
        command
    }
}

impl System for Cline {
    fn name(&self) -> &'static str {
        "cline"
    }

    fn work_dirs(&self) -> &SystemDirs {
        &self.dirs
    }

    fn reset(&mut self) -> Result<()> {
        remove(&self.dirs.store)?;
        fs::create_dir_all(&self.dirs.store)?;
        run_untimed(&mut self.git(&["init", "-q", "-b", "main"]))?;
        run_untimed(self.git(&["config", "core.worktree"]).arg(&self.dirs.tree))?;
        Ok(())
    }

    fn checkpoint(&mut self, label: &str) -> Result<(String, Cost)> {
        let mut clock = Clock::start();
        clock.run(&mut self.git(&["add", ".", "--ignore-errors"]))?;
        clock.run(&mut self.git(&["commit", "--allow-empty", "--no-verify", "-q", "-m", label]))?;
        let cost = clock.stop();
        Ok((git::parse_line(&run_untimed(&mut self.git(&["rev-parse", "HEAD"]))?), cost))
    }

    fn refresh_caches(&mut self) -> Result<()> {
        refresh_index(&mut self.git(&["update-index", "-q", "--refresh"]))
    }

    fn restore(&mut self, point: &str, _touched: &[String]) -> Result<Option<Cost>> {
        let mut clock = Clock::start();
        clock.run(&mut self.git(&["reset", "--hard", "-q", point]))?;
        Ok(Some(clock.stop()))
    }

    fn diff(&mut self, from: &str, to: &str) -> Result<Option<Cost>> {
        let mut clock = Clock::start();
        // It stages the working directory before every comparison, also when both sides are checkpoints.
        clock.run(&mut self.git(&["add", ".", "--ignore-errors"]))?;
        clock.run(&mut self.git(&["diff", "--stat=4096", &format!("{from}..{to}")]))?;
        Ok(Some(clock.stop()))
    }

    fn compact(&mut self) -> Result<bool> {
        run_untimed(&mut self.git(&["gc", "-q", "--prune=now"]))?;
        Ok(true)
    }
}

/// Gemini CLI's way.
pub struct Gemini {
    /// The directories of its tree and its shadow repository.
    pub dirs: SystemDirs,
}

impl Gemini {
    /// Runs in the work tree, with the shadow repository in the environment.
    fn git(&self, args: &[&str]) -> Command {
        let mut command = git::command();
        command
            .current_dir(&self.dirs.tree)
            .env("GIT_DIR", self.dirs.store.join(".git"))
            .env("GIT_WORK_TREE", &self.dirs.tree)
            .args(args);
        command
    }
}

impl System for Gemini {
    fn name(&self) -> &'static str {
        "gemini"
    }

    fn work_dirs(&self) -> &SystemDirs {
        &self.dirs
    }

    fn reset(&mut self) -> Result<()> {
        remove(&self.dirs.store)?;
        fs::create_dir_all(&self.dirs.store)?;
        run_untimed(git::command().args(["init", "-q", "-b", "main"]).current_dir(&self.dirs.store))?;
        run_untimed(&mut self.git(&["commit", "-q", "--allow-empty", "-m", "Initial commit"]))?;
        Ok(())
    }

    fn checkpoint(&mut self, label: &str) -> Result<(String, Cost)> {
        let mut clock = Clock::start();
        clock.run(&mut self.git(&["add", "."]))?;
        let status = clock.run(&mut self.git(&["status", "--porcelain", "-b", "-u", "--null"]))?;
        // The first record is the branch; any other is a change.
        let clean = git::split_nul(&status).len() <= 1;
        if clean {
            let head = clock.run(&mut self.git(&["rev-parse", "HEAD"]))?;
            return Ok((git::parse_line(&head), clock.stop()));
        }
        clock.run(&mut self.git(&["commit", "--no-verify", "-q", "-m", label]))?;
        let cost = clock.stop();
        Ok((git::parse_line(&run_untimed(&mut self.git(&["rev-parse", "HEAD"]))?), cost))
    }

    fn refresh_caches(&mut self) -> Result<()> {
        refresh_index(&mut self.git(&["update-index", "-q", "--refresh"]))
    }

    fn restore(&mut self, point: &str, _touched: &[String]) -> Result<Option<Cost>> {
        let mut clock = Clock::start();
        clock.run(&mut self.git(&["restore", "--source", point, "."]))?;
        clock.run(&mut self.git(&["clean", "-f", "-d"]))?;
        Ok(Some(clock.stop()))
    }

    fn diff(&mut self, from: &str, to: &str) -> Result<Option<Cost>> {
        let mut clock = Clock::start();
        clock.run(&mut self.git(&["diff", "--stat", from, to]))?;
        Ok(Some(clock.stop()))
    }

    fn compact(&mut self) -> Result<bool> {
        run_untimed(&mut self.git(&["gc", "-q", "--prune=now"]))?;
        Ok(true)
    }
}

/// Refreshes an index; exit code 1 only says that some file has changed.
pub fn refresh_index(command: &mut Command) -> Result<()> {
    Clock::start().run_with_input(command, &[], &[0, 1])?;
    Ok(())
}
