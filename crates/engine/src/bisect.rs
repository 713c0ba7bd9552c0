//! Finds the step that broke something: [`BisectSearch`] chooses which moment to try next, [`Scratch`] is a directory that is
//! brought to one moment after another.
//!
//! [`BisectSearch`] knows nothing of files or commands: the caller reports whether a moment was good, bad or undecidable, and it
//! returns which to try next. [`Scratch`] goes from one state to the next by writing only what differs, so the cost of a
//! probe depends on the changes and not on the size of the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stepback_model::state::WorkspaceState;
use stepback_worktree::WorktreeError;

use crate::error::EngineError;
use crate::workspace::Workspace;

/// Minimum number of files per thread; fewer are not worth a thread.
const FEW: usize = 500;

/// The result of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeVerdict {
    /// The moment works.
    Good,
    /// The moment does not work.
    Bad,
    /// The probe could not decide.
    Skip,
}

/// A search between a good moment and a later bad one. Moments are numbered from 0.
#[derive(Clone, Debug)]
pub struct BisectSearch {
    good: usize,
    bad: usize,
    skipped: BTreeSet<usize>,
}

/// The result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BisectResult {
    /// This moment is the first bad one.
    First(usize),
    /// One of these is the first bad one: probes of those in between could not decide.
    Among(Vec<usize>),
}

impl BisectSearch {
    /// Starts a search between `good` and `bad`, whose verdicts are known.
    pub fn between(good: usize, bad: usize) -> Self {
        Self { good, bad, skipped: BTreeSet::new() }
    }

    /// Returns the moments to try next, at most `most` at once; empty when the search is over.
    pub fn next(&self, most: usize) -> Vec<usize> {
        let open: Vec<usize> =
            (self.good + 1..self.bad).filter(|moment| !self.skipped.contains(moment)).collect();
        let count = most.max(1).min(open.len());
        // Evenly spread, so that each verdict rules out as many moments as possible.
        let mut chosen: Vec<usize> =
            (1..=count).filter_map(|part| open.get(part * open.len() / (count + 1)).copied()).collect();
        chosen.dedup();
        chosen
    }

    /// Adds the verdict of a probe.
    pub fn tell(&mut self, moment: usize, verdict: ProbeVerdict) {
        match verdict {
            ProbeVerdict::Good => self.good = self.good.max(moment),
            ProbeVerdict::Bad => self.bad = self.bad.min(moment),
            ProbeVerdict::Skip => {
                self.skipped.insert(moment);
            }
        }
    }

    /// Returns how many moments are still undecided.
    pub fn left(&self) -> usize {
        (self.good + 1..self.bad).filter(|moment| !self.skipped.contains(moment)).count()
    }

    /// Returns the result, once [`Self::next`] returns no more moments.
    pub fn found(&self) -> BisectResult {
        match self.bad.saturating_sub(self.good) {
            0 | 1 => BisectResult::First(self.bad),
            _ => BisectResult::Among((self.good + 1..=self.bad).collect()),
        }
    }
}

/// A directory that is brought from one past state to another.
pub struct Scratch<'w> {
    workspace: &'w Workspace,
    dir: PathBuf,
    at: Option<WorkspaceState>,
    /// The `stat` result of every file of the state at the time the caller got the directory. Files that a command created
    /// are not included.
    handed_over: BTreeMap<PathBuf, Stamp>,
}

/// A stamp that changes whenever a file does: inode, size, mtime and ctime.
type Stamp = (u64, u64, (i64, i64), (i64, i64));

impl<'w> Scratch<'w> {
    /// Creates a scratch directory at `dir`, which must not exist or be empty.
    pub fn new(workspace: &'w Workspace, dir: PathBuf) -> Self {
        Self { workspace, dir, at: None, handed_over: BTreeMap::new() }
    }

