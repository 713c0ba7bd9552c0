//! Asking the watcher. Whatever goes wrong, the answer is that there is none: then a scan looks by itself.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use stepback_worktree::scan::hints::{Answer, Hints, Question};

use crate::mounts;
use crate::wire::{self, Asked, Told};

/// Name of the socket in the store's directory.
pub const SOCKET: &str = "watch.sock";

/// With fewer files and directories than this, looking costs no more than asking.
pub const WORTH_ASKING: usize = 1000;

/// Asks the watcher of one store.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    worth_asking: usize,
}

impl Client {
    /// For the store whose files on this machine are in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { socket: dir.join(SOCKET), worth_asking: WORTH_ASKING }
    }

    /// The same, for workspaces of any size.
    pub fn eager(dir: &Path) -> Self {
        Self { worth_asking: 0, ..Self::new(dir) }
    }

    /// How many directories of a workspace are watched, or why none; `None` if no watcher answers.
    pub fn status(&self, root: &Path) -> Option<Result<u64, String>> {
        let asked = Asked::Status { root: root.to_path_buf() };
        match self.ask(&asked, Duration::from_millis(500)).ok()? {
            Told::Status(status) => Some(status),
            Told::Changes(_) => None,
        }
    }

    fn ask(&self, asked: &Asked, patience: Duration) -> io::Result<Told> {
        let mut stream = Patient { stream: connect(&self.socket)?, until: Instant::now() + patience };
        if !is_ours(&stream.stream)? {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        wire::ask(&mut stream, asked)?;
        wire::listen(&mut stream)
    }
}

impl Hints for Client {
    fn changes(&self, question: &Question<'_>) -> Answer {
        if question.entries < self.worth_asking {
            return Answer::Nothing;
        }
        let asked = Asked::Changes {
            root: question.root.to_path_buf(),
            root_id: question.root_id,
            namespace: mounts::namespace(),
            since: question.since,
        };
        match self.ask(&asked, patience(question.entries)) {
            Ok(Told::Changes(answer)) => answer,
            _ => Answer::Nothing,
        }
    }
}

/// A quarter of what a look at everything would take, about: waiting longer is not worth it.
fn patience(entries: usize) -> Duration {
    Duration::from_nanos(entries as u64 * 400).clamp(Duration::from_millis(3), Duration::from_millis(40))
}

/// Connects without waiting: a watcher that has no time for us is as good as none.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = Reached::new(path)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(&address.path)?)?;
    Ok(UnixStream::from(socket))
}

/// Whether the process at the other end belongs to the same user.
pub(crate) fn is_ours(stream: &UnixStream) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid == rustix::process::geteuid())
}

/// A path to a socket that is short enough for an address.
pub(crate) struct Reached {
    pub path: PathBuf,
    _dir: Option<std::fs::File>,
}

impl Reached {
    pub fn new(path: &Path) -> io::Result<Self> {
        const LONGEST: usize = 100;
        if path.as_os_str().len() <= LONGEST {
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

/// A stream that does not block, waited for until a moment.
struct Patient {
    stream: UnixStream,
    until: Instant,
}

impl Patient {
    fn wait_for(&self, what: PollFlags) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut polled = [PollFd::from_borrowed_fd(self.stream.as_fd(), what)];
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for(PollFlags::IN)?,
                other => return other,
            }
        }
    }
}

impl Write for Patient {
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
