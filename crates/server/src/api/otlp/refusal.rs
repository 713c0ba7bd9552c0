//! Errors in the form of the protocol: a status document in the encoding of the request, or gRPC trailers.
//!
//! Every error of this server is a problem document. On the paths of the protocol it is translated on its way out, whether it
//! comes from the guard, a limit or the handler.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;
use stepback_otlp::Encoding;
use stepback_otlp::reply::{self, Code};

use super::content_type;

/// Most bytes of a problem document that are read; none is that long.
const MOST: usize = 64 << 10;
/// Seconds after which a client that was turned away should retry.
const RETRY_AFTER_SECONDS: u64 = 1;
/// What a `grpc-message` header escapes, besides bytes that are not ASCII.
const GRPC_ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The protocol of the client, which decides the form of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClientProtocol {
    Http(Encoding),
    Grpc,
}

/// Middleware that translates errors on the paths of the protocol.
pub async fn translate_errors(request: Request, next: Next) -> Response {
    let Some(asker) = client_protocol(request.uri().path(), request.headers()) else {
        return next.run(request).await;
    };
    let response = next.run(request).await;
    let is_problem =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
    if !is_problem {
        return response;
    }
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), MOST).await.unwrap_or_default();
    error_response(asker, status, &problem_text(&body))
}

fn client_protocol(path: &str, headers: &HeaderMap) -> Option<ClientProtocol> {
    if path.starts_with("/opentelemetry.proto.collector.") {
        return Some(ClientProtocol::Grpc);
    }
    let ours = path.starts_with("/v1/");
    ours.then(|| ClientProtocol::Http(parse_encoding(headers).unwrap_or(Encoding::Json)))
}

/// Returns the encoding that the Content-Type names.
pub fn parse_encoding(headers: &HeaderMap) -> Option<Encoding> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    match kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/x-protobuf" | "application/protobuf" => Some(Encoding::Protobuf),
        "application/json" => Some(Encoding::Json),
        _ => None,
    }
}

/// The detail and the hints of a problem document.
fn problem_text(problem: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(problem).unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or("the request failed");
    let hints = problem["hints"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let sentences: Vec<&str> = [detail].into_iter().chain(hints).collect();
    sentences.join("; ")
}

fn error_response(protocol: ClientProtocol, status: StatusCode, message: &str) -> Response {
    let code = grpc_code(status);
    let retry = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let mut response = match protocol {
        ClientProtocol::Http(encoding) => {
            let kind = [(header::CONTENT_TYPE, content_type(encoding))];
            (status, kind, Body::from(reply::status(encoding, code, message))).into_response()
        }
        ClientProtocol::Grpc => {
            let mut response = ([(header::CONTENT_TYPE, "application/grpc")], Body::empty()).into_response();
            let headers = response.headers_mut();
            headers.insert("grpc-status", HeaderValue::from(code as u32));
            insert_header(headers, "grpc-message", &utf8_percent_encode(message, GRPC_ESCAPED).to_string());
            if retry {
                insert_header(
                    headers,
                    "grpc-status-details-bin",
                    &reply::retry_details(code, message, RETRY_AFTER_SECONDS),
                );
            }
            response
        }
    };
    if retry && protocol != ClientProtocol::Grpc {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    }
    response
}

fn insert_header(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn grpc_code(status: StatusCode) -> Code {
    match status {
        StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::InvalidArgument,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => Code::PermissionDenied,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Code::Unimplemented,
        StatusCode::PAYLOAD_TOO_LARGE => Code::ResourceExhausted,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        _ => Code::Internal,
    }
}
