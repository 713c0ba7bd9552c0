//! The parallel walk: threads take directories from one stack, list them, and compare every entry with the cache.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use stepback_model::hash::Hash;
use stepback_model::object::ObjectSource;
use stepback_model::path::RelPath;
use stepback_model::tree::SkipReason;
use stepback_store::ObjectBatch;

use super::Scan;
use super::entry::{Examiner, Large};
use super::listing::Collected;
use crate::error::WorktreeError;
use crate::rules::{DirRules, Verdict};
use crate::statcache::{Kind, NONE, Stat, StatCache};

/// How much of the cache may be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// Everything.
    Decisions,
    /// Hashes, but not what was decided to be in or out.
    HashesOnly,
}

/// The part of the workspace a directory belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Area {
    /// The user's files.
    Work,
    /// A git directory.
    Git,
    /// The objects of a git directory.
    Objects,
}

/// An open directory and the way to it.
#[derive(Debug)]
pub(super) struct DirNode {
    pub parent: Option<Arc<DirNode>>,
    pub name: Vec<u8>,
    pub fd: OwnedFd,
    pub area: Area,
    rules: OnceLock<DirRules>,
    ignored: OnceLock<bool>,
}

impl DirNode {
    pub fn path(&self) -> RelPath {
        match &self.parent {
            None => RelPath::root(),
            Some(parent) => parent.path().join(&self.name),
        }
    }

    fn rules(&self) -> &DirRules {
        self.rules.get_or_init(|| DirRules::read(&self.fd))
    }

    /// Asks the rules from here up to the root; the nearest one with an opinion wins.
    fn ask(&self, name: &[u8], ask: impl Fn(&DirRules, &[u8]) -> Verdict) -> Verdict {
        let mut path = name.to_vec();
        let mut node = self;
        loop {
            match (ask(node.rules(), &path), &node.parent) {
                (Verdict::Silent, Some(parent)) => {
                    path = [node.name.as_slice(), b"/", &path].concat();
                    node = parent;
                }
                (verdict, _) => return verdict,
            }
        }
    }

    pub fn own_verdict(&self, name: &[u8], is_dir: bool) -> Verdict {
        self.ask(name, |rules, path| rules.own_verdict(path, is_dir))
    }

    /// Whether git ignores the entry `name` of this directory.
    pub fn is_ignored(&self, name: &[u8], is_dir: bool) -> bool {
        self.is_ignored_itself()
            || self.ask(name, |rules, path| rules.git_verdict(path, is_dir)) == Verdict::Out
    }

    fn is_ignored_itself(&self) -> bool {
        *self.ignored.get_or_init(|| match &self.parent {
            None => false,
            Some(parent) => parent.is_ignored(&self.name, true),
        })
    }
}

/// One entry of a directory whose listing changed.
#[derive(Clone, Debug)]
pub(super) struct OutEntry {
    pub name: Vec<u8>,
    pub kind: Kind,
    pub flags: u8,
    pub stat: Stat,
    pub hash: Hash,
    /// For directories: the number of the walked directory. For skipped entries: the reason.
    pub aux: u32,
    pub target: Vec<u8>,
}

/// What a directory holds, compared with the cache.
#[derive(Debug)]
pub(super) enum Listing {
    /// The same entries as the cache; directories among them were walked too.
    Same,
    /// These, sorted by name.
    New(Vec<OutEntry>),
    /// It is not there any more.
    Gone,
    /// It is there but not stored.
    Skipped(SkipReason),
}

/// One walked directory.
#[derive(Debug)]
pub(super) struct DirOut {
    pub id: u32,
    pub old: u32,
    pub stat: Stat,
    pub racy: bool,
    /// Its times are not those in the cache, and would be if that were written anew.
    pub outdated: bool,
    pub listing: Listing,
    /// Kept open for git directories, whose HEAD is looked at afterwards.
    pub git: Option<Arc<DirNode>>,
}

/// Everything a walk brings home.
#[derive(Debug)]
pub(super) struct Walked {
    /// By number; the root is number 0.
    pub dirs: Vec<DirOut>,
    pub root_id: (u64, u64),
    pub hashed: u64,
    pub rules_changed: bool,
    pub troubles: Vec<stepback_model::plan::LeftAlone>,
}

