//! What applies to every gRPC call: its form, its deadline, and refusals by the layers of the server.
//!
//! The layers that check tokens, hosts and limits know only HTTP and answer with problem documents. A gRPC client expects
//! status 200 and an error in the trailers, so this layer is outside of them and translates.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use stepback_api::problem::ProblemDocument;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::deadline::{self, DeadlineBody};
use crate::status::{from_problem, http_status_of, refusal};

/// Largest error document that is translated.
const MAX_PROBLEM_BYTES: usize = 1 << 20;

/// Middleware around the whole server: gRPC calls are answered with gRPC statuses; other requests pass through.
pub async fn translate(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !is_grpc(request.headers()) {
        let is_method = path.starts_with("/stepback.v1.") || path.starts_with("/grpc.");
        return match is_method {
            true => plain_refusal(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "this address is a gRPC method, and the Content-Type is not application/grpc",
                "use a gRPC client; the HTTP API is below /api/v1",
            ),
            false => next.run(request).await,
        };
    }
    if request.version() != Version::HTTP_2 {
        return plain_refusal(
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "gRPC needs HTTP/2",
            "use a gRPC client; without TLS it must begin with HTTP/2 (prior knowledge)",
        );
    }
    let timeout = match deadline::timeout(request.headers()) {
        Ok(timeout) => timeout,
        Err(status) => return status.into_http(),
    };
    let Some(timeout) = timeout else { return answer(request, next).await };
    if timeout.is_zero() {
        return deadline::exceeded().into_http();
    }
    let due = Instant::now() + timeout;
    match tokio::time::timeout_at(due, answer(request, next)).await {
        Ok(response) => response.map(|body| Body::new(DeadlineBody::new(body, due))),
        Err(_) => deadline::exceeded().into_http(),
    }
}

async fn answer(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    if is_grpc(response.headers()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, MAX_PROBLEM_BYTES).await.unwrap_or_default();
    let status = match serde_json::from_slice::<ProblemDocument>(&body) {
        Ok(problem) if parts.status != StatusCode::NOT_FOUND && !parts.status.is_success() => {
            from_problem(problem)
        }
        // Pages, and addresses of nothing.
        _ => unknown_method(&path),
    };
    status.into_http()
}

fn unknown_method(path: &str) -> Status {
    let shown: String = path.chars().take(100).collect();
    let hint = "reflection lists the services and their methods";
    refusal(Code::Unimplemented, "usage", format!("there is no method {shown}"), Some(hint))
}

/// Whether a message is gRPC. gRPC-Web is another protocol.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes()).unwrap_or_default();
    match kind.strip_prefix(b"application/grpc") {
        Some(rest) => matches!(rest, [] | [b';', ..]) || rest == b"+proto" || rest.starts_with(b"+proto;"),
        None => false,
    }
}

/// An answer to a client that does not speak gRPC.
fn plain_refusal(status: StatusCode, detail: &str, hint: &str) -> Response {
    let problem = ProblemDocument {
        kind: "https://stepback.dev/problems/usage".into(),
        title: status.canonical_reason().unwrap_or("Problem").into(),
        status: status.as_u16(),
        detail: detail.into(),
        code: "usage".into(),
        hints: vec![hint.into()],
        plan: None,
    };
    (status, [(header::CONTENT_TYPE, "application/problem+json")], Json(problem)).into_response()
}

/// The status of a response for metrics and logs: that of a gRPC call that failed is in a header.
pub fn http_status(response: &Response) -> u16 {
    match Status::from_header_map(response.headers()) {
        Some(status) if is_grpc(response.headers()) => http_status_of(status.code()),
        _ => response.status().as_u16(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_grpc_itself_is_grpc() {
        let is = |kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            is_grpc(&headers)
        };
        assert!(
            is("application/grpc") && is("application/grpc+proto") && is("application/grpc;charset=utf-8")
        );
        for other in
            ["application/grpc-web", "application/grpc+json", "application/grpcx", "application/json", ""]
        {
            assert!(!is(other), "{other}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn a_failed_call_is_counted_as_failed() {
        let failed = Status::not_found("x").into_http::<Body>();
        assert_eq!((failed.status(), http_status(&failed)), (StatusCode::OK, 404));
        assert_eq!(http_status(&StatusCode::CONFLICT.into_response()), 409);
    }
}
