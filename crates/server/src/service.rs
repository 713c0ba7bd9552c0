//! The server as a whole: its socket, its router, its end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::middleware;
use tokio::sync::oneshot;

use crate::api;
use crate::guard::{self, Guard, Token};
use crate::patient::PatientListener;
use crate::work::Work;

/// Largest body of a request that is not ingest.
const LARGEST: usize = 8 << 20;

/// How long those who are being answered when the server ends have for it.
const GRACE: Duration = Duration::from_secs(10);

/// What a server is started with.
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where the token is kept.
    pub token_file: PathBuf,
    /// Names by which it may be asked for, besides those of loopback and its own address.
    pub hosts: Vec<String>,
    /// Origins whose pages may ask.
    pub origins: Vec<String>,
    /// How long a client may take to go on reading what it asked for.
    pub patience: Duration,
}

/// A server that runs.
pub struct Server {
    address: SocketAddr,
    token: Token,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a server over what `work` works with.
pub fn serve(work: Work, config: Config) -> io::Result<Server> {
    let token = Token::at(&config.token_file)?;
    let listener = TcpListener::bind(config.listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    hosts.push(address.ip().to_string());
    hosts.extend(config.hosts);
    let guard = Guard::new(token.clone(), config.token_file, hosts, config.origins);
    let (live, patience) = (work.clone(), config.patience);
    let (router, _) = api::router();
    let router = router
        .layer(DefaultBodyLimit::max(LARGEST))
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .with_state(work);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("stepback-server")
        .enable_all()
        .build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("stepback-serve".into()).spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            let listener = PatientListener::new(listener, patience);
            let (close, closed) = oneshot::channel::<()>();
            let served = axum::serve(listener, router).with_graceful_shutdown(async {
                let _ = closed.await;
            });
            let ended = async {
                let _ = stopped.await;
                // Whoever follows would never end by itself.
                live.live().close();
                let _ = close.send(());
                tokio::time::sleep(GRACE).await;
            };
            tokio::select! {
                _ = served.into_future() => {}
                () = ended => {}
            }
        });
        // What still runs for a request that nobody waits for any more.
        runtime.shutdown_timeout(Duration::from_secs(5));
    })?;
    Ok(Server { address, token, stop: Some(stop), thread: Some(thread) })
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What proves that somebody may ask.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Ends it: no new requests, those that run are answered, if their clients read the answers.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
