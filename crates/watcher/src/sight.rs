//! One workspace that a watcher was asked about: the thread that watches it, and its present state.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use stepback_worktree::scan::hints::{LogPosition, WatchAnswer};

use crate::kernel::Inotify;
use crate::watch::{Watch, WatchTarget};

/// The pause before a retry after a workspace could not be watched; it doubles with each further failure.
pub(crate) const RETRY: Duration = Duration::from_secs(60);
/// The longest pause.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(3600);
/// How long a question waits for a thread that is busy with the workspace.
const BUSY_TIMEOUT: Duration = Duration::from_millis(25);
/// How often a thread without events checks whether its workspace is still asked about.
const IDLE_CHECK: Duration = Duration::from_secs(60);
/// Events that follow each other within this time are read together.
const EVENT_BATCH_DELAY: Duration = Duration::from_millis(20);
/// Niceness of the thread that visits all directories: no client waits for it.
const WALK_NICENESS: i32 = 10;

/// Wakes waiting threads.
#[derive(Debug)]
pub(crate) struct Signal {
    fd: OwnedFd,
    raised: AtomicBool,
}

impl Signal {
    pub fn new() -> io::Result<Self> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, raised: AtomicBool::new(false) })
    }

    /// Wakes all threads that wait for it, now or later.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    fn lower(&self) {
        self.raised.store(false, Ordering::SeqCst);
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }

    /// Waits until it is raised, one of `others` is readable, or the timeout expires.
    pub fn wait(&self, others: &[BorrowedFd<'_>], timeout: Option<Duration>) {
        let timeout = timeout
            .map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
        let fds = std::iter::once(self.fd.as_fd()).chain(others.iter().copied());
        let mut polled: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // An interrupt or error counts as a wakeup: callers check the state themselves.
        let _ = rustix::event::poll(&mut polled, timeout.as_ref());
    }
}

/// Settings that all workspaces of a watcher share.
#[derive(Debug)]
pub(crate) struct WatchSettings {
    /// The store's directory on this machine.
    pub store_dir: PathBuf,
    /// The directory in which marks are created.
    pub marks: PathBuf,
    /// The most directories to watch in one workspace.
    pub max_dirs: usize,
    /// How long a workspace is watched after the last question about it.
    pub idle: Duration,
    /// Ends all threads.
    pub end: Signal,
}

/// A workspace, whether or not it can be watched.
pub(crate) struct WatchedWorkspace {
    sight: Mutex<WatchPhase>,
    /// Wakes its thread.
    poke: Signal,
    /// The pause before a retry after a failure.
    retry: Duration,
}

