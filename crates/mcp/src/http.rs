//! MCP over HTTP: one message in each request, at one address, with nothing remembered in between.
//!
//! The answer is one JSON document, or a stream of events where somebody wants to hear how the work goes on. In revisions in
//! which requests stand for themselves, headers repeat what the body says, for whoever stands between and cannot read it; if
//! they say something else, the request is refused. Who may ask at all is decided before anything comes here.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::protocol;
use crate::revision::{self, Era, LEGACY, MODERN};
use crate::rpc::{
    self, HEADER_MISMATCH, INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, MISSING_CAPABILITY, Message,
    Params, Refusal, UNSUPPORTED_VERSION,
};
use crate::service::{Asked, Service, client_of};

/// The header that says in which revision a request is.
pub const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// Finds out what is offered at an address: its query says which workspace is meant.
pub trait Offers: Send + Sync + 'static {
    /// What is offered.
    fn service(&self, address: &Uri) -> Result<Arc<dyn Service>, Refusal>;
}

/// Answers at `/mcp`.
pub fn router(offers: Arc<dyn Offers>) -> Router {
    let answer = move |uri: Uri, headers: HeaderMap, body: Bytes| {
        let offers = Arc::clone(&offers);
        async move { answer(&*offers, &uri, &headers, &body).await }
    };
    // There is no stream that nobody asked for, and no session to end: those methods are not allowed.
    Router::new().route("/mcp", post(answer))
}

async fn answer(offers: &dyn Offers, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Response {
    let said = |name: header::HeaderName| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    };
    let kind = said(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let why = Refusal::new(INVALID_REQUEST, "the body must be application/json");
        return document(StatusCode::UNSUPPORTED_MEDIA_TYPE, &rpc::refused(None, &why));
    }
    let (id, method, params) = match rpc::parse(body) {
        Ok(Message::Request { id, method, params }) => (id, method, params),
        Ok(Message::Notification { .. } | Message::Answer) => return StatusCode::ACCEPTED.into_response(),
        Err((id, refusal)) => {
            return document(StatusCode::BAD_REQUEST, &rpc::refused(id.as_ref(), &refusal));
        }
    };
    let refuse = |code: StatusCode, refusal: &Refusal| document(code, &rpc::refused(Some(&id), refusal));
    let era = match understood(headers, &method, &params) {
        Ok(era) => era,
        Err(refusal) => return refuse(StatusCode::BAD_REQUEST, &refusal),
    };
    let service = match offers.service(uri) {
        Ok(service) => service,
        Err(refusal) => return refuse(status(era, &refusal), &refusal),
    };
    let listens = said(header::ACCEPT).contains("text/event-stream");
    let wants_progress = params.get("_meta").is_some_and(|meta| meta.get("progressToken").is_some());
    if listens && wants_progress && method == "tools/call" {
        return streamed(service, id, method, params, era);
    }
    let work = tokio::task::spawn_blocking(move || {
        let asked = Asked { era, params: &params, client: client_of(&params), out: &|_| {} };
        protocol::answer(&*service, &method, &asked)
    });
    let answered = work.await.unwrap_or_else(|_| Err(ended()));
    let code = answered.as_ref().err().map_or(StatusCode::OK, |refusal| status(era, refusal));
    document(code, &rpc::answer(&id, answered))
}

fn ended() -> Refusal {
    Refusal::new(INTERNAL_ERROR, "the work on this request ended unexpectedly")
}

/// Tells how the work goes on, and the answer at last.
fn streamed(service: Arc<dyn Service>, id: Value, method: String, params: Params, era: Era) -> Response {
    let (sender, receiver) = mpsc::unbounded_channel::<Value>();
    let last = sender.clone();
    let work = tokio::task::spawn_blocking(move || {
        // Who does not listen any more has given the request up; what it does to the record is done.
        let out = |message: Value| drop(sender.send(message));
        let asked = Asked { era, params: &params, client: client_of(&params), out: &out };
        protocol::answer(&*service, &method, &asked)
    });
    tokio::spawn(async move {
        let answered = work.await.unwrap_or_else(|_| Err(ended()));
        let _ = last.send(rpc::answer(&id, answered));
    });
    let events = stream::unfold(receiver, |mut receiver| async move {
        let message = receiver.recv().await?;
        let event = Bytes::from(format!("event: message\ndata: {message}\n\n"));
        Some((Ok::<_, std::convert::Infallible>(event), receiver))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events)).into_response()
}

