//! W3C trace context, which links steps to the distributed trace they belong to.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// A position in a trace: trace id, span id and flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    flags: u8,
}

impl TraceContext {
    /// Starts a new trace.
    pub fn fresh() -> Self {
        let trace = (u128::from(random()) << 64) | u128::from(random());
        Self { trace: trace.max(1), span: random().max(1), flags: 1 }
    }

    /// Parses a `traceparent` header. Returns `None` if it does not follow the specification.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let fits = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
        // Later versions may add parts; version 00 may not.
        if !fits || version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let context = Self {
            trace: u128::from_str_radix(trace, 16).ok()?,
            span: u64::from_str_radix(span, 16).ok()?,
            flags: u8::from_str_radix(flags, 16).ok()?,
        };
        (context.trace != 0 && context.span != 0).then_some(context)
    }

    /// Returns a new span in the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span: random().max(1), ..self }
    }

    /// The id of the trace, as hex.
    pub fn trace_id(self) -> String {
        format!("{:032x}", self.trace)
    }

    /// The id of the span, as hex.
    pub fn span_id(self) -> String {
        format!("{:016x}", self.span)
    }
}

/// The `traceparent` header to send to a called service.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// Returns random bits: every `RandomState` of the standard library has its own keys, seeded by the system.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_read_and_written() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = TraceContext::parse(text).unwrap();
        assert_eq!(context.to_string(), text);
        assert_eq!(context.child().trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_ne!(context.child().span_id(), context.span_id());
        assert!(
            TraceContext::parse("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more").is_some()
        );
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
        assert_ne!(TraceContext::fresh(), TraceContext::fresh());
    }
}
