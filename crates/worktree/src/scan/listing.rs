//! The entries of one directory: where their names come from, and how they compare with the cache.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;
use stepback_model::plan::SkippedPath;
use stepback_model::tree::SkipReason;

use super::entry::{DeferredFile, ExamineResult, Examiner};
use super::hints::Visit;
use super::node::{DirKind, DirNode};
use super::walk::{Listing, OutEntry, ThreadResult, WalkState};
use crate::error::WorktreeError;
use crate::git;
use crate::rules::{self, RuleVerdict};
use crate::statcache::{CachedEntry, CachedKind, DAMAGED, Dir, IGNORED, LINKED, RACY};

/// The entries of a directory while they are collected.
#[derive(Default)]
pub(super) struct CollectedEntries {
    /// Positions in the cache of entries that did not change.
    pub same: Vec<u32>,
    /// For directories among those: position in the cache and number.
    pub dirs: Vec<(u32, u32)>,
    /// Entries that are not what the cache says.
    pub new_entries: Vec<OutEntry>,
    /// Subdirectories, examined after all other entries.
    pub subdirs: Vec<Vec<u8>>,
    /// Whether a file in it marks this directory as a cache.
    pub is_cache: bool,
}

impl CollectedEntries {
    /// The number of entries seen so far.
    pub fn len(&self) -> u64 {
        (self.same.len() + self.new_entries.len()) as u64
    }

    /// Takes everything from the cache except the directories to be visited below this one. Returns `false`, and takes
    /// nothing, if one of those is not a directory according to the cache.
    pub fn pass(&mut self, cached: &Dir<'_>, visit: &Visit) -> bool {
        let is_dir = |name: &[u8]| {
            let entry = cached.find(name).and_then(|index| cached.entry(index));
            entry.is_some_and(|entry| entry.kind == CachedKind::Dir)
        };
        if !visit.names().all(is_dir) {
            return false;
        }
        for index in 0..cached.len() {
            match cached.entry(index) {
                Some(entry) if entry.kind == CachedKind::Dir => self.subdirs.push(entry.name.to_vec()),
                _ => self.same.push(index as u32),
            }
        }
        true
    }

    /// Whether an entry may still be changing, so that the directory has to be scanned again.
    pub fn is_unsettled(&self) -> bool {
        self.new_entries.iter().any(|entry| {
            entry.flags & RACY != 0
                || (entry.kind == CachedKind::Skipped
                    && super::entry::reason_from(entry.aux) == Some(SkipReason::Unstable))
        })
    }

    /// Takes the names from the cache: no entry was added or removed since it was written.
    pub fn read_cache(
        &mut self,
        node: &Arc<DirNode>,
        dir: u32,
        cached: &Dir<'_>,
        examiner: &mut Examiner<'_, '_>,
        results: &mut ThreadResult,
    ) -> Result<(), WorktreeError> {
        for index in 0..cached.len() {
            let Some(cached_entry) = cached.entry(index) else { continue };
            if cached_entry.kind == CachedKind::Dir {
                self.subdirs.push(cached_entry.name.to_vec());
                continue;
            }
            if node.area == DirKind::Work
                && node.parent.is_some()
                && rules::marks_cache(node.fd.as_fd(), cached_entry.name)
            {
                self.is_cache = node.own_verdict_of_self() != RuleVerdict::In;
            }
            // An entry that was skipped before its type was known gets examined.
            let kind = super::entry::special_type(&cached_entry).unwrap_or(FileType::Unknown);
            let examined =
                examiner.examine_known(node, cached_entry.name, kind, Some((index, cached_entry)))?;
            warn_again(node, &examined, Some(&cached_entry), results);
            self.add_examined(cached_entry.name, examined, dir, node, results);
        }
        Ok(())
    }

    /// Takes the names from the directory itself.
    pub fn read_dir(
        &mut self,
        node: &Arc<DirNode>,
        dir: u32,
        cached: Option<&Dir<'_>>,
        examiner: &mut Examiner<'_, '_>,
        buffer: &mut [MaybeUninit<u8>],
        results: &mut ThreadResult,
    ) -> Result<(), WorktreeError> {
        let mut reader = RawDir::new(&node.fd, buffer);
        while let Some(item) = reader.next() {
            let item = match item {
                Ok(item) => item,
                Err(Errno::NOENT) => break,
                Err(errno) => return Err(WorktreeError::io("list", &node.path())(errno.into())),
            };
            let name = item.file_name().to_bytes();
            if name == b"." || name == b".." || name.starts_with(crate::apply::TEMPORARY) {
                continue;
            }
            let kind = item.file_type();
            if kind == FileType::Directory {
                if !node.git_place().is_some_and(|place| git::is_transient_dir(place, name)) {
                    self.subdirs.push(name.to_vec());
                }
                continue;
            }
            if node.area == DirKind::Work
                && node.parent.is_some()
                && rules::marks_cache(node.fd.as_fd(), name)
            {
                self.is_cache = node.own_verdict_of_self() != RuleVerdict::In;
            }
            let cached_entry = cached.and_then(|cached| {
                let index = cached.find(name)?;
                Some((index, cached.entry(index)?))
            });
            let examined = examiner.examine_known(node, name, kind, cached_entry)?;
            warn_again(node, &examined, cached_entry.as_ref().map(|(_, cached_entry)| cached_entry), results);
            self.add_examined(name, examined, dir, node, results);
        }
        Ok(())
    }

