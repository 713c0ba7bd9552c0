//! Handles one request.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use stepback_llm_wire::Wire;

use crate::body::{AnswerBody, RequestBody};
use crate::connect::{AnyBody, AnyError};
use crate::forward::{self, UpstreamRequest};
use crate::headers;
use crate::recording::{Recording, RequestHead, RequestRecorder};
use crate::refusal::error_document;
use crate::state::{ProxyState, increment_counter};
use crate::timed_body::TimedBody;
use crate::{Decision, replay, tunnel};

/// The response to the agent. An error breaks the connection.
pub(crate) type ProxyResult = Result<Response<AnswerBody>, AnyError>;

/// Answers a request.
pub(crate) async fn handle(shared: Arc<ProxyState>, request: Request<Incoming>) -> ProxyResult {
    let arrived = (SystemTime::now(), Instant::now());
    increment_counter(&shared.counts.requests);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let wire = Wire::of(request.method().as_str(), &path);
    if request.method() == Method::CONNECT {
        let message = "stepback proxy: CONNECT is not supported. Set this address as the base URL of the agent's model.";
        return error_response(&shared, wire, None, 405, message).await;
    }
    if let Some((status, message)) = shared.access.refusal(request.uri(), request.headers()) {
        return error_response(&shared, wire, None, status, &message).await;
    }
    if tunnel::is_asked(request.headers()) {
        // What goes through a tunnel is neither recorded nor replayed. Agents that try one first fall back to HTTP.
        if shared.responder.is_some() || Wire::of("POST", &path).is_some() {
            let message = "stepback proxy: WebSockets are not supported, because they cannot be recorded. Use HTTP instead.";
            return error_response(&shared, wire, None, StatusCode::UPGRADE_REQUIRED.as_u16(), message).await;
        }
        return tunnel::open(&shared, request, &path).await;
    }
    let head = RequestHead {
        wire,
        method: request.method().as_str().to_owned(),
        path: headers::without_secret_parameters(&path),
        headers: headers::recordable_headers(request.headers()),
    };
    let (parts, body) = request.into_parts();
    let body = TimedBody::new(body, shared.limits.request_silence);
    if shared.responder.is_some() {
        return consult_responder(&shared, parts, body, &path, head, arrived).await;
    }
    let (body, recording): (AnyBody, _) = match wire {
        None => (body.map_err(AnyError::from).boxed_unsync(), None),
        Some(_) => {
            let copy = shared.new_capture(content_encoding(&parts));
            let recorder = RequestRecorder::with_pending_body(&shared, shared.new_id(), head, arrived, copy);
            let body = RequestBody::new(body.map_err(AnyError::from), Arc::clone(&recorder));
            (body.boxed_unsync(), Some(Recording::new(recorder)))
        }
    };
    forward::send(&shared, UpstreamRequest { parts, body, path: &path, wire, recording }).await
}

fn content_encoding(parts: &Parts) -> Option<&str> {
    parts.headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok())
}

/// Reads the whole request and asks the configured [`Responder`](crate::Responder) what to do with it.
async fn consult_responder(
    shared: &Arc<ProxyState>,
    mut parts: Parts,
    body: TimedBody<Incoming>,
    path: &str,
    head: RequestHead,
    arrived: (SystemTime, Instant),
) -> ProxyResult {
    let (wire, id) = (head.wire, shared.new_id());
    let max_bytes = usize::try_from(shared.limits.recorded_body).unwrap_or(usize::MAX);
    let body: Bytes = match Limited::new(body, max_bytes).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let message =
                format!("stepback proxy: the request has more than {max_bytes} bytes, too many to compare.");
            return error_response(shared, wire, None, 413, &message).await;
        }
        Err(error) => return Err(error),
    };
    let mut copy = shared.new_capture(content_encoding(&parts));
    copy.push(0, &body);
    let asking = {
        let (shared, head, id) = (Arc::clone(shared), head.clone(), id.clone());
        tokio::task::spawn_blocking(move || {
            let (mut request, _share) = head.build_request(copy);
            let decision = match &shared.responder {
                Some(responder) => responder.answer(&id, &mut request),
                None => Decision::Live,
            };
            (request, decision)
        })
    };
    let Ok((request, decision)) = asking.await else {
        // Asking the model instead could cost money that the user did not want to spend.
        let message = "stepback proxy: finding the recorded answer failed; the model was not called.";
        return error_response(shared, wire, None, 500, message).await;
    };
    let changed = (decision == Decision::LiveChanged).then(|| {
        let body = match &request.body {
            serde_json::Value::String(text) => Bytes::from(text.clone()),
            document => Bytes::from(document.to_string()),
        };
        (headers::with_secret_parameters(&request.path, path), body)
    });
    let recording =
        wire.map(|_| Recording::new(RequestRecorder::with_request(shared, id, head, arrived, request)));
    match (decision, changed) {
        (Decision::Recorded { response, timing }, _) => {
            replay::send_recorded(shared, wire, recording, response, timing, arrived.1).await
        }
        (Decision::Refuse { status, message }, _) => {
            error_response(shared, wire, recording, status, &message).await
        }
        (_, Some((path, body))) => {
            parts.headers.remove(header::CONTENT_ENCODING);
            parts.headers.insert(header::CONTENT_LENGTH, body.len().into());
            let body = full_body(body);
            forward::send(shared, UpstreamRequest { parts, body, path: &path, wire, recording }).await
        }
        (_, None) => {
            let body = full_body(body);
            forward::send(shared, UpstreamRequest { parts, body, path, wire, recording }).await
        }
    }
}

/// Returns a body that is already complete.
pub(crate) fn full_body(body: Bytes) -> AnyBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// Returns an answer of the proxy itself: an error in the wire's format.
pub(crate) async fn error_response(
    shared: &Arc<ProxyState>,
    wire: Option<Wire>,
    mut recording: Option<Recording>,
    status: u16,
    message: &str,
) -> ProxyResult {
    let response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(full_body(error_document(wire, status, message).into()))?;
    if let Some(recording) = &mut recording {
        recording.record_head(status, response.headers());
    }
    Ok(response.map(|body| AnswerBody::new(shared, body, recording)))
}
