//! The model proxy: an agent's base URL points here, every byte is forwarded to the model unchanged, and each exchange
//! is handed to a sink. Instead of asking the model, the proxy can answer from a recording.
//!
//! The agent must not notice it. Chunks of an answer are passed on as they arrive, copies are made beside the stream
//! and are limited in size, and whatever the sink does (it may be slow, fail or panic), the stream continues. Only the
//! last chunk of an answer waits, briefly, until the sink has recorded it: the agent acts on that chunk, and its next
//! action must be recorded after it.
//!
//! It knows no store, no session and no workspace: a [`Sink`] receives exchanges, a [`Responder`] may answer them.
//!
//! # Modules
//!
//! - `server`, `handler`: the socket and its thread; one request: forwarded, answered from a recording, or refused.
//!   Start at `handler::handle`.
//! - `access`, [`connections`], [`timed_body`]: which requests are refused, and clients that send nothing or half a
//!   request; the server uses the last two as well.
//! - `forward`, `tunnel`, `upstream`, `connect`, `certificates`: requests to the model, WebSockets unrelated to a
//!   model, and connections.
//! - `body`, `recording`, `state`: bodies in transit, one exchange being recorded, and calls of the sink.
//! - `body_capture`, `decode`, `headers`: bounded, decompressed copies of bodies, and which headers may be recorded.
//! - `replay`, `refusal`: sends a recorded answer; errors of the proxy itself, in each wire's format.
//! - [`client`]: a blocking client that asks a model without a proxy.
//!
//! Design: `docs/design/0013-model-proxy.md`.

mod access;
mod body;
mod body_capture;
mod certificates;
pub mod client;
mod connect;
pub mod connections;
mod decode;
mod forward;
mod handler;
mod headers;
mod recording;
mod refusal;
mod replay;
mod server;
mod state;
pub mod timed_body;
mod tunnel;
mod upstream;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use stepback_llm_wire::{Exchange, ModelRequest, Response};

pub use access::ProxyAccess;
pub use connections::ConnectionLimits;
pub use server::{Proxy, Stats, start};
pub use upstream::Upstreams;

/// The configuration of a proxy.
pub struct ProxyConfig {
    /// The socket to listen on.
    pub listen: Listen,
    /// Base URLs of the model providers.
    pub upstreams: Upstreams,
    /// Receives every exchange.
    pub sink: Arc<dyn Sink>,
    /// May respond instead of the model; with `None`, every request goes to the model.
    pub responder: Option<Arc<dyn Responder>>,
    /// Sizes and time limits.
    pub limits: ProxyLimits,
    /// A PEM file with certificates to trust in addition to the system's, as in `NODE_EXTRA_CA_CERTS`.
    pub certificates: Option<PathBuf>,
    /// `Host` and `Origin` header values to accept, besides IP addresses and `localhost`.
    pub access: ProxyAccess,
}

/// The socket that the proxy listens on.
#[derive(Debug)]
pub enum Listen {
    /// A loopback address; any other is refused. Port 0 picks a free port.
    Addr(SocketAddr),
    /// Any address. Every client that can reach it can use it, so this must be requested explicitly.
    Anywhere(SocketAddr),
    /// A socket that is already listening.
    Socket(TcpListener),
    /// A socket that listens in another network namespace, where the same address means a different place.
    Elsewhere(TcpListener),
}

/// Sizes and time limits.
#[derive(Clone, Debug)]
pub struct ProxyLimits {
    /// The most bytes of one body that are recorded, after decompression; the rest is passed on and counted.
    pub recorded_body: u64,
    /// The most bytes of all exchanges that the sink has not received yet.
    pub recorded_total: u64,
    /// The time limit for connecting, including TLS.
    pub connect: Duration,
    /// How long the model may be silent. Agents have limits of their own, and this one must not be shorter.
    pub idle: Duration,
    /// How long the last chunk of an answer waits for the sink, so that the agent's next action is recorded after it.
    /// After the sink was late once, the wait is short until the sink finishes in time again.
    pub hold: Duration,
    /// How many agents may be connected, and for how long without a request. Agents keep connections for later requests,
    /// and one that is closed too early can make such a request fail.
    pub connections: ConnectionLimits,
    /// How long an agent may stop in the middle of a request.
    pub request_silence: Duration,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            recorded_body: 64 << 20,
            recorded_total: 512 << 20,
            connect: Duration::from_secs(30),
            idle: Duration::from_secs(60 * 60),
            hold: Duration::from_secs(2),
            connections: ConnectionLimits {
                count: 1024,
                first_request: Duration::from_secs(30),
                between_requests: Duration::from_secs(15 * 60),
            },
            request_silence: Duration::from_secs(120),
        }
    }
}

/// Receives every exchange with a model. Both functions are called on threads where they may block: for one exchange in
/// this order and once each, for different exchanges concurrently. They never affect the stream.
pub trait Sink: Send + Sync {
    /// Called when a request is complete. `headers` are all its headers except credentials.
    fn begun(&self, id: &str, at: SystemTime, request: &ModelRequest, headers: &[(String, String)]);
    /// Called when its answer is complete, or will not continue. The last chunk waits for this to return, see
    /// [`ProxyLimits::hold`]. If the agent disconnected before any answer arrived, the status is 0.
    fn ended(&self, id: &str, exchange: &Exchange);
}

/// May answer instead of the model.
pub trait Responder: Send + Sync {
    /// Decides what to do with a request. It may block. Requests that ask no model (a list of models) come here as well,
    /// with no wire, so that nothing reaches the network that should not. `id` is the one that the sink gets.
    fn answer(&self, id: &str, request: &mut ModelRequest) -> Decision;
}

/// What to do with a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Decision {
    /// Forward it to the model unchanged.
    Live,
    /// Forward it to the model with the body and the path that [`Responder::answer`] left in it; the body is serialized
    /// again, so its bytes differ even if its meaning does not. The sink gets the request as it was sent.
    LiveChanged,
    /// Answer it from a recording. A recorded answer that was cut off is cut off again at the same place.
    Recorded {
        /// The recorded answer.
        response: Response,
        /// When its chunks are sent.
        timing: Timing,
    },
    /// Refuse it with an error in a format the agent understands.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// A message for the agent, and through it for the user.
        message: String,
    },
}

/// When the chunks of a recorded answer are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// With the delays of the recording.
    Real,
    /// All at once.
    Instant,
}