enum WatchPhase {
    /// It is not watched yet, for this reason.
    Soon(&'static str),
    /// It is watched; the instant is that of the last question.
    Open(Box<Watch>, Instant),
    /// It cannot be watched.
    Closed { reason: String, since: Instant },
}

/// The result of a question.
pub(crate) enum ChangesReply {
    /// The answer.
    Answer(WatchAnswer),
    /// There is no answer, and the workspace should be watched from the start, with this pause after a failure.
    Restart(Duration),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchedWorkspace {
    pub fn new(retry: Duration) -> io::Result<Self> {
        let sight = Mutex::new(WatchPhase::Soon("its directories are being scanned"));
        Ok(Self { sight, poke: Signal::new()?, retry: retry.min(MAX_RETRY_DELAY) })
    }

    /// Waits for a thread that is busy with it, but not for long: the hook that asks does not wait either.
    fn lock_soon(&self) -> Option<MutexGuard<'_, WatchPhase>> {
        let deadline = Instant::now() + BUSY_TIMEOUT;
        loop {
            match self.sight.try_lock() {
                Ok(sight) => return Some(sight),
                Err(TryLockError::Poisoned(sight)) => return Some(sight.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    /// What may have changed since a token.
    pub fn changes(&self, root_id: (u64, u64), since: Option<LogPosition>) -> ChangesReply {
        let Some(mut sight) = self.lock_soon() else { return ChangesReply::Answer(WatchAnswer::Unknown) };
        match &mut *sight {
            WatchPhase::Soon(_) => ChangesReply::Answer(WatchAnswer::Unknown),
            WatchPhase::Open(watch, last_question) => {
                *last_question = Instant::now();
                match watch.answer(root_id, since) {
                    Ok(answer) => {
                        if watch.is_lost() {
                            self.poke.raise();
                        }
                        ChangesReply::Answer(answer)
                    }
                    Err(error) => {
                        let is_replaced = error.kind() == io::ErrorKind::NotFound;
                        *sight = WatchPhase::Closed { reason: error.to_string(), since: Instant::now() };
                        // Wakes its thread, which then ends.
                        self.poke.raise();
                        if is_replaced {
                            ChangesReply::Restart(RETRY)
                        } else {
                            ChangesReply::Answer(WatchAnswer::Unknown)
                        }
                    }
                }
            }
            WatchPhase::Closed { since, .. } if since.elapsed() >= self.retry => {
                ChangesReply::Restart(self.retry * 2)
            }
            WatchPhase::Closed { .. } => ChangesReply::Answer(WatchAnswer::Unknown),
        }
    }

    /// The number of watched directories, or why none are.
    pub fn describe(&self) -> Result<u64, String> {
        let sight = self.lock_soon().ok_or("it is busy processing many changes")?;
        match &*sight {
            WatchPhase::Soon(problem) => Err((*problem).into()),
            WatchPhase::Open(watch, _) if watch.is_lost() => {
                Err("it missed changes and is starting over".into())
            }
            WatchPhase::Open(watch, _) => Ok(watch.directories() as u64),
            WatchPhase::Closed { reason, .. } => Err(reason.clone()),
        }
    }

    /// Whether it cannot be watched.
    pub fn is_closed(&self) -> bool {
        self.sight.try_lock().is_ok_and(|sight| matches!(&*sight, WatchPhase::Closed { .. }))
    }

    /// Watches it until that becomes impossible, or is no longer needed. Returns whether it could still be watched.
    pub fn keep_watching(&self, root: &Path, terms: &WatchSettings) -> bool {
        let target = WatchTarget {
            root,
            store_dir: Some(&terms.store_dir),
            marks: &terms.marks,
            max_dirs: terms.max_dirs,
        };
        let watch = run_low_priority(|| Watch::begin(&target, Box::new(|| Ok(Box::new(Inotify::new()?)))));
        *lock(&self.sight) = match watch {
            Ok(watch) => WatchPhase::Open(Box::new(watch), Instant::now()),
            Err(error) => to_closed(&error),
        };
        while !terms.end.is_raised() {
            let (readiness, is_lost) = match &*lock(&self.sight) {
                WatchPhase::Open(watch, last_question) if last_question.elapsed() < terms.idle => {
                    (watch.readiness(), watch.is_lost())
                }
                WatchPhase::Open(..) => return true,
                _ => return false,
            };
            if is_lost {
                self.restart(terms);
                continue;
            }
            terms.end.wait(&[readiness.as_fd(), self.poke.fd.as_fd()], Some(IDLE_CHECK.min(terms.idle)));
            self.poke.lower();
            std::thread::sleep(EVENT_BATCH_DELAY);
            let mut sight = lock(&self.sight);
            if let WatchPhase::Open(watch, _) = &mut *sight
                && let Err(error) = watch.catch_up()
            {
                *sight = to_closed(&error);
            }
        }
        false
    }

    /// Starts again after losing track, but only after a pause, so that a burst of more events than can be read (a checkout
    /// of a large tree) does not keep a processor busy with visiting directories again and again.
    fn restart(&self, terms: &WatchSettings) {
        let phase = std::mem::replace(
            &mut *lock(&self.sight),
            WatchPhase::Soon("too many changes at once; its directories are being scanned again"),
        );
        let WatchPhase::Open(mut watch, last_question) = phase else { return };
        terms.end.wait(&[], Some((watch.start_took() * 4).min(Duration::from_secs(5))));
        let result = run_low_priority(|| watch.restart());
        *lock(&self.sight) = match result {
            Ok(()) => WatchPhase::Open(watch, last_question),
            Err(error) => to_closed(&error),
        };
    }
}

fn to_closed(error: &io::Error) -> WatchPhase {
    WatchPhase::Closed { reason: error.to_string(), since: Instant::now() }
}

/// Runs something slow on a thread with low priority.
fn run_low_priority<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // On Linux this affects only the calling thread.
            let _ = rustix::process::setpriority_process(None, WALK_NICENESS);
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Starts the thread of a workspace. `ended` receives whether it could still be watched.
pub(crate) fn spawn(
    workspace: &Arc<WatchedWorkspace>,
    root: PathBuf,
    terms: &Arc<WatchSettings>,
    ended: impl FnOnce(bool) + Send + 'static,
) {
    let (workspace, terms) = (workspace.clone(), terms.clone());
    let started = std::thread::Builder::new()
        .name("stepback-watching".into())
        .spawn(move || ended(workspace.keep_watching(&root, &terms)));
    // Without a thread its state does not change: no question about it is answered.
    drop(started);
}
