//! Spans and log records, reduced to the parts that are used; the same for every encoding.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use stepback_model::hex;

use crate::attributes::Attributes;

/// The id of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span within its trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub [u8; 8]);

macro_rules! hex {
    ($id:ident) => {
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(&self.0))
            }
        }

        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl $id {
            /// Reads an id from bytes. All zeros mean "none" in the protocol; any other length is an error.
            pub fn of(bytes: &[u8]) -> Result<Option<Self>, BadId> {
                if bytes.iter().all(|byte| *byte == 0) {
                    return Ok(None);
                }
                bytes.try_into().map(|bytes| Some(Self(bytes))).map_err(|_| BadId(bytes.len()))
            }
        }
    };
}

hex!(TraceId);
hex!(SpanId);

/// An id of the wrong length, which it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadId(pub usize);

/// The contents of a request: everything that could be read, and how much could not.
#[derive(Clone, PartialEq, Debug)]
pub struct TelemetryBatch<T> {
    /// Spans or records, grouped by source.
    pub groups: Vec<Group<T>>,
    /// What was rejected.
    pub rejected: Rejected,
}

impl<T> Default for TelemetryBatch<T> {
    fn default() -> Self {
        Self { groups: Vec::new(), rejected: Rejected::default() }
    }
}

/// What one instrumentation of one service sent.
#[derive(Clone, PartialEq, Debug)]
pub struct Group<T> {
    /// Attributes of the service.
    pub resource: Arc<Attributes>,
    /// The name of the instrumentation.
    pub scope: Arc<str>,
    /// Its spans or records.
    pub items: Vec<T>,
}

/// What was rejected, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rejected {
    /// The number of spans or records.
    pub count: u64,
    /// The reasons, each once.
    pub reasons: Vec<String>,
}

impl Rejected {
    /// The most reasons that are kept; after that, only the count increases.
    const MOST: usize = 8;

    /// Counts one more, with its reason.
    pub fn add(&mut self, reason: impl Into<String>) {
        self.count += 1;
        let reason = reason.into();
        if self.reasons.len() < Self::MOST && !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    /// Returns all reasons as one sentence; empty if there are none.
    pub fn sentence(&self) -> String {
        self.reasons.join("; ")
    }
}

/// An operation with a duration.
#[derive(Clone, PartialEq, Debug)]
pub struct Span {
    /// The trace it belongs to.
    pub trace: TraceId,
    /// The id of the span.
    pub id: SpanId,
    /// The id of the enclosing span.
    pub parent: Option<SpanId>,
    /// The name of the span.
    pub name: String,
    /// Its side of a call.
    pub side: SpanSide,
    /// When it began, in nanoseconds since the epoch; 0 if unknown.
    pub start: u64,
    /// When it ended, in the same unit.
    pub end: u64,
    /// Attributes of the span.
    pub attributes: Attributes,
    /// Events during the span.
    pub events: Vec<SpanEvent>,
    /// Links to related spans.
    pub links: Vec<SpanLink>,
    /// The error message if the span failed; `None` if it did not.
    pub failed: Option<String>,
    /// Attributes, events and links that the sender left out.
    pub left_out: u64,
}

/// The side of a call that a span was on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SpanSide {
    /// Inside the service, or unspecified.
    #[default]
    Inside,
    /// At an edge: it answered or made a request, or handled a message.
    Edge,
}

impl SpanSide {
    /// Converts the protocol's number.
    pub fn of(kind: u64) -> Self {
        match kind {
            2..=5 => Self::Edge,
            _ => Self::Inside,
        }
    }
}

/// An event during a span.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SpanEvent {
    /// The name of the event.
    pub name: String,
    /// When it happened, in nanoseconds since the epoch.
    pub at: u64,
    /// Attributes of the event.
    pub attributes: Attributes,
}

/// A link to a related span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanLink {
    /// The id of its trace.
    pub trace: TraceId,
    /// The id of the span.
    pub span: SpanId,
}

/// A log record.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LogRecord {
    /// When it happened, in nanoseconds since the epoch; 0 if unknown.
    pub at: u64,
    /// When it was observed, in the same unit.
    pub observed: u64,
    /// The severity: 17 and above are errors.
    pub severity: u64,
    /// The name of the event.
    pub event: String,
    /// The content of the record.
    pub body: Option<Value>,
    /// Attributes of the record.
    pub attributes: Attributes,
    /// The trace it belongs to.
    pub trace: Option<TraceId>,
    /// The span it belongs to.
    pub span: Option<SpanId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_no_id_and_other_lengths_are_refused() {
        assert_eq!(TraceId::of(&[0; 16]), Ok(None));
        assert_eq!(TraceId::of(&[]), Ok(None));
        assert_eq!(SpanId::of(&[1, 2]), Err(BadId(2)));
        let id = SpanId::of(&[0, 1, 2, 3, 4, 5, 6, 255]).unwrap().unwrap();
        assert_eq!(id.to_string(), "00010203040506ff");
    }
}
