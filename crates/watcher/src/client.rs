//! The client of the watcher. On any error it returns no answer, and the scan visits every file itself.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use stepback_worktree::scan::hints::{FullScanCost, LogPosition, ScanHints, WatchAnswer, WatchQuestion};

use crate::launch::{LaunchOutcome, Launcher};
use crate::mounts;
use crate::report::WatcherReport;
use crate::server::DIRECTORY;
use crate::wire::{self, WatchRequest, WatchResponse};

/// Name of the socket in the store's directory.
pub const SOCKET: &str = "watch.sock";

/// With fewer files and directories than this, scanning costs no more than asking.
pub const WORTH_ASKING: usize = 1000;

/// Where a scan takes longer than this, a watcher is started.
pub const SLOW_SCAN: Duration = Duration::from_millis(15);

/// The version of this program. Another version may have other rules about what a scan visits.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The approximate cost of one file in a scan that reads none. It estimates from the first scan, which reads all files, how
/// long later ones will take.
const DEFAULT_ENTRY_COST: Duration = Duration::from_nanos(1_700);
/// The highest cost of one file: a scan that took longer was slow for another reason, which a watcher would not avoid.
const MAX_ENTRY_COST: Duration = Duration::from_micros(10);

/// Name of the file in the watcher's directory that has one byte for each question that timed out since the last answer;
/// its modification time is the time of the last of them.
const UNANSWERED: &str = "unanswered";
/// How long a watcher is not asked after a question timed out: the next questions would time out as well. The time doubles
/// with each further timeout.
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
/// The longest time that a watcher is not asked.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// How long to wait for a report.
const REPORT_TIMEOUT: Duration = Duration::from_millis(500);

/// Asks the watcher of one store.
#[derive(Debug)]
pub struct WatcherClient {
    dir: PathBuf,
    worth_asking: usize,
    version: &'static str,
    starter: Option<Starter>,
}

/// When and how a client starts a watcher.
#[derive(Debug)]
pub struct Starter {
    /// Starts the process.
    pub launcher: Launcher,
    /// A watcher is started after a scan that takes longer than this.
    pub slow_scan: Duration,
    /// Whether to start it not right after such a scan, but in [`WatcherClient::start_if_wanted`]: a hook answers its agent first.
    pub deferred: bool,
    /// The workspace for which a watcher is to be started.
    pub requested_root: Mutex<Option<PathBuf>>,
}

/// Which process, if any, listens at the watcher's socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatcherPresence {
    /// A watcher that answers.
    Running(WatcherReport),
    /// No process listens.
    Absent,
    /// A process listens but does not answer.
    Silent,
    /// A process answers in a format that this version does not support.
    OtherVersion,
}

impl WatcherClient {
    /// A client for the store whose files on this machine are in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf(), worth_asking: WORTH_ASKING, version: VERSION, starter: None }
    }

    /// The same, for workspaces of any size.
    pub fn for_any_size(dir: &Path) -> Self {
        Self { worth_asking: 0, ..Self::new(dir) }
    }

    /// A client that also starts a watcher if there is none and scans take long.
    pub fn starting(dir: &Path, starter: Starter) -> Self {
        Self { starter: Some(starter), ..Self::new(dir) }
    }

    /// The same client, with the version of another program.
    pub fn with_version(self, version: &'static str) -> Self {
        Self { version, ..self }
    }

    /// Reports which process listens at the socket.
    pub fn presence(&self) -> WatcherPresence {
        match self.send_request(&WatchRequest::Report, REPORT_TIMEOUT) {
            Ok(WatchResponse::Report(report)) => WatcherPresence::Running(report),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => WatcherPresence::Absent,
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => WatcherPresence::Silent,
                _ => WatcherPresence::OtherVersion,
            },
            Ok(_) => WatcherPresence::OtherVersion,
        }
    }

    /// How many directories of a workspace are watched, or why none; `None` if no watcher answers.
    pub fn status(&self, root: &Path) -> Option<Result<u64, String>> {
        match self.presence() {
            WatcherPresence::Running(report) => Some(report.sight_of(root)),
            _ => None,
        }
    }

    /// Asks the watcher to stop. Returns whether it does: one that is part of a server does not.
    pub fn stop(&self) -> io::Result<bool> {
        match self.send_request(&WatchRequest::Stop, REPORT_TIMEOUT)? {
            WatchResponse::Stopping(stops) => Ok(stops),
            _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }

    /// Starts a watcher if an earlier scan requested one.
    pub fn start_if_wanted(&self) {
        let Some(starter) = &self.starter else { return };
        let requested_root = starter.requested_root.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(root) = requested_root {
            // The hook is about to exit; the system reaps its child.
            let _ = self.start(starter, &root);
        }
    }

    /// Has a workspace watched: by the running watcher, else by a new one.
    fn start(&self, starter: &Starter, root: &Path) -> io::Result<LaunchOutcome> {
        let stat = rustix::fs::stat(root)?;
        match self
            .send_request(&self.changes_request(root, (stat.st_dev, stat.st_ino), None), answer_timeout(0))
        {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                starter.launcher.launch(root)
            }
            // The watcher knows the workspace now, or is busy.
            _ => Ok(LaunchOutcome::NotNow),
        }
    }

    fn changes_request(&self, root: &Path, root_id: (u64, u64), since: Option<LogPosition>) -> WatchRequest {
        let (namespace, version) = (mounts::namespace(), self.version.to_owned());
        WatchRequest::Changes { root: root.to_path_buf(), root_id, namespace, since, version }
    }

    fn send_request(&self, request: &WatchRequest, patience: Duration) -> io::Result<WatchResponse> {
        let deadline = Instant::now() + patience;
        let mut stream = DeadlineStream { stream: connect(&self.dir.join(SOCKET))?, until: deadline };
        if !is_ours(&stream.stream)? {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        wire::ask(&mut stream, request)?;
        wire::listen(&mut stream)
    }

    fn unanswered_file(&self) -> PathBuf {
        self.dir.join(DIRECTORY).join(UNANSWERED)
    }

    /// Whether questions timed out recently; the more of them, the longer they count as recent.
    fn is_avoided(&self) -> bool {
        let Ok(noted) = std::fs::metadata(self.unanswered_file()) else { return false };
        let doublings = u32::try_from(noted.len().saturating_sub(1)).unwrap_or(u32::MAX).min(10);
        let pause = (FIRST_BACKOFF * 2u32.pow(doublings)).min(MAX_BACKOFF);
        noted.modified().is_ok_and(|time| time.elapsed().is_ok_and(|age| age < pause))
    }

    /// Records that a question timed out.
    fn record_timeout(&self) {
        let opened = File::options().append(true).create(true).mode(0o600).open(self.unanswered_file());
        // If this fails, the next question waits as well.
        let _ = opened.and_then(|mut file| file.write_all(b"."));
    }

    /// Records that a question was answered.
    fn clear_unanswered(&self) {
        let _ = std::fs::remove_file(self.unanswered_file());
    }
}

