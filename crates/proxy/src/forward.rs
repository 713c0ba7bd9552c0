//! Forwards a request to the model, unchanged except for headers about the connection.

use std::sync::Arc;

use http::request::Parts;
use http::{Request, Version, header};
use http_body_util::BodyExt;
use stepback_llm_wire::Wire;

use crate::body::AnswerBody;
use crate::connect::AnyBody;
use crate::handler::{ProxyResult, error_response};
use crate::headers::drop_hop_by_hop;
use crate::recording::Recording;
use crate::refusal::{Failure, find};
use crate::state::ProxyState;

/// A request to be sent.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) parts: Parts,
    pub(crate) body: AnyBody,
    /// Path and query, including credentials.
    pub(crate) path: &'a str,
    pub(crate) wire: Option<Wire>,
    pub(crate) recording: Option<Recording>,
}

/// Sends the request and returns the answer as a stream.
pub(crate) async fn send(shared: &Arc<ProxyState>, sending: UpstreamRequest<'_>) -> ProxyResult {
    let UpstreamRequest { mut parts, body, path, wire, mut recording } = sending;
    let Some(target) = shared.routes.find(wire, path, &parts.headers) else {
        let failure = Failure {
            status: 502,
            reason: "no model URL is configured for this request".to_owned(),
            advice: "Configure one.",
        };
        return fail(shared, wire, recording, &failure).await;
    };
    let Ok(uri) = target.uri(path) else {
        let failure =
            Failure { status: 502, reason: "the path cannot be forwarded".to_owned(), advice: "Check it." };
        return fail(shared, wire, recording, &failure).await;
    };
    drop_hop_by_hop(&mut parts.headers);
    parts.headers.remove(header::HOST);
    parts.uri = uri;
    parts.version = Version::HTTP_11;
    let asking = shared.client.request(Request::from_parts(parts, body));
    let failure = match tokio::time::timeout(shared.limits.idle, asking).await {
        Ok(Ok(response)) => {
            let (mut parts, body) = response.into_parts();
            drop_hop_by_hop(&mut parts.headers);
            if let Some(recording) = &mut recording {
                recording.record_head(parts.status.as_u16(), &parts.headers);
            }
            let body = body.map_err(Into::into).boxed_unsync();
            let mut body = AnswerBody::new(shared, body, recording);
            body.tell_if_empty().await;
            return Ok(http::Response::from_parts(parts, body));
        }
        // The request's own body failed: the agent has disconnected, which the recording reports when it is dropped.
        Ok(Err(error)) if find::<hyper::Error>(&error).is_some_and(hyper::Error::is_user) => {
            return Err(error.into());
        }
        Ok(Err(error)) => Failure::from_error(&target.shown, &error),
        Err(_) => Failure::idle_timeout(&target.shown, shared.limits.idle.as_secs()),
    };
    fail(shared, wire, recording, &failure).await
}

/// Reports that no answer arrived, to the agent and to the recording.
async fn fail(
    shared: &Arc<ProxyState>,
    wire: Option<Wire>,
    mut recording: Option<Recording>,
    failure: &Failure,
) -> ProxyResult {
    if let Some(recording) = &mut recording {
        recording.failed(failure.reason.clone());
    }
    error_response(shared, wire, recording, failure.status, &failure.message()).await
}
