//! The part of gRPC that the protocol needs: one message in, one message out.
//!
//! A message is a byte that says whether it is compressed, four bytes for its length, and the message; the status is in the
//! trailers. HTTP/2 itself is handled by the server.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use stepback_otlp::{Encoding, reply};

use super::{LARGEST, Signal, body};
use crate::problem::Problem;
use crate::state::AppState;

/// Bytes of the prefix of a message.
const PREFIX_BYTES: usize = 5;

/// The services that the protocol defines.
pub fn router() -> Router<AppState> {
    let service = |name: &str| format!("/opentelemetry.proto.collector.{name}/Export");
    Router::new()
        .route(
            &service("trace.v1.TraceService"),
            post(|work, request| receive_grpc(work, request, Signal::Traces)),
        )
        .route(
            &service("logs.v1.LogsService"),
            post(|work, request| receive_grpc(work, request, Signal::Logs)),
        )
        .route(&service("metrics.v1.MetricsService"), post(|| async { super::metrics_unsupported() }))
}

async fn receive_grpc(
    State(state): State<AppState>,
    request: Request,
    signal: Signal,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let kind =
        parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !matches!(kind, "application/grpc" | "application/grpc+proto") {
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "usage", "this address is for gRPC"));
    }
    let packing = body::parse_compression(parts.headers.get("grpc-encoding"))?;
    let mut room = state.otlp_receiver().memory.reserve().await?;
    let whole = body::read_body(body, LARGEST + PREFIX_BYTES, &mut room).await?;
    let (is_packed, message) = split_message(whole)?;
    let packed = match (is_packed, packing) {
        (false, _) => None,
        (true, Some(packing)) => Some(packing),
        (true, None) => {
            return Err(Problem::usage("the message is compressed, but grpc-encoding is missing"));
        }
    };
    let rejected = state.record_telemetry(signal, Encoding::Protobuf, message, packed, room).await?;
    Ok(grpc_response(&reply::taken(Encoding::Protobuf, &rejected, "")))
}

/// Returns the one message of a request, and whether it is compressed.
fn split_message(mut whole: Bytes) -> Result<(bool, Bytes), Problem> {
    let broken = || Problem::usage("the body is not a single gRPC message");
    if whole.len() < PREFIX_BYTES {
        return Err(broken());
    }
    let message = whole.split_off(PREFIX_BYTES);
    let length = u32::from_be_bytes([whole[1], whole[2], whole[3], whole[4]]);
    match (whole[0], usize::try_from(length)) {
        (packed @ (0 | 1), Ok(length)) if length == message.len() => Ok((packed == 1, message)),
        _ => Err(broken()),
    }
}

fn grpc_response(message: &[u8]) -> Response {
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    bytes.put_u8(0);
    // Answers are a few hundred bytes, so the length always fits.
    bytes.put_u32(message.len() as u32);
    bytes.put_slice(message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(bytes.freeze()).with_trailers(async { Some(Ok(trailers)) });
    ([(header::CONTENT_TYPE, "application/grpc")], Body::new(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_must_be_as_long_as_it_says() {
        let read = |bytes: &'static [u8]| split_message(Bytes::from_static(bytes));
        assert_eq!(read(b"\0\0\0\0\x02ab").unwrap(), (false, Bytes::from_static(b"ab")));
        assert_eq!(read(b"\x01\0\0\0\0").unwrap(), (true, Bytes::new()));
        for wrong in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\0\x03ab",
            b"\0\0\0\0\x01ab",
            b"\x02\0\0\0\0",
            b"\0\xff\xff\xff\xff",
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
