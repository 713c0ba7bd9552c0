//! The watcher of one store: a socket, and the workspaces that are watched because somebody asked about them.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use stepback_worktree::scan::hints::Answer;

use crate::client::{Reached, SOCKET, is_ours};
use crate::kernel::Inotify;
use crate::mounts;
use crate::watch::{Place, Watch};
use crate::wire::{self, Asked, Told};

/// Most workspaces that are watched at a time.
const MOST_WORKSPACES: usize = 16;
/// A workspace that nobody asked about for so long is not watched any more.
const IDLE: Duration = Duration::from_secs(2 * 3600);
/// After a failure, nobody tries again for so long.
const RETRY: Duration = Duration::from_secs(60);
/// How long a question may take to arrive, and an answer to be taken.
const SLOW: Duration = Duration::from_millis(100);
/// How often threads look whether they should end.
const TICK: Duration = Duration::from_millis(200);
/// Events that come in a row are taken in together.
const PAUSE: Duration = Duration::from_millis(20);
/// Threads that answer.
const ANSWERING: usize = 2;

/// What a watcher is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The store's directory on this machine.
    pub dir: PathBuf,
    /// Workspaces to watch at once, most recent first; others follow when somebody asks about them.
    pub recent: Vec<PathBuf>,
    /// Most directories to watch in one workspace; `None` for half of what the system allows a user.
    pub most: Option<usize>,
}

/// A watcher that runs; it ends when this is dropped.
pub struct Watcher {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    config: Config,
    most: usize,
    marks: PathBuf,
    namespace: u64,
    ended: AtomicBool,
    workspaces: Mutex<HashMap<PathBuf, Arc<Watched>>>,
}

/// A workspace, whatever became of watching it.
struct Watched {
    sight: Mutex<Sight>,
}

enum Sight {
    /// It is about to be watched.
    Soon,
    /// It is.
    Open(Box<Watch>, Instant),
    /// It cannot be.
    Closed(String, Instant),
}

impl Watched {
    /// Waits for whoever is busy with it, but not while it begins anew: whoever asks does not wait that long either.
    fn soon(&self) -> Option<MutexGuard<'_, Sight>> {
        let until = Instant::now() + SLOW / 4;
        loop {
            match self.sight.try_lock() {
                Ok(sight) => return Some(sight),
                Err(TryLockError::Poisoned(sight)) => return Some(sight.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watcher {
    /// Starts to watch and to answer. `Ok(None)` if another process does already.
    pub fn start(config: Config) -> io::Result<Option<Self>> {
        let marks = config.dir.join("watch");
        if !marks.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&marks)?;
        }
        let lock_file =
            File::options().read(true).write(true).create(true).truncate(false).open(marks.join("lock"))?;
        match lock_file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Ok(None),
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
        // Marks of a watcher that was killed.
        for entry in fs::read_dir(&marks)?.flatten().filter(|entry| entry.file_name() != "lock") {
            let _ = fs::remove_file(entry.path());
        }
        let listener = listen(&config.dir.join(SOCKET))?;
        let most = config.most.unwrap_or_else(allowed);
        let shared = Arc::new(Shared {
            most,
            marks,
            namespace: mounts::namespace(),
            ended: AtomicBool::new(false),
            workspaces: Mutex::default(),
            config,
        });
        let mut threads = Vec::new();
        let listener = Arc::new(listener);
        let lock_file = Arc::new(lock_file);
        for _ in 0..ANSWERING {
            let (shared, listener, lock_file) = (shared.clone(), listener.clone(), lock_file.clone());
            threads.push(std::thread::Builder::new().name("stepback-watcher".into()).spawn(move || {
                answer_all(&shared, &listener);
                // Nobody else may answer before the last thread is gone.
                drop(lock_file);
            })?);
        }
        for root in shared.config.recent.iter().take(MOST_WORKSPACES) {
            shared.watch_soon(root);
        }
        Ok(Some(Self { shared, threads }))
    }

    /// Ends it: hooks look by themselves again.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let _ = fs::remove_file(self.shared.config.dir.join(SOCKET));
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.end();
    }
}

/// Half of the watches that the system allows one user: others need some as well.
fn allowed() -> usize {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap_or_default();
    limit.trim().parse::<usize>().unwrap_or(8192) / 2
}

/// Binds the socket, in place of one that nobody listens at any more.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let reached = Reached::new(path)?;
    let listener = UnixListener::bind(&reached.path)?;
    // The directory is the user's alone; this is for one that somebody opened.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Waits until there is something to read, for one tick at most.
fn is_ready(fd: BorrowedFd<'_>) -> bool {
    let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&tick)).is_ok_and(|ready| ready > 0)
}

fn answer_all(shared: &Arc<Shared>, listener: &UnixListener) {
    while !shared.ended.load(Ordering::Relaxed) {
        if !is_ready(listener.as_fd()) {
            continue;
        }
        if let Ok((stream, _)) = listener.accept() {
            // Whoever asks and does not listen has no answer.
            let _ = converse(shared, stream);
        }
    }
}

