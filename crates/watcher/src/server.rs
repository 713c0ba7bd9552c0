//! The watcher of one store: a socket, and the workspaces that are watched because a scan asked about them.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use stepback_worktree::scan::hints::{LogPosition, WatchAnswer};

use crate::client::{SOCKET, ShortSocketPath, VERSION, is_ours};
use crate::launch::ProgramFile;
use crate::mounts;
use crate::report::{self, WatchedRoot, WatcherReport};
use crate::sight::{self, ChangesReply, RETRY, Signal, WatchSettings, WatchedWorkspace};
use crate::wire::{self, WatchRequest, WatchResponse};

/// The most workspaces that are watched at a time.
const MAX_WORKSPACES: usize = 16;
/// The timeout for receiving a question and for sending an answer.
const SOCKET_TIMEOUT: Duration = Duration::from_millis(100);
/// The number of threads that answer.
const ANSWER_THREADS: usize = 2;
/// Name of the directory for the lock and the marks, in the store's directory.
pub const DIRECTORY: &str = "watch";

/// The configuration of a watcher.
#[derive(Clone, Debug)]
pub struct WatcherConfig {
    /// The store's directory on this machine.
    pub dir: PathBuf,
    /// Workspaces to watch at once, most recent first; others follow when a scan asks about them.
    pub recent: Vec<PathBuf>,
    /// The most directories to watch in one workspace; `None` for half of what the system allows a user.
    pub max_dirs: Option<usize>,
    /// Whether a hook started it: then it exits when it is asked to, or when another version of the program asks.
    pub automatic: bool,
    /// How long a workspace is watched after the last question about it.
    pub idle: Duration,
}

impl WatcherConfig {
    /// The configuration for a server, which watches workspaces for two hours after the last question.
    pub fn new(dir: &Path) -> Self {
        let idle = Duration::from_secs(2 * 3600);
        Self { dir: dir.to_path_buf(), recent: Vec::new(), max_dirs: None, automatic: false, idle }
    }
}

/// A running watcher; it stops when this is dropped.
pub struct Watcher {
    shared: Arc<WatcherShared>,
    threads: Vec<JoinHandle<()>>,
    /// Device and inode of the store's directory and of the socket: their paths may lead to others by now.
    store_id: Option<(u64, u64)>,
    socket_id: Option<(u64, u64)>,
}

/// Why a watcher that a hook started has to exit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// It was asked to.
    Asked,
    /// Its program was replaced, or a client of another version asked.
    OtherVersion,
    /// Its store was removed, moved or replaced.
    StoreGone,
    /// There was no question for a long time.
    Idle,
}

