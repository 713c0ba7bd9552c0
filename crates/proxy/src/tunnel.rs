//! WebSockets that are not about a model: once both sides agree, bytes are copied both ways without being read.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use crate::body::AnswerBody;
use crate::forward::{self, UpstreamRequest};
use crate::handler::{ProxyResult, error_response};
use crate::headers::drop_hop_by_hop;
use crate::refusal::Failure;
use crate::state::ProxyState;

/// Whether a request asks for a WebSocket. Other upgrades concern the connection to the proxy and are not passed on.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Forwards the upgrade request, and connects both sides if the server agrees.
pub(crate) async fn open(
    shared: &Arc<ProxyState>,
    mut request: Request<Incoming>,
    path: &str,
) -> ProxyResult {
    let Some(target) = shared.routes.find(None, path, request.headers()) else {
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let parts = request.into_parts().0;
        return forward::send(shared, UpstreamRequest { parts, body, path, wire: None, recording: None })
            .await;
    };
    let agent = hyper::upgrade::on(&mut request);
    let (mut parts, _) = request.into_parts();
    drop_hop_by_hop(&mut parts.headers);
    parts.headers.remove(header::HOST);
    set_upgrade_headers(&mut parts.headers);
    parts.uri = target.uri(path)?;
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut answer = match shared.client.request(Request::from_parts(parts, body)).await {
        Ok(answer) => answer,
        Err(error) => {
            let failure = Failure::from_error(&target.shown, &error);
            return error_response(shared, None, None, failure.status, &failure.message()).await;
        }
    };
    let agreed = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    if agreed {
        let model = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            if let (Ok(agent), Ok(model)) = tokio::join!(agent, model) {
                // However it ends, both sides are closed.
                let _ =
                    tokio::io::copy_bidirectional(&mut TokioIo::new(agent), &mut TokioIo::new(model)).await;
            }
        });
    }
    let (mut parts, body) = answer.into_parts();
    drop_hop_by_hop(&mut parts.headers);
    if agreed {
        set_upgrade_headers(&mut parts.headers);
    }
    let body = AnswerBody::new(shared, body.map_err(Into::into).boxed_unsync(), None);
    Ok(http::Response::from_parts(parts, body))
}

fn set_upgrade_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}
