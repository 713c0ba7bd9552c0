//! The interface between a scan and a watcher: which directories may have changed since an earlier scan.
//!
//! A scan with an answer visits those directories and takes the others from the stat cache. It does not verify the answer,
//! so a watcher must name every directory in which something may have happened, or say that it does not know.
//! `docs/design/0018-watcher.md` lists the requirements.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use stepback_model::path::RelPath;

use super::Scan;
use crate::statcache::StatCache;

/// A position in the change log of one watcher. Only that watcher can compare two of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogPosition {
    /// The id of the watcher for one workspace; it is new whenever the watcher starts or loses track.
    pub instance: [u8; 16],
    /// The position in the watcher's sequence of changes.
    pub position: u64,
}

/// A question to a watcher.
#[derive(Clone, Copy, Debug)]
pub struct WatchQuestion<'a> {
    /// The root of the workspace.
    pub root: &'a Path,
    /// Device and inode of the root, so that both sides mean the same directory.
    pub root_id: (u64, u64),
    /// The token that the stat cache corresponds to, if it has one.
    pub since: Option<LogPosition>,
    /// About how many files and directories there are: the cost of a full scan.
    pub entries: usize,
}

/// A directory in which something may have happened.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChangedDir {
    /// The path of the directory, relative to the root.
    pub path: RelPath,
    /// Whether something may have happened anywhere below it, too.
    pub whole: bool,
}

/// A watcher's answer. It covers everything that happened before the question was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchAnswer {
    /// There is no watcher, or it did not answer in time.
    Unknown,
    /// Scan everything; the token is that of the answer.
    Everything(LogPosition),
    /// Only these directories can differ from their state at the token of the question. The token is that of the answer.
    Only(LogPosition, Vec<ChangedDir>),
}

/// A source of hints: a watcher, or a client of one.
pub trait ScanHints: Send + Sync {
    /// Returns what may have changed. Must return soon; a scan waits for it.
    fn changes(&self, question: &WatchQuestion<'_>) -> WatchAnswer;

    /// Called when a scan without an answer has visited every directory. An implementation that can start a watcher decides
    /// by this whether that is worth it; must return at once.
    fn scanned_without(&self, _cost: &FullScanCost<'_>) {}
}

/// The cost of a full scan.
#[derive(Clone, Copy, Debug)]
pub struct FullScanCost<'a> {
    /// The root of the workspace.
    pub root: &'a Path,
    /// How many files and directories there are.
    pub entries: usize,
    /// How long it took to compare all of them with the stat cache; `None` if there was no cache, so that everything was
    /// read.
    pub took: Option<Duration>,
}

/// How long scans may rely on hints before a full scan: what a watcher cannot see (a file written through a hard link
/// elsewhere or a memory map) is found after this time at the latest.
pub const FULL_EVERY: Duration = Duration::from_secs(5 * 60);

/// The most directories that are visited one by one or kept beside the cache; with more, a full scan costs no more.
const MAX_HINTED_DIRS: usize = 512;

/// Which directories a scan visits, as a tree of names.
#[derive(Debug, Default)]
pub(super) struct Visit {
    /// Its entries are examined.
    pub look: bool,
    /// So is everything below it.
    pub whole: bool,
    children: BTreeMap<Vec<u8>, Visit>,
}

/// A directory whose entries are examined, but no known directory below it.
pub(super) static LOOK: Visit = Visit { look: true, whole: false, children: BTreeMap::new() };

impl Visit {
    pub(super) fn add(&mut self, path: &RelPath, whole: bool) {
        let mut visit = self;
        for name in path.components() {
            visit = visit.children.entry(name.to_vec()).or_default();
        }
        visit.look = true;
        visit.whole |= whole;
    }

    pub(super) fn child(&self, name: &[u8]) -> Option<&Self> {
        self.children.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.children.keys().map(Vec::as_slice)
    }
}

impl Scan<'_> {
    /// Asks the watcher, if there is one, what changed since the cache was written. This must happen before files are read:
    /// the watcher then reports any later change to the next scan.
    pub(super) fn ask_watcher(&self, cache: Option<&StatCache>) -> WatchAnswer {
        let (Some(hints), Some(cache)) = (self.hints, cache) else { return WatchAnswer::Unknown };
        let Ok(stat) = rustix::fs::stat(self.root) else { return WatchAnswer::Unknown };
        hints.changes(&WatchQuestion {
            root: self.root,
            root_id: (stat.st_dev, stat.st_ino),
            since: cache.meta().token,
            entries: cache.entry_count(),
        })
    }

    /// The directories to visit, if visiting some is enough.
    pub(super) fn plan_visits(&self, cache: &StatCache, answer: &WatchAnswer) -> Option<Visit> {
        let WatchAnswer::Only(token, changed) = answer else { return None };
        if self.everything {
            return None;
        }
        let meta = cache.meta();
        let since = meta.token?;
        let age = super::walk::current_realtime().checked_sub(meta.full_at)?;
        let sound = since.instance == token.instance
            && since.position <= token.position
            && meta.epoch == self.epoch
            && meta.boot == self.boot
            && (0..FULL_EVERY.as_nanos() as i64).contains(&age);
        if !sound || cache.overlay().len() + cache.unsettled().len() + changed.len() > MAX_HINTED_DIRS {
            return None;
        }
        let mut visit = Visit::default();
        for path in cache.unsettled() {
            visit.add(path, false);
        }
        for changed in changed {
            visit.add(&changed.path, changed.whole);
        }
        Some(visit)
    }
}
