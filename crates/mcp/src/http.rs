//! MCP over HTTP: one message per request, at one endpoint, without state between requests.
//!
//! The response is one JSON document, or a stream of events if the client asked for progress. In revisions where each
//! request is self-contained, headers repeat what the body says, for proxies that cannot read the body; a request whose
//! headers and body disagree is refused. Authentication happens before a request reaches this module.
//!
//! A client that wants to be notified of changes opens a stream for it. Only revisions without sessions allow this: in
//! earlier ones, notifications belong to a session, and this server has no sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::listen::{POLL_INTERVAL, Subscription};
use crate::protocol;
use crate::revision::{self, LEGACY, MODERN, ProtocolEra};
use crate::rpc::{
    self, HEADER_MISMATCH, INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, MISSING_CAPABILITY, Params,
    Refusal, RpcMessage, UNSUPPORTED_VERSION,
};
use crate::service::{McpService, ServiceRequest, client_name};

/// The header that states the protocol revision of a request.
pub const VERSION_HEADER: &str = "mcp-protocol-version";
const METHOD_HEADER: &str = "mcp-method";
const NAME_HEADER: &str = "mcp-name";

/// Finds the service for a request URI: its query says which workspace is meant.
pub trait ServiceLocator: Send + Sync + 'static {
    /// Returns the service for `address`.
    fn service(&self, address: &Uri) -> Result<Arc<dyn McpService>, Refusal>;

    /// Whether the server is shutting down, so that streams must end.
    fn is_closing(&self) -> bool {
        false
    }
}

/// The most streams of change notifications open at once.
const MAX_STREAMS: usize = 64;
/// The most unread messages of a stream.
const MAX_UNREAD_MESSAGES: usize = 16;
/// How long to wait for a client with that many unread messages before its stream is closed.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a stream stays silent before a keep-alive message is sent.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Returns the router that serves `/mcp`.
pub fn router(locator: Arc<dyn ServiceLocator>) -> Router {
    let room = Arc::new(Semaphore::new(MAX_STREAMS));
    let handle = move |uri: Uri, headers: HeaderMap, body: Bytes| {
        let (offers, room) = (Arc::clone(&locator), Arc::clone(&room));
        async move { handle_request(&offers, room, &uri, &headers, &body).await }
    };
    // The server opens no streams unasked and has no sessions to end: GET and DELETE are not allowed.
    Router::new().route("/mcp", post(handle))
}

async fn handle_request(
    locator: &Arc<dyn ServiceLocator>,
    stream_slots: Arc<Semaphore>,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    let header_value = |name: header::HeaderName| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    };
    let kind = header_value(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let refused = Refusal::new(INVALID_REQUEST, "the body must be application/json");
        return json_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, &rpc::error_response(None, &refused));
    }
    let (id, method, params) = match rpc::parse(body) {
        Ok(RpcMessage::Request { id, method, params }) => (id, method, params),
        Ok(RpcMessage::Notification { .. } | RpcMessage::Response) => {
            return StatusCode::ACCEPTED.into_response();
        }
        Err((id, refusal)) => {
            return json_response(StatusCode::BAD_REQUEST, &rpc::error_response(id.as_ref(), &refusal));
        }
    };
    let refuse =
        |code: StatusCode, refusal: &Refusal| json_response(code, &rpc::error_response(Some(&id), refusal));
    let era = match determine_era(headers, &method, &params) {
        Ok(era) => era,
        Err(refusal) => return refuse(StatusCode::BAD_REQUEST, &refusal),
    };
    let service = match locator.service(uri) {
        Ok(service) => service,
        Err(refusal) => return refuse(http_status(era, &refusal), &refusal),
    };
    if method == "subscriptions/listen" && era == ProtocolEra::Modern && service.can_subscribe() {
        let Ok(slot) = stream_slots.try_acquire_owned() else {
            let full =
                Refusal::new(INTERNAL_ERROR, format!("the limit of {MAX_STREAMS} open streams is reached"));
            return refuse(StatusCode::SERVICE_UNAVAILABLE, &full);
        };
        return match stream_notifications(Arc::clone(locator), service, id.clone(), params, slot).await {
            Ok(stream) => stream,
            Err(refusal) => refuse(http_status(era, &refusal), &refusal),
        };
    }
    let listens = header_value(header::ACCEPT).contains("text/event-stream");
    let wants_progress = params.get("_meta").is_some_and(|meta| meta.get("progressToken").is_some());
    if listens && wants_progress && method == "tools/call" {
        return stream_response(service, id, method, params, era);
    }
    let work = tokio::task::spawn_blocking(move || {
        let pushes = era == ProtocolEra::Modern;
        let service_request = ServiceRequest {
            era,
            params: &params,
            client: client_name(&params),
            can_push: pushes,
            send: &|_| {},
        };
        protocol::handle_request(&*service, &method, &service_request)
    });
    let answered = work.await.unwrap_or_else(|_| Err(internal_error()));
    let code = answered.as_ref().err().map_or(StatusCode::OK, |refusal| http_status(era, refusal));
    json_response(code, &rpc::response(&id, answered))
}

