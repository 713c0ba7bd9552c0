//! From walked directories to tree objects and the next stat cache. Directories where nothing changed keep their tree.

use std::os::fd::AsFd;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::path::RelPath;
use stepback_model::state::{GitState, Repository};
use stepback_model::tree::{Content, Entry as TreeEntry, MODE_MASK, Node, SkipReason, Tree};
use stepback_store::ObjectBatch;

use super::entry::reason_from;
use super::walk::{DirOut, Listing, OutEntry, Walked};
use super::{CacheUpdate, Scan, Snapshot};
use crate::error::WorktreeError;
use crate::git;
use crate::statcache::{self, Builder, Entry, Kind, Meta, NONE, RACY, Stat, StatCache};

/// What became of one directory.
#[derive(Clone, Copy)]
enum Built {
    Tree(Hash),
    Skipped(SkipReason),
    Gone,
}

struct Assembly<'a> {
    old: Option<&'a StatCache>,
    dirs: &'a [DirOut],
    /// Number of the walked directory for each cached one.
    by_old: Vec<u32>,
    built: Vec<Option<Built>>,
    batch: &'a dyn ObjectBatch,
    /// Some cached hash is not confirmed to be stored; write every tree.
    rewrite_all: bool,
    changed: bool,
    git_changed: bool,
    repositories: Vec<(u32, RelPath)>,
}

pub(super) fn build(
    scan: &Scan<'_>,
    old: Option<&StatCache>,
    walked: Walked,
    batch: &dyn ObjectBatch,
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
        batch,
        rewrite_all: epoch_moved,
        changed: old.is_none() || epoch_moved,
        git_changed: old.is_none() || epoch_moved,
        repositories: Vec::new(),
    };
    let files = match assembly.build_all()? {
        Built::Tree(tree) => tree,
        // The root was opened before the walk; if it vanished since, it holds nothing.
        Built::Skipped(_) | Built::Gone => {
            let error = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(WorktreeError::Root { root: scan.root.to_path_buf(), error });
        }
    };
    let git = assembly.git_state(old)?;
    // A cache with many outdated directory times makes scans list what they need not: worth writing for that alone.
    let changed = assembly.changed
        || old.is_some_and(|cache| cache.meta().git != git)
        || assembly.has_many_outdated_dirs();
    let update = match scan.cache {
        Some(path) if changed => {
            let builder = assembly.cache();
            let root_stat = walked.dirs.first().filter(|root| !root.racy).map(|root| root.stat);
            let meta = Meta {
                root: walked.root_id,
                root_stat: root_stat.unwrap_or_default(),
                epoch: scan.epoch,
                rules: scan.budget.fingerprint(),
                boot: scan.boot,
                ignored_bytes: builder.ignored_bytes(),
                git,
            };
            Some(CacheUpdate { path: path.to_path_buf(), builder, meta })
        }
        _ => None,
    };
    if let Some(vault) = scan.vault {
        vault.sync().map_err(WorktreeError::aside("sync", "the vault"))?;
    }
    let cache = scan.cache.filter(|_| update.is_none()).map(std::path::Path::to_path_buf);
    Ok(Snapshot { files, git, hashed: walked.hashed, troubles: walked.troubles, update, cache })
}

