//! The store in this process, through the server's own routes, without a socket and without a token.

use std::convert::Infallible;
use std::future::poll_fn;

use axum::Router;
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use stepback_server::AppState;
use tower_service::Service;

use super::{ResponseFuture, Transport};

/// The server's routes over a store.
pub struct InProcessTransport {
    routes: Router,
}

impl InProcessTransport {
    /// Creates the routes over the store of `work`.
    pub fn new(state: AppState) -> Self {
        Self { routes: stepback_server::in_process_router(state) }
    }
}

impl Transport for InProcessTransport {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        let mut routes = self.routes.clone();
        Box::pin(async move {
            let request = request.map(axum::body::Body::from);
            let ready =
                poll_fn(|context| Service::<Request<axum::body::Body>>::poll_ready(&mut routes, context));
            let answered: Result<_, Infallible> = match ready.await {
                Ok(()) => routes.call(request).await,
                Err(never) => match never {},
            };
            let answer = match answered {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    }
}
