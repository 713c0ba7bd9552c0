//! Connections: taken in as long as there is room, and ended in order.
//!
//! A client can be slow, silent or many. So the head of a request has to come within a time, there are only so many connections
//! at once, and when the server ends, running answers get a moment to finish and streams that never end do not hold it up.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use crate::write_timeout::Patient;

/// So many connections at once; more wait until one ends.
const MOST: usize = 1024;
/// So long may a handshake, or the head of a request, take.
const BEGINNING: Duration = Duration::from_secs(10);
/// So long may answers go on after the server was told to end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Answers what comes in until it is told to stop; then `close` ends what would never end by itself. A client that does not go
/// on reading for as long as `patience` is given up.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
    patience: Duration,
    mut stopped: oneshot::Receiver<()>,
    close: impl FnOnce(),
) {
    let slots = Arc::new(Semaphore::new(MOST));
    let (end, ending) = watch::channel(false);
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break };
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
                let (router, tls, ending) = (router.clone(), tls.clone(), ending.clone());
                // Without it answers may come later; they come all the same.
                let _ = stream.set_nodelay(true);
                let stream = Patient::new(stream, patience);
                connections.spawn(async move {
                    connection(stream, peer, router, tls, ending).await;
                    drop(slot);
                });
            }
            // Too many open files, as a rule: those that are open will be closed some time.
            Some(Err(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    drop(listener);
    close();
    end.send_replace(true);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_WORDS, finished).await.is_err() {
        connections.shutdown().await;
    }
}

async fn connection(
    stream: Patient<TcpStream>,
    peer: SocketAddr,
    router: Router,
    tls: Option<TlsAcceptor>,
    ending: watch::Receiver<bool>,
) {
    match tls {
        None => answer(stream, peer, router, ending).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(BEGINNING, tls.accept(stream)).await {
                answer(stream, peer, router, ending).await;
            }
        }
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    router: Router,
    mut ending: watch::Receiver<bool>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer));
        let mut router = router.clone();
        async move { Ok::<_, Infallible>(router.call(request).await.unwrap_or_else(|never| match never {})) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(BEGINNING);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
    let mut serving = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    // How a connection ends is the client's affair.
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = ending.wait_for(|ending| *ending) => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
