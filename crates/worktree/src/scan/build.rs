//! Turns walked directories into tree objects and the next stat cache. Directories where nothing changed keep their tree.

use std::os::fd::AsFd;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::ObjectSource;
use stepback_model::path::RelPath;
use stepback_model::state::{GitState, GitSummary};
use stepback_model::tree::{Content, MODE_MASK, SkipReason, Tree, TreeEntry, TreeNode};
use stepback_store::ObjectBatch;

use super::entry::reason_from;
use super::hints::LogPosition;
use super::walk::{DirOut, Listing, OutEntry, WalkResult};
use super::{CacheForm, CacheUpdate, Scan, Snapshot};
use crate::error::WorktreeError;
use crate::git;
use crate::rules::Budget;
use crate::statcache::{self, Builder, CachedEntry, CachedKind, NONE, RACY, Stat, StatCache};

/// The result for one directory.
#[derive(Clone, Copy)]
pub(super) enum DirResult {
    Tree(Hash),
    Skipped(SkipReason),
    Gone,
}

pub(super) struct Assembly<'a> {
    pub old: Option<&'a StatCache>,
    pub dirs: &'a [DirOut],
    /// The number of the walked directory for each cached one.
    by_old: Vec<u32>,
    built: Vec<Option<DirResult>>,
    pub out: &'a ScanIo<'a>,
    /// Some cached hash is not confirmed to be stored; write every tree.
    rewrite_all: bool,
    pub changed: bool,
    git_changed: bool,
    repositories: Vec<(u32, RelPath)>,
    /// Directories that were not scanned.
    kept: Vec<RelPath>,
}

/// What a scan reads from and writes to, and the watcher's token it corresponds to.
pub(super) struct ScanIo<'a> {
    pub source: &'a (dyn ObjectSource + Sync),
    pub batch: &'a dyn ObjectBatch,
    pub token: Option<LogPosition>,
}

pub(super) fn build_snapshot(
    scan: &Scan<'_>,
    old: Option<&StatCache>,
    walked: WalkResult,
    out: &ScanIo<'_>,
) -> Result<Snapshot, WorktreeError> {
    let old = old.filter(|cache| cache.meta().root == walked.root_id);
    let epoch_moved = old.is_some_and(|cache| cache.meta().epoch != scan.epoch);
    let mut by_old = vec![NONE; old.map_or(0, StatCache::dir_count)];
    for dir in &walked.dirs {
        if let Some(slot) = by_old.get_mut(dir.old as usize) {
            *slot = dir.id;
        }
    }
    let mut assembly = Assembly {
        old,
        dirs: &walked.dirs,
        by_old,
        built: vec![None; walked.dirs.len()],
        out,
        rewrite_all: epoch_moved,
        changed: old.is_none() || epoch_moved,
        git_changed: old.is_none() || epoch_moved,
        repositories: Vec::new(),
        kept: Vec::new(),
    };
    let files = match assembly.build_all()? {
        DirResult::Tree(tree) => tree,
        // The root was opened before the walk; if it vanished since, it holds nothing.
        DirResult::Skipped(_) | DirResult::Gone => {
            let error = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(WorktreeError::Root { root: scan.root.to_path_buf(), error });
        }
    };
    let git = assembly.git_state(old)?;
    let update = match scan.cache {
        Some(path) => assembly.cache_update(scan, path, &walked, git),
        None => None,
    };
    if let Some(vault) = scan.vault {
        vault.sync().map_err(WorktreeError::aside("sync", "the vault"))?;
    }
    let is_whole = matches!(&update, Some(CacheUpdate { form: CacheForm::Whole(_), .. }));
    let cache = scan.cache.filter(|_| !is_whole).map(std::path::Path::to_path_buf);
    let WalkResult { hashed, troubles, hinted, .. } = walked;
    Ok(Snapshot { files, git, hashed, troubles, hinted, update, cache })
}