impl ScanHints for WatcherClient {
    fn changes(&self, question: &WatchQuestion<'_>) -> WatchAnswer {
        if question.entries < self.worth_asking || self.is_avoided() {
            return WatchAnswer::Unknown;
        }
        let request = self.changes_request(question.root, question.root_id, question.since);
        match self.send_request(&request, answer_timeout(question.entries)) {
            Ok(WatchResponse::Changes(answer)) => {
                self.clear_unanswered();
                answer
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                self.record_timeout();
                WatchAnswer::Unknown
            }
            _ => WatchAnswer::Unknown,
        }
    }

    fn scanned_without(&self, cost: &FullScanCost<'_>) {
        let Some(starter) = &self.starter else { return };
        let cost_of = |time: Duration| time * u32::try_from(cost.entries).unwrap_or(u32::MAX);
        let scan_time = cost
            .took
            .map_or_else(|| cost_of(DEFAULT_ENTRY_COST), |scan_time| scan_time.min(cost_of(MAX_ENTRY_COST)));
        // A watcher that does not answer still runs.
        if cost.entries < self.worth_asking || scan_time < starter.slow_scan || self.is_avoided() {
            return;
        }
        if starter.deferred {
            *starter.requested_root.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(cost.root.to_path_buf());
        } else if let Ok(LaunchOutcome::Started(mut child)) = self.start(starter, cost.root) {
            // Reaps the child, because this process may outlive it.
            let _ = std::thread::Builder::new().spawn(move || child.wait());
        }
    }
}

/// The timeout of a question: about a quarter of the time of a full scan. Waiting longer is not worth it.
fn answer_timeout(entries: usize) -> Duration {
    Duration::from_nanos(entries as u64 * 400).clamp(Duration::from_millis(3), Duration::from_millis(25))
}

/// Connects without blocking: a busy watcher counts as none.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = ShortSocketPath::new(path)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(&address.path)?)?;
    Ok(UnixStream::from(socket))
}

/// Whether the process at the other end belongs to the same user.
pub(crate) fn is_ours(stream: &UnixStream) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid == rustix::process::geteuid())
}

/// A path to a socket that is short enough for a socket address.
pub(crate) struct ShortSocketPath {
    pub path: PathBuf,
    _dir: Option<std::fs::File>,
}

impl ShortSocketPath {
    pub fn new(path: &Path) -> io::Result<Self> {
        const MAX_SOCKET_PATH_BYTES: usize = 100;
        if path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
            return Ok(Self { path: path.to_path_buf(), _dir: None });
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let dir = std::fs::File::open(parent)?;
        let number = std::os::fd::AsRawFd::as_raw_fd(&dir);
        Ok(Self { path: Path::new("/proc/self/fd").join(number.to_string()).join(name), _dir: Some(dir) })
    }
}

/// A nonblocking stream with a deadline.
struct DeadlineStream {
    stream: UnixStream,
    until: Instant,
}

impl DeadlineStream {
    fn wait_for(&self, events: PollFlags) -> io::Result<()> {
        let remaining = self.until.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: remaining.as_secs() as i64, tv_nsec: i64::from(remaining.subsec_nanos()) };
        let mut polled = [PollFd::from_borrowed_fd(self.stream.as_fd(), events)];
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for(PollFlags::IN)?,
                other => return other,
            }
        }
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        loop {
            match self.stream.write(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for(PollFlags::OUT)?,
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
