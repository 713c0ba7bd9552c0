//! The body of a batch: unpacked within limits, and taken apart.

use std::borrow::Cow;
use std::io::Read;

use axum::http::{HeaderMap, StatusCode, header};
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::reported::NewStep;
use crate::problem::Problem;

/// Most bytes of a batch, unpacked.
pub const LARGEST: usize = 16 << 20;
/// Most things in a batch.
pub const MOST: usize = 10_000;

/// Things that agents did, in their order.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what is taken apart by hand, one thing after the other")]
pub struct Batch {
    /// Where: the id or the root of a workspace, or the name of one that is no directory here.
    pub workspace: Option<String>,
    /// The agent of what names none.
    pub agent: Option<String>,
    /// What they did.
    pub events: Vec<NewStep>,
}

/// The same, with everything in it still as text: what is wrong with one thing is not wrong with the others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    workspace: Option<String>,
    agent: Option<String>,
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
}

/// A batch, taken apart.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The workspace it names.
    pub workspace: Option<String>,
    /// The agent it names.
    pub agent: Option<String>,
    /// Things, as JSON.
    pub events: Vec<&'a str>,
}

/// How a batch is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// One JSON document on each line, instead of one in all.
    pub lines: bool,
    /// Compressed with gzip.
    pub packed: bool,
}

impl Form {
    /// As the headers say.
    pub fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let text = |name: header::HeaderName| {
            let value = headers.get(name).map(|value| value.to_str().unwrap_or("?"));
            value.map(|value| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
        };
        let unsupported = |what: String, hint: &str| {
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "usage", what).hint(hint))
        };
        let lines = match text(header::CONTENT_TYPE).as_deref() {
            Some("application/json") => false,
            Some("application/x-ndjson" | "application/ndjson" | "application/jsonl") => true,
            _ => {
                return unsupported(
                    "the body is neither said to be JSON nor lines of JSON".into(),
                    "send \"Content-Type: application/json\" or \"application/x-ndjson\"",
                );
            }
        };
        let packed = match text(header::CONTENT_ENCODING).as_deref() {
            None | Some("identity" | "") => false,
            Some("gzip") => true,
            Some(_) => {
                return unsupported("the body is packed in an unknown way".into(), "use gzip, or nothing");
            }
        };
        Ok(Self { lines, packed })
    }

    /// How many bytes of memory a body of so many bytes may take.
    pub fn weight(self, length: usize) -> usize {
        /// gzip cannot do better.
        const BEST: usize = 1032;
        if self.packed { length.saturating_mul(BEST).min(LARGEST) } else { length }
    }

    /// The body as it was before it was packed.
    pub fn unpacked(self, body: &[u8]) -> Result<Cow<'_, [u8]>, Problem> {
        if !self.packed {
            return Ok(Cow::Borrowed(body));
        }
        let mut bytes = Vec::new();
        let mut unpacking = MultiGzDecoder::new(body).take(LARGEST as u64 + 1);
        if let Err(error) = unpacking.read_to_end(&mut bytes) {
            return Err(Problem::usage(format!("the body is no gzip: {error}")));
        }
        match bytes.len() > LARGEST {
            true => Err(too_large()),
            false => Ok(Cow::Owned(bytes)),
        }
    }

    /// Takes the body apart.
    pub fn parts(self, body: &[u8]) -> Result<Parts<'_>, Problem> {
        let text = std::str::from_utf8(body).map_err(|error| {
            Problem::usage(format!("the body is not UTF-8 after {} bytes", error.valid_up_to()))
        })?;
        let parts = if self.lines {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            Parts { workspace: None, agent: None, events: lines.collect() }
        } else {
            let envelope: Envelope<'_> = serde_json::from_str(text)
                .map_err(|error| Problem::usage(format!("the body does not fit: {error}")))?;
            let events = envelope.events.into_iter().map(RawValue::get).collect();
            Parts { workspace: envelope.workspace, agent: envelope.agent, events }
        };
        match parts.events.len() {
            0 => Err(Problem::usage("there is nothing in the batch")),
            count if count > MOST => Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "usage",
                format!("the batch has {count} events, and at most {MOST} are taken"),
            )
            .hint("send them in several")),
            _ => Ok(parts),
        }
    }
}

/// That a body is too large.
pub fn too_large() -> Problem {
    let what = format!("the batch has more than {} MiB", LARGEST >> 20);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "usage", what).hint("send it in several parts")
}
