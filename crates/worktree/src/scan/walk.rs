//! The parallel walk: threads take directories from one stack, list them, and compare every entry with the cache.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use stepback_model::hash::Hash;
use stepback_model::object::ObjectSource;
use stepback_model::path::RelPath;
use stepback_model::tree::SkipReason;
use stepback_store::ObjectBatch;

use super::Scan;
use super::entry::{DeferredFile, ExaminedDir, Examiner};
use super::hints::{self, Visit};
use super::listing::CollectedEntries;
use super::node::{DIR_FLAGS, DirKind, DirNode, dir_times_tell};
use crate::anchored_path::open_root;
use crate::error::WorktreeError;
use crate::statcache::{CachedKind, Dir, NONE, Stat, StatCache};

/// How much of the cache is trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CacheTrust {
    /// Everything.
    Decisions,
    /// Hashes, but not the decisions about what is stored.
    HashesOnly,
}

/// One entry of a directory whose listing changed.
#[derive(Clone, Debug)]
pub(super) struct OutEntry {
    pub name: Vec<u8>,
    pub kind: CachedKind,
    pub flags: u8,
    pub stat: Stat,
    pub hash: Hash,
    /// For directories: the number of the walked directory. For skipped entries: the reason.
    pub aux: u32,
    pub target: Vec<u8>,
}

/// The entries of a directory, compared with the cache.
#[derive(Debug)]
pub(super) enum Listing {
    /// The same entries as the cache; directories among them were walked too.
    Same,
    /// It was not scanned: it and everything below it are as the cache says.
    Kept,
    /// These entries, sorted by name.
    New(Vec<OutEntry>),
    /// It does not exist any more.
    Gone,
    /// It exists but is not stored.
    Skipped(SkipReason),
}

/// One walked directory.
#[derive(Debug)]
pub(super) struct DirOut {
    pub id: u32,
    pub old: u32,
    pub stat: Stat,
    pub racy: bool,
    /// Whether its times differ from those in the cache, so that rewriting the cache would help.
    pub outdated: bool,
    pub listing: Listing,
    /// Kept open for git directories, whose HEAD is read afterwards.
    pub git: Option<Arc<DirNode>>,
}

/// The result of a walk.
#[derive(Debug)]
pub(super) struct WalkResult {
    /// The directories by number; the root is number 0.
    pub dirs: Vec<DirOut>,
    pub root_id: (u64, u64),
    pub hashed: u64,
    pub rules_changed: bool,
    pub newly_linked: bool,
    pub troubles: Vec<stepback_model::plan::SkippedPath>,
    /// Directories in which something can change without a watcher noticing, or may still be changing.
    pub unsettled: Vec<RelPath>,
    /// Whether only some directories were scanned.
    pub hinted: bool,
    pub started: i64,
}

impl WalkResult {
    /// How many files and directories were found that the cache did not have.
    pub fn entry_count(&self) -> usize {
        let count_new = |dir: &DirOut| match &dir.listing {
            Listing::New(entries) => entries.len(),
            _ => 0,
        };
        self.dirs.iter().map(count_new).sum()
    }
}

struct Task<'a> {
    /// What to scan in it and below it; `None` for everything.
    visit: Option<&'a Visit>,
    parent: Option<Arc<DirNode>>,
    name: Vec<u8>,
    area: DirKind,
    old: u32,
    /// The cached `stat` of the directory, if it is reliable.
    old_stat: Option<Stat>,
    id: u32,
}

struct Queue<'a> {
    tasks: Vec<Task<'a>>,
    /// Directories queued or being walked; the walk is over when it drops to zero.
    open: usize,
    failure: Option<WorktreeError>,
}

/// What all threads share.
pub(super) struct WalkState<'a> {
    pub scan: &'a Scan<'a>,
    pub old: Option<&'a StatCache>,
    pub trust: CacheTrust,
    /// After a collection, a cached hash must be looked up before it is trusted.
    pub confirm: bool,
    pub source: &'a (dyn ObjectSource + Sync),
    pub batch: &'a dyn ObjectBatch,
    pub started: i64,
    pub root_device: u64,
    pub store_id: Option<(u64, u64)>,
    /// Whether on this file system unchanged times of a directory prove that its entries are the same.
    pub dir_times_tell: bool,
    pub hashed: AtomicU64,
    pub ignored_bytes: [AtomicU64; 2],
    pub rules_changed: AtomicBool,
    /// A file has more names than before: only a full scan finds them.
    pub newly_linked: AtomicBool,
    queue: Mutex<Queue<'a>>,
    wake: Condvar,
    next_id: AtomicU32,
}

