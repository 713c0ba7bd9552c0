//! The server's side: connections, and what they share.
//!
//! Every connection has a thread, which may block. Their number is bounded, and so is the memory for what clients send.

use std::io::{self, BufReader, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stepback_model::hex;
use stepback_store::{Store, StoreError};

use crate::access::AccessRole;
use crate::commit_ledger::CommitLedger;
use crate::dispatch::ConnectionHandler;
use crate::frame::{FrameLengths, MAX_BODY, MAX_REQUEST_HEAD};
use crate::handshake::{self, HandshakeRefusal, HttpHead, Welcome};
use crate::stream::ByteStream;

/// Most connections at a time.
const MAX_CONNECTIONS: usize = 512;
/// A connection without a request for this long is closed; a client opens another one when it needs it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may take to send the first request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a write to a client that does not read may wait.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of large messages that are in memory at a time, for all connections.
const MAX_MESSAGE_MEMORY: u64 = 2 * MAX_BODY as u64;
/// A message up to this length is not counted.
const SMALL_MESSAGE: u64 = 64 << 10;
/// How long a large message waits for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server that stops waits for running requests.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Brings the search index up to date.
pub type UpdateIndex = Box<dyn Fn() -> Result<(), StoreError> + Send + Sync>;

/// What a service serves, and to whom.
pub struct ServiceConfig {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The id of the store, by which a client notices that another store has taken its place.
    pub store_id: String,
    /// Tokens, each with what its holder may do.
    pub tokens: Vec<(String, AccessRole)>,
    /// Brings the search index up to date. A client with `append` cannot write to the index, so the server does it before it
    /// answers a search.
    pub update_index: Option<UpdateIndex>,
}

/// Serves connections from a store. Cheap to clone.
#[derive(Clone)]
pub struct StoreService {
    inner: Arc<ServiceState>,
}

/// What all connections share.
pub(crate) struct ServiceState {
    pub config: ServiceConfig,
    pub ledger: CommitLedger,
    /// Held from the check of a commit with the role `append` until the commit is done.
    pub appending: Mutex<()>,
    instance: String,
    connections: AtomicUsize,
    running_requests: AtomicUsize,
    memory: MessageMemory,
}

impl StoreService {
    /// Creates the service.
    pub fn new(config: ServiceConfig) -> io::Result<Self> {
        let mut instance = [0; 8];
        getrandom::fill(&mut instance).map_err(io::Error::other)?;
        Ok(Self {
            inner: Arc::new(ServiceState {
                config,
                ledger: CommitLedger::default(),
                appending: Mutex::default(),
                instance: hex::encode(&instance),
                connections: AtomicUsize::new(0),
                running_requests: AtomicUsize::new(0),
                memory: MessageMemory::default(),
            }),
        })
    }

    /// What the holder of a token may do; `None` if it is not a token of this service.
    pub fn find_role(&self, token: &str) -> Option<AccessRole> {
        let mut found = None;
        // All are compared, so that the time says nothing about them.
        for (known, role) in &self.inner.config.tokens {
            if is_equal(known.as_bytes(), token.as_bytes()) {
                found = Some(*role);
            }
        }
        found
    }

    /// What the server says about itself to a client with this role.
    pub fn welcome(&self, role: AccessRole) -> Welcome {
        Welcome { role, store_id: self.inner.config.store_id.clone(), instance: self.inner.instance.clone() }
    }

    /// Serves a connection from its first byte to its end. A client without a token has the role `without_token`; `None`
    /// refuses it.
    pub fn serve_stream(
        &self,
        mut stream: impl ByteStream,
        without_token: Option<AccessRole>,
    ) -> io::Result<()> {
        stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let mut stream = BufferedStream::new(stream);
        let Some(_slot) = ConnectionSlot::take(&self.inner) else {
            return handshake::refuse(&mut stream, HandshakeRefusal::TooMany);
        };
        let Some(head) = HttpHead::read(&mut stream)? else { return Ok(()) };
        let role = match head.token() {
            Some(token) => self.find_role(token),
            None => without_token,
        };
        let refusal = match (handshake::check_request(&head), role) {
            (Err(refusal), _) => Some(refusal),
            (Ok(()), None) => Some(HandshakeRefusal::WrongToken),
            (Ok(()), Some(_)) => None,
        };
        if let Some(refusal) = refusal {
            return handshake::refuse(&mut stream, refusal);
        }
        let role = role.unwrap_or(AccessRole::Append);
        self.welcome(role).write(&mut stream)?;
        self.serve_requests(stream, role)
    }

    /// Serves a connection that was upgraded already, by a server that speaks HTTP.
    pub fn serve_upgraded(&self, mut stream: impl ByteStream, role: AccessRole) -> io::Result<()> {
        let Some(_slot) = ConnectionSlot::take(&self.inner) else { return Ok(()) };
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        self.serve_requests(BufferedStream::new(stream), role)
    }

    /// Whether another connection would be accepted.
    pub fn has_room(&self) -> bool {
        self.inner.connections.load(Ordering::SeqCst) < MAX_CONNECTIONS
    }

    /// Waits until no request is running, for a server that stops.
    pub fn wait_until_idle(&self) {
        let until = Instant::now() + STOP_TIMEOUT;
        while self.inner.running_requests.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn serve_requests(
        &self,
        mut stream: BufferedStream<impl ByteStream>,
        role: AccessRole,
    ) -> io::Result<()> {
        stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
        let state = &*self.inner;
        let mut handler = ConnectionHandler::new(state, role);
        while let Some(lengths) = FrameLengths::read(&mut stream, MAX_REQUEST_HEAD)? {
            let total = u64::from(lengths.head) + u64::from(lengths.body);
            let _memory = state.memory.reserve(total)?;
            let (head, body) = lengths.read_message(&mut stream)?;
            let _running = RunningRequest::begin(state);
            handler.handle(&mut stream, &head, &body)?;
        }
        Ok(())
    }
}

/// Compares two secrets in a time that depends only on their lengths.
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// A place among the connections.
struct ConnectionSlot<'a>(&'a ServiceState);

impl<'a> ConnectionSlot<'a> {
    fn take(state: &'a ServiceState) -> Option<Self> {
        let slot = Self(state);
        // Dropped if there is no room.
        (state.connections.fetch_add(1, Ordering::SeqCst) < MAX_CONNECTIONS).then_some(slot)
    }
}

impl Drop for ConnectionSlot<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A request that is being carried out.
pub(crate) struct RunningRequest<'a>(&'a ServiceState);