struct Task {
    parent: Option<Arc<DirNode>>,
    name: Vec<u8>,
    area: Area,
    old: u32,
    /// What `stat` said about the directory when it was cached, if that can be relied on.
    old_stat: Option<Stat>,
    id: u32,
}

struct Queue {
    tasks: Vec<Task>,
    /// Directories queued or being walked; the walk is over when it drops to zero.
    open: usize,
    failure: Option<WorktreeError>,
}

/// What all threads share.
pub(super) struct Shared<'a> {
    pub scan: &'a Scan<'a>,
    pub old: Option<&'a StatCache>,
    pub trust: Trust,
    /// After a collection, a cached hash must be looked up before it is believed.
    pub confirm: bool,
    pub source: &'a (dyn ObjectSource + Sync),
    pub batch: &'a dyn ObjectBatch,
    pub started: i64,
    pub root_device: u64,
    pub store_id: Option<(u64, u64)>,
    /// On this file system a directory whose times did not change has the entries it had.
    pub dir_times_tell: bool,
    pub hashed: AtomicU64,
    pub ignored_bytes: [AtomicU64; 2],
    pub rules_changed: AtomicBool,
    queue: Mutex<Queue>,
    wake: Condvar,
    next_id: AtomicU32,
}

/// What one thread brings home.
#[derive(Default)]
pub(super) struct Harvest {
    pub dirs: Vec<DirOut>,
    pub large: Vec<Large>,
    pub troubles: Vec<stepback_model::plan::LeftAlone>,
}

const DIR_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

pub(super) fn walk(
    scan: &Scan<'_>,
    old: Option<&StatCache>,
    trust: Trust,
    source: &(dyn ObjectSource + Sync),
    batch: &dyn ObjectBatch,
) -> Result<Walked, WorktreeError> {
    let root_error =
        |errno: Errno| WorktreeError::Root { root: scan.root.to_path_buf(), error: errno.into() };
    let root =
        rustix::fs::open(scan.root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(root_error)?;
    let root_stat = rustix::fs::fstat(&root).map_err(root_error)?;
    let root_id = (root_stat.st_dev, root_stat.st_ino);
    let old = old.filter(|cache| cache.meta().root == root_id);
    let store_id =
        scan.store_dir.and_then(|dir| rustix::fs::stat(dir).ok()).map(|stat| (stat.st_dev, stat.st_ino));
    let carried = old.map_or([0, 0], |cache| cache.meta().ignored_bytes);
    let shared = Shared {
        scan,
        old,
        trust,
        confirm: old.is_some_and(|cache| cache.meta().epoch != scan.epoch),
        source,
        batch,
        started: realtime(),
        root_device: root_id.0,
        store_id,
        dir_times_tell: dir_times_tell(&root),
        hashed: AtomicU64::new(0),
        ignored_bytes: carried.map(AtomicU64::new),
        rules_changed: AtomicBool::new(false),
        queue: Mutex::new(Queue { tasks: Vec::new(), open: 1, failure: None }),
        wake: Condvar::new(),
        next_id: AtomicU32::new(1),
    };
    let first = Task {
        parent: None,
        name: Vec::new(),
        area: Area::Work,
        old: if old.is_some() { 0 } else { NONE },
        old_stat: old.map(|cache| cache.meta().root_stat),
        id: 0,
    };
    lock(&shared.queue).tasks.push(first);

    // Below a few thousand entries a second thread costs more than it brings.
    let threads = if old.is_some_and(|cache| cache.entry_count() < 2000) { 1 } else { scan.threads.max(1) };
    let root_fd = root.as_fd();
    let mut harvests: Vec<Harvest> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| work(&shared, root_fd))).collect();
        let mut harvests = vec![work(&shared, root_fd)];
        // A panicking thread is a bug; its share of the walk would be missing, so pass the panic on.
        harvests.extend(others.into_iter().map(|other| match other.join() {
            Ok(harvest) => harvest,
            Err(panic) => std::panic::resume_unwind(panic),
        }));
        harvests
    });
    if let Some(failure) = lock(&shared.queue).failure.take() {
        return Err(failure);
    }
    let mut dirs: Vec<DirOut> = Vec::new();
    let (mut large, mut troubles) = (Vec::new(), Vec::new());
    for harvest in &mut harvests {
        dirs.append(&mut harvest.dirs);
        large.append(&mut harvest.large);
        troubles.append(&mut harvest.troubles);
    }
    dirs.sort_unstable_by_key(|dir| dir.id);
    store_large(&shared, large, &mut dirs, &mut troubles)?;
    troubles.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(Walked {
        dirs,
        root_id,
        hashed: shared.hashed.into_inner(),
        rules_changed: shared.rules_changed.into_inner(),
        troubles,
    })
}

