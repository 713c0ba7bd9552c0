//! opencode's method: a snapshot repository that borrows objects and index from the user's own.
//!
//! Changed and untracked paths are listed by two git processes at once, checked against the ignore rules
//! and added by name; a snapshot is a bare tree. What makes its first checkpoint fast is also its risk: a
//! `git gc` or `rm -rf .git` in the user's repository takes the borrowed objects away.

use std::collections::HashSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::shadow::refresh_index;
use super::{System, SystemDirs};
use crate::input::git;
use crate::input::trees::remove;
use crate::measure::clock::{Clock, Cost, run_untimed};

/// Untracked files over this size are left out of its snapshots.
const LARGE: u64 = 2 * 1024 * 1024;

/// The number of files that are restored by one pair of commands.
const FILES_PER_RESTORE: usize = 100;

const CONFIG: &str = "\
[core]
\trepositoryformatversion = 0
\tbare = false
\tautocrlf = false
\tlongpaths = true
\tsymlinks = true
\tfsmonitor = false
\tuntrackedCache = true
[feature]
\tmanyFiles = true
[index]
\tversion = 4
\tthreads = true
";

/// opencode's snapshots.
pub struct Opencode {
    /// Tree and snapshot repository.
    pub dirs: SystemDirs,
}

impl Opencode {
    fn git(&self, args: &[&str]) -> Command {
        let mut command = git::command();
        command.args(["-c", "core.autocrlf=false", "-c", "core.longpaths=true", "-c", "core.symlinks=true"]);
        command.arg("--git-dir").arg(&self.dirs.store).arg("--work-tree").arg(&self.dirs.tree);
        command.current_dir(&self.dirs.tree).args(args);
        command
    }

    /// Borrows objects and index on the first checkpoint.
    fn seed_store(&self) -> Result<()> {
        let repository = self.dirs.tree.join(".git");
        let alternates = self.dirs.store.join("objects/info/alternates");
        if alternates.exists() || !repository.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(self.dirs.store.join("objects/info"))?;
        fs::write(alternates, format!("{}\n", repository.join("objects").display()))?;
        fs::copy(repository.join("index"), self.dirs.store.join("index")).context("cannot seed the index")?;
        Ok(())
    }

    fn add(&self, clock: &mut Clock) -> Result<()> {
        let (tracked, untracked) = clock.run_both(
            &mut self.git(&["diff-files", "--name-only", "-z", "--", "."]),
            &mut self.git(&["ls-files", "--full-name", "--others", "--exclude-standard", "-z", "--", "."]),
        )?;
        let untracked = git::split_nul(&untracked);
        let mut seen_paths = HashSet::new();
        let mut paths: Vec<String> = git::split_nul(&tracked);
        paths.extend(untracked.iter().cloned());
        paths.retain(|path| seen_paths.insert(path.clone()));
        if paths.is_empty() {
            return Ok(());
        }
        let ignored = self.find_ignored(clock, &paths)?;
        let untracked: HashSet<&str> = untracked.iter().map(String::as_str).collect();
        let mut list = Vec::new();
        for path in paths.iter().filter(|path| !ignored.contains(*path)) {
            let large =
                fs::symlink_metadata(self.dirs.tree.join(path)).is_ok_and(|metadata| metadata.len() > LARGE);
            if !(large && untracked.contains(path.as_str())) {
                list.extend_from_slice(b":(top,literal)");
                list.extend_from_slice(path.as_bytes());
                list.push(0);
            }
        }
        let mut add =
            self.git(&["add", "--all", "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul"]);
        clock.run_with_input(&mut add, &list, &[0])?;
        Ok(())
    }

    fn find_ignored(&self, clock: &mut Clock, paths: &[String]) -> Result<HashSet<String>> {
        let repository = self.dirs.tree.join(".git");
        if !repository.is_dir() {
            return Ok(HashSet::new());
        }
        let mut check = git::command();
        check.arg("--git-dir").arg(&repository).arg("--work-tree").arg(&self.dirs.tree);
        check.current_dir(&self.dirs.tree).args(["check-ignore", "--no-index", "--stdin", "-z"]);
        let input = paths.join("\0") + "\0";
        // Exit code 1 says that nothing is ignored.
        Ok(git::split_nul(&clock.run_with_input(&mut check, input.as_bytes(), &[0, 1])?)
            .into_iter()
            .collect())
    }
}

impl System for Opencode {
    fn name(&self) -> &'static str {
        "opencode"
    }

    fn work_dirs(&self) -> &SystemDirs {
        &self.dirs
    }

    fn reset(&mut self) -> Result<()> {
        remove(&self.dirs.store)?;
        fs::create_dir_all(&self.dirs.store)?;
        let mut init = git::command();
        init.env("GIT_DIR", &self.dirs.store).env("GIT_WORK_TREE", &self.dirs.tree);
        run_untimed(init.args(["init", "-q", "-b", "main"]))?;
        fs::write(self.dirs.store.join("config"), CONFIG)?;
        Ok(())
    }

    fn checkpoint(&mut self, _label: &str) -> Result<(String, Cost)> {
        let mut clock = Clock::start();
        self.seed_store()?;
        self.add(&mut clock)?;
        let tree = clock.run(&mut self.git(&["write-tree"]))?;
        Ok((git::parse_line(&tree), clock.stop()))
    }

    fn refresh_caches(&mut self) -> Result<()> {
        refresh_index(&mut self.git(&["update-index", "-q", "--refresh"]))
    }

    fn restore(&mut self, point: &str, touched: &[String]) -> Result<Option<Cost>> {
        let mut clock = Clock::start();
        if let [path] = touched {
            clock.run(&mut self.git(&["checkout", point, "--", path]))?;
            return Ok(Some(clock.stop()));
        }
        for batch in touched.chunks(FILES_PER_RESTORE) {
            let listed = clock.run(self.git(&["ls-tree", "--name-only", "-z", point, "--"]).args(batch))?;
            let listed_paths: HashSet<String> = git::split_nul(&listed).into_iter().collect();
            let (existing, added): (Vec<&String>, Vec<&String>) =
                batch.iter().partition(|path| listed_paths.contains(*path));
            if !existing.is_empty() {
                clock.run(self.git(&["checkout", point, "--"]).args(existing))?;
            }
            for path in added {
                let _ = fs::remove_file(self.dirs.tree.join(path));
            }
        }
        Ok(Some(clock.stop()))
    }

    fn restore_path(&mut self, point: &str, path: &str) -> Result<Option<Cost>> {
        self.restore(point, &[path.to_owned()])
    }

    fn diff(&mut self, from: &str, to: &str) -> Result<Option<Cost>> {
        let mut clock = Clock::start();
        clock.run(&mut self.git(&[
            "diff",
            "--no-ext-diff",
            "--no-renames",
            "--numstat",
            from,
            to,
            "--",
            ".",
        ]))?;
        Ok(Some(clock.stop()))
    }

    fn compact(&mut self) -> Result<bool> {
        run_untimed(&mut self.git(&["gc", "-q", "--prune=7.days"]))?;
        Ok(true)
    }
}