/// The result of one thread.
#[derive(Default)]
pub(super) struct ThreadResult {
    pub dirs: Vec<DirOut>,
    pub large: Vec<DeferredFile>,
    pub troubles: Vec<stepback_model::plan::SkippedPath>,
    pub unsettled: Vec<RelPath>,
}

pub(super) fn walk(
    scan: &Scan<'_>,
    old: Option<&StatCache>,
    trust: CacheTrust,
    visit: Option<&Visit>,
    source: &(dyn ObjectSource + Sync),
    batch: &dyn ObjectBatch,
) -> Result<WalkResult, WorktreeError> {
    let root_error = |error: io::Error| WorktreeError::Root { root: scan.root.to_path_buf(), error };
    let root = open_root(scan.root).map_err(root_error)?;
    let root_stat = rustix::fs::fstat(&root).map_err(|errno| root_error(errno.into()))?;
    let root_id = (root_stat.st_dev, root_stat.st_ino);
    let old = old.filter(|cache| cache.meta().root == root_id);
    let store_id =
        scan.store_dir.and_then(|dir| rustix::fs::stat(dir).ok()).map(|stat| (stat.st_dev, stat.st_ino));
    let carried = old.map_or([0, 0], |cache| cache.meta().ignored.bytes);
    let shared = WalkState {
        scan,
        old,
        trust,
        confirm: old.is_some_and(|cache| cache.meta().epoch != scan.epoch),
        source,
        batch,
        started: current_realtime(),
        root_device: root_id.0,
        store_id,
        dir_times_tell: dir_times_tell(&root),
        hashed: AtomicU64::new(0),
        ignored_bytes: carried.map(AtomicU64::new),
        rules_changed: AtomicBool::new(false),
        newly_linked: AtomicBool::new(false),
        queue: Mutex::new(Queue { tasks: Vec::new(), open: 1, failure: None }),
        wake: Condvar::new(),
        next_id: AtomicU32::new(1),
    };
    let first = Task {
        visit,
        parent: None,
        name: Vec::new(),
        area: DirKind::Work,
        old: if old.is_some() { 0 } else { NONE },
        old_stat: old.map(|cache| cache.meta().root_stat),
        id: 0,
    };
    lock(&shared.queue).tasks.push(first);

    // Below a few thousand entries a second thread costs more than it saves.
    let use_one_thread = visit.is_some() || old.is_some_and(|cache| cache.entry_count() < 2000);
    let threads = if use_one_thread { 1 } else { scan.threads.max(1) };
    let root_fd = root.as_fd();
    let mut harvests: Vec<ThreadResult> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| run_worker(&shared, root_fd))).collect();
        let mut harvests = vec![run_worker(&shared, root_fd)];
        // A panicking thread is a bug; its share of the walk would be missing, so pass the panic on.
        harvests.extend(others.into_iter().map(|thread| match thread.join() {
            Ok(harvest) => harvest,
            Err(panic) => std::panic::resume_unwind(panic),
        }));
        harvests
    });
    if let Some(failure) = lock(&shared.queue).failure.take() {
        return Err(failure);
    }
    let mut dirs: Vec<DirOut> = Vec::new();
    let (mut large, mut troubles, mut unsettled) = (Vec::new(), Vec::new(), Vec::new());
    for harvest in &mut harvests {
        dirs.append(&mut harvest.dirs);
        large.append(&mut harvest.large);
        troubles.append(&mut harvest.troubles);
        unsettled.append(&mut harvest.unsettled);
    }
    dirs.sort_unstable_by_key(|dir| dir.id);
    // Whether a large file has settled is known only after it was read; its directory is scanned again in any case.
    unsettled.extend(large.iter().map(|large| large.node.path()));
    store_large(&shared, large, &mut dirs, &mut troubles)?;
    unsettled.sort_unstable();
    unsettled.dedup();
    troubles.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(WalkResult {
        dirs,
        root_id,
        hashed: shared.hashed.into_inner(),
        rules_changed: shared.rules_changed.into_inner(),
        newly_linked: shared.newly_linked.into_inner(),
        troubles,
        unsettled,
        hinted: visit.is_some(),
        started: shared.started,
    })
}

