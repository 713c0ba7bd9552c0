//! Spans and log records, as far as anything is made of them; the same for every encoding.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

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
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl $id {
            /// The id in these bytes. All zeros is the protocol's word for "none"; any other length is no id.
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

/// Bytes that are no id: so many of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadId(pub usize);

/// What came out of a request: everything that could be read, and how much could not.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch<T> {
    /// Spans or records, those of one source together.
    pub groups: Vec<Group<T>>,
    /// What had to be left out.
    pub rejected: Rejected,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { groups: Vec::new(), rejected: Rejected::default() }
    }
}

/// What one instrumentation of one service sent.
#[derive(Clone, PartialEq, Debug)]
pub struct Group<T> {
    /// What is known of the service.
    pub resource: Arc<Attributes>,
    /// The name of the instrumentation.
    pub scope: Arc<str>,
    /// Its spans or records.
    pub items: Vec<T>,
}

/// What had to be left out, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rejected {
    /// How many spans or records.
    pub count: u64,
    /// Why, each reason once.
    pub reasons: Vec<String>,
}

impl Rejected {
    /// So many reasons are told; after that, only the count goes on.
    const MOST: usize = 8;

    /// One more.
    pub fn add(&mut self, reason: impl Into<String>) {
        self.count += 1;
        let reason = reason.into();
        if self.reasons.len() < Self::MOST && !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    /// All reasons as one sentence; empty if there are none.
    pub fn sentence(&self) -> String {
        self.reasons.join("; ")
    }
}

/// Something that took a time.
#[derive(Clone, PartialEq, Debug)]
pub struct Span {
    /// The trace it belongs to.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// The span it was part of.
    pub parent: Option<SpanId>,
    /// What it is called.
    pub name: String,
    /// On which side of a call it was.
    pub side: Side,
    /// When it began, in nanoseconds since the epoch; 0 if unknown.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// What is known of it.
    pub attributes: Attributes,
    /// What happened meanwhile.
    pub events: Vec<Moment>,
    /// Other spans it has to do with.
    pub links: Vec<Link>,
    /// Whether it went wrong, and what was said about that.
    pub failed: Option<String>,
    /// Attributes, events and links that the sender left out.
    pub left_out: u64,
}

/// On which side of a call a span was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Side {
    /// Inside of the service, or not said.
    #[default]
    Inside,
    /// At an edge: it answered or made a request, or handled a message.
    Edge,
}

impl Side {
    /// From the protocol's number.
    pub fn of(kind: u64) -> Self {
        match kind {
            2..=5 => Self::Edge,
            _ => Self::Inside,
        }
    }
}

/// Something that happened while a span went on.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Moment {
    /// What it is called.
    pub name: String,
    /// When.
    pub at: u64,
    /// What is known of it.
    pub attributes: Attributes,
}

/// Another span that a span has to do with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its trace.
    pub trace: TraceId,
    /// Its id.
    pub span: SpanId,
}

/// Something that was logged.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LogRecord {
    /// When it happened, in nanoseconds since the epoch; 0 if unknown.
    pub at: u64,
    /// When somebody noticed.
    pub observed: u64,
    /// How bad: 17 and above are errors.
    pub severity: u64,
    /// What kind of event it is.
    pub event: String,
    /// What it says.
    pub body: Option<Value>,
    /// What is known of it.
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
