//! What a scan leaves for the next one: a new stat cache, or an overlay with the changes to the present one.

use std::path::Path;

use stepback_model::hash::Hash;

use super::build::{Assembly, DirResult};
use super::walk::{DirOut, Listing, WalkResult};
use super::{CacheForm, CacheUpdate, Scan};
use crate::statcache::{CacheOverlay, CachedKind, IgnoredTotals, Meta, NONE, StatCache};

/// The most directories that are remembered as unsettled; with more, the next scan is a full one.
const MAX_UNSETTLED_DIRS: usize = 512;

impl Assembly<'_> {
    /// The update of the cache; `None` if it stays as it is.
    pub(super) fn cache_update(
        &self,
        scan: &Scan<'_>,
        path: &Path,
        walked: &WalkResult,
        git: Option<Hash>,
    ) -> Option<CacheUpdate> {
        let old_meta = self.old.map(StatCache::meta);
        // Directories whose times differ from the cache make scans list them needlessly, and every scan has to read the
        // overlay: both are worth a new cache.
        let changed = self.changed
            || old_meta.is_some_and(|meta| meta.git != git)
            || self.has_many_outdated_dirs()
            || self.old.is_some_and(|old| !walked.hinted && !old.overlay().is_empty());
        let (form, ignored) = match self.old {
            Some(old) if walked.hinted => {
                let (overlay, ignored) = self.build_overlay(old, scan);
                (CacheForm::Beside(*old.checksum(), overlay), ignored)
            }
            Some(old) if !changed => {
                // Only the token is new, if there is a watcher.
                self.out.token?;
                (CacheForm::Beside(*old.checksum(), old.overlay().clone()), old.meta().ignored)
            }
            _ => {
                let builder = self.build_cache(scan.budget);
                let ignored = builder.tally();
                (CacheForm::Whole(builder), ignored)
            }
        };
        let root_stat = walked.dirs.first().filter(|root| !root.racy).map(|root| root.stat);
        let rests = walked.unsettled.len() <= MAX_UNSETTLED_DIRS;
        // Files that do not fit into the budget are found by a full scan, when there may be room.
        let room_may_have_come =
            ignored.waiting > 0 && old_meta.is_none_or(|old_meta| old_meta.ignored.bytes != ignored.bytes);
        let full_at = old_meta.filter(|_| walked.hinted).map_or(walked.started, |old_meta| old_meta.full_at);
        let meta = Meta {
            root: walked.root_id,
            root_stat: root_stat.unwrap_or_default(),
            epoch: scan.epoch,
            rules: scan.budget.fingerprint(),
            boot: scan.boot,
            ignored,
            git,
            token: self.out.token.filter(|_| rests && !room_may_have_come),
            full_at,
        };
        let unsettled = if rests { walked.unsettled.clone() } else { Vec::new() };
        Some(CacheUpdate { path: path.to_path_buf(), meta, unsettled, form })
    }

    /// The directories that differ from the cache file, including those of the overlay before, and the total that git
    /// ignores.
    fn build_overlay(&self, old: &StatCache, scan: &Scan<'_>) -> (CacheOverlay, IgnoredTotals) {
        let mut overlay = old.overlay().clone();
        let mut ignored = old.meta().ignored;
        // Directories keep their numbers; new ones get the next.
        let mut next = old.dir_count() as u32;
        let number: Vec<u32> = (self.dirs.iter())
            .map(|dir| {
                if dir.old != NONE {
                    return dir.old;
                }
                next += 1;
                next - 1
            })
            .collect();
        for dir in self.dirs {
            if matches!(dir.listing, Listing::Kept) {
                continue;
            }
            let cached = old.dir(dir.old);
            match (&dir.listing, self.built_at(dir.id)) {
                (_, Some(DirResult::Tree(tree))) => {
                    let Some(cached) = cached else {
                        self.set_overlay_dir(&mut overlay, dir, number[dir.id as usize], tree, &number);
                        let set = overlay.get(number[dir.id as usize]);
                        ignored =
                            ignored.plus(set.map_or(IgnoredTotals::default(), |set| set.tally(&scan.budget)));
                        continue;
                    };
                    if matches!(dir.listing, Listing::Same)
                        && tree == cached.tree
                        && self.children_as_cached(&cached)
                    {
                        continue;
                    }
                    // Subdirectories that were not even walked are gone.
                    let entries = (0..cached.len()).filter_map(|index| cached.entry(index));
                    for entry in entries.filter(|entry| entry.kind == CachedKind::Dir) {
                        if self.walked_dir(entry.aux) == NONE {
                            ignored = ignored.minus(old.tally_below(entry.aux, &scan.budget));
                        }
                    }
                    ignored = ignored.minus(cached.tally(&scan.budget));
                    self.set_overlay_dir(&mut overlay, dir, dir.old, tree, &number);
                    let set = overlay.get(dir.old);
                    ignored =
                        ignored.plus(set.map_or(IgnoredTotals::default(), |set| set.tally(&scan.budget)));
                }
                _ if dir.old != NONE => ignored = ignored.minus(old.tally_below(dir.old, &scan.budget)),
                _ => {}
            }
        }
        (overlay, ignored)
    }

    fn set_overlay_dir(
        &self,
        overlay: &mut CacheOverlay,
        dir: &DirOut,
        dir_number: u32,
        tree: Hash,
        number: &[u32],
    ) {
        match &dir.listing {
            Listing::New(entries) => overlay.set(
                dir_number,
                tree,
                (entries.iter())
                    .filter_map(|entry| self.cache_entry(&entry.as_cached_entry(), entry.aux, number)),
            ),
            _ => {
                let Some(cached) = self.old.and_then(|old| old.dir(dir.old)) else { return };
                let entries = (0..cached.len()).filter_map(|dir_number| cached.entry(dir_number));
                let entries = entries.filter_map(|entry| {
                    let child =
                        if entry.kind == CachedKind::Dir { self.walked_dir(entry.aux) } else { entry.aux };
                    self.cache_entry(&entry, child, number)
                });
                overlay.set(dir_number, tree, entries);
            }
        }
    }
}
