//! A client that can send what no gRPC library would.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::support::TestServer;

/// A connection over which anything can be sent.
pub struct RawConnection {
    pub runtime: tokio::runtime::Runtime,
    sender: SendRequest<Body>,
    authority: String,
    token: String,
}

impl RawConnection {
    /// `window`: how many bytes of each answer the server may send before the client has read some.
    pub fn new(server: &TestServer, window: u32) -> Self {
        let address = server.server().0;
        Self::over(server, window, async move { tokio::net::TcpStream::connect(address).await.unwrap() })
    }

    /// Over a stream that is opened in the runtime of the connection.
    pub fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        server: &TestServer,
        window: u32,
        open: impl Future<Output = S>,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let sender = runtime.block_on(async {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(window);
            let (sender, connection) = builder.handshake(TokioIo::new(open.await)).await.unwrap();
            tokio::spawn(connection);
            sender
        });
        let (address, token) = server.server();
        Self { runtime, sender, authority: address.to_string(), token: token.to_owned() }
    }

    pub fn request(&self, method: Method, path: &str, kind: &str, body: impl Into<Body>) -> Request<Body> {
        Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.authority))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", kind)
            .header("te", "trailers")
            .body(body.into())
            .unwrap()
    }

    pub fn send(&self, request: Request<Body>) -> hyper::Response<Incoming> {
        let mut sender = self.sender.clone();
        self.runtime.block_on(async {
            sender.ready().await.unwrap();
            let answer = tokio::time::timeout(Duration::from_secs(60), sender.send_request(request)).await;
            answer.expect("an answer in time").unwrap()
        })
    }

    /// The status code of a call, from the headers or the trailers; `None` if the answer is not gRPC.
    pub fn call(&self, path: &str, kind: &str, body: impl Into<Body>) -> (StatusCode, Option<i32>) {
        self.code(self.request(Method::POST, path, kind, body))
    }

    /// The same for a request with more headers.
    pub fn code(&self, request: Request<Body>) -> (StatusCode, Option<i32>) {
        let answer = self.send(request);
        let code = |headers: &HeaderMap| headers.get("grpc-status")?.to_str().ok()?.parse().ok();
        let (parts, body) = answer.into_parts();
        let trailers = self.runtime.block_on(body.collect()).unwrap().trailers().cloned();
        (parts.status, code(&parts.headers).or_else(|| code(&trailers?)))
    }
}

pub const LIST: &str = "/stepback.v1.Sessions/ListSessions";
pub const GRPC: &str = "application/grpc";

/// A message as it is sent: a flag, the length, the bytes.
pub fn frame(flag: u8, length: u32, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![flag];
    frame.extend(length.to_be_bytes());
    frame.extend(bytes);
    frame
}
