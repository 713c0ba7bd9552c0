//! One watched workspace: turns kernel events into directories that may have changed.
//!
//! Whenever an event could have been missed, the watch restarts under a new instance id, and all earlier tokens become
//! invalid: a scan that asks with one gets "scan everything". A restart visits all directories. Where that takes long, it
//! is left to the caller, who can avoid it while a client waits or events still come faster than they can be read.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::inotify::ReadFlags;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use stepback_model::path::RelPath;
use stepback_worktree::rules;
use stepback_worktree::scan::hints::{LogPosition, WatchAnswer};
use stepback_worktree::scan::watch_scope::{DirTreatment, Territory};

use crate::change_log::Ledger;
use crate::dirs::{AlreadyWatched, Dirs, Watched};
use crate::kernel::{Kernel, KernelEvent};
use crate::mounts::Mounts;

/// The most directories that could not be opened and are reported each time; with more, the workspace cannot be watched.
const MAX_UNREADABLE_DIRS: usize = 64;
/// A watch that has lost track restarts at once if its last start took no longer than this.
const SHORT_START: Duration = Duration::from_millis(10);

/// Where and how to watch.
pub struct WatchTarget<'a> {
    /// The root of the workspace.
    pub root: &'a Path,
    /// The store, which is not watched although it may lie inside.
    pub store_dir: Option<&'a Path>,
    /// A directory of ours for a file whose events prove that the kernel still reports to us.
    pub marks: &'a Path,
    /// The most directories to watch.
    pub max_dirs: usize,
}

/// Creates an event queue of the kernel.
pub type KernelSource = Box<dyn Fn() -> io::Result<Box<dyn Kernel>> + Send>;

/// A workspace that is watched.
pub struct Watch {
    root: PathBuf,
    store_dir: Option<PathBuf>,
    marks: PathBuf,
    max_dirs: usize,
    source: KernelSource,
    sight: WatchedTree,
    /// How long the last start took.
    start_took: Duration,
    /// Whether an event was missed and the watch has not restarted since.
    has_lost_track: bool,
}

/// The state since it started or lost track.
struct WatchedTree {
    kernel: Box<dyn Kernel>,
    territory: Territory,
    mounts: Mounts,
    dirs: Dirs,
    ledger: Ledger,
    /// Directories that could not be opened.
    closed: BTreeSet<RelPath>,
    mark: MarkerFile,
    max_dirs: usize,
}

/// A file of ours whose events come through the same queue.
struct MarkerFile {
    file: File,
    path: PathBuf,
    name: Vec<u8>,
    watch: Watched,
}

impl Drop for MarkerFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Something happened after which the watch must restart.
#[derive(Debug)]
struct LostTrack;

impl Watch {
    /// Starts watching. Fails where that is impossible: a file system that does not report changes, or too many
    /// directories.
    pub fn begin(target: &WatchTarget<'_>, source: KernelSource) -> io::Result<Self> {
        let started = Instant::now();
        let sight = WatchedTree::begin(target, &source)?;
        Ok(Self {
            root: target.root.to_path_buf(),
            store_dir: target.store_dir.map(Path::to_path_buf),
            marks: target.marks.to_path_buf(),
            max_dirs: target.max_dirs,
            source,
            sight,
            start_took: started.elapsed(),
            has_lost_track: false,
        })
    }

    /// The root of the workspace.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The number of watched directories.
    pub fn directories(&self) -> usize {
        self.sight.dirs.len()
    }

    /// Becomes readable when there are events to read.
    pub fn readiness(&self) -> Arc<OwnedFd> {
        self.sight.kernel.readiness()
    }

    /// Reads the reported events, so that the kernel's queue does not overflow. Fails if the workspace cannot be watched
    /// any more.
    pub fn catch_up(&mut self) -> io::Result<()> {
        if self.has_lost_track {
            return Ok(());
        }
        match self.sight.take_in() {
            Ok(_) => Ok(()),
            Err(LostTrack) => self.lose_track(),
        }
    }

