//! The connections of one client.
//!
//! A connection carries one request at a time. A thread takes an idle one or opens another. If the server went away and came
//! back, a request that may be repeated is sent again; a hook gives up as soon as its time is over, so that its event goes
//! into the inbox.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use stepback_store::StoreError;

use crate::address::RemoteAddress;
use crate::frame::{FrameLengths, MAX_REPLY_HEAD, invalid, write_message};
use crate::handshake::{self, HandshakeError, Welcome};
use crate::protocol::{StoreReply, StoreRequest};
use crate::service::BufferedStream;
use crate::stream::{ByteStream, is_timeout};
use crate::tls;

/// How long to try to connect, unless the caller has less time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for the answer to a usual request, and to one that reads or writes much of the store.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);
const LONG_REPLY_TIMEOUT: Duration = Duration::from_secs(3600);
/// A server writes at least this many bytes per second; a commit gets more time accordingly.
const SLOWEST_WRITE: u64 = 4 << 20;
/// An idle connection is not used after this time: the server may be about to close it.
const MAX_IDLE: Duration = Duration::from_secs(30);
/// Idle connections that are kept.
const MAX_IDLE_CONNECTIONS: usize = 8;
/// Delays before each retry after a connection was lost: long enough in total for a server that restarts.
const RETRY_DELAYS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_millis(1000),
    Duration::from_millis(2000),
];

/// What to do about a server that cannot be reached.
const START: &str = "start the server of the store (\"systemctl start stepback-guard\", or \"stepback serve --guard\" as the user that owns it); hooks keep their events until then";
const RETRY: &str = "retry; if it happens again, see the log of the server that holds the store";

/// Where to connect to.
pub(crate) struct ConnectTarget {
    pub address: RemoteAddress,
    pub token: Option<String>,
}

/// Whether a request may be sent again when it is not known whether the server received it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeat {
    Allowed,
    Refused,
}

/// Why a request did not succeed.
pub(crate) enum CallError {
    /// The server refused it, or carried it out and failed.
    Failed(StoreError),
    /// The connection was lost: whether the request was carried out is not known.
    Lost(StoreError),
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Failed(error) | CallError::Lost(error) => error,
        }
    }
}

/// The connections of one client.
pub(crate) struct ConnectionPool {
    target: ConnectTarget,
    patience: Option<Duration>,
    tls: OnceLock<Arc<rustls::ClientConfig>>,
    store_id: String,
    idle: Mutex<Vec<Connection>>,
    /// Set when the server did not answer a client that has little time: its other requests fail at once.
    is_away: std::sync::atomic::AtomicBool,
}

/// One connection.
pub(crate) struct Connection {
    stream: BufferedStream<Box<dyn ByteStream>>,
    pub welcome: Welcome,
    read_timeout: Duration,
    used_at: Instant,
    /// Bytes sent since the last commit, for which a commit may take longer.
    unsynced: u64,
}

impl ConnectionPool {
    /// Opens the first connection.
    pub fn connect(target: ConnectTarget, patience: Option<Duration>) -> Result<(Self, Welcome), StoreError> {
        let mut pool = Self {
            target,
            patience,
            tls: OnceLock::new(),
            store_id: String::new(),
            idle: Mutex::default(),
            is_away: false.into(),
        };
        let connection = pool.open_connection()?;
        let welcome = connection.welcome.clone();
        pool.store_id.clone_from(&welcome.store_id);
        pool.put_back(connection);
        Ok((pool, welcome))
    }

    /// The address for display.
    pub fn shown(&self) -> String {
        self.target.address.to_string()
    }

    /// Sends a request on any connection. Returns the value and the body of the reply.
    pub fn call<T: DeserializeOwned>(
        &self,
        request: &StoreRequest<'_>,
        body: &[u8],
        repeat: Repeat,
    ) -> Result<(T, Vec<u8>), StoreError> {
        match repeat {
            Repeat::Allowed => self.with_retry(|connection| self.call_on(connection, request, body)),
            Repeat::Refused => {
                // An idle connection may be one that the server has closed.
                let mut connection = self.open_connection()?;
                let answer = self.call_on(&mut connection, request, body)?;
                self.put_back(connection);
                Ok(answer)
            }
        }
    }

