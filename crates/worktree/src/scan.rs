//! Scanning: from a directory on disk to trees in the store, reading only what changed.
//!
//! All threads walk directories from one stack. For every entry they compare `stat` with the stat cache; a directory where
//! everything matches costs no allocation. Changed files are read, hashed and stored at once, except large ones, which all
//! threads then cut together. Finally trees are built bottom-up for changed directories only.
//!
//! Names are never resolved as paths: each directory is opened by one component from its parent, without following links,
//! so nothing outside the root can be reached and depth is bounded only by open files.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use stepback_model::hash::Hash;
use stepback_model::object::ObjectSource;
use stepback_model::path::RelPath;
use stepback_store::ObjectBatch;

use self::hints::{FullScanCost, ScanHints, WatchAnswer};
use self::walk::CacheTrust;
use crate::error::WorktreeError;
use crate::rules::Budget;
use crate::statcache::{self, StatCache};
use crate::vault::Vault;

mod build;
mod entry;
pub mod hints;
mod listing;
mod node;
mod object;
mod offer_packs;
pub mod single;
mod update;
mod walk;
pub mod watch_scope;

/// Where and how to scan.
pub struct Scan<'a> {
    /// The workspace root.
    pub root: &'a Path,
    /// The path of the stat cache; `None` to hash everything every time.
    pub cache: Option<&'a Path>,
    /// Where git's packs are kept; `None` to store their content.
    pub vault: Option<&'a Vault>,
    /// A directory that must not be scanned although it may lie inside the root: the store.
    pub store_dir: Option<&'a Path>,
    /// How much of what git ignores is stored.
    pub budget: Budget,
    /// The store's collection epoch.
    pub epoch: u64,
    /// The id of the present boot of the system.
    pub boot: [u8; 16],
    /// The most threads to use.
    pub threads: usize,
    /// Counts scanned files, for a progress display.
    pub progress: Option<&'a AtomicU64>,
    /// A watcher that may know what changed since the cache was written.
    pub hints: Option<&'a dyn ScanHints>,
    /// Scan everything nevertheless; then hints only provide the token from which the next scan can ask for changes.
    pub everything: bool,
    /// Compare the `stat` of every git object, although git only adds and removes them: before git directories are restored.
    pub check_objects: bool,
}

/// The result of a scan.
#[derive(Debug)]
pub struct Snapshot {
    /// The tree of the workspace's files.
    pub files: Hash,
    /// The git directories, if there are any.
    pub git: Option<Hash>,
    /// The number of files read because `stat` did not prove them unchanged.
    pub hashed: u64,
    /// Paths that were skipped for a reason worth a warning: unreadable, or changing all the time.
    pub troubles: Vec<stepback_model::plan::SkippedPath>,
    /// Whether only some directories were scanned because a watcher reported the others as unchanged.
    pub hinted: bool,
    update: Option<CacheUpdate>,
    /// The stat cache, if its modification time should be set to show that the workspace was scanned.
    cache: Option<PathBuf>,
}

/// How the stat cache is to be updated.
#[derive(Debug)]
struct CacheUpdate {
    path: PathBuf,
    meta: statcache::Meta,
    /// Directories that must be scanned again whatever a watcher says.
    unsettled: Vec<RelPath>,
    form: CacheForm,
}

#[derive(Debug)]
enum CacheForm {
    /// The whole file is rewritten.
    Whole(statcache::Builder),
    /// Only what changed is written, beside the file with this checksum.
    Beside([u8; 32], statcache::CacheOverlay),
}

impl Snapshot {
    /// Writes the cache for the next scan. Call it only after the scanned objects have been committed: a cached hash
    /// promises that its object is stored. Failing to write a cache is not an error; the next scan just hashes more.
    pub fn remember(&mut self) {
        if let Some(CacheUpdate { path, meta, unsettled, form }) = self.update.take() {
            let _ = match form {
                CacheForm::Whole(builder) => builder.write(&path, &meta, &unsettled),
                CacheForm::Beside(base_checksum, overlay) => {
                    overlay.write(&path, &base_checksum, &meta, &unsettled)
                }
            };
        }
        if let Some(path) = self.cache.take() {
            // Its modification time says when the workspace was last scanned.
            use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let times = Timestamps { last_access: now, last_modification: now };
            let _ = utimensat(CWD, &path, &times, AtFlags::empty());
        }
    }
}

impl Scan<'_> {
    /// Scans the workspace, writing new content to `batch`. `source` reads what earlier scans stored.
    pub fn run(
        &self,
        source: &(dyn ObjectSource + Sync),
        batch: &dyn ObjectBatch,
    ) -> Result<Snapshot, WorktreeError> {
        let old = self.cache.and_then(|path| StatCache::open(path, self.boot));
        let old = old.filter(|cache| cache.meta().rules == self.budget.fingerprint());
        if let (None, Some(vault)) = (&old, self.vault) {
            offer_packs::offer(self.root, vault, &self.budget, batch);
        }
        let watch_answer = self.ask_watcher(old.as_ref());
        let token = match &watch_answer {
            WatchAnswer::Unknown => None,
            WatchAnswer::Everything(token) | WatchAnswer::Only(token, _) => Some(*token),
        };
        let out = build::ScanIo { source, batch, token };
        if let Some(cache) = &old
            && let Some(visit) = self.plan_visits(cache, &watch_answer)
        {
            // An error here may come from a wrong hint or cache: fall back to a full scan.
            if let Ok(walked) =
                walk::walk(self, old.as_ref(), CacheTrust::Decisions, Some(&visit), source, batch)
                && !walked.rules_changed
                && !walked.newly_linked
                && walked.root_id == cache.meta().root
                && let Ok(snapshot) = build::build_snapshot(self, old.as_ref(), walked, &out)
                && !cache.is_damaged()
            {
                return Ok(snapshot);
            }
        }
        // A cache that cannot be read to its end, or is damaged anywhere, is ignored.
        let started = Instant::now();
        let old = old.and_then(StatCache::read_whole);
        let walked = walk::walk(self, old.as_ref(), CacheTrust::Decisions, None, source, batch)?;
        if let (Some(hints), WatchAnswer::Unknown, false) = (self.hints, &watch_answer, self.everything) {
            let elapsed = old.is_some().then(|| started.elapsed());
            let entries = old.as_ref().map_or_else(|| walked.entry_count(), StatCache::entry_count);
            hints.scanned_without(&FullScanCost { root: self.root, entries, took: elapsed });
        }
        if walked.rules_changed && old.is_some() {
            // A rule file changed: what the old rules decided must be decided again, hashes still hold.
            let second_walk = walk::walk(self, old.as_ref(), CacheTrust::HashesOnly, None, source, batch)?;
            return build::build_snapshot(self, old.as_ref(), second_walk, &out);
        }
        build::build_snapshot(self, old.as_ref(), walked, &out)
    }
}

/// The boot id of the running system, or zeroes where the system has none.
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    stepback_model::hex::decode_array(hex.as_bytes()).unwrap_or_default()
}