fn document(status: StatusCode, message: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, message.to_string()).into_response()
}

/// The status that goes with a refusal.
fn status(era: Era, refusal: &Refusal) -> StatusCode {
    match refusal.code {
        HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        METHOD_NOT_FOUND if era == Era::Modern => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

/// How a request is to be understood, if its headers agree with it.
fn understood(headers: &HeaderMap, method: &str, params: &Params) -> Result<Era, Refusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let outside = header(VERSION);
    let inside = revision::stated(params).and_then(Value::as_str);
    let modern = inside.is_some() || outside == Some(MODERN) || method == "server/discover";
    if !modern {
        return match outside {
            None => Ok(Era::Legacy),
            Some(version) if LEGACY.contains(&version) => Ok(Era::Legacy),
            // A client that introduces itself does not know yet what is spoken here.
            Some(_) if method == "initialize" => Ok(Era::Legacy),
            Some(version) => Err(revision::unsupported(version)),
        };
    }
    match (outside, inside) {
        (Some(outside), Some(inside)) if outside != inside => {
            return Err(mismatch("MCP-Protocol-Version", "params._meta says another revision"));
        }
        (None, Some(_)) => return Err(mismatch("MCP-Protocol-Version", "it is missing")),
        _ => {}
    }
    revision::check(params)?;
    match header(METHOD) {
        Some(said) if said == method => {}
        Some(_) => return Err(mismatch("Mcp-Method", "the body asks for another method")),
        None => return Err(mismatch("Mcp-Method", "it is missing")),
    }
    let named = match method {
        "tools/call" | "prompts/get" => params.get("name"),
        "resources/read" => params.get("uri"),
        _ => None,
    };
    if let Some(named) = named.and_then(Value::as_str) {
        match header(NAME).map(plain) {
            Some(Some(said)) if said == named => {}
            Some(Some(_)) => return Err(mismatch("Mcp-Name", "the body names something else")),
            Some(None) => return Err(mismatch("Mcp-Name", "it is no Base64")),
            None => return Err(mismatch("Mcp-Name", "it is missing")),
        }
    }
    Ok(Era::Modern)
}

fn mismatch(name: &str, why: &str) -> Refusal {
    Refusal::new(HEADER_MISMATCH, format!("the header {name} does not fit the body: {why}"))
}

/// What a header says: as it is, or what is inside of `=?base64?…?=`. `None` if that cannot be read.
fn plain(text: &str) -> Option<String> {
    match text.strip_prefix("=?base64?").and_then(|text| text.strip_suffix("?=")) {
        Some(coded) => String::from_utf8(base64(coded)?).ok(),
        None => Some(text.to_owned()),
    }
}

/// Bytes from Base64 with padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let groups = text.len() / 4;
    for (at, group) in text.as_bytes().chunks(4).enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && at + 1 < groups) {
            return None;
        }
        let mut number = 0_u32;
        for byte in &group[..4 - padding] {
            number = number << 6 | u32::from(digit(*byte)?);
        }
        number <<= 6 * padding;
        bytes.extend_from_slice(&number.to_be_bytes()[1..4 - padding]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_base64_are_read() {
        for (coded, text) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("w6k=", "é")] {
            assert_eq!(plain(&format!("=?base64?{coded}?=")).as_deref(), Some(text));
        }
        assert_eq!(plain("note").as_deref(), Some("note"));
        for wrong in ["Z", "Zg=", "Z===", "Zg==Zg==", "Z!==", "/////w=="] {
            assert_eq!(plain(&format!("=?base64?{wrong}?=")), None, "{wrong}");
        }
    }
}