impl Assembly<'_> {
    /// Builds all directories, children before parents, without recursion: their depth is not limited.
    fn build_all(&mut self) -> Result<DirResult, WorktreeError> {
        let mut stack = vec![(0u32, false, RelPath::root(), false)];
        while let Some((id, children_done, path, in_git)) = stack.pop() {
            if children_done {
                let built = self.build_dir(id, in_git)?;
                self.built[id as usize] = Some(built);
                continue;
            }
            if id as usize >= self.dirs.len() {
                continue;
            }
            if matches!(self.dirs[id as usize].listing, Listing::Kept) {
                self.kept.push(path.clone());
            }
            stack.push((id, true, path.clone(), in_git));
            for (name, child) in self.child_dirs(id) {
                let child_path = path.join(&name);
                let is_git = !in_git && name == b".git";
                if is_git {
                    self.repositories.push((child, child_path.clone()));
                }
                stack.push((child, false, child_path, in_git || is_git));
            }
        }
        Ok(self.built[0].unwrap_or(DirResult::Gone))
    }

    /// The walked directory that the cache knows by number `old`. A damaged cache may name one that does not exist.
    pub(super) fn walked_dir(&self, old: u32) -> u32 {
        self.by_old.get(old as usize).copied().unwrap_or(NONE)
    }

    pub(super) fn built_at(&self, id: u32) -> Option<DirResult> {
        self.built.get(id as usize).copied().flatten()
    }

    fn child_dirs(&self, id: u32) -> Vec<(Vec<u8>, u32)> {
        let dir = &self.dirs[id as usize];
        match &dir.listing {
            Listing::New(entries) => {
                let dirs = entries.iter().filter(|entry| entry.kind == CachedKind::Dir);
                dirs.map(|entry| (entry.name.clone(), entry.aux)).collect()
            }
            Listing::Same => {
                let Some(cached) = self.old.and_then(|old| old.dir(dir.old)) else { return Vec::new() };
                let entries = (0..cached.len()).filter_map(|index| cached.entry(index));
                let dirs = entries.filter(|entry| entry.kind == CachedKind::Dir);
                dirs.map(|entry| (entry.name.to_vec(), self.walked_dir(entry.aux))).collect()
            }
            Listing::Kept | Listing::Gone | Listing::Skipped(_) => Vec::new(),
        }
    }

    fn build_dir(&mut self, id: u32, in_git: bool) -> Result<DirResult, WorktreeError> {
        let dir = &self.dirs[id as usize];
        let similar = self.old.and_then(|old| old.tree(dir.old));
        let tree = match &dir.listing {
            Listing::Gone => return Ok(DirResult::Gone),
            Listing::Skipped(reason) => return Ok(DirResult::Skipped(*reason)),
            Listing::Kept => return Ok(similar.map_or(DirResult::Gone, DirResult::Tree)),
            Listing::Same => {
                let Some(cached) = self.old.and_then(|old| old.dir(dir.old)) else {
                    return Ok(DirResult::Gone);
                };
                let children_same = (0..cached.len()).filter_map(|index| cached.entry(index)).all(|entry| {
                    entry.kind != CachedKind::Dir || self.child_unchanged(self.walked_dir(entry.aux), &entry)
                });
                if children_same && !self.rewrite_all {
                    return Ok(DirResult::Tree(cached.tree));
                }
                let entries = (0..cached.len()).filter_map(|index| cached.entry(index));
                let entries = entries.filter_map(|entry| {
                    let child =
                        if entry.kind == CachedKind::Dir { self.walked_dir(entry.aux) } else { entry.aux };
                    self.tree_entry(
                        entry.name,
                        entry.kind,
                        &entry.stat,
                        entry.hash,
                        child,
                        entry.target,
                        in_git,
                    )
                });
                Tree::from_entries(entries.collect())
            }
            Listing::New(entries) => {
                let entries = entries.iter().filter_map(|entry| {
                    let OutEntry { name, kind, stat, hash, aux, target, .. } = entry;
                    self.tree_entry(name, *kind, stat, *hash, *aux, target, in_git)
                });
                Tree::from_entries(entries.collect())
            }
        };
        self.changed = true;
        self.git_changed |= in_git;
        Ok(DirResult::Tree(self.out.batch.write(ObjectKind::Tree, &tree.encode(), similar)?))
    }

    /// Whether a walked child is what its parent's cached listing says.
    fn child_unchanged(&self, child: u32, entry: &CachedEntry<'_>) -> bool {
        let (Some(dir), Some(old)) = (self.dirs.get(child as usize), self.old) else { return false };
        let mode_same = dir.stat.mode == entry.stat.mode;
        let cached = old.tree(entry.aux);
        match self.built_at(child) {
            Some(DirResult::Tree(tree)) => mode_same && Some(tree) == cached,
            _ => false,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the two kinds of listing share only these parts")]
    fn tree_entry(
        &self,
        name: &[u8],
        kind: CachedKind,
        stat: &Stat,
        hash: Hash,
        aux: u32,
        target: &[u8],
        in_git: bool,
    ) -> Option<TreeEntry> {
        let mode = stat.mode & MODE_MASK;
        let file = |content| TreeNode::File { mode, size: stat.size, content };
        let node = match kind {
            CachedKind::Whole => file(Content::Whole(hash)),
            CachedKind::Chunked => file(Content::Chunked(hash)),
            CachedKind::Vaulted => file(Content::Vaulted),
            CachedKind::Symlink => TreeNode::Symlink { target: target.to_vec() },
            CachedKind::Skipped => TreeNode::Skipped { reason: reason_from(aux)? },
            CachedKind::Dir if !in_git && name == b".git" => match self.built_at(aux)? {
                DirResult::Gone => return None,
                _ => TreeNode::Skipped { reason: SkipReason::GitDir },
            },
            CachedKind::Dir => match self.built_at(aux)? {
                DirResult::Tree(tree) => {
                    TreeNode::Dir { mode: self.dirs[aux as usize].stat.mode & MODE_MASK, tree }
                }
                DirResult::Skipped(reason) => TreeNode::Skipped { reason },
                DirResult::Gone => return None,
            },
        };
        Some(TreeEntry { name: name.to_vec(), node })
    }

    fn git_state(&mut self, old: Option<&StatCache>) -> Result<Option<Hash>, WorktreeError> {
        let scanned: Vec<(RelPath, u32, Hash)> = (self.repositories.iter())
            .filter_map(|(id, path)| match self.built_at(*id)? {
                DirResult::Tree(tree) => Some((path.clone(), *id, tree)),
                _ => None,
            })
            .collect();
        let old_git = old.and_then(|cache| cache.meta().git);
        let old_repositories = match old_git {
            Some(hash) if !self.changed && !self.git_changed => return Ok(Some(hash)),
            Some(hash) if !self.kept.is_empty() => GitState::load(self.out.source, hash)?.repositories,
            _ => Vec::new(),
        };
        let (looked_at, untouched): (Vec<_>, Vec<_>) = (scanned.into_iter())
            .partition(|(_, id, _)| !matches!(self.dirs[*id as usize].listing, Listing::Kept));
        let mut repositories: Vec<GitSummary> = (looked_at.into_iter())
            .map(|(path, id, tree)| {
                let summary = self.dirs[id as usize].git.as_ref().map(|node| git::summarize(node.fd.as_fd()));
                GitSummary { path: path.as_bytes().to_vec(), tree, summary: summary.unwrap_or_default() }
            })
            .collect();
        // Repositories that were not scanned are unchanged.
        repositories.extend(old_repositories.into_iter().filter(|repository| {
            RelPath::parse(repository.path.as_slice())
                .is_ok_and(|path| self.kept.iter().any(|kept_root| path.starts_with(kept_root)))
        }));
        let missing = (untouched.iter()).any(|(path, ..)| {
            !repositories.iter().any(|old_repositories| old_repositories.path == path.as_bytes())
        });
        if missing {
            let description = "the git directories of the last scan".to_string();
            return Err(stepback_store::StoreError::Corrupt { what: description }.into());
        }
        if repositories.is_empty() {
            return Ok(None);
        }
        repositories.sort_by(|a, b| a.path.cmp(&b.path));
        let state = GitState { repositories };
        Ok(Some(self.out.batch.write(ObjectKind::Git, &state.encode(), None)?))
    }

    /// The next stat cache: every directory that has a tree, the root first.
    pub(super) fn build_cache(&self, budget: Budget) -> Builder {
        let mut builder = Builder::like(self.old, budget);
        let kept_dirs: Vec<(u32, Hash)> = (self.dirs.iter())
            .filter_map(|dir| match self.built[dir.id as usize] {
                Some(DirResult::Tree(tree)) => Some((dir.id, tree)),
                _ => None,
            })
            .collect();
        let mut number = vec![NONE; self.dirs.len()];
        for (index, (id, _)) in kept_dirs.iter().enumerate() {
            number[*id as usize] = index as u32;
        }
        for (id, tree) in kept_dirs {
            let dir = &self.dirs[id as usize];
            let cached = self.old.and_then(|old| old.dir(dir.old));
            match (&dir.listing, cached) {
                (Listing::Same, Some(cached)) if self.children_as_cached(&cached) => {
                    builder.copy_entries(&cached, |old| {
                        number.get(self.walked_dir(old) as usize).copied().unwrap_or(NONE)
                    });
                }
                (Listing::Same, Some(cached)) => {
                    for entry in (0..cached.len()).filter_map(|index| cached.entry(index)) {
                        let child = if entry.kind == CachedKind::Dir {
                            self.walked_dir(entry.aux)
                        } else {
                            entry.aux
                        };
                        builder_entry(&mut builder, self.cache_entry(&entry, child, &number));
                    }
                }
                (Listing::New(entries), _) => {
                    for entry in entries {
                        builder_entry(
                            &mut builder,
                            self.cache_entry(&entry.as_cached_entry(), entry.aux, &number),
                        );
                    }
                }
                _ => {}
            }
            builder.finish_dir(tree);
        }
        builder
    }

    pub(super) fn has_many_outdated_dirs(&self) -> bool {
        const MAX_OUTDATED_DIRS: usize = 32;
        self.dirs.iter().filter(|dir| dir.outdated).count() > MAX_OUTDATED_DIRS
    }

    /// Whether every subdirectory still is a directory with the same times, which are as reliable as before: then its
    /// cached entries can be copied as they are.
    pub(super) fn children_as_cached(&self, cached: &statcache::Dir<'_>) -> bool {
        (0..cached.len()).filter_map(|index| cached.entry(index)).all(|entry| {
            entry.kind != CachedKind::Dir || {
                let child = self.walked_dir(entry.aux);
                let walked = self.dirs.get(child as usize);
                walked.is_some_and(|dir| dir.stat == entry.stat && dir.racy == (entry.flags & RACY != 0))
                    && matches!(self.built_at(child), Some(DirResult::Tree(_)))
            }
        })
    }

    /// An entry for the next cache; `None` if it does not exist any more.
    pub(super) fn cache_entry<'e>(
        &self,
        entry: &CachedEntry<'e>,
        child: u32,
        number: &[u32],
    ) -> Option<CachedEntry<'e>> {
        if entry.kind != CachedKind::Dir {
            return Some(*entry);
        }
        let dir = self.dirs.get(child as usize)?;
        match self.built_at(child)? {
            DirResult::Tree(_) => Some(CachedEntry {
                aux: number[child as usize],
                stat: dir.stat,
                flags: if dir.racy { RACY } else { 0 },
                ..*entry
            }),
            DirResult::Skipped(reason) => Some(CachedEntry {
                kind: CachedKind::Skipped,
                aux: super::entry::reason_number(reason),
                stat: Stat::default(),
                flags: 0,
                ..*entry
            }),
            DirResult::Gone => None,
        }
    }
}

fn builder_entry(builder: &mut Builder, entry: Option<CachedEntry<'_>>) {
    if let Some(entry) = entry {
        builder.entry(&entry);
    }
}

impl OutEntry {
    pub(super) fn as_cached_entry(&self) -> CachedEntry<'_> {
        let Self { name, kind, flags, stat, hash, aux, target } = self;
        CachedEntry { name, kind: *kind, flags: *flags, stat: *stat, hash: *hash, aux: *aux, target }
    }
}