    /// Path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory contain the files of `state`. Files that a command created and no state has, such as build
    /// results, stay; its changes to files of the state do not.
    pub fn become_state(&mut self, state: &WorkspaceState) -> Result<(), EngineError> {
        let updated = match self.at.take() {
            Some(from) => !self.is_spoilt() && self.update(&from, state)?,
            None => false,
        };
        if !updated {
            if self.dir.exists() {
                fs::remove_dir_all(&self.dir).map_err(WorktreeError::aside("clear", &self.dir))?;
            }
            self.workspace.materialize(state, &self.dir, false)?;
            self.handed_over = stamps(&self.dir).map_err(WorktreeError::aside("look through", &self.dir))?;
        }
        self.at = Some(*state);
        Ok(())
    }

    /// Whether a file of the state was changed since the caller got the directory.
    fn is_spoilt(&self) -> bool {
        let files: Vec<(&PathBuf, &Stamp)> = self.handed_over.iter().collect();
        let differs = |(path, handed_over): &(&PathBuf, &Stamp)| {
            fs::symlink_metadata(path).map_or(true, |meta| stamp(&meta) != **handed_over)
        };
        let share = files.len().div_ceil(self.workspace.engine.threads.max(1)).max(FEW);
        std::thread::scope(|scope| {
            let looking: Vec<_> =
                files.chunks(share).map(|some| scope.spawn(move || some.iter().any(differs))).collect();
            // The result of a thread that panicked is unknown, so the directory counts as changed.
            looking.into_iter().any(|some| some.join().unwrap_or(true))
        })
    }

    /// Writes what differs; returns `false` if a file is not as it was left.
    fn update(&mut self, from: &WorkspaceState, to: &WorkspaceState) -> Result<bool, EngineError> {
        let Some(changes) = self.workspace.carry_over(from, to, &self.dir)? else { return Ok(false) };
        for change in &changes {
            let path = self.dir.join(std::ffi::OsStr::from_bytes(change.path.as_bytes()));
            self.handed_over.remove(&path);
            if change.then.as_ref().is_some_and(|then| !then.is_dir()) {
                let meta = fs::symlink_metadata(&path).map_err(WorktreeError::aside("look at", &path))?;
                self.handed_over.insert(path, stamp(&meta));
            }
        }
        Ok(true)
    }
}

fn stamp(meta: &fs::Metadata) -> Stamp {
    (meta.ino(), meta.size(), (meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()))
}

fn stamps(dir: &Path) -> io::Result<BTreeMap<PathBuf, Stamp>> {
    let mut stamps = BTreeMap::new();
    let mut waiting = vec![dir.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if meta.is_dir() {
                waiting.push(entry.path());
            } else {
                stamps.insert(entry.path(), stamp(&meta));
            }
        }
    }
    Ok(stamps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(len: usize, first_bad: usize, skip: &[usize], jobs: usize) -> (BisectResult, usize) {
        let mut search = BisectSearch::between(0, len - 1);
        let mut probes = 0;
        loop {
            let next = search.next(jobs);
            if next.is_empty() {
                return (search.found(), probes);
            }
            for moment in next {
                probes += 1;
                let verdict = match moment {
                    _ if skip.contains(&moment) => ProbeVerdict::Skip,
                    _ if moment >= first_bad => ProbeVerdict::Bad,
                    _ => ProbeVerdict::Good,
                };
                search.tell(moment, verdict);
            }
        }
    }

    #[test]
    fn the_first_bad_moment_is_found_wherever_it_is() {
        for len in 2..60 {
            for first_bad in 1..len {
                for jobs in [1, 2, 3] {
                    let (found, probes) = run(len, first_bad, &[], jobs);
                    assert_eq!(found, BisectResult::First(first_bad), "{len} {first_bad} {jobs}");
                    assert!(jobs > 1 || probes <= len.ilog2() as usize + 1, "{probes} probes for {len}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_told_leaves_a_choice() {
        assert_eq!(run(10, 5, &[4, 5, 6], 1).0, BisectResult::Among(vec![4, 5, 6, 7]));
        assert_eq!(run(10, 5, &[2], 1).0, BisectResult::First(5));
        assert_eq!(run(3, 1, &[1], 1).0, BisectResult::Among(vec![1, 2]));
    }
}