impl<'a> RunningRequest<'a> {
    fn begin(state: &'a ServiceState) -> Self {
        state.running_requests.fetch_add(1, Ordering::SeqCst);
        Self(state)
    }
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        self.0.running_requests.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bounds the memory for large messages of all connections.
#[derive(Default)]
struct MessageMemory {
    used: Mutex<u64>,
    freed: Condvar,
}

struct ReservedMemory<'a> {
    memory: &'a MessageMemory,
    bytes: u64,
}

impl MessageMemory {
    /// Waits until there is room for a message.
    fn reserve(&self, bytes: u64) -> io::Result<Option<ReservedMemory<'_>>> {
        if bytes <= SMALL_MESSAGE {
            return Ok(None);
        }
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |used: &mut u64| *used > 0 && *used + bytes > MAX_MESSAGE_MEMORY;
        let waited = self.freed.wait_timeout_while(used, MEMORY_TIMEOUT, is_full);
        let (mut used, result) = waited.unwrap_or_else(PoisonError::into_inner);
        if result.timed_out() {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        *used += bytes;
        Ok(Some(ReservedMemory { memory: self, bytes }))
    }
}

impl Drop for ReservedMemory<'_> {
    fn drop(&mut self) {
        *self.memory.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.memory.freed.notify_all();
    }
}

/// A stream that is read through a buffer.
pub(crate) struct BufferedStream<S: Read>(BufReader<S>);

impl<S: ByteStream> BufferedStream<S> {
    pub fn new(stream: S) -> Self {
        Self(BufReader::with_capacity(32 << 10, stream))
    }
}

impl<S: ByteStream> Read for BufferedStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<S: ByteStream> Write for BufferedStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

impl<S: ByteStream> ByteStream for BufferedStream<S> {
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.get_mut().set_read_timeout(timeout)
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.get_mut().set_write_timeout(timeout)
    }
}
