//! What somebody who watches a workspace can tell a scan: which directories may have changed since an earlier one.
//!
//! A scan that is told visits those directories and takes the others from the stat cache. It never asks whether the
//! watcher is right, so whoever answers must name every directory in which something may have happened, or say that it
//! does not know. `docs/design/0018-watcher.md` says what that takes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use stepback_model::path::RelPath;

use super::Scan;
use crate::statcache::StatCache;

/// A moment in the life of one watcher. Only that watcher can compare two of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Token {
    /// Which watcher, of which workspace, since it began or lost track.
    pub instance: [u8; 16],
    /// How far it had come.
    pub position: u64,
}

/// A question to a watcher.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The root of the workspace.
    pub root: &'a Path,
    /// Its device and inode, so that both talk about the same directory.
    pub root_id: (u64, u64),
    /// The moment that the stat cache describes, if there is one.
    pub since: Option<Token>,
    /// About how many files and directories there are: how much a look at all of them would cost.
    pub entries: usize,
}

/// A directory in which something may have happened.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Changed {
    /// Which.
    pub path: RelPath,
    /// Also anywhere below it.
    pub whole: bool,
}

/// What a watcher says. All of it holds for everything that happened before the question was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nobody watches, or nobody answered in time.
    Nothing,
    /// Look at everything; the moment is that of the answer.
    Everything(Token),
    /// Only these directories can differ from what they were at the moment of the question.
    Only(Token, Vec<Changed>),
}

/// Somebody who watches workspaces, or who can ask one who does.
pub trait Hints: Sync {
    /// Says what may have changed. Must return soon; a scan waits for it.
    fn changes(&self, question: &Question<'_>) -> Answer;

    /// A scan that had no answer has visited every directory. Whoever can start a watcher decides by this whether it is
    /// worth it; must return at once.
    fn scanned_without(&self, _cost: &FullScanCost<'_>) {}
}

/// What a scan of a whole workspace cost.
#[derive(Clone, Copy, Debug)]
pub struct FullScanCost<'a> {
    /// The root of the workspace.
    pub root: &'a Path,
    /// How many files and directories there are.
    pub entries: usize,
    /// How long it took to compare all of them with the stat cache; `None` if there was none, so that everything was read.
    pub took: Option<Duration>,
}

/// How long a scan may rely on hints before it looks at every file again: what a watcher cannot see (a file written
/// through a hard link elsewhere or a memory map) is found after this time at the latest.
pub const FULL_EVERY: Duration = Duration::from_secs(5 * 60);

/// Most directories that are visited one by one or kept beside the cache; with more, a look at everything costs no more.
const MOST: usize = 512;

/// Which directories a scan visits, as a tree of names.
#[derive(Debug, Default)]
pub(super) struct Visit {
    /// Its entries are looked at.
    pub look: bool,
    /// So is everything below it.
    pub whole: bool,
    below: BTreeMap<Vec<u8>, Visit>,
}

/// A directory whose entries are looked at, but nothing below it that the cache knows.
pub(super) static LOOK: Visit = Visit { look: true, whole: false, below: BTreeMap::new() };

impl Visit {
    pub(super) fn add(&mut self, path: &RelPath, whole: bool) {
        let mut at = self;
        for name in path.components() {
            at = at.below.entry(name.to_vec()).or_default();
        }
        at.look = true;
        at.whole |= whole;
    }

    pub(super) fn child(&self, name: &[u8]) -> Option<&Self> {
        self.below.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.below.keys().map(Vec::as_slice)
    }
}

impl Scan<'_> {
    /// Asks the watcher, if there is one. This comes before anything is looked at: what changes later is after the answer's
    /// moment, and will be named next time.
    pub(super) fn ask(&self, cache: Option<&StatCache>) -> Answer {
        let (Some(hints), Some(cache)) = (self.hints, cache) else { return Answer::Nothing };
        let Ok(stat) = rustix::fs::stat(self.root) else { return Answer::Nothing };
        hints.changes(&Question {
            root: self.root,
            root_id: (stat.st_dev, stat.st_ino),
            since: cache.meta().token,
            entries: cache.entry_count(),
        })
    }

    /// The directories to visit, if it is enough to visit some.
    pub(super) fn visits(&self, cache: &StatCache, answer: &Answer) -> Option<Visit> {
        let Answer::Only(token, changed) = answer else { return None };
        if self.everything {
            return None;
        }
        let meta = cache.meta();
        let since = meta.token?;
        let age = super::walk::realtime().checked_sub(meta.full_at)?;
        let sound = since.instance == token.instance
            && since.position <= token.position
            && meta.epoch == self.epoch
            && meta.boot == self.boot
            && (0..FULL_EVERY.as_nanos() as i64).contains(&age);
        if !sound || cache.overlay().len() + cache.unsettled().len() + changed.len() > MOST {
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