    /// Does `work` on a connection, and again on a new one as long as connections are lost.
    pub fn with_retry<T>(
        &self,
        mut work: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, StoreError> {
        let until = Instant::now() + self.patience.unwrap_or(CONNECT_TIMEOUT);
        let mut last = None;
        for delay in RETRY_DELAYS {
            if last.is_some() && Instant::now() + delay > until {
                break;
            }
            std::thread::sleep(delay);
            let mut connection = match self.lease() {
                Ok(connection) => connection,
                // Waiting pays only for a server that was there a moment ago.
                Err(error @ StoreError::Server { .. }) if last.is_some() => {
                    last = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            match work(&mut connection) {
                Ok(done) => {
                    self.put_back(connection);
                    return Ok(done);
                }
                Err(CallError::Failed(error)) => {
                    self.put_back(connection);
                    return Err(error);
                }
                Err(CallError::Lost(error)) => {
                    // The other connections were most likely lost too.
                    self.lock_idle().clear();
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or(StoreError::Locked))
    }

    /// Takes an idle connection, or opens one.
    pub fn lease(&self) -> Result<Connection, StoreError> {
        loop {
            let idle = self.lock_idle().pop();
            match idle {
                None => return self.open_connection(),
                Some(connection) if connection.used_at.elapsed() < MAX_IDLE => return Ok(connection),
                Some(_) => {}
            }
        }
    }

    /// Keeps a connection for the next request.
    pub fn put_back(&self, mut connection: Connection) {
        connection.used_at = Instant::now();
        let mut idle = self.lock_idle();
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(connection);
        }
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request on this connection, and reads the reply.
    pub fn call_on<T: DeserializeOwned>(
        &self,
        connection: &mut Connection,
        request: &StoreRequest<'_>,
        body: &[u8],
    ) -> Result<(T, Vec<u8>), CallError> {
        self.send(connection, request, body)?;
        self.receive(connection)
    }

    /// Sends a request.
    pub fn send(
        &self,
        connection: &mut Connection,
        request: &StoreRequest<'_>,
        body: &[u8],
    ) -> Result<(), CallError> {
        // Requests are plain data with string keys, which always serialise.
        let head = serde_json::to_vec(request).unwrap_or_default();
        connection.unsynced += (head.len() + body.len()) as u64;
        let timeout = self.reply_timeout(request, connection.unsynced);
        let sent = connection
            .wait_at_most(timeout)
            .and_then(|()| write_message(&mut connection.stream, &head, body));
        if matches!(request, StoreRequest::Commit(_)) {
            connection.unsynced = 0;
        }
        sent.map_err(|error| CallError::Lost(self.lost(&error)))
    }

    /// Reads a reply.
    pub fn receive<T: DeserializeOwned>(
        &self,
        connection: &mut Connection,
    ) -> Result<(T, Vec<u8>), CallError> {
        let lost = |error: io::Error| CallError::Lost(self.lost(&error));
        let lengths = FrameLengths::read(&mut connection.stream, MAX_REPLY_HEAD)
            .and_then(|lengths| lengths.ok_or(io::Error::from(io::ErrorKind::UnexpectedEof)))
            .map_err(lost)?;
        let (head, body) = lengths.read_message(&mut connection.stream).map_err(lost)?;
        match serde_json::from_slice(&head) {
            Ok(StoreReply::Done(value)) => Ok((value, body)),
            Ok(StoreReply::Failed(error)) => Err(CallError::Failed(error.into())),
            Err(error) => Err(lost(invalid(format!("its answer cannot be read: {error}")))),
        }
    }

    fn reply_timeout(&self, request: &StoreRequest<'_>, unsynced: u64) -> Duration {
        let more = Duration::from_secs(unsynced / SLOWEST_WRITE);
        match (self.patience, request) {
            (Some(patience), _) => patience + more,
            (
                None,
                StoreRequest::Sweep { .. }
                | StoreRequest::UsageAfter { .. }
                | StoreRequest::Usage
                | StoreRequest::Check
                | StoreRequest::LostCommits
                | StoreRequest::RestoreLostCommits
                | StoreRequest::Unindexed { .. }
                | StoreRequest::ForgetIndex,
            ) => LONG_REPLY_TIMEOUT,
            (None, _) => REPLY_TIMEOUT + more,
        }
    }

    /// The error for a connection that was lost.
    fn lost(&self, error: &io::Error) -> StoreError {
        if is_timeout(error) && self.patience.is_some() {
            self.is_away.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        let why = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
            _ if is_timeout(error) => "the server did not answer in time".to_owned(),
            _ => error.to_string(),
        };
        StoreError::Server {
            what: format!("lost the connection to the store at {}", self.shown()),
            why,
            remedy: RETRY,
        }
    }

    /// The error for a server that cannot be reached.
    fn unreachable(&self, error: &io::Error) -> StoreError {
        let what = format!("cannot reach the store at {}", self.shown());
        let (why, remedy) = match error.kind() {
            io::ErrorKind::NotFound => ("there is no socket; the server is not running".to_owned(), START),
            io::ErrorKind::ConnectionRefused => ("the server is not running".to_owned(), START),
            io::ErrorKind::PermissionDenied => (
                "this user may not connect".to_owned(),
                "add the user to the group of the socket (\"ls -l\" shows it), and log in again",
            ),
            io::ErrorKind::InvalidInput => (error.to_string(), "check the address of the store"),
            _ if is_timeout(error) => ("the server did not answer in time".to_owned(), START),
            _ => (error.to_string(), START),
        };
        StoreError::Server { what, why, remedy }
    }

    /// Opens a connection.
    pub fn open_connection(&self) -> Result<Connection, StoreError> {
        if self.is_away.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(self.unreachable(&io::Error::from(io::ErrorKind::TimedOut)));
        }
        let timeout = self.patience.unwrap_or(CONNECT_TIMEOUT);
        let opened = self.dial(timeout).map_err(HandshakeError::Io).and_then(|stream| {
            let mut stream = BufferedStream::new(stream);
            let host = match &self.target.address {
                RemoteAddress::Unix(_) => "localhost".to_owned(),
                RemoteAddress::Http { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
                RemoteAddress::Http { host, port, .. } => format!("{host}:{port}"),
            };
            let welcome = handshake::request(&mut stream, &host, self.target.token.as_deref())?;
            Ok((stream, welcome))
        });
        let (stream, welcome) = opened.map_err(|error| match error {
            HandshakeError::Io(error) => {
                if is_timeout(&error) && self.patience.is_some() {
                    self.is_away.store(true, std::sync::atomic::Ordering::Relaxed);
                }
                self.unreachable(&error)
            }
            HandshakeError::Refused(why, remedy) => {
                StoreError::Server { what: format!("cannot use the store at {}", self.shown()), why, remedy }
            }
        })?;
        if !self.store_id.is_empty() && welcome.store_id != self.store_id {
            return Err(StoreError::Replaced { path: self.shown().into() });
        }
        Ok(Connection { stream, welcome, read_timeout: timeout, used_at: Instant::now(), unsynced: 0 })
    }

    fn dial(&self, timeout: Duration) -> io::Result<Box<dyn ByteStream>> {
        match &self.target.address {
            RemoteAddress::Unix(path) => {
                let stream = connect_unix(path, timeout)?;
                UnixStream::set_read_timeout(&stream, Some(timeout))?;
                Ok(Box::new(stream))
            }
            RemoteAddress::Http { is_tls, host, port, ca } => {
                let stream = connect_tcp(host, *port, timeout)?;
                stream.set_nodelay(true)?;
                TcpStream::set_read_timeout(&stream, Some(timeout))?;
                TcpStream::set_write_timeout(&stream, Some(timeout))?;
                if !is_tls {
                    return Ok(Box::new(stream));
                }
                let config = match self.tls.get() {
                    Some(config) => config.clone(),
                    None => {
                        let loaded = tls::load_config(ca.as_deref())?;
                        self.tls.get_or_init(|| loaded).clone()
                    }
                };
                Ok(Box::new(tls::connect(config, host, stream)?))
            }
        }
    }
}

impl Connection {
    /// Sets how long the next reply may take.
    fn wait_at_most(&mut self, timeout: Duration) -> io::Result<()> {
        if self.read_timeout != timeout {
            self.stream.set_read_timeout(Some(timeout))?;
            self.stream.set_write_timeout(Some(timeout))?;
            self.read_timeout = timeout;
        }
        Ok(())
    }
}

/// Connects to a socket. A server that does not accept must not keep a hook waiting, so the time for that is limited, too.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    let address = SocketAddrUnix::new(path)?;
    rustix::net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