/// The present time on the clock that file systems use for timestamps. It is not recorded but only compared with timestamps
/// from the kernel, so it is read here and not passed in.
pub(super) fn current_realtime() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Walks directories from the queue until there are none left.
fn run_worker(shared: &WalkState<'_>, root: BorrowedFd<'_>) -> ThreadResult {
    let mut walker = Walker {
        shared,
        root,
        examiner: Examiner::new(shared),
        buffer: vec![MaybeUninit::uninit(); 64 << 10],
        result: ThreadResult::default(),
    };
    loop {
        let task = {
            let mut queue = lock(&shared.queue);
            loop {
                if queue.open == 0 || queue.failure.is_some() {
                    return walker.result;
                }
                if let Some(task) = queue.tasks.pop() {
                    break task;
                }
                queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let mut children = Vec::new();
        let outcome = walker.walk_dir(task, &mut children);
        let mut queue = lock(&shared.queue);
        queue.open += children.len();
        queue.open -= 1;
        let added = children.len();
        queue.tasks.append(&mut children);
        if let Err(failure) = outcome {
            queue.failure.get_or_insert(failure);
        }
        let is_over = queue.open == 0 || queue.failure.is_some();
        drop(queue);
        if is_over || added > 1 {
            shared.wake.notify_all();
        }
    }
}

/// One thread of the walk, with buffers that are reused.
struct Walker<'s, 'a> {
    shared: &'s WalkState<'a>,
    root: BorrowedFd<'s>,
    examiner: Examiner<'s, 'a>,
    buffer: Vec<MaybeUninit<u8>>,
    result: ThreadResult,
}

impl<'a> Walker<'_, 'a> {
    /// Lists a directory and compares it with the cache. Its subdirectories that have to be walked are added to `children`.
    fn walk_dir(&mut self, task: Task<'a>, children: &mut Vec<Task<'a>>) -> Result<(), WorktreeError> {
        let opened = match &task.parent {
            None => rustix::fs::openat(self.root, ".", DIR_FLAGS, Mode::empty()),
            Some(parent) => {
                rustix::fs::openat(&parent.fd, OsStr::from_bytes(&task.name), DIR_FLAGS, Mode::empty())
            }
        };
        let fd = match opened {
            Ok(fd) => fd,
            Err(errno) => return self.skip_unopened(&task, errno),
        };
        let is_root = task.parent.is_none();
        let node = Arc::new(DirNode::new(task.parent, task.name, fd, task.area));
        let stat = rustix::fs::fstat(&node.fd)
            .map_err(|errno| WorktreeError::io("look at", &node.path())(errno.into()))?;
        let shared = self.shared;
        let mut out = DirOut::as_cached(task.id, task.old, super::entry::to_stat(&stat), Listing::Gone);
        out.racy = super::entry::is_racy(&out.stat, shared.started);
        out.outdated = !out.racy && task.old_stat != Some(out.stat);
        let foreign =
            stat.st_dev != shared.root_device || shared.store_id == Some((stat.st_dev, stat.st_ino));
        if foreign && !is_root {
            out.listing = Listing::Skipped(SkipReason::Foreign);
            self.result.dirs.push(out);
            return Ok(());
        }
        if node.area == DirKind::Git && node.parent.as_ref().is_none_or(|parent| parent.area == DirKind::Work)
        {
            out.git = Some(node.clone());
        }

        let cached = shared.old.and_then(|cache| cache.dir(task.old));
        let mut listing = CollectedEntries::default();
        let Self { examiner, buffer, result, .. } = self;
        examiner.unsettled = false;
        let unchanged = task.old_stat == Some(out.stat);
        let as_before = shared.dir_times_tell && !shared.confirm && unchanged;
        // Below a directory that is scanned as a whole, everything is.
        let visit = task.visit.filter(|visit| !visit.whole);
        let passing = visit.filter(|visit| unchanged && !visit.look);
        match cached.as_ref().filter(|_| as_before) {
            Some(cached) if passing.is_some_and(|visit| listing.pass(cached, visit)) => {}
            Some(cached) => listing.read_cache(&node, task.id, cached, examiner, result)?,
            None => listing.read_dir(&node, task.id, cached.as_ref(), examiner, buffer, result)?,
        }
        if let Some(progress) = shared.scan.progress {
            progress.fetch_add(listing.len(), Ordering::Relaxed);
        }
        if listing.is_cache {
            out.listing = Listing::Skipped(SkipReason::HeavyCache);
            result.large.retain(|large| large.dir != task.id);
            result.dirs.push(out);
            return Ok(());
        }
        if out.racy || examiner.unsettled || listing.is_unsettled() {
            result.unsettled.push(node.path());
        }
        self.examine_subdirs(&node, cached.as_ref(), visit, &mut listing, children);
        out.listing = listing.finish(cached.as_ref(), shared);
        self.result.dirs.push(out);
        Ok(())
    }

    /// Records a directory that cannot be opened; fails if the reason is not one of its own.
    fn skip_unopened(&mut self, task: &Task<'a>, errno: Errno) -> Result<(), WorktreeError> {
        let path = task.parent.as_ref().map_or_else(RelPath::root, |parent| parent.path().join(&task.name));
        let listing = match errno {
            Errno::NOENT => Listing::Gone,
            Errno::ACCESS | Errno::PERM => Listing::Skipped(SkipReason::Unreadable),
            Errno::NOTDIR | Errno::LOOP => Listing::Skipped(SkipReason::Unstable),
            other => return Err(WorktreeError::io("open", &path)(other.into())),
        };
        if let Listing::Skipped(reason) = listing {
            self.result.unsettled.extend(path.split_last().map(|(parent, _)| parent));
            self.result.troubles.push(skipped_path(path, reason));
        }
        self.result.dirs.push(DirOut::as_cached(task.id, task.old, Stat::default(), listing));
        Ok(())
    }

    /// Decides for each subdirectory of `node` whether it is skipped, taken from the cache, or walked.
    fn examine_subdirs(
        &mut self,
        node: &Arc<DirNode>,
        cached: Option<&Dir<'_>>,
        visit: Option<&'a Visit>,
        listing: &mut CollectedEntries,
        children: &mut Vec<Task<'a>>,
    ) {
        let has_head = node.has_head();
        for name in std::mem::take(&mut listing.subdirs) {
            let area = node.child_area(&name, has_head);
            match self.examiner.examine_dir(node, &name, area, cached, &self.shared.next_id) {
                ExaminedDir::Skipped { same_at: Some(index), .. } => listing.same.push(index),
                ExaminedDir::Skipped { same_at: None, entry } => listing.new_entries.push(entry),
                ExaminedDir::Walk { same_at, entry, old, old_stat } => {
                    let id = entry.aux;
                    let visit_below = visit.and_then(|visit| visit.child(&name));
                    let visit = match (visit, visit_below, same_at, old_stat) {
                        // A directory that the cache does not have is scanned as a whole.
                        (None, ..) | (_, _, None, _) => None,
                        (_, Some(visit_below), ..) => Some(visit_below),
                        (_, None, Some(index), Some(stat)) if is_now(node, &name, &stat) => {
                            listing.same.push(index);
                            listing.dirs.push((index, id));
                            self.result.dirs.push(DirOut::as_cached(id, old, stat, Listing::Kept));
                            continue;
                        }
                        (_, None, Some(_), _) => Some(&hints::LOOK),
                    };
                    match same_at {
                        Some(index) => {
                            listing.same.push(index);
                            listing.dirs.push((index, id));
                        }
                        None => listing.new_entries.push(entry),
                    }
                    children.push(Task { visit, parent: Some(node.clone()), name, area, old, old_stat, id });
                }
                ExaminedDir::Untouched { at: index, id, old, stat } => {
                    listing.same.push(index);
                    listing.dirs.push((index, id));
                    self.result.dirs.push(DirOut::as_cached(id, old, stat, Listing::Same));
                }
            }
        }
    }
}

/// Whether the `stat` of a subdirectory is unchanged.
fn is_now(dir: &DirNode, name: &[u8], stat: &Stat) -> bool {
    rustix::fs::statat(&dir.fd, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat_now| super::entry::to_stat(&stat_now) == *stat)
}

impl DirOut {
    fn as_cached(id: u32, old: u32, stat: Stat, listing: Listing) -> Self {
        Self { id, old, stat, racy: false, outdated: false, listing, git: None }
    }
}

pub(super) fn skipped_path(path: RelPath, reason: SkipReason) -> stepback_model::plan::SkippedPath {
    stepback_model::plan::SkippedPath::uncovered(path, reason.describe())
}

/// Stores the large files, one after the other, each with all threads.
fn store_large(
    shared: &WalkState<'_>,
    large: Vec<DeferredFile>,
    dirs: &mut [DirOut],
    troubles: &mut Vec<stepback_model::plan::SkippedPath>,
) -> Result<(), WorktreeError> {
    for file in large {
        let stored = super::entry::store_large(shared, &file)?;
        let Ok(index) = dirs.binary_search_by_key(&file.dir, |dir| dir.id) else { continue };
        let Listing::New(entries) = &mut dirs[index].listing else { continue };
        let Ok(entry) = entries.binary_search_by(|entry| entry.name.cmp(&file.name)) else { continue };
        match stored {
            Some(stored) => {
                if let (CachedKind::Skipped, Some(reason)) =
                    (stored.kind, super::entry::reason_from(stored.aux))
                {
                    troubles.push(skipped_path(file.node.path().join(&file.name), reason));
                }
                entries[entry] = stored;
            }
            None => {
                entries.remove(entry);
            }
        }
    }
    Ok(())
}
