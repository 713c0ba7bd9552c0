//! OpenTelemetry (OTLP): traces and logs of agents anywhere, over HTTP and gRPC on the same port as the API.
//!
//! The paths, encodings and answers are those of the protocol, so these operations are not part of the API description. Data
//! is only acknowledged once it is durable; invalid items are counted in the answer; a client that cannot be served now is
//! asked to retry.

mod body;
mod grpc;
mod recording;
mod refusal;
mod room;

use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use stepback_llm_wire::prices::Prices;
use stepback_model::record::Session;
use stepback_otlp::telemetry::Rejected;
use stepback_otlp::{AssembledRequest, Assembler, Encoding, TelemetrySource, Unreadable, reply};

use self::room::{MemoryBudget, ReservedMemory};
use crate::problem::Problem;
use crate::state::AppState;

pub use refusal::translate_errors;

/// Most bytes of a request, compressed or not. The protocol recommends this limit.
const LARGEST: usize = 64 << 20;

/// The type of telemetry in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Signal {
    Traces,
    Logs,
}

/// Receives telemetry: holds the traces that are incomplete, and limits how much is processed at a time.
#[derive(Debug)]
pub struct OtlpReceiver {
    assembler: Mutex<Assembler>,
    memory: MemoryBudget,
}

impl Default for OtlpReceiver {
    fn default() -> Self {
        Self { assembler: Mutex::new(Assembler::new(Prices::built_in())), memory: MemoryBudget::default() }
    }
}

/// The routes that the protocol defines.
pub fn router() -> Router<AppState> {
    Router::new()
        .route("/v1/traces", post(|work, request| receive_http(work, request, Signal::Traces)))
        .route("/v1/logs", post(|work, request| receive_http(work, request, Signal::Logs)))
        .route("/v1/metrics", post(|| async { metrics_unsupported() }))
        .merge(grpc::router())
}

fn metrics_unsupported() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "nothing", "metrics are not recorded")
        .with_hint("set OTEL_METRICS_EXPORTER=none")
}

/// Handles a request over HTTP.
async fn receive_http(
    State(state): State<AppState>,
    request: Request,
    signal: Signal,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let encoding = require_encoding(&parts.headers)?;
    let packed = body::parse_compression(parts.headers.get(header::CONTENT_ENCODING))?;
    let mut room = state.otlp_receiver().memory.reserve().await?;
    let bytes = body::read_body(body, LARGEST, &mut room).await?;
    let rejected = state.record_telemetry(signal, encoding, bytes, packed, room).await?;
    let name = match signal {
        Signal::Traces => "rejectedSpans",
        Signal::Logs => "rejectedLogRecords",
    };
    let kind = [(header::CONTENT_TYPE, content_type(encoding))];
    Ok((kind, Body::from(reply::taken(encoding, &rejected, name))).into_response())
}

/// Returns the encoding that the Content-Type names.
fn require_encoding(headers: &HeaderMap) -> Result<Encoding, Problem> {
    match refusal::parse_encoding(headers) {
        Some(encoding) => Ok(encoding),
        None => {
            let detail = "the Content-Type is neither protobuf nor JSON";
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "usage", detail)
                .with_hint("send application/x-protobuf or application/json"))
        }
    }
}

fn decode_problem(why: Unreadable) -> Problem {
    match why {
        Unreadable::Malformed(_) => Problem::usage(why.to_string()),
        Unreadable::TooMany => body::request_too_large(why.to_string()),
    }
}

fn content_type(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Protobuf => "application/x-protobuf",
        Encoding::Json => "application/json",
    }
}

impl AppState {
    /// Parses and records the data of a request. Returns what was rejected.
    async fn record_telemetry(
        &self,
        signal: Signal,
        encoding: Encoding,
        bytes: Bytes,
        compression: Option<body::Compression>,
        mut memory: ReservedMemory,
    ) -> Result<Rejected, Problem> {
        let work = self.clone();
        self.run(move |engine| {
            let bytes = match compression {
                Some(packed) => body::decompress(&bytes, packed, LARGEST, &mut memory)?.into(),
                None => bytes,
            };
            let now = engine.env.now();
            let is_known = |service: &TelemetrySource, session: &str| {
                let workspace = engine.store.workspace_at(&recording::workspace_root(service));
                let id =
                    workspace.ok().flatten().map(|found| Session::id_of(found.id, &service.name, session));
                id.is_some_and(|id| engine.store.session(id).is_ok_and(|session| session.is_some()))
            };
            let assembler = &work.otlp_receiver().assembler;
            let assembler = || assembler.lock().unwrap_or_else(PoisonError::into_inner);
            let AssembledRequest { services, mut rejected } = match signal {
                Signal::Traces => {
                    let batch = stepback_otlp::traces(encoding, &bytes).map_err(decode_problem)?;
                    drop(bytes);
                    assembler().traces(batch, now, &is_known)
                }
                Signal::Logs => {
                    let batch = stepback_otlp::logs(encoding, &bytes).map_err(decode_problem)?;
                    drop(bytes);
                    assembler().logs(batch, now, &is_known)
                }
            };
            for (service, events) in services {
                let workspace =
                    recording::open_workspace(engine, &service).map_err(recording::retryable_problem)?;
                recording::record_events(&workspace, events, &mut rejected)
                    .map_err(recording::retryable_problem)?;
            }
            drop(memory);
            Ok(rejected)
        })
        .await
    }
}
