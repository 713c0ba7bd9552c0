//! Accepts connections within limits, and shuts them down in order.
//!
//! Clients can be slow, silent or many. So a request must arrive within a timeout, the number of connections is limited, idle
//! ones make room for others, and when the server stops, running answers get a moment to finish while endless streams do not
//! hold it up.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use stepback_proxy::ConnectionLimits;
use stepback_proxy::connections::{ConnectionTable, CountedBody, RequestCounter};
use stepback_proxy::timed_body::TimedBody;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use crate::write_timeout::WriteTimeoutStream;

/// Limits of connections. One that never sent a request ends early, whatever it sent of one.
pub(crate) const LIMITS: ConnectionLimits = ConnectionLimits {
    count: 1024,
    first_request: Duration::from_secs(10),
    between_requests: Duration::from_secs(60),
};
/// Timeout of the head of a request after its first byte.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may stop in the middle of the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long running answers may continue after the server was stopped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The address of the client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Serves connections until `stopped`; then `close` ends streams that would never end by themselves. A client that does not
/// read for `patience` is disconnected.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
    write_timeout: Duration,
    limits: ConnectionLimits,
    mut stopped: oneshot::Receiver<()>,
    close: impl FnOnce(),
) {
    let table = ConnectionTable::new(limits);
    let (end, ending) = watch::channel(false);
    let mut connections = JoinSet::new();
    loop {
        let accepted = loop {
            tokio::select! {
                accepted = listener.accept() => break Some(accepted),
                Some(_) = connections.join_next() => {}
                _ = &mut stopped => break None,
            }
        };
        match accepted {
            None => break,
            Some(Ok((stream, peer))) => {
                // If all connections are busy, the new one is closed.
                let Some(place) = table.add() else { continue };
                let (router, tls, ending) = (router.clone(), tls.clone(), ending.clone());
                // Without it answers may be delayed, but still arrive.
                let _ = stream.set_nodelay(true);
                let stream = WriteTimeoutStream::new(stream, write_timeout);
                connections.spawn(async move {
                    let requests = place.requests();
                    tokio::select! {
                        () = handle_connection(stream, peer, requests, router, tls, ending) => {}
                        () = place.expired() => {}
                    }
                });
            }
            // Usually too many open files: wait until others are closed.
            Some(Err(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    drop(listener);
    close();
    end.send_replace(true);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, finished).await.is_err() {
        connections.shutdown().await;
    }
}

async fn handle_connection(
    stream: WriteTimeoutStream<TcpStream>,
    peer: SocketAddr,
    requests: RequestCounter,
    router: Router,
    tls: Option<TlsAcceptor>,
    ending: watch::Receiver<bool>,
) {
    match tls {
        None => serve_http(stream, peer, requests, router, ending).await,
        // The handshake is part of the time for the first request.
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                serve_http(stream, peer, requests, router, ending).await;
            }
        }
    }
}

async fn serve_http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    requests: RequestCounter,
    router: Router,
    mut ending: watch::Receiver<bool>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let running = requests.begin();
        let mut request = request.map(|body| Body::new(TimedBody::new(body, BODY_TIMEOUT)));
        request.extensions_mut().insert(Peer(peer));
        let mut router = router.clone();
        async move {
            let response = router.call(request).await.unwrap_or_else(|never| match never {});
            Ok::<_, Infallible>(response.map(|body| CountedBody::new(body, running)))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
    let mut serving = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    // How a connection ends is up to the client.
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = ending.wait_for(|ending| *ending) => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
