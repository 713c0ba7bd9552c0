//! The server as a whole: binds the socket, builds the router, shuts down.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::http::header;
use axum::routing::get;
use axum::{Router, middleware};
use stepback_proxy::ConnectionLimits;
use stepback_remote::StoreService;
use tokio::sync::{oneshot, watch};

use crate::auth::{AuthToken, Guard};
use crate::browser_session::BrowserSessions;
use crate::limits::{self, Limits};
use crate::metrics::{self, Observer};
use crate::signin::SignIn;
use crate::state::AppState;
use crate::tls::Tls;
use crate::{accept, api, mcp, static_files, store_endpoint};

/// Largest body of a request that is not ingest, in bytes.
const LARGEST: usize = 8 << 20;
/// Default of [`ServerConfig::patience`].
const DEFAULT_WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The configuration of a server.
pub struct ServerConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The file that holds the token.
    pub token_file: PathBuf,
    /// Host names that requests may use, besides those of loopback and the address itself.
    pub hosts: Vec<String>,
    /// Origins whose pages may send requests.
    pub origins: Vec<String>,
    /// The TLS certificate and key; `None` for plain HTTP.
    pub tls: Option<Tls>,
    /// Receives a line of JSON for every request.
    pub log: Option<Box<dyn Write + Send>>,
    /// Most requests per second from one address; `None` for no limit.
    pub rate: Option<u32>,
    /// How long a write to a client that does not read may wait before the connection is closed.
    pub write_timeout: Duration,
    /// How many connections there may be, and how long they may be idle.
    pub connections: ConnectionLimits,
    /// Whether checks that agents request over MCP may run commands.
    pub allow_commands: bool,
    /// The store's own port, for clients with a token of it; `None` if this server does not offer it.
    pub store_service: Option<StoreService>,
}

impl ServerConfig {
    /// The default configuration for an address and a token file.
    pub fn new(listen: SocketAddr, token_file: PathBuf) -> Self {
        Self {
            listen,
            token_file,
            hosts: Vec::new(),
            origins: Vec::new(),
            tls: None,
            log: None,
            rate: None,
            write_timeout: DEFAULT_WRITE_TIMEOUT,
            connections: accept::LIMITS,
            allow_commands: false,
            store_service: None,
        }
    }
}

/// A running server. Dropping it stops it.
pub struct HttpServer {
    address: SocketAddr,
    token: AuthToken,
    sign_in: SignIn,
    is_secure: bool,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a server over a shared state.
pub fn serve(state: AppState, config: ServerConfig) -> io::Result<HttpServer> {
    let token = AuthToken::load_or_create(&config.token_file)?;
    let tls = config.tls.as_ref().map(Tls::load_acceptor).transpose()?;
    let listener = TcpListener::bind(config.listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    hosts.push(address.ip().to_string());
    hosts.extend(config.hosts);
    let sessions = BrowserSessions::new(&token, address.port(), tls.is_some());
    let guard = Guard::with_sessions(token.clone(), sessions.clone(), hosts, config.origins);
    let sign_in = SignIn::new(sessions);
    let observer = Observer::new(config.log);
    let (live, patience, connections) = (state.clone(), config.write_timeout, config.connections);
    let (router, _) = api::router();
    let router = router.with_state(state.clone());
    let operations = router.clone().layer(DefaultBodyLimit::max(LARGEST));
    let router = router
        .merge(stepback_grpc::router(operations, config.write_timeout))
        .merge(static_files::router())
        .merge(metrics_router(state.clone(), observer.clone()))
        .merge(sign_in.clone().router())
        .merge(mcp::router(state.clone(), config.allow_commands))
        .layer(DefaultBodyLimit::max(LARGEST));
    let (stop_clients, clients_stopped) = watch::channel(false);
    let router = guard.protect(router);
    // It has tokens of its own.
    let router = match config.store_service {
        Some(service) => router.merge(store_endpoint::router(service, clients_stopped)),
        None => router,
    };
    let router = router
        .layer(middleware::from_fn(api::otlp::translate_errors))
        .layer(middleware::from_fn_with_state(Limits::new(config.rate), limits::enforce_limits))
        .layer(middleware::from_fn(stepback_grpc::translate))
        .layer(middleware::from_fn_with_state(observer, metrics::measure_request));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("stepback-server")
        .enable_all()
        .build()?;
    let is_secure = tls.is_some();
    let ending = state.clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("stepback-serve".into()).spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            let close = || {
                live.live().close();
                stop_clients.send_replace(true);
            };
            accept::serve(listener, router, tls, patience, connections, stopped, close).await;
        });
        // Reruns that this server started end with it.
        ending.running_reruns().interrupt_all();
        // Waits for blocking work of requests whose clients are gone.
        runtime.shutdown_timeout(Duration::from_secs(5));
    })?;
    Ok(HttpServer { address, token, sign_in, is_secure, stop: Some(stop), thread: Some(thread) })
}

/// The API without a socket or authentication, for a program that has opened the store itself.
pub fn in_process_router(state: AppState) -> Router {
    api::routes().0.with_state(state).layer(DefaultBodyLimit::max(LARGEST))
}

/// The `/metrics` route.
fn metrics_router(state: AppState, observer: Observer) -> Router {
    let answer = async move || {
        let mark = state.run(|engine| Ok(engine.store.commit_seq()?.0)).await;
        let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
        (kind, observer.render_prometheus(mark.ok()))
    };
    Router::new().route("/metrics", get(answer))
}

impl HttpServer {
    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token that clients must send.
    pub fn token(&self) -> &AuthToken {
        &self.token
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("http{}://{}", if self.is_secure { "s" } else { "" }, self.address)
    }

    /// A URL that signs a browser in once.
    pub fn sign_in_url(&self) -> io::Result<String> {
        Ok(format!("{}/sign-in?code={}", self.url(), self.sign_in.issue_code()?))
    }

    /// Stops the server: accepts no new requests, and answers those that run if their clients read the answers.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.shut_down();
    }
}