    /// Returns which directories may have changed since a token. The answer covers everything that happened before this
    /// call. [`WatchAnswer::Unknown`] while it has lost track; fails if another directory is at the root's path, or it cannot be
    /// watched any more.
    pub fn answer(&mut self, root_id: (u64, u64), since: Option<LogPosition>) -> io::Result<WatchAnswer> {
        if self.sight.territory.root_id() != root_id {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it was replaced by another directory"));
        }
        if !self.has_lost_track && self.sight.take_in_up_to_now().is_err() {
            self.lose_track()?;
        }
        Ok(if self.has_lost_track { WatchAnswer::Unknown } else { self.sight.ledger.answer(since) })
    }

    /// Whether it gives no answers until it restarts.
    pub fn is_lost(&self) -> bool {
        self.has_lost_track
    }

    /// How long the last start took.
    pub fn start_took(&self) -> Duration {
        self.start_took
    }

    fn lose_track(&mut self) -> io::Result<()> {
        if self.start_took <= SHORT_START {
            return self.restart();
        }
        self.has_lost_track = true;
        Ok(())
    }

    /// Restarts: visits all directories again.
    pub fn restart(&mut self) -> io::Result<()> {
        let target = WatchTarget {
            root: &self.root,
            store_dir: self.store_dir.as_deref(),
            marks: &self.marks,
            max_dirs: self.max_dirs,
        };
        let started = Instant::now();
        self.sight = WatchedTree::begin(&target, &self.source)?;
        (self.start_took, self.has_lost_track) = (started.elapsed(), false);
        Ok(())
    }
}