fn internal_error() -> Refusal {
    Refusal::new(INTERNAL_ERROR, "an internal error occurred")
}

/// Streams progress notifications, then the response.
fn stream_response(
    service: Arc<dyn McpService>,
    id: Value,
    method: String,
    params: Params,
    era: ProtocolEra,
) -> Response {
    let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
    let last = sender.clone();
    let work = tokio::task::spawn_blocking(move || {
        // A client that closed the stream has cancelled the request; what it already wrote to the record stays.
        let out = |message: Value| drop(sender.send(encode_event(&message)));
        let pushes = era == ProtocolEra::Modern;
        let service_request = ServiceRequest {
            era,
            params: &params,
            client: client_name(&params),
            can_push: pushes,
            send: &out,
        };
        protocol::handle_request(&*service, &method, &service_request)
    });
    tokio::spawn(async move {
        let answered = work.await.unwrap_or_else(|_| Err(internal_error()));
        let _ = last.send(encode_event(&rpc::response(&id, answered)));
    });
    event_stream_response(stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    }))
}

/// Streams change notifications until the client disconnects.
async fn stream_notifications(
    locator: Arc<dyn ServiceLocator>,
    service: Arc<dyn McpService>,
    id: Value,
    params: Params,
    slot: OwnedSemaphorePermit,
) -> Result<Response, Refusal> {
    let opening = Arc::clone(&service);
    let opened = tokio::task::spawn_blocking(move || {
        let client = client_name(&params);
        let service_request = ServiceRequest {
            era: ProtocolEra::Modern,
            params: &params,
            client,
            can_push: true,
            send: &|_| {},
        };
        Subscription::open(&*opening, &service_request, &id)
    });
    let mut subscription = opened.await.unwrap_or_else(|_| Err(internal_error()))?;
    // A client that reads slowly is notified less often; messages do not pile up for it.
    let (sender, receiver) = mpsc::channel::<Bytes>(MAX_UNREAD_MESSAGES);
    tokio::spawn(async move {
        let _place = slot;
        if sender.send(encode_event(&subscription.acknowledgement())).await.is_err() {
            return;
        }
        let (mut last_seen, mut last_sent) = (None, Instant::now());
        loop {
            let next_messages = tokio::task::spawn_blocking({
                let service = Arc::clone(&service);
                move || {
                    let seen_now = service.wait_for_change(last_seen, Duration::ZERO).ok().or(last_seen);
                    let is_new = seen_now != last_seen || subscription.is_behind();
                    let messages =
                        if is_new { subscription.collect_notifications(&*service) } else { Vec::new() };
                    (subscription, seen_now, messages)
                }
            });
            let Ok((back, seen_now, messages)) = next_messages.await else { return };
            (subscription, last_seen) = (back, seen_now);
            let mut last: Vec<Bytes> = messages.iter().map(encode_event).collect();
            let closing = locator.is_closing();
            if closing {
                last.extend(subscription.end_message(&*service).as_ref().map(encode_event));
            } else if last.is_empty() && last_sent.elapsed() >= KEEP_ALIVE_INTERVAL {
                last.push(Bytes::from_static(b":\n\n"));
            }
            if !last.is_empty() {
                last_sent = Instant::now();
            }
            for event in last {
                // A client that has not read for this long is taken to be gone; its slot is freed for another one.
                match tokio::time::timeout(UNREAD_TIMEOUT, sender.send(event)).await {
                    Ok(Ok(())) => {}
                    _ => return,
                }
            }
            if closing {
                return;
            }
            tokio::select! {
                () = sender.closed() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    });
    Ok(event_stream_response(stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    })))
}

fn encode_event(message: &Value) -> Bytes {
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}

/// The response that streams these events.
fn event_stream_response(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let events = events.map(Ok::<_, std::convert::Infallible>);
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events)).into_response()
}

fn json_response(status: StatusCode, message: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, message.to_string()).into_response()
}