impl Assembly<'_> {
    /// Builds all directories, children before parents, without recursion: depth is up to the user.
    fn build_all(&mut self) -> Result<Built, WorktreeError> {
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
            stack.push((id, true, path.clone(), in_git));
            for (name, child) in self.children(id) {
                let child_path = path.join(&name);
                let is_git = !in_git && name == b".git";
                if is_git {
                    self.repositories.push((child, child_path.clone()));
                }
                stack.push((child, false, child_path, in_git || is_git));
            }
        }
        Ok(self.built[0].unwrap_or(Built::Gone))
    }

    /// The walked directory that the cache knows by number `old`. A damaged cache may name one that is not there.
    fn walked(&self, old: u32) -> u32 {
        self.by_old.get(old as usize).copied().unwrap_or(NONE)
    }

    fn built_at(&self, id: u32) -> Option<Built> {
        self.built.get(id as usize).copied().flatten()
    }

    fn children(&self, id: u32) -> Vec<(Vec<u8>, u32)> {
        let dir = &self.dirs[id as usize];
        match &dir.listing {
            Listing::New(entries) => {
                let dirs = entries.iter().filter(|entry| entry.kind == Kind::Dir);
                dirs.map(|entry| (entry.name.clone(), entry.aux)).collect()
            }
            Listing::Same => {
                let Some(cached) = self.old.and_then(|old| old.dir(dir.old)) else { return Vec::new() };
                let entries = (0..cached.len()).filter_map(|at| cached.entry(at));
                let dirs = entries.filter(|entry| entry.kind == Kind::Dir);
                dirs.map(|entry| (entry.name.to_vec(), self.walked(entry.aux))).collect()
            }
            Listing::Gone | Listing::Skipped(_) => Vec::new(),
        }
    }

    fn build_dir(&mut self, id: u32, in_git: bool) -> Result<Built, WorktreeError> {
        let dir = &self.dirs[id as usize];
        let cached = self.old.and_then(|old| old.dir(dir.old));
        let tree = match &dir.listing {
            Listing::Gone => return Ok(Built::Gone),
            Listing::Skipped(reason) => return Ok(Built::Skipped(*reason)),
            Listing::Same => {
                let Some(cached) = cached else { return Ok(Built::Gone) };
                let children_same = (0..cached.len()).filter_map(|at| cached.entry(at)).all(|entry| {
                    entry.kind != Kind::Dir || self.child_unchanged(self.walked(entry.aux), &entry)
                });
                if children_same && !self.rewrite_all {
                    return Ok(Built::Tree(cached.tree));
                }
                let entries = (0..cached.len()).filter_map(|at| cached.entry(at));
                let entries = entries.filter_map(|entry| {
                    let child = if entry.kind == Kind::Dir { self.walked(entry.aux) } else { entry.aux };
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
        let similar = cached.map(|cached| cached.tree);
        Ok(Built::Tree(self.batch.write(ObjectKind::Tree, &tree.encode(), similar)?))
    }

    /// Whether a walked child is what its parent's cached listing says.
    fn child_unchanged(&self, child: u32, entry: &Entry<'_>) -> bool {
        let (Some(dir), Some(old)) = (self.dirs.get(child as usize), self.old) else { return false };
        let mode_same = dir.stat.mode == entry.stat.mode;
        let cached = old.dir(entry.aux).map(|cached| cached.tree);
        match self.built_at(child) {
            Some(Built::Tree(tree)) => mode_same && Some(tree) == cached,
            _ => false,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the two kinds of listing share only these parts")]
    fn tree_entry(
        &self,
        name: &[u8],
        kind: Kind,
        stat: &Stat,
        hash: Hash,
        aux: u32,
        target: &[u8],
        in_git: bool,
    ) -> Option<TreeEntry> {
        let mode = stat.mode & MODE_MASK;
        let file = |content| Node::File { mode, size: stat.size, content };
        let node = match kind {
            Kind::Whole => file(Content::Whole(hash)),
            Kind::Chunked => file(Content::Chunked(hash)),
            Kind::Vaulted => file(Content::Vaulted),
            Kind::Symlink => Node::Symlink { target: target.to_vec() },
            Kind::Skipped => Node::Skipped { reason: reason_from(aux)? },
            Kind::Dir if !in_git && name == b".git" => match self.built_at(aux)? {
                Built::Gone => return None,
                _ => Node::Skipped { reason: SkipReason::GitDir },
            },
            Kind::Dir => match self.built_at(aux)? {
                Built::Tree(tree) => Node::Dir { mode: self.dirs[aux as usize].stat.mode & MODE_MASK, tree },
                Built::Skipped(reason) => Node::Skipped { reason },
                Built::Gone => return None,
            },
        };
        Some(TreeEntry { name: name.to_vec(), node })
    }

    fn git_state(&mut self, old: Option<&StatCache>) -> Result<Option<Hash>, WorktreeError> {
        self.repositories.sort_by(|a, b| a.1.cmp(&b.1));
        let found: Vec<(RelPath, u32, Hash)> = (self.repositories.iter())
            .filter_map(|(id, path)| match self.built_at(*id)? {
                Built::Tree(tree) => Some((path.clone(), *id, tree)),
                _ => None,
            })
            .collect();
        if found.is_empty() {
            return Ok(None);
        }
        if !self.changed
            && !self.git_changed
            && let Some(git) = old.and_then(|cache| cache.meta().git)
        {
            return Ok(Some(git));
        }
        let repositories = found
            .into_iter()
            .map(|(path, id, tree)| {
                let summary = self.dirs[id as usize].git.as_ref().map(|node| git::summarize(node.fd.as_fd()));
                Repository { path: path.as_bytes().to_vec(), tree, summary: summary.unwrap_or_default() }
            })
            .collect();
        let state = GitState { repositories };
        Ok(Some(self.batch.write(ObjectKind::Git, &state.encode(), None)?))
    }

    /// The next stat cache: every directory that has a tree, the root first.
    fn cache(&self) -> Builder {
        let mut builder = Builder::like(self.old);
        let kept: Vec<(u32, Hash)> = (self.dirs.iter())
            .filter_map(|dir| match self.built[dir.id as usize] {
                Some(Built::Tree(tree)) => Some((dir.id, tree)),
                _ => None,
            })
            .collect();
        let mut number = vec![NONE; self.dirs.len()];
        for (at, (id, _)) in kept.iter().enumerate() {
            number[*id as usize] = at as u32;
        }
        for (id, tree) in kept {
            let dir = &self.dirs[id as usize];
            let cached = self.old.and_then(|old| old.dir(dir.old));
            match (&dir.listing, cached) {
                (Listing::Same, Some(cached)) if self.children_as_cached(&cached) => {
                    builder.copy_entries(&cached, |old| {
                        number.get(self.walked(old) as usize).copied().unwrap_or(NONE)
                    });
                }
                (Listing::Same, Some(cached)) => {
                    for entry in (0..cached.len()).filter_map(|at| cached.entry(at)) {
                        let child = if entry.kind == Kind::Dir { self.walked(entry.aux) } else { entry.aux };
                        self.cache_entry(&mut builder, &entry, child, &number);
                    }
                }
                (Listing::New(entries), _) => {
                    for entry in entries {
                        let OutEntry { name, kind, flags, stat, hash, aux, target } = entry;
                        let record = Entry {
                            name,
                            kind: *kind,
                            flags: *flags,
                            stat: *stat,
                            hash: *hash,
                            aux: *aux,
                            target,
                        };
                        self.cache_entry(&mut builder, &record, *aux, &number);
                    }
                }
                _ => {}
            }
            builder.finish_dir(tree);
        }
        builder
    }

    fn has_many_outdated_dirs(&self) -> bool {
        const MANY: usize = 32;
        self.dirs.iter().filter(|dir| dir.outdated).count() > MANY
    }

    /// Whether every subdirectory still is one, with the same times: then its cached entries can be copied as they are.
    fn children_as_cached(&self, cached: &statcache::Dir<'_>) -> bool {
        (0..cached.len()).filter_map(|at| cached.entry(at)).all(|entry| {
            entry.kind != Kind::Dir || {
                let child = self.walked(entry.aux);
                let walked = self.dirs.get(child as usize);
                walked.is_some_and(|dir| dir.stat == entry.stat)
                    && matches!(self.built_at(child), Some(Built::Tree(_)))
            }
        })
    }

    fn cache_entry(&self, builder: &mut Builder, entry: &Entry<'_>, child: u32, number: &[u32]) {
        if entry.kind != Kind::Dir {
            builder.entry(entry);
            return;
        }
        let Some(dir) = self.dirs.get(child as usize) else { return };
        match self.built_at(child) {
            Some(Built::Tree(_)) => builder.entry(&Entry {
                aux: number[child as usize],
                stat: dir.stat,
                flags: if dir.racy { RACY } else { 0 },
                ..*entry
            }),
            Some(Built::Skipped(reason)) => builder.entry(&Entry {
                kind: Kind::Skipped,
                aux: super::entry::reason_number(reason),
                stat: Stat::default(),
                flags: 0,
                ..*entry
            }),
            _ => {}
        }
    }
}
