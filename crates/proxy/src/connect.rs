//! Connections to models: pooled, with TLS if the address asks for it, and with time limits.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower_service::Service;

/// Any error of a body or a connection.
pub(crate) type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A body of either direction.
pub(crate) type AnyBody = UnsyncBoxBody<Bytes, AnyError>;

/// The HTTP client for models.
pub(crate) type Models = Client<InTime, AnyBody>;

/// How long an unused connection is kept. Servers close theirs after a minute or more, and a connection that both sides
/// close at the same moment costs a request.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates a client with its connection pool. It must be used within a tokio runtime.
pub(crate) fn new_client(trust: rustls::ClientConfig, patience: Duration) -> Models {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(patience));
    let inner = HttpsConnectorBuilder::new()
        .with_tls_config(trust)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
        .http1_preserve_header_case(true)
        .build(InTime { inner, patience })
}

/// A connector with a time limit for the whole of connecting: name lookup, TCP, and TLS.
#[derive(Clone)]
pub(crate) struct InTime {
    inner: HttpsConnector<HttpConnector>,
    patience: Duration,
}

impl Service<Uri> for InTime {
    type Response = <HttpsConnector<HttpConnector> as Service<Uri>>::Response;
    type Error = AnyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let patience = self.patience;
        Box::pin(async move {
            tokio::time::timeout(patience, connecting).await.unwrap_or_else(|_| {
                let text = format!("connecting took longer than {} s", patience.as_secs_f32());
                Err(Box::new(io::Error::new(io::ErrorKind::TimedOut, text)))
            })
        })
    }
}