/// The HTTP status for a refusal.
fn http_status(era: ProtocolEra, refusal: &Refusal) -> StatusCode {
    match refusal.code {
        HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        METHOD_NOT_FOUND if era == ProtocolEra::Modern => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

/// The protocol era of a request, if its headers agree with its body.
fn determine_era(headers: &HeaderMap, method: &str, params: &Params) -> Result<ProtocolEra, Refusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let outside = header(VERSION_HEADER);
    let inside = revision::stated_version(params).and_then(Value::as_str);
    let modern = inside.is_some() || outside == Some(MODERN) || method == "server/discover";
    if !modern {
        return match outside {
            None => Ok(ProtocolEra::Legacy),
            Some(version) if LEGACY.contains(&version) => Ok(ProtocolEra::Legacy),
            // A client that sends `initialize` does not know yet which revisions this server supports.
            Some(_) if method == "initialize" => Ok(ProtocolEra::Legacy),
            Some(version) => Err(revision::unsupported_version(version)),
        };
    }
    match (outside, inside) {
        (Some(outside), Some(inside)) if outside != inside => {
            return Err(header_mismatch("MCP-Protocol-Version", "params._meta has a different revision"));
        }
        (None, Some(_)) => return Err(header_mismatch("MCP-Protocol-Version", "it is missing")),
        _ => {}
    }
    revision::check_meta(params)?;
    match header(METHOD_HEADER) {
        Some(stated_method) if stated_method == method => {}
        Some(_) => return Err(header_mismatch("Mcp-Method", "the body has a different method")),
        None => return Err(header_mismatch("Mcp-Method", "it is missing")),
    }
    let body_name = match method {
        "tools/call" | "prompts/get" => params.get("name"),
        "resources/read" => params.get("uri"),
        _ => None,
    };
    if let Some(body_name) = body_name.and_then(Value::as_str) {
        match header(NAME_HEADER).map(decode_header) {
            Some(Some(stated_method)) if stated_method == body_name => {}
            Some(Some(_)) => return Err(header_mismatch("Mcp-Name", "the body has a different name")),
            Some(None) => return Err(header_mismatch("Mcp-Name", "it is not Base64")),
            None => return Err(header_mismatch("Mcp-Name", "it is missing")),
        }
    }
    Ok(ProtocolEra::Modern)
}

fn header_mismatch(name: &str, reason: &str) -> Refusal {
    Refusal::new(HEADER_MISMATCH, format!("the header {name} does not match the body: {reason}"))
}

/// The value of a header: as it is, or decoded from `=?base64?…?=`. `None` if that cannot be decoded.
fn decode_header(text: &str) -> Option<String> {
    match text.strip_prefix("=?base64?").and_then(|text| text.strip_suffix("?=")) {
        Some(coded) => String::from_utf8(STANDARD.decode(coded).ok()?).ok(),
        None => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use serde_json::{Map, json};

    use super::*;
    use crate::service::nothing;

    /// A resource whose mark differs on every read.
    #[derive(Default)]
    struct Restless(AtomicU64);

    impl McpService for Restless {
        nothing!();

        fn resource_version(&self, _: &ServiceRequest<'_>, _: &str) -> Result<Option<String>, Refusal> {
            Ok(Some(self.0.load(Ordering::SeqCst).to_string()))
        }

        fn wait_for_change(&self, _: Option<u64>, _: Duration) -> Result<u64, Refusal> {
            Ok(self.0.fetch_add(1, Ordering::SeqCst) + 1)
        }
    }

    struct Open;

    impl ServiceLocator for Open {
        fn service(&self, _: &Uri) -> Result<Arc<dyn McpService>, Refusal> {
            Ok(Arc::new(Restless::default()))
        }
    }

    #[test]
    fn a_stream_that_is_not_read_frees_its_slot() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let room = Arc::new(Semaphore::new(1));
            let place = Arc::clone(&room).acquire_owned().await.unwrap();
            let params = json!({ "notifications": { "resourceSubscriptions": ["a:b"] },
                "_meta": { "io.modelcontextprotocol/protocolVersion": MODERN,
                    "io.modelcontextprotocol/clientCapabilities": {} } });
            let Value::Object(params) = params else { unreachable!() };
            let service: Arc<dyn McpService> = Arc::new(Restless::default());
            let stream = stream_notifications(Arc::new(Open), service, json!(1), params, place).await;
            let stream = stream.unwrap_or_else(|refusal| panic!("{refusal:?}"));
            // By then its queue of unread messages is full, but the client may still read.
            tokio::time::sleep(POLL_INTERVAL * 2 * MAX_UNREAD_MESSAGES as u32).await;
            assert_eq!(room.available_permits(), 0);
            tokio::time::sleep(UNREAD_TIMEOUT).await;
            assert_eq!(room.available_permits(), 1);
            drop(stream);
        });
    }

    #[test]
    fn names_in_base64_are_read() {
        for (coded, text) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("w6k=", "é")] {
            assert_eq!(decode_header(&format!("=?base64?{coded}?=")).as_deref(), Some(text));
        }
        assert_eq!(decode_header("note").as_deref(), Some("note"));
        for wrong in ["Z", "Zg=", "Z===", "Zg==Zg==", "Z!==", "/////w=="] {
            assert_eq!(decode_header(&format!("=?base64?{wrong}?=")), None, "{wrong}");
        }
    }
}
