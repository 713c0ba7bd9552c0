//! Finding the step that broke something: which moment to try next, and a scratch directory that becomes one moment after
//! another.
//!
//! [`Search`] knows nothing of files or commands; it is told whether a moment was good, bad or impossible to tell, and says
//! which to try next. [`Scratch`] is brought from one state to the next by writing only what differs, so that a probe costs
//! what changed and not the size of the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stepback_model::state::State;
use stepback_worktree::WorktreeError;

use crate::error::EngineError;
use crate::workspace::Workspace;

/// Fewer files than this are not worth a thread of their own.
const FEW: usize = 500;

/// What a probe found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It works.
    Good,
    /// It does not.
    Bad,
    /// It cannot be told.
    Skip,
}

/// A search between a good moment and a later bad one. Moments are numbered from 0.
#[derive(Clone, Debug)]
pub struct Search {
    good: usize,
    bad: usize,
    skipped: BTreeSet<usize>,
}

/// What a search came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// This moment is the first bad one.
    First(usize),
    /// One of these is: those in between could not be told.
    Among(Vec<usize>),
}

impl Search {
    /// A search between `good` and `bad`, which are known to be that.
    pub fn between(good: usize, bad: usize) -> Self {
        Self { good, bad, skipped: BTreeSet::new() }
    }

    /// Moments to try next, at most `most` at once; none when the search is over.
    pub fn next(&self, most: usize) -> Vec<usize> {
        let open: Vec<usize> =
            (self.good + 1..self.bad).filter(|moment| !self.skipped.contains(moment)).collect();
        let count = most.max(1).min(open.len());
        // Evenly spread, so that each answer cuts off as much as possible.
        let mut chosen: Vec<usize> =
            (1..=count).filter_map(|part| open.get(part * open.len() / (count + 1)).copied()).collect();
        chosen.dedup();
        chosen
    }

    /// Takes in what a probe found.
    pub fn tell(&mut self, moment: usize, verdict: Verdict) {
        match verdict {
            Verdict::Good => self.good = self.good.max(moment),
            Verdict::Bad => self.bad = self.bad.min(moment),
            Verdict::Skip => {
                self.skipped.insert(moment);
            }
        }
    }

    /// How many moments are still in question.
    pub fn left(&self) -> usize {
        (self.good + 1..self.bad).filter(|moment| !self.skipped.contains(moment)).count()
    }

    /// What it came to, when nothing is left to try.
    pub fn found(&self) -> Found {
        match self.bad.saturating_sub(self.good) {
            0 | 1 => Found::First(self.bad),
            _ => Found::Among((self.good + 1..=self.bad).collect()),
        }
    }
}

/// A directory that is brought from one past state to another.
pub struct Scratch<'w> {
    workspace: &'w Workspace<'w>,
    dir: PathBuf,
    at: Option<State>,
    /// What `stat` said of every file of the state when the directory was handed over. What a command made is not among them.
    handed_over: BTreeMap<PathBuf, Stamp>,
}

/// Changes whenever a file does: inode, size, and the times of content and of everything else.
type Stamp = (u64, u64, (i64, i64), (i64, i64));

impl<'w> Scratch<'w> {
    /// A scratch directory at `dir`, which must not exist or be empty.
    pub fn new(workspace: &'w Workspace<'w>, dir: PathBuf) -> Self {
        Self { workspace, dir, at: None, handed_over: BTreeMap::new() }
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory hold the files of `state`. What a command left behind that no state has stays, such as its build
    /// results; what it changed of the files themselves does not.
    pub fn become_state(&mut self, state: &State) -> Result<(), EngineError> {
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

    /// Whether a file that was handed over is not what it was.
    fn is_spoilt(&self) -> bool {
        let files: Vec<(&PathBuf, &Stamp)> = self.handed_over.iter().collect();
        let differs = |(path, handed_over): &(&PathBuf, &Stamp)| {
            fs::symlink_metadata(path).map_or(true, |meta| stamp(&meta) != **handed_over)
        };
        let share = files.len().div_ceil(self.workspace.engine.threads.max(1)).max(FEW);
        std::thread::scope(|scope| {
            let looking: Vec<_> =
                files.chunks(share).map(|some| scope.spawn(move || some.iter().any(differs))).collect();
            // What a thread that panicked saw cannot be relied on.
            looking.into_iter().any(|some| some.join().unwrap_or(true))
        })
    }

    /// Writes what differs; `false` if something is not as it was left.
    fn update(&mut self, from: &State, to: &State) -> Result<bool, EngineError> {
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

    fn run(len: usize, first_bad: usize, skip: &[usize], jobs: usize) -> (Found, usize) {
        let mut search = Search::between(0, len - 1);
        let mut probes = 0;
        loop {
            let next = search.next(jobs);
            if next.is_empty() {
                return (search.found(), probes);
            }
            for moment in next {
                probes += 1;
                let verdict = match moment {
                    _ if skip.contains(&moment) => Verdict::Skip,
                    _ if moment >= first_bad => Verdict::Bad,
                    _ => Verdict::Good,
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
                    assert_eq!(found, Found::First(first_bad), "{len} {first_bad} {jobs}");
                    assert!(jobs > 1 || probes <= len.ilog2() as usize + 1, "{probes} probes for {len}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_told_leaves_a_choice() {
        assert_eq!(run(10, 5, &[4, 5, 6], 1).0, Found::Among(vec![4, 5, 6, 7]));
        assert_eq!(run(10, 5, &[2], 1).0, Found::First(5));
        assert_eq!(run(3, 1, &[1], 1).0, Found::Among(vec![1, 2]));
    }
}