    fn add_examined(
        &mut self,
        name: &[u8],
        examined: ExamineResult,
        dir: u32,
        node: &Arc<DirNode>,
        results: &mut ThreadResult,
    ) {
        match examined {
            ExamineResult::Same(at) => self.same.push(at),
            ExamineResult::Gone => {}
            ExamineResult::IsDir => self.subdirs.push(name.to_vec()),
            ExamineResult::New(entry) => {
                if entry.kind == CachedKind::Skipped
                    && let Some(reason) = super::entry::reason_from(entry.aux)
                    && matches!(reason, SkipReason::Unreadable | SkipReason::Unstable)
                {
                    results.troubles.push(super::walk::skipped_path(node.path().join(&entry.name), reason));
                }
                results.troubles.extend((entry.flags & DAMAGED != 0).then(|| damaged_object(node, name)));
                self.new_entries.push(entry);
            }
            ExamineResult::Large(entry, old) => {
                let flags = entry.flags & (IGNORED | LINKED | DAMAGED);
                results.troubles.extend((flags & DAMAGED != 0).then(|| damaged_object(node, name)));
                results.large.push(DeferredFile {
                    dir,
                    node: node.clone(),
                    name: entry.name.clone(),
                    old,
                    flags,
                });
                self.new_entries.push(entry);
            }
        }
    }

    /// Returns the listing of the directory: the cached one if nothing changed, otherwise all entries.
    pub fn finish(self, cached: Option<&Dir<'_>>, shared: &WalkState<'_>) -> Listing {
        let Some(cached) = cached else {
            return sort_entries(self.new_entries);
        };
        if self.new_entries.is_empty() && self.same.len() == cached.len() && !shared.confirm {
            return Listing::Same;
        }
        self.note_lost_rules(cached, shared);
        let numbers: HashMap<u32, u32> = self.dirs.into_iter().collect();
        let mut entries = self.new_entries;
        entries.reserve(self.same.len());
        for index in self.same {
            // Positions come from this very directory, so the entry exists.
            let Some(entry) = cached.entry(index as usize) else { continue };
            entries.push(OutEntry {
                name: entry.name.to_vec(),
                kind: entry.kind,
                flags: entry.flags & !RACY,
                stat: entry.stat,
                hash: entry.hash,
                aux: numbers.get(&index).copied().unwrap_or(entry.aux),
                target: entry.target.to_vec(),
            });
        }
        sort_entries(entries)
    }

    /// A rule file that was cached and is not the same now was changed or deleted.
    fn note_lost_rules(&self, cached: &Dir<'_>, shared: &WalkState<'_>) {
        for name in [rules::RULE_FILE, rules::GIT_RULE_FILE] {
            if let Some(index) = cached.find(name)
                && !self.same.contains(&(index as u32))
            {
                shared.rules_changed.store(true, Ordering::Relaxed);
            }
        }
        let is_rule = |entry: &OutEntry| entry.name == rules::RULE_FILE || entry.name == rules::GIT_RULE_FILE;
        if self.new_entries.iter().any(is_rule) {
            shared.rules_changed.store(true, Ordering::Relaxed);
        }
    }
}

/// Warns about a git object that the cache knows to be damaged: every checkpoint should say so, not only the first.
fn warn_again(
    node: &DirNode,
    examined: &ExamineResult,
    cached_entry: Option<&CachedEntry<'_>>,
    results: &mut ThreadResult,
) {
    if let (ExamineResult::Same(_), Some(cached_entry)) = (examined, cached_entry)
        && cached_entry.flags & DAMAGED != 0
    {
        results.troubles.push(damaged_object(node, cached_entry.name));
    }
}

fn damaged_object(node: &DirNode, name: &[u8]) -> SkippedPath {
    SkippedPath::uncovered(
        node.path().join(name),
        "the git object is damaged, so only its damaged bytes are kept",
    )
}

fn sort_entries(mut entries: Vec<OutEntry>) -> Listing {
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    // A directory that changes while it is listed can show a name twice.
    entries.dedup_by(|a, b| a.name == b.name);
    Listing::New(entries)
}
