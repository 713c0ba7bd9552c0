//! The proxy server: its socket, its thread, its shutdown.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::body::AnswerBody;
use crate::connect::AnyError;
use crate::connections::{ClientConnection, ConnectionTable, CountedBody, RequestCounter};
use crate::handler::handle;
use crate::state::{ProxyState, increment_counter};
use crate::upstream::Routes;
use crate::{Listen, ProxyConfig, certificates, connect};

/// How long a proxy that shuts down waits for the sink.
const SHUTDOWN_SINK_TIMEOUT: Duration = Duration::from_secs(5);

/// A running proxy. Dropping it ends it at once.
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<ProxyState>,
    end: watch::Sender<Option<Duration>>,
    thread: Option<JoinHandle<()>>,
}

/// Counters of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Connections from agents.
    pub connections: u64,
    /// Requests, including those that ask no model.
    pub requests: u64,
    /// Exchanges that have not ended.
    pub running: u64,
    /// Exchanges that have ended.
    pub exchanges: u64,
    /// Of the ended ones: without an answer.
    pub failed: u64,
    /// Of the ended ones: cut off by the model's side.
    pub cut_off: u64,
    /// Of the ended ones: cancelled by the agent.
    pub cancelled: u64,
    /// How often the last chunk was sent before the sink was done.
    pub sink_late: u64,
    /// How often the sink panicked.
    pub sink_panicked: u64,
    /// Bytes of bodies that are kept at present.
    pub recorded_bytes: u64,
}

/// Starts a proxy on its own thread. It is listening when this returns.
pub fn start(config: ProxyConfig) -> io::Result<Proxy> {
    let ProxyConfig { listen, upstreams, sink, responder, limits, certificates, access } = config;
    let routes = Routes::parse(&upstreams)?;
    let trust = certificates::client_config(routes.any_https(), certificates.as_deref())?;
    let is_reachable_here = !matches!(listen, Listen::Elsewhere(_));
    let socket = match listen {
        Listen::Addr(addr) if !addr.ip().is_loopback() => {
            let text =
                format!("{addr} is not a loopback address, and every client that reaches it could use it");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Listen::Addr(addr) | Listen::Anywhere(addr) => TcpListener::bind(addr)?,
        Listen::Socket(socket) | Listen::Elsewhere(socket) => socket,
    };
    let addr = socket.local_addr()?;
    if is_reachable_here {
        routes.refuse_loop(addr)?;
    }
    socket.set_nonblocking(true)?;
    // Two threads do all the work: a single one is delayed by other load on the machine (see the design note). Blocking
    // work runs on other threads.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_io()
        .enable_time()
        .thread_name("proxy-sink")
        .thread_keep_alive(Duration::from_secs(60))
        .build()?;
    let models = connect::new_client(trust, limits.connect);
    let shared = ProxyState::new(sink, responder, limits, access, routes, models, runtime.handle().clone())?;
    let (end, ended) = watch::channel(None);
    let thread = {
        let shared = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || run(runtime, socket, &shared, ended))?
    };
    Ok(Proxy { addr, shared, end, thread: Some(thread) })
}

impl Proxy {
    /// Returns the address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the value for an agent's base URL, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Shuts down: no new requests are accepted, running answers may finish within `patience`, the rest is cut off and
    /// recorded as such.
    pub fn shutdown(mut self, patience: Duration) -> Stats {
        self.stop(patience);
        self.stats()
    }

    fn stop(&mut self, patience: Duration) {
        self.end.send_replace(Some(patience));
        if let Some(thread) = self.thread.take() {
            // If it panicked there is nothing left to end.
            let _ = thread.join();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

fn run(
    runtime: Runtime,
    socket: TcpListener,
    shared: &Arc<ProxyState>,
    ended: watch::Receiver<Option<Duration>>,
) {
    runtime.block_on(async {
        let Ok(socket) = tokio::net::TcpListener::from_std(socket) else { return };
        serve(socket, shared, ended).await;
        // A sink that hangs must not prevent the program from ending.
        let _ = tokio::time::timeout(SHUTDOWN_SINK_TIMEOUT, shared.all_told()).await;
    });
    runtime.shutdown_background();
}

async fn serve(
    socket: tokio::net::TcpListener,
    shared: &Arc<ProxyState>,
    ended: watch::Receiver<Option<Duration>>,
) {
    let mut ended_receiver = ended.clone();
    let mut connections = JoinSet::new();
    let table = ConnectionTable::new(shared.limits.connections);
    let patience = loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => {
                    increment_counter(&shared.counts.connections);
                    // Without a place, the stream is closed.
                    if let Some(connection) = table.add() {
                        connections.spawn(serve_one(stream, connection, Arc::clone(shared), ended.clone()));
                    }
                }
                // Usually too many open files; some of them will be closed eventually.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
            end = ended_receiver.wait_for(Option::is_some) => break end.ok().and_then(|end| *end).unwrap_or_default(),
        }
    };
    drop(socket);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(patience, finished).await.is_err() {
        shared.is_shutting_down.store(true, Ordering::Relaxed);
        connections.shutdown().await;
    }
}

/// Answers a request, and counts it until its answer was sent.
async fn answer(
    shared: Arc<ProxyState>,
    requests: RequestCounter,
    request: Request<Incoming>,
) -> Result<Response<CountedBody<AnswerBody>>, AnyError> {
    let running = requests.begin();
    match handle(shared, request).await {
        Ok(response) => Ok(response.map(|body| CountedBody::new(body, running))),
        Err(error) => Err(error),
    }
}

async fn serve_one(
    stream: TcpStream,
    place: ClientConnection,
    shared: Arc<ProxyState>,
    mut ended: watch::Receiver<Option<Duration>>,
) {
    // Without it chunks may arrive later, but they do arrive.
    let _ = stream.set_nodelay(true);
    let requests = place.requests();
    let service = service_fn(move |request| answer(Arc::clone(&shared), requests.clone(), request));
    let connection = http1::Builder::new()
        .preserve_header_case(true)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    // The exchanges of a connection know how it ended.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = place.expired() => return,
        _ = ended.wait_for(Option::is_some) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