struct WatcherShared {
    config: WatcherConfig,
    terms: Arc<WatchSettings>,
    namespace: u64,
    program: Option<ProgramFile>,
    started: SystemTime,
    workspaces: Mutex<HashMap<PathBuf, Arc<WatchedWorkspace>>>,
    questions: AtomicU64,
    last_question: Mutex<Instant>,
    end_reason: Mutex<Option<EndReason>>,
    /// Raised together with `end_reason`.
    asked_to_end: Signal,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn id_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Watcher {
    /// Starts watching and answering. `Ok(None)` if another process does so already.
    pub fn start(config: WatcherConfig) -> io::Result<Option<Self>> {
        let marks = config.dir.join(DIRECTORY);
        if !marks.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&marks)?;
        }
        let Some(lock_file) = take_lock(&marks)? else { return Ok(None) };
        // Marks left by a watcher that was killed: their names have 32 hexadecimal digits.
        for entry in fs::read_dir(&marks)?.flatten().filter(|entry| entry.file_name().len() == 32) {
            let _ = fs::remove_file(entry.path());
        }
        let socket = config.dir.join(SOCKET);
        let listener = Arc::new(bind_socket(&socket)?);
        let store_id = fs::metadata(&config.dir).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        let terms = WatchSettings {
            store_dir: config.dir.clone(),
            marks,
            max_dirs: config.max_dirs.unwrap_or_else(watch_limit),
            idle: config.idle,
            end: Signal::new()?,
        };
        let shared = Arc::new(WatcherShared {
            terms: Arc::new(terms),
            namespace: mounts::namespace(),
            program: ProgramFile::of_this_process(),
            started: SystemTime::now(),
            workspaces: Mutex::default(),
            questions: AtomicU64::new(0),
            last_question: Mutex::new(Instant::now()),
            end_reason: Mutex::new(None),
            asked_to_end: Signal::new()?,
            config,
        });
        let mut threads = Vec::new();
        let lock_file = Arc::new(lock_file);
        for _ in 0..ANSWER_THREADS {
            let (shared, listener, lock_file) = (shared.clone(), listener.clone(), lock_file.clone());
            threads.push(std::thread::Builder::new().name("stepback-watcher".into()).spawn(move || {
                answer_all(&shared, &listener);
                // No other process may answer before the last thread has ended.
                drop(lock_file);
            })?);
        }
        for root in shared.config.recent.iter().take(MAX_WORKSPACES) {
            shared.watch_soon(root, RETRY);
        }
        Ok(Some(Self { shared, threads, store_id, socket_id: id_of(&socket) }))
    }

    /// Stops it; hooks run full scans again.
    pub fn stop(mut self) {
        self.end();
    }

    /// Waits at most `timeout` until it has to exit; for one that a hook started.
    pub fn wait_for_end(&self, timeout: Duration) -> Option<EndReason> {
        let shared = &self.shared;
        shared.asked_to_end.wait(&[], Some(timeout));
        if let Some(reason) = *lock(&shared.end_reason) {
            return Some(reason);
        }
        let store_id = fs::metadata(&shared.config.dir).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        if store_id != self.store_id || id_of(&shared.config.dir.join(SOCKET)) != self.socket_id {
            return Some(EndReason::StoreGone);
        }
        if !shared.is_current() {
            return Some(EndReason::OtherVersion);
        }
        (lock(&shared.last_question).elapsed() >= shared.config.idle).then_some(EndReason::Idle)
    }

    fn end(&mut self) {
        self.shared.terms.end.raise();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let socket = self.shared.config.dir.join(SOCKET);
        if self.socket_id.is_some() && id_of(&socket) == self.socket_id {
            let _ = fs::remove_file(socket);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.end();
    }
}

/// Takes the lock that allows one watcher per store, and writes the process id there. `None` if another process holds it.
fn take_lock(dir: &Path) -> io::Result<Option<File>> {
    let path = dir.join(LOCK);
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(None),
        Err(fs::TryLockError::Error(error)) => return Err(error),
    }
    file.set_len(0)?;
    write!(file, "{}", std::process::id())?;
    Ok(Some(file))
}

const LOCK: &str = "lock";

/// The process id of the watcher of the store in `dir`, whether or not it answers.
pub fn lock_holder(dir: &Path) -> Option<u32> {
    let path = dir.join(DIRECTORY).join(LOCK);
    let file = File::options().read(true).write(true).open(&path).ok()?;
    match file.try_lock_shared() {
        Err(fs::TryLockError::WouldBlock) => fs::read_to_string(path).ok()?.trim().parse().ok(),
        _ => None,
    }
}

/// Half of the watches that the system allows one user: other programs need some as well.
fn watch_limit() -> usize {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap_or_default();
    limit.trim().parse::<usize>().unwrap_or(8192) / 2
}

/// Binds the socket, replacing one at which no process listens any more.
fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let reached = ShortSocketPath::new(path)?;
    let listener = UnixListener::bind(&reached.path)?;
    // The directory is readable only by the user; this is for one that was opened to others.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn answer_all(shared: &Arc<WatcherShared>, listener: &UnixListener) {
    while !shared.terms.end.is_raised() {
        match listener.accept() {
            // A client that does not wait for the answer gets none.
            Ok((stream, _)) => drop(handle_connection(shared, stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                shared.terms.end.wait(&[listener.as_fd()], None);
            }
            // Perhaps out of file descriptors: pause before the retry.
            Err(_) => shared.terms.end.wait(&[], Some(SOCKET_TIMEOUT)),
        }
    }
}

