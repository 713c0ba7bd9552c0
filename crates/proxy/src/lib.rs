//! The model proxy: an agent's base URL points here, every byte goes on to the model as it is, and each exchange is handed
//! to a sink. Instead of asking the model, an answer can come from a recording.
//!
//! The agent must not notice it. Pieces of an answer are passed on as they come, copies are made beside the stream and are
//! bounded, and whatever the sink does (it may be slow, fail or panic), the stream goes on. Only the last piece of an answer
//! waits, and not for long, until the sink has noted it: the agent acts on it, and what it does next must be recorded after.

mod body;
mod body_capture;
mod certificates;
pub mod client;
mod connect;
mod decode;
mod forward;
mod handler;
mod headers;
mod recording;
mod refusal;
mod replay;
mod server;
mod state;
mod tunnel;
mod upstream;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use stepback_exchange::{Exchange, Request, Response};

pub use server::{Proxy, Stats, start};
pub use upstream::Upstreams;

/// What a proxy is started with.
pub struct Config {
    /// Where agents find it.
    pub listen: Listen,
    /// Where it finds the models.
    pub upstreams: Upstreams,
    /// Who is told of every exchange.
    pub sink: Arc<dyn Sink>,
    /// Who may answer instead of the model.
    pub answers: Option<Arc<dyn Answers>>,
    /// How much and how long.
    pub limits: Limits,
    /// A file of certificates (PEM) that are trusted beside those of the system, as agents have it in `NODE_EXTRA_CA_CERTS`.
    pub certificates: Option<PathBuf>,
}

/// Where agents find the proxy.
#[derive(Debug)]
pub enum Listen {
    /// An address on this machine's loopback; any other is refused. Port 0 takes a free one.
    Addr(SocketAddr),
    /// Any address. Whoever reaches it can use it, so this has to be said in so many words.
    Anywhere(SocketAddr),
    /// A socket that listens already.
    Socket(TcpListener),
    /// A socket that listens in another network namespace, where the same address is not the same place.
    Elsewhere(TcpListener),
}

/// How much is kept, and how long is waited.
#[derive(Clone, Debug)]
pub struct Limits {
    /// So many bytes of one body are recorded at most, after decompression; the rest is passed on and counted.
    pub recorded_body: u64,
    /// So many bytes of all exchanges that are not yet with the sink.
    pub recorded_total: u64,
    /// How long connecting may take, TLS included.
    pub connect: Duration,
    /// How long the model may say nothing at all. Agents have limits of their own, and this must not be the shorter one.
    pub idle: Duration,
    /// How long the last piece of an answer waits for the sink, so that what the agent does next is recorded after it. After
    /// a sink was late, it waits only a moment until one is done again.
    pub hold: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            recorded_body: 64 << 20,
            recorded_total: 512 << 20,
            connect: Duration::from_secs(30),
            idle: Duration::from_secs(60 * 60),
            hold: Duration::from_secs(2),
        }
    }
}

/// Who is told of every exchange with a model. Both functions are called on threads where they may block, for one exchange
/// in this order and once each; of different exchanges at the same time. What they do never changes the stream.
pub trait Sink: Send + Sync {
    /// A request is complete. `headers` are all it had, save those that authorise it.
    fn begun(&self, id: &str, at: SystemTime, request: &Request, headers: &[(String, String)]);
    /// Its answer is complete, or there will be no more of it. The last piece waits for this to return, see
    /// [`Limits::hold`]. If the agent went away before any answer came, the status is 0.
    fn ended(&self, id: &str, exchange: &Exchange);
}

/// Who may answer instead of the model.
pub trait Answers: Send + Sync {
    /// What becomes of a request. It may block. Requests that ask no model (a list of models) come here as well, with no
    /// wire, so that nothing reaches the network that should not. `id` is the one the sink is told.
    fn answer(&self, id: &str, request: &mut Request) -> Decision;
}

/// What becomes of a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Decision {
    /// It goes to the model as it came.
    Live,
    /// It goes to the model with the body and the path that [`Answers::answer`] left in it; the body is written anew, so its
    /// bytes differ even where its meaning does not. The sink is told of the request as it was sent.
    LiveChanged,
    /// It is answered with what was recorded. A recorded answer that broke off breaks off again at the same place.
    Recorded {
        /// The answer.
        response: Response,
        /// When its pieces come.
        timing: Timing,
    },
    /// It is refused with an error in the form the agent knows.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// What to tell the agent, and through it the person.
        message: String,
    },
}

/// When the pieces of a recorded answer come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// As they came when it was recorded.
    Real,
    /// At once.
    Instant,
}