fn converse(shared: &Arc<Shared>, mut stream: UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(SLOW))?;
    stream.set_write_timeout(Some(SLOW))?;
    if !is_ours(&stream)? {
        return Ok(());
    }
    let told = match wire::hear(&mut stream)? {
        Asked::Status { root } => Told::Status(shared.status(&root)),
        Asked::Changes { root, root_id, namespace, since } => {
            let same = namespace == shared.namespace;
            Told::Changes(if same { shared.changes(&root, root_id, since) } else { Answer::Nothing })
        }
    };
    wire::tell(&mut stream, &told)
}

impl Shared {
    fn known(&self, root: &Path) -> Option<Arc<Watched>> {
        lock(&self.workspaces).get(root).cloned()
    }

    fn changes(
        self: &Arc<Self>,
        root: &Path,
        root_id: (u64, u64),
        since: Option<stepback_worktree::scan::hints::Token>,
    ) -> Answer {
        let Some(known) = self.known(root) else {
            self.watch_soon(root);
            return Answer::Nothing;
        };
        let Some(mut sight) = known.soon() else { return Answer::Nothing };
        match &mut *sight {
            Sight::Soon => Answer::Nothing,
            Sight::Open(watch, asked) => {
                *asked = Instant::now();
                match watch.answer(root_id, since) {
                    Ok(Answer::Nothing) => {
                        // Another directory is there now.
                        *sight = Sight::Closed("another directory has taken its place".into(), long_ago());
                        Answer::Nothing
                    }
                    Ok(answer) => answer,
                    Err(error) => {
                        *sight = Sight::Closed(error.to_string(), Instant::now());
                        Answer::Nothing
                    }
                }
            }
            Sight::Closed(_, since) => {
                let again = since.elapsed() >= RETRY;
                drop(sight);
                if again {
                    lock(&self.workspaces).remove(root);
                    self.watch_soon(root);
                }
                Answer::Nothing
            }
        }
    }

    fn status(&self, root: &Path) -> Result<u64, String> {
        let known = self.known(root).ok_or("nobody has asked about it yet")?;
        match &*lock(&known.sight) {
            Sight::Soon => Err("it is about to be watched".into()),
            Sight::Open(watch, _) => Ok(watch.directories() as u64),
            Sight::Closed(why, _) => Err(why.clone()),
        }
    }

    /// Begins to watch a workspace, on a thread of its own: finding all directories takes a while.
    fn watch_soon(self: &Arc<Self>, root: &Path) {
        let watched = Arc::new(Watched { sight: Mutex::new(Sight::Soon) });
        {
            let mut workspaces = lock(&self.workspaces);
            if workspaces.contains_key(root) {
                return;
            }
            if workspaces.len() >= MOST_WORKSPACES {
                // Those that cannot be watched make room.
                workspaces.retain(|_, known| {
                    !known.sight.try_lock().is_ok_and(|sight| matches!(&*sight, Sight::Closed(..)))
                });
            }
            if workspaces.len() >= MOST_WORKSPACES {
                return;
            }
            workspaces.insert(root.to_path_buf(), watched.clone());
        }
        let (shared, root) = (self.clone(), root.to_path_buf());
        let started = std::thread::Builder::new()
            .name("stepback-watching".into())
            .spawn(move || keep_watching(&shared, &watched, &root));
        // Without a thread, it stays as it is: nobody gets an answer.
        drop(started);
    }
}

fn long_ago() -> Instant {
    let now = Instant::now();
    now.checked_sub(RETRY).unwrap_or(now)
}

/// Watches one workspace until that is impossible, or nobody needs it any more.
fn keep_watching(shared: &Shared, watched: &Watched, root: &Path) {
    let place = Place { root, store_dir: Some(&shared.config.dir), marks: &shared.marks, most: shared.most };
    let begun = Watch::begin(&place, Box::new(|| Ok(Box::new(Inotify::new()?))));
    *lock(&watched.sight) = match begun {
        Ok(watch) => Sight::Open(Box::new(watch), Instant::now()),
        Err(error) => Sight::Closed(error.to_string(), Instant::now()),
    };
    while !shared.ended.load(Ordering::Relaxed) {
        let readiness = match &mut *lock(&watched.sight) {
            Sight::Open(watch, asked) if asked.elapsed() < IDLE => watch.readiness(),
            _ => break,
        };
        if !is_ready(readiness.as_fd()) {
            continue;
        }
        std::thread::sleep(PAUSE);
        let mut sight = lock(&watched.sight);
        if let Sight::Open(watch, _) = &mut *sight
            && let Err(error) = watch.catch_up()
        {
            *sight = Sight::Closed(error.to_string(), Instant::now());
        }
    }
    let mut workspaces = lock(&shared.workspaces);
    let is_open = matches!(&*lock(&watched.sight), Sight::Open(..));
    if is_open && workspaces.get(root).is_some_and(|known| std::ptr::eq(&**known, watched)) {
        workspaces.remove(root);
    }
}
