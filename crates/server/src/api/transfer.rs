//! Exports sessions as files, and imports them.
//!
//! Both go through an unlinked temporary file. A client that downloads slowly must not keep the store from freeing objects
//! for as long as that takes, and an upload is checked as a whole before any of it is stored.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use stepback_api::sessions::{ImportDocument, SessionDocument};
use stepback_bundle::Bundle;
use stepback_engine::Engine;
use stepback_engine::session::session_status;
use stepback_export::{ExportContext, SessionFileFormat};
use stepback_model::hex;
use utoipa::{IntoParams, ToSchema};

use crate::extract::{Json, Path, QueryString};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Largest file that can be imported, in bytes.
const LARGEST: u64 = 2 << 30;
/// Bytes read or written at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// The format of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransferFormat {
    /// Everything, for import into another store.
    #[default]
    Bundle,
    /// Lines of JSON, for other programs.
    Jsonl,
    /// A page to read, which needs no network.
    Html,
    /// A trajectory in ATIF 1.7.
    Atif,
    /// The lines that the session wrote, as a record of Agent Trace 0.1.0.
    AgentTrace,
    /// The recorded model calls as an HTTP archive (HAR 1.2).
    Har,
    /// Spans by OpenTelemetry's conventions for generative AI, in OTLP's JSON encoding.
    Otlp,
}

impl TransferFormat {
    /// The format of a file that holds one session for other programs; `None` for those that are imported again.
    fn session_file(self) -> Option<SessionFileFormat> {
        match self {
            Self::Bundle | Self::Jsonl => None,
            Self::Html => Some(SessionFileFormat::Html),
            Self::Atif => Some(SessionFileFormat::Atif),
            Self::AgentTrace => Some(SessionFileFormat::AgentTrace),
            Self::Har => Some(SessionFileFormat::Har),
            Self::Otlp => Some(SessionFileFormat::Otlp),
        }
    }

    /// The end of the file's name.
    fn extension(self) -> &'static str {
        match self {
            Self::Bundle => "bundle",
            Self::Jsonl => "jsonl",
            _ => self.session_file().map_or("json", SessionFileFormat::extension),
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Bundle => "application/octet-stream",
            Self::Jsonl => "application/x-ndjson",
            _ => self.session_file().map_or("application/json", SessionFileFormat::media_type),
        }
    }
}

/// What an exported page may do if a browser shows it: nothing but its own style and script, and not as a page of this server.
fn page_policy() -> String {
    format!("sandbox allow-scripts; {}", stepback_export::html::content_security_policy())
}

/// How to export a session.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExportQuery {
    /// `bundle` (everything, for another store), `jsonl` (lines of JSON), `html` (a page to read), `atif`, `agent-trace`, `har`
    /// or `otlp`.
    #[serde(default)]
    #[param(inline)]
    pub format: TransferFormat,
}

/// Exports a session as one file. All but bundles and lines of JSON are redacted again.
#[utoipa::path(get, path = "/sessions/{session}/export", tag = "sessions",
    params(("session" = String, Path, description = "The session"), ExportQuery),
    responses(
        (status = 200, description = "The file", content((Vec<u8> = "application/octet-stream"), (String = "application/x-ndjson"), (String = "text/html"), (Object = "application/json"), (Object = "application/vnd.agent-trace.record+json"))),
        (status = "default", body = Problem)
    ))]
pub async fn export(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(query): QueryString<ExportQuery>,
) -> Result<Response, Problem> {
    let (file, name) = state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let session = [session];
            let mut file = create_unlinked_file(engine)?;
            match query.format.session_file() {
                Some(format) => {
                    let context = ExportContext { version: env!("CARGO_PKG_VERSION"), now: engine.env.now() };
                    let out = BufWriter::new(&file);
                    stepback_export::write_session(format, &workspace, &session[0], context, out)?;
                }
                None if query.format == TransferFormat::Jsonl => {
                    stepback_bundle::export_lines(engine, &session, &file)?;
                }
                None => {
                    stepback_bundle::export(engine, &session, &file)?;
                }
            }
            file.rewind()?;
            Ok((file, format!("{}.{}", session[0].id.short(), query.format.extension())))
        })
        .await?;
    let policy = match query.format {
        TransferFormat::Html => page_policy(),
        _ => "sandbox; default-src 'none'".to_owned(),
    };
    let headers = [
        (header::CONTENT_TYPE, query.format.media_type().to_owned()),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CONTENT_LENGTH, file.metadata()?.len().to_string()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    let pieces = stream::unfold(file, |mut file| async move {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; CHUNK_BYTES];
            file.read(&mut piece).map(|count| {
                piece.truncate(count);
                (piece, file)
            })
        });
        match read.await {
            Ok(Ok((piece, _))) if piece.is_empty() => None,
            // A read error ends the answer before its Content-Length, which the client notices.
            Ok(Ok((piece, file))) => Some((Ok::<_, std::io::Error>(Bytes::from(piece)), file)),
            Ok(Err(_)) | Err(_) => None,
        }
    });
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// Creates an unlinked file in the directory of the store; it is gone once it is closed.
fn create_unlinked_file(engine: &Engine) -> Result<File, Problem> {
    let dir = engine.store.local_dir();
    let dir = dir.ok_or_else(|| Problem::internal("this store has no directory for files"))?;
    let path = dir.join(format!("passing-{}", hex::encode(&engine.env.fresh_id())));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Imports a bundle or exported lines: everything that the store does not have, or nothing.
#[utoipa::path(post, path = "/imports", tag = "sessions",
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "A bundle, or exported lines, which hold no files"),
    responses(
        (status = 200, description = "Everything was already imported", body = ImportDocument),
        (status = 201, description = "It was imported", body = ImportDocument),
        (status = "default", body = Problem)
    ))]
pub async fn import(
    State(state): State<AppState>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<ImportDocument>), Problem> {
    let too_large = || {
        let detail = format!("a bundle must not be larger than {} GiB over HTTP", LARGEST >> 30);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "usage", detail)
            .with_hint("\"stepback import FILE\" has no limit")
    };
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if length.and_then(|length| length.parse().ok()).is_some_and(|length: u64| length > LARGEST) {
        return Err(too_large());
    }
    let mut file = state.run(create_unlinked_file).await?;
    let mut pieces = body.into_data_stream();
    let mut arrived = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| Problem::usage(format!("reading the body failed: {error}")))?;
        arrived += piece.len() as u64;
        if arrived > LARGEST {
            return Err(too_large());
        }
        tokio::task::block_in_place(|| file.write_all(&piece))?;
    }
    state
        .run(move |engine| {
            file.rewind()?;
            let mut start = Vec::new();
            (&file).take(CHUNK_BYTES as u64).read_to_end(&mut start)?;
            file.rewind()?;
            let imported = match stepback_bundle::is_json_lines_export(&start) {
                true => stepback_bundle::import_lines(engine, BufReader::new(file))?,
                false => stepback_bundle::import(engine, &Bundle::open(file, engine.progress.as_deref())?)?,
            };
            let mut sessions = Vec::new();
            for (session, _) in &imported.sessions {
                if let Some(session) = engine.store.session(*session)? {
                    sessions.push(SessionDocument::from_session(
                        &session,
                        session_status(&session, false, engine.env.now()),
                    ));
                }
            }
            let status = if imported.new_steps > 0 { StatusCode::CREATED } else { StatusCode::OK };
            let document = ImportDocument {
                sessions,
                steps: imported.steps,
                new_steps: imported.new_steps,
                new_objects: imported.new_objects,
            };
            Ok((status, Json(document)))
        })
        .await
}
