//! `/store`: the store's own port, for clients on other machines that use a guarded store.
//!
//! A connection begins as an HTTP request with a token of the store and becomes a stream of the store protocol. From then on a
//! thread of its own serves it, because the store blocks.

use std::io::{self, Read, Write};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use stepback_remote::{AccessRole, ByteStream, PROTOCOL, STORE_PATH, StoreService, is_upgrade_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::problem::Problem;

#[derive(Clone)]
struct StoreEndpoint {
    service: StoreService,
    /// Becomes true when the server stops.
    stopped: watch::Receiver<bool>,
}

/// The route, which checks tokens itself.
pub(crate) fn router(service: StoreService, stopped: watch::Receiver<bool>) -> Router {
    Router::new().route(STORE_PATH, get(connect)).with_state(StoreEndpoint { service, stopped })
}

async fn connect(State(endpoint): State<StoreEndpoint>, mut request: Request) -> Response {
    let found = find_role(&endpoint.service, request.headers());
    // HTTP/2 has no upgrades.
    let upgrade = request.extensions_mut().remove::<OnUpgrade>().ok_or_else(upgrade_required);
    let (role, upgrade) = match found.and_then(|role| Ok((role, upgrade?))) {
        Ok(found) => found,
        Err(problem) => {
            let mut response = problem.into_response();
            // Tells a client of another version which one is spoken here.
            response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
            return response;
        }
    };
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    for (name, value) in endpoint.service.welcome(role).headers() {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let stream = UpgradedStream {
            stream: TokioIo::new(upgraded),
            runtime: Handle::current(),
            stopped: endpoint.stopped,
            read_timeout: None,
            write_timeout: None,
        };
        let service = endpoint.service;
        // A connection that gets no thread is closed.
        let _ = std::thread::Builder::new().name("stepback-store".into()).spawn(move || {
            // How a connection ends is up to the client.
            let _ = service.serve_upgraded(stream, role);
        });
    });
    response
}

/// What the client of a request may do.
fn find_role(service: &StoreService, headers: &HeaderMap) -> Result<AccessRole, Problem> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if headers.contains_key(header::ORIGIN) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "refused", "this is not for pages of a browser"));
    }
    if !is_upgrade_request(text(header::CONNECTION), text(header::UPGRADE)) {
        return Err(upgrade_required());
    }
    let token = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    let Some(role) = token.and_then(|token| service.find_role(token.trim())) else {
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "refused", "the token is missing or wrong");
        return Err(problem.with_hint("use the token in guard.token of the server's store"));
    };
    match service.has_room() {
        true => Ok(role),
        false => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "there are too many connections")),
    }
}

fn upgrade_required() -> Problem {
    let what = "this address is for other stepback programs";
    Problem::new(StatusCode::UPGRADE_REQUIRED, "usage", what)
        .with_hint("use it as a store: --store https://HOST:PORT")
}

/// A connection that was HTTP, as a stream that blocks.
struct UpgradedStream {
    stream: TokioIo<Upgraded>,
    runtime: Handle,
    stopped: watch::Receiver<bool>,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

impl UpgradedStream {
    /// Waits for I/O at most for `timeout`, and no longer than the server runs.
    fn wait<T>(
        runtime: &Handle,
        stopped: &mut watch::Receiver<bool>,
        timeout: Option<Duration>,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let limited = async {
            match timeout {
                None => work.await,
                Some(timeout) => match tokio::time::timeout(timeout, work).await {
                    Ok(done) => done,
                    Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
                },
            }
        };
        runtime.block_on(async {
            tokio::select! {
                done = limited => done,
                _ = stopped.wait_for(|stopped| *stopped) => {
                    Err(io::Error::from(io::ErrorKind::ConnectionAborted))
                }
            }
        })
    }
}

impl Read for UpgradedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let work = self.stream.read(buffer);
        Self::wait(&self.runtime, &mut self.stopped, self.read_timeout, work)
    }
}

impl Write for UpgradedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let work = self.stream.write(bytes);
        Self::wait(&self.runtime, &mut self.stopped, self.write_timeout, work)
    }

    fn flush(&mut self) -> io::Result<()> {
        let work = self.stream.flush();
        Self::wait(&self.runtime, &mut self.stopped, self.write_timeout, work)
    }
}

impl ByteStream for UpgradedStream {
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout = timeout;
        Ok(())
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_timeout = timeout;
        Ok(())
    }
}