impl WatchedTree {
    fn begin(target: &WatchTarget<'_>, source: &KernelSource) -> io::Result<Self> {
        let Some(territory) = Territory::open(target.root, target.store_dir)? else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "its file system does not report every change",
            ));
        };
        let mut instance = [0; 16];
        getrandom::fill(&mut instance).map_err(io::Error::other)?;
        let mut mounts = Mounts::open()?;
        if mounts.any_below(target.root)? {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "a file system is mounted inside it"));
        }
        let mut kernel = source()?;
        let mark = MarkerFile::make(target.marks, &instance, &mut *kernel)?;
        let mut sight = Self {
            kernel,
            territory,
            mounts,
            dirs: Dirs::default(),
            ledger: Ledger::new(instance),
            closed: BTreeSet::new(),
            mark,
            max_dirs: target.max_dirs,
        };
        sight.find(&RelPath::root())?;
        Ok(sight)
    }

    /// Watches a directory and all below it. Their present contents are unknown, so they are logged as new after the last
    /// of them is watched: a scan that gets them in an answer runs at a time from which on everything is reported.
    fn find(&mut self, path: &RelPath) -> io::Result<()> {
        let Self { kernel, territory, dirs, closed, ledger, max_dirs, .. } = self;
        territory.visit(path, &mut |path, treatment| {
            let (dir, marked) = match treatment {
                DirTreatment::Walked(dir) => (dir, false),
                DirTreatment::Marked(dir) => (dir, true),
                DirTreatment::Closed => {
                    closed.insert(path.clone());
                    return match closed.len() > MAX_UNREADABLE_DIRS {
                        true => Err(io::Error::other("too many directories that cannot be opened")),
                        false => Ok(()),
                    };
                }
            };
            if dirs.len() >= *max_dirs {
                let reason = format!("it has more than {max_dirs} directories");
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, reason));
            }
            let watch = kernel.watch(dir)?;
            // It is recorded at another path: it moved, and the event for that is still to come.
            if let Err(AlreadyWatched(old_path)) = dirs.add(watch, path, marked) {
                for old_watch in dirs.remove(&old_path).into_iter().filter(|old_watch| *old_watch != watch) {
                    kernel.unwatch(old_watch);
                }
                if let Some((parent, _)) = old_path.split_last() {
                    ledger.note(&parent, false);
                }
                dirs.add(watch, path, marked).map_err(|_| io::Error::other("a directory occurs twice"))?;
            }
            Ok(())
        })?;
        self.ledger.note(path, true);
        Ok(())
    }

    /// Reads all events of what happened before this call, and verifies that none is missing.
    fn take_in_up_to_now(&mut self) -> Result<(), LostTrack> {
        // The kernel queues an event before the call that caused it returns, and keeps the order. So everything that
        // happened before is in the queue once the event of this touch is; if that does not come, no event can be relied
        // on.
        self.mark.touch().map_err(|_| LostTrack)?;
        if !self.take_in()? {
            return Err(LostTrack);
        }
        // Directories that could not be opened may have changed unnoticed.
        for path in std::mem::take(&mut self.closed) {
            self.find(&path).map_err(|_| LostTrack)?;
            if let Some((parent, _)) = path.split_last() {
                self.ledger.note(&parent, false);
            }
        }
        Ok(())
    }

    /// Reads the reported events; returns whether our own mark was among them.
    fn take_in(&mut self) -> Result<bool, LostTrack> {
        let events = self.kernel.drain().map_err(|_| LostTrack)?;
        if self.mounts.changed() && self.mounts.any_below(self.territory.root()).unwrap_or(true) {
            return Err(LostTrack);
        }
        let mut marked = false;
        for event in events {
            if event.watch == self.mark.watch {
                marked |= event.name.as_deref() == Some(&self.mark.name);
                let end = ReadFlags::IGNORED | ReadFlags::UNMOUNT | ReadFlags::DELETE_SELF;
                if event.what.intersects(end) {
                    return Err(LostTrack);
                }
                continue;
            }
            self.handle_event(&event)?;
        }
        Ok(marked)
    }

    fn handle_event(&mut self, event: &KernelEvent) -> Result<(), LostTrack> {
        let events = event.what;
        if events.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
            return Err(LostTrack);
        }
        // An unknown watch belonged to a directory that moved or was removed; it is found again at its new path.
        let Some((path, only_marks)) = self.dirs.get(event.watch) else { return Ok(()) };
        let path = path.clone();
        let Some(name) = &event.name else { return self.take_of_itself(event, &path) };
        let is_removal = events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
        if rules::affects_coverage(name, is_removal) {
            return Err(LostTrack);
        }
        if only_marks {
            return Ok(());
        }
        self.ledger.note(&path, false);
        if !events.contains(ReadFlags::ISDIR) {
            return Ok(());
        }
        let child_path = path.join(name);
        if is_removal {
            self.unwatch_below(&child_path);
        }
        let is_arrival = events.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        if is_arrival || (events.contains(ReadFlags::ATTRIB) && !self.dirs.contains(&child_path)) {
            self.unwatch_below(&child_path);
            return self.find(&child_path).map_err(|_| LostTrack);
        }
        if events.contains(ReadFlags::ATTRIB) {
            self.ledger.note(&child_path, false);
        }
        Ok(())
    }

    /// Handles an event on a watched directory itself.
    fn take_of_itself(&mut self, event: &KernelEvent, path: &RelPath) -> Result<(), LostTrack> {
        if event.what.contains(ReadFlags::IGNORED) {
            self.dirs.ended(event.watch);
        }
        let Some((parent, _)) = path.split_last() else {
            let end = ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF;
            if event.what.intersects(end) {
                return Err(LostTrack);
            }
            self.ledger.note(path, false);
            return Ok(());
        };
        self.ledger.note(&parent, false);
        self.ledger.note(path, false);
        Ok(())
    }

    fn unwatch_below(&mut self, path: &RelPath) {
        for watch in self.dirs.remove(path) {
            self.kernel.unwatch(watch);
        }
        self.closed.retain(|closed| !closed.starts_with(path));
    }
}

impl MarkerFile {
    fn make(dir: &Path, instance: &[u8; 16], kernel: &mut dyn Kernel) -> io::Result<Self> {
        let name = stepback_model::hex::encode(instance);
        let path = dir.join(&name);
        stepback_faults::point()?;
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        let watch = kernel.watch(File::open(dir)?.as_fd())?;
        Ok(Self { file, path, name: name.into_bytes(), watch })
    }

    /// Causes an event.
    fn touch(&self) -> io::Result<()> {
        stepback_faults::point()?;
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        Ok(rustix::fs::futimens(&self.file, &times)?)
    }
}