/// Now, on the clock that file systems stamp files with. This is not a recorded fact but one side of a comparison with
/// timestamps the kernel made, so it is read here and not passed in.
pub(super) fn realtime() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Whether this file system changes a directory's times whenever an entry comes or goes. Local ones do; others are not trusted.
fn dir_times_tell(root: &impl AsFd) -> bool {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    const TMPFS: u64 = 0x0102_1994;
    const F2FS: u64 = 0xf2f5_2010;
    rustix::fs::fstatfs(root).is_ok_and(|fs| [EXT, XFS, BTRFS, TMPFS, F2FS].contains(&(fs.f_type as u64)))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(shared: &Shared<'_>, root: BorrowedFd<'_>) -> Harvest {
    let mut harvest = Harvest::default();
    let mut examiner = Examiner::new(shared);
    let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
    loop {
        let task = {
            let mut queue = lock(&shared.queue);
            loop {
                if queue.open == 0 || queue.failure.is_some() {
                    return harvest;
                }
                if let Some(task) = queue.tasks.pop() {
                    break task;
                }
                queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let mut children = Vec::new();
        let outcome = walk_dir(shared, root, task, &mut examiner, &mut buffer, &mut harvest, &mut children);
        let mut queue = lock(&shared.queue);
        queue.open += children.len();
        queue.open -= 1;
        let more = children.len();
        queue.tasks.append(&mut children);
        if let Err(failure) = outcome {
            queue.failure.get_or_insert(failure);
        }
        let over = queue.open == 0 || queue.failure.is_some();
        drop(queue);
        if over || more > 1 {
            shared.wake.notify_all();
        }
    }
}

fn walk_dir(
    shared: &Shared<'_>,
    root: BorrowedFd<'_>,
    task: Task,
    examiner: &mut Examiner<'_>,
    buffer: &mut [MaybeUninit<u8>],
    harvest: &mut Harvest,
    children: &mut Vec<Task>,
) -> Result<(), WorktreeError> {
    let opened = match &task.parent {
        None => rustix::fs::openat(root, ".", DIR_FLAGS, Mode::empty()),
        Some(parent) => {
            rustix::fs::openat(&parent.fd, OsStr::from_bytes(&task.name), DIR_FLAGS, Mode::empty())
        }
    };
    let is_root = task.parent.is_none();
    let mut out = DirOut {
        id: task.id,
        old: task.old,
        stat: Stat::default(),
        racy: false,
        outdated: false,
        listing: Listing::Gone,
        git: None,
    };
    let fd = match opened {
        Ok(fd) => fd,
        Err(errno) => {
            let path =
                task.parent.as_ref().map_or_else(RelPath::root, |parent| parent.path().join(&task.name));
            out.listing = match errno {
                Errno::NOENT => Listing::Gone,
                Errno::ACCESS | Errno::PERM => Listing::Skipped(SkipReason::Unreadable),
                Errno::NOTDIR | Errno::LOOP => Listing::Skipped(SkipReason::Unstable),
                other => return Err(WorktreeError::io("open", &path)(other.into())),
            };
            if let Listing::Skipped(reason) = out.listing {
                harvest.troubles.push(trouble(path, reason));
            }
            harvest.dirs.push(out);
            return Ok(());
        }
    };
    let node = Arc::new(DirNode {
        parent: task.parent,
        name: task.name,
        fd,
        area: task.area,
        rules: OnceLock::new(),
        ignored: OnceLock::new(),
    });
    let stat = rustix::fs::fstat(&node.fd)
        .map_err(|errno| WorktreeError::io("look at", &node.path())(errno.into()))?;
    out.stat = super::entry::to_stat(&stat);
    out.racy = super::entry::is_racy(&out.stat, shared.started);
    out.outdated = !out.racy && task.old_stat != Some(out.stat);
    let foreign = stat.st_dev != shared.root_device || shared.store_id == Some((stat.st_dev, stat.st_ino));
    if foreign && !is_root {
        out.listing = Listing::Skipped(SkipReason::Foreign);
        harvest.dirs.push(out);
        return Ok(());
    }
    if node.area == Area::Git && node.parent.as_ref().is_none_or(|parent| parent.area == Area::Work) {
        out.git = Some(node.clone());
    }

    let cached = shared.old.and_then(|cache| cache.dir(task.old));
    let mut listing = Collected::default();
    let as_before = shared.dir_times_tell && !shared.confirm && task.old_stat == Some(out.stat);
    match cached.as_ref().filter(|_| as_before) {
        Some(cached) => listing.read_cache(&node, task.id, cached, examiner, harvest)?,
        None => listing.read_dir(&node, task.id, cached.as_ref(), examiner, buffer, harvest)?,
    }
    if let Some(progress) = shared.scan.progress {
        progress.fetch_add(listing.len(), Ordering::Relaxed);
    }
    if listing.is_cache {
        out.listing = Listing::Skipped(SkipReason::HeavyCache);
        harvest.large.retain(|large| large.dir != task.id);
        harvest.dirs.push(out);
        return Ok(());
    }
    let has_head = node.area == Area::Git
        && rustix::fs::accessat(&node.fd, "HEAD", rustix::fs::Access::EXISTS, rustix::fs::AtFlags::empty())
            .is_ok();
    for name in std::mem::take(&mut listing.subdirs) {
        let area = child_area(&node, &name, has_head);
        match examiner.examine_dir(&node, &name, area, cached.as_ref(), &shared.next_id) {
            super::entry::ExaminedDir::Skipped { same_at: Some(at), .. } => listing.same.push(at),
            super::entry::ExaminedDir::Skipped { same_at: None, entry } => listing.news.push(entry),
            super::entry::ExaminedDir::Walk { same_at, entry, old, old_stat } => {
                let id = entry.aux;
                match same_at {
                    Some(at) => {
                        listing.same.push(at);
                        listing.dirs.push((at, id));
                    }
                    None => listing.news.push(entry),
                }
                children.push(Task { parent: Some(node.clone()), name, area, old, old_stat, id });
            }
            super::entry::ExaminedDir::Untouched { at, id, old, stat } => {
                listing.same.push(at);
                listing.dirs.push((at, id));
                let same = Listing::Same;
                harvest.dirs.push(DirOut {
                    id,
                    old,
                    stat,
                    racy: false,
                    outdated: false,
                    listing: same,
                    git: None,
                });
            }
        }
    }
    out.listing = listing.finish(cached.as_ref(), shared);
    harvest.dirs.push(out);
    Ok(())
}

fn child_area(parent: &DirNode, name: &[u8], parent_has_head: bool) -> Area {
    match parent.area {
        Area::Work if name == b".git" => Area::Git,
        Area::Work => Area::Work,
        Area::Git
            if name == b"objects" && (parent_has_head || parent.name == b".git" || parent.name == b"lfs") =>
        {
            Area::Objects
        }
        Area::Git => Area::Git,
        // `objects/info` holds small files that change.
        Area::Objects if name == b"info" => Area::Git,
        Area::Objects => Area::Objects,
    }
}

pub(super) fn trouble(path: RelPath, reason: SkipReason) -> stepback_model::plan::LeftAlone {
    stepback_model::plan::LeftAlone::uncovered(path, reason.describe())
}

/// Stores the large files, one after the other, each with all threads.
fn store_large(
    shared: &Shared<'_>,
    large: Vec<Large>,
    dirs: &mut [DirOut],
    troubles: &mut Vec<stepback_model::plan::LeftAlone>,
) -> Result<(), WorktreeError> {
    for file in large {
        let stored = super::entry::store_large(shared, &file)?;
        let Ok(at) = dirs.binary_search_by_key(&file.dir, |dir| dir.id) else { continue };
        let Listing::New(entries) = &mut dirs[at].listing else { continue };
        let Ok(entry) = entries.binary_search_by(|entry| entry.name.cmp(&file.name)) else { continue };
        match stored {
            Some(stored) => {
                if let (Kind::Skipped, Some(reason)) = (stored.kind, super::entry::reason_from(stored.aux)) {
                    troubles.push(trouble(file.node.path().join(&file.name), reason));
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

impl DirNode {
    /// What `.stepbackignore` files above say about this directory itself.
    pub fn own_verdict_of_self(&self) -> Verdict {
        match &self.parent {
            None => Verdict::In,
            Some(parent) => parent.own_verdict(&self.name, true),
        }
    }
}
