//! The body of a batch: decompressed within limits, and split into events.

use std::borrow::Cow;
use std::io::Read;

use axum::http::{HeaderMap, StatusCode, header};
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::problem::Problem;

/// Most bytes of a batch, decompressed.
pub const LARGEST: usize = 16 << 20;
/// Most events in a batch.
pub const MOST: usize = 10_000;

/// A batch with its events still as text, so that an invalid event does not fail the others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    workspace: Option<String>,
    agent: Option<String>,
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
}

/// A batch, split into its events.
#[derive(Debug)]
pub struct SplitBatch<'a> {
    /// The workspace it names, if any.
    pub workspace: Option<String>,
    /// The agent it names, if any.
    pub agent: Option<String>,
    /// The events, each as JSON.
    pub events: Vec<&'a str>,
}

/// The format of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchFormat {
    /// Whether it has one JSON document on each line, instead of a single one.
    pub is_json_lines: bool,
    /// Whether it is compressed with gzip.
    pub is_gzip: bool,
}

impl BatchFormat {
    /// Reads the format from the headers.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, Problem> {
        let text = |name: header::HeaderName| {
            let value = headers.get(name).map(|value| value.to_str().unwrap_or("?"));
            value.map(|value| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
        };
        let unsupported = |what: String, hint: &str| {
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "usage", what).with_hint(hint))
        };
        let lines = match text(header::CONTENT_TYPE).as_deref() {
            Some("application/json") => false,
            Some("application/x-ndjson" | "application/ndjson" | "application/jsonl") => true,
            _ => {
                return unsupported(
                    "the Content-Type is neither JSON nor JSON lines".into(),
                    "send \"Content-Type: application/json\" or \"application/x-ndjson\"",
                );
            }
        };
        let packed = match text(header::CONTENT_ENCODING).as_deref() {
            None | Some("identity" | "") => false,
            Some("gzip") => true,
            Some(_) => {
                return unsupported("unsupported Content-Encoding".into(), "use gzip, or no compression");
            }
        };
        Ok(Self { is_json_lines: lines, is_gzip: packed })
    }

    /// Returns an upper bound of the memory that a body of `length` bytes needs, decompressed and parsed.
    pub fn max_memory_bytes(self, length: usize) -> usize {
        /// The best compression ratio that gzip can reach.
        const MAX_GZIP_RATIO: usize = 1032;
        if self.is_gzip { length.saturating_mul(MAX_GZIP_RATIO).min(LARGEST) } else { length }
    }

    /// Returns the decompressed body.
    pub fn decompress(self, body: &[u8]) -> Result<Cow<'_, [u8]>, Problem> {
        if !self.is_gzip {
            return Ok(Cow::Borrowed(body));
        }
        let mut bytes = Vec::new();
        let mut unpacking = MultiGzDecoder::new(body).take(LARGEST as u64 + 1);
        if let Err(error) = unpacking.read_to_end(&mut bytes) {
            return Err(Problem::usage(format!("the body is not valid gzip: {error}")));
        }
        match bytes.len() > LARGEST {
            true => Err(too_large_problem()),
            false => Ok(Cow::Owned(bytes)),
        }
    }

    /// Splits the body into its events.
    pub fn split_events(self, body: &[u8]) -> Result<SplitBatch<'_>, Problem> {
        let text = std::str::from_utf8(body).map_err(|error| {
            Problem::usage(format!("the body is not UTF-8 after {} bytes", error.valid_up_to()))
        })?;
        let parts = if self.is_json_lines {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            SplitBatch { workspace: None, agent: None, events: lines.collect() }
        } else {
            let envelope: Envelope<'_> = serde_json::from_str(text)
                .map_err(|error| Problem::usage(format!("the body is invalid: {error}")))?;
            let events = envelope.events.into_iter().map(RawValue::get).collect();
            SplitBatch { workspace: envelope.workspace, agent: envelope.agent, events }
        };
        match parts.events.len() {
            0 => Err(Problem::usage("the batch is empty")),
            count if count > MOST => Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "usage",
                format!("the batch has {count} events, more than the limit of {MOST}"),
            )
            .with_hint("split it into several batches")),
            _ => Ok(parts),
        }
    }
}

/// The error for a body that is too large.
pub fn too_large_problem() -> Problem {
    let what = format!("the batch has more than {} MiB", LARGEST >> 20);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "usage", what).with_hint("split it into several batches")
}
