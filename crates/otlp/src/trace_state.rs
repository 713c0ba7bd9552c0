//! What is remembered of traces between two requests.
//!
//! Spans of one trace arrive in several requests, the inner ones first. Earlier spans help to place later ones, but are
//! never required: if they were forgotten, because the server restarted or other traces displaced them, a span without a
//! session of its own becomes part of a session named after its trace. Everything here is bounded.

use std::collections::{HashMap, VecDeque};

use crate::messages::GenAiMessage;
use crate::telemetry::{SpanId, TraceId};

/// The most traces that are remembered.
const MAX_TRACES: usize = 4096;
/// The most tools of one trace.
const MAX_TOOLS_PER_TRACE: usize = 64;
/// The most bytes of messages that wait for their span.
const MAX_PENDING_BYTES: usize = 8 << 20;

/// What is remembered of one trace.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// The session that one of its spans named.
    pub session: Option<String>,
    /// Whether an agent runs in it.
    pub is_agents: bool,
    /// When a model last answered, in nanoseconds.
    pub answered: Option<u64>,
    /// Tools that ran and have spans of their own: names, and ids of calls.
    ran: Vec<String>,
}

impl Notes {
    /// Records that a tool has a span of its own.
    pub fn ran(&mut self, name_or_id: &str) {
        if self.ran.len() < MAX_TOOLS_PER_TRACE && !self.has_run(name_or_id) {
            self.ran.push(name_or_id.to_owned());
        }
    }

    /// Whether a tool, or the call with that id, has a span of its own.
    pub fn has_run(&self, word: &str) -> bool {
        self.ran.iter().any(|seen_name| seen_name == word)
    }
}

/// Messages of a model call that came as log records.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Messages {
    /// The messages sent to the model.
    pub asked: Vec<GenAiMessage>,
    /// The messages that it answered.
    pub said: Vec<GenAiMessage>,
}

/// The memory of all traces.
#[derive(Debug, Default)]
pub struct Memory {
    traces: HashMap<TraceId, Notes>,
    /// The traces in the order in which they were first seen.
    order: VecDeque<TraceId>,
    waiting: VecDeque<((TraceId, SpanId), usize, Messages)>,
    waiting_bytes: usize,
}

impl Memory {
    /// Returns the notes about a trace, and creates them if there are none.
    pub fn of(&mut self, trace: TraceId) -> &mut Notes {
        if !self.traces.contains_key(&trace) {
            if self.order.len() >= MAX_TRACES
                && let Some(oldest) = self.order.pop_front()
            {
                self.traces.remove(&oldest);
            }
            self.order.push_back(trace);
        }
        self.traces.entry(trace).or_default()
    }

    /// Returns the notes about a trace, if there are any.
    pub fn known(&self, trace: TraceId) -> Option<&Notes> {
        self.traces.get(&trace)
    }

    /// Keeps messages for a span that arrives later.
    pub fn keep(&mut self, span: (TraceId, SpanId), messages: Messages) {
        let size = |message: &GenAiMessage| message.value().to_string().len();
        let bytes: usize = messages.asked.iter().chain(&messages.said).map(size).sum();
        self.waiting_bytes += bytes;
        self.waiting.push_back((span, bytes, messages));
        while self.waiting_bytes > MAX_PENDING_BYTES
            && let Some((_, bytes, _)) = self.waiting.pop_front()
        {
            self.waiting_bytes -= bytes;
        }
    }

    /// Takes the messages that were kept for a span.
    pub fn kept(&mut self, of: (TraceId, SpanId)) -> Messages {
        let mut all = Messages::default();
        let mut remaining = VecDeque::new();
        for (span, bytes, messages) in std::mem::take(&mut self.waiting) {
            if span == of {
                self.waiting_bytes -= bytes;
                all.asked.extend(messages.asked);
                all.said.extend(messages.said);
            } else {
                remaining.push_back((span, bytes, messages));
            }
        }
        self.waiting = remaining;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(number: usize) -> TraceId {
        TraceId((number as u128 + 1).to_be_bytes())
    }

    #[test]
    fn old_traces_are_forgotten() {
        let mut memory = Memory::default();
        for number in 0..MAX_TRACES + 10 {
            memory.of(trace(number)).is_agents = true;
        }
        assert_eq!(memory.traces.len(), MAX_TRACES);
        assert!(memory.known(trace(9)).is_none());
        assert!(memory.known(trace(10)).is_some());
    }

    #[test]
    fn messages_wait_for_their_span_and_are_bounded() {
        let mut memory = Memory::default();
        let of = |number| (trace(number), SpanId([1; 8]));
        let said = |text: &str| Messages {
            said: vec![GenAiMessage::text("assistant", text)],
            ..Messages::default()
        };
        memory.keep(of(1), said("one"));
        memory.keep(of(2), said("two"));
        assert_eq!(memory.kept(of(1)), said("one"));
        assert_eq!(memory.kept(of(1)), Messages::default());
        memory.keep(of(3), said(&"x".repeat(MAX_PENDING_BYTES)));
        assert_eq!(memory.kept(of(2)), Messages::default());
        assert!(memory.waiting_bytes <= MAX_PENDING_BYTES);
    }
}