fn handle_connection(shared: &Arc<WatcherShared>, mut stream: UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    if !is_ours(&stream)? {
        return Ok(());
    }
    let request = match wire::hear(&mut stream)? {
        WatchRequest::Report => WatchResponse::Report(shared.report()),
        WatchRequest::Stop => {
            let stops = shared.config.automatic;
            wire::tell(&mut stream, &WatchResponse::Stopping(stops))?;
            if stops {
                shared.ask_to_end(EndReason::Asked);
            }
            return Ok(());
        }
        WatchRequest::Changes { root, root_id, namespace, since, version } => {
            WatchResponse::Changes(if version != VERSION || !shared.is_current() {
                shared.ask_to_end(EndReason::OtherVersion);
                WatchAnswer::Unknown
            } else if namespace != shared.namespace {
                WatchAnswer::Unknown
            } else {
                shared.changes_since(&root, root_id, since)
            })
        }
    };
    wire::tell(&mut stream, &request)
}

impl WatcherShared {
    /// Whether the running program is the installed one.
    fn is_current(&self) -> bool {
        self.program.as_ref().is_none_or(ProgramFile::is_in_place)
    }

    fn ask_to_end(&self, reason: EndReason) {
        lock(&self.end_reason).get_or_insert(reason);
        self.asked_to_end.raise();
    }

    fn changes_since(
        self: &Arc<Self>,
        root: &Path,
        root_id: (u64, u64),
        since: Option<LogPosition>,
    ) -> WatchAnswer {
        self.questions.fetch_add(1, Ordering::Relaxed);
        *lock(&self.last_question) = Instant::now();
        let workspace = lock(&self.workspaces).get(root).cloned();
        let retry = match workspace.as_ref().map(|workspace| workspace.changes(root_id, since)) {
            Some(ChangesReply::Answer(answer)) => return answer,
            Some(ChangesReply::Restart(retry)) => {
                lock(&self.workspaces).remove(root);
                retry
            }
            None => RETRY,
        };
        self.watch_soon(root, retry);
        WatchAnswer::Unknown
    }

    fn report(&self) -> WatcherReport {
        let workspaces: Vec<_> = lock(&self.workspaces)
            .iter()
            .map(|(root, workspaces)| (root.clone(), workspaces.clone()))
            .collect();
        let mut roots: Vec<_> = workspaces
            .into_iter()
            .map(|(root, workspaces)| WatchedRoot { root, sight: workspaces.describe() })
            .collect();
        roots.sort_by(|a, b| a.root.cmp(&b.root));
        let since = self.started.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        WatcherReport {
            pid: std::process::id(),
            version: VERSION.to_owned(),
            automatic: self.config.automatic,
            since,
            memory: report::own_memory(),
            questions: self.questions.load(Ordering::Relaxed),
            roots,
        }
    }

    /// Begins to watch a workspace on its own thread, because finding all directories takes a while.
    fn watch_soon(self: &Arc<Self>, root: &Path, retry: Duration) {
        let Ok(workspace) = WatchedWorkspace::new(retry) else { return };
        let workspace = Arc::new(workspace);
        {
            let mut workspaces = lock(&self.workspaces);
            if workspaces.contains_key(root) {
                return;
            }
            if workspaces.len() >= MAX_WORKSPACES {
                // Workspaces that cannot be watched make room.
                workspaces.retain(|_, watched| !watched.is_closed());
            }
            if workspaces.len() >= MAX_WORKSPACES {
                return;
            }
            workspaces.insert(root.to_path_buf(), workspace.clone());
        }
        let (shared, weak_workspace, path) =
            (Arc::downgrade(self), Arc::downgrade(&workspace), root.to_path_buf());
        sight::spawn(&workspace, root.to_path_buf(), &self.terms, move |is_open| {
            if let (true, Some(shared)) = (is_open, Weak::upgrade(&shared)) {
                let mut workspaces = lock(&shared.workspaces);
                if workspaces
                    .get(&path)
                    .is_some_and(|watched| std::ptr::eq(Arc::as_ptr(watched), weak_workspace.as_ptr()))
                {
                    workspaces.remove(&path);
                }
            }
        });
    }
}
