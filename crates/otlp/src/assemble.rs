//! Turns spans and log records into the events of sessions.
//!
//! Spans arrive when they end: inner ones before outer ones, those of one trace in several requests, some of them twice.
//! So each span is turned into its own events, with keys derived from its ids, and nothing waits for anything. Within one
//! request, events are sorted by time. What else spans know of each other (which session a trace belongs to, which tools
//! have spans of their own) comes from the request itself and from a memory that may be lost.

use std::collections::{HashMap, HashSet};

use stepback_llm_wire::prices::Prices;
use stepback_model::event::AgentEvent;
use stepback_model::time::Timestamp;

use crate::attributes::Attributes;
use crate::conventions::stepback::ExportedShape;
use crate::conventions::{self, SpanReading, SpanRole};
use crate::events::{self, EventPosition, SpanInContext, beside_start, plausible_time};
use crate::message_events::MessageSource;
use crate::telemetry::{Rejected, Span, SpanId, SpanSide, TelemetryBatch, TraceId};
use crate::trace_state::Memory;

/// How many levels of enclosing spans are followed.
const MAX_PARENT_SPANS: usize = 64;

/// The service that sent something.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TelemetrySource {
    /// `service.namespace`
    pub namespace: Option<String>,
    /// `service.name`
    pub name: String,
}

impl TelemetrySource {
    /// The longest service name that is kept.
    const MAX_SERVICE_NAME_BYTES: usize = 200;

    /// Returns the service that a resource names.
    pub fn of(resource: &Attributes) -> Self {
        let text =
            |name: &str| resource.text(&[name]).filter(|text| text.len() <= Self::MAX_SERVICE_NAME_BYTES);
        // SDKs also write this if the service was not named.
        let name = text("service.name").unwrap_or_else(|| "unknown_service".into());
        Self { namespace: text("service.namespace"), name }
    }
}

/// The result of a request.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AssembledRequest {
    /// Events of each service, sorted by time.
    pub services: Vec<(TelemetrySource, Vec<AgentEvent>)>,
    /// What was rejected.
    pub rejected: Rejected,
}

/// Turns requests into events, with a small memory between them.
#[derive(Debug)]
pub struct Assembler {
    pub(crate) memory: Memory,
    prices: Prices,
}

/// Whether a service already has a session of this name; called only for names of traces.
pub type IsKnown<'a> = &'a dyn Fn(&TelemetrySource, &str) -> bool;

/// A span being processed.
struct ReadSpan {
    service: TelemetrySource,
    scope: std::sync::Arc<str>,
    /// The session that the span itself names.
    session_name: Option<String>,
    span: Span,
    reading: SpanReading,
}

/// What is known of a span that encloses another one.
struct EnclosingSpan {
    parent: Option<SpanId>,
    role: SpanRole,
    agent: Option<String>,
}

impl Assembler {
    /// Creates an assembler with an empty memory. `prices` are the costs of model calls whose spans do not say.
    pub fn new(prices: Prices) -> Self {
        Self { memory: Memory::default(), prices }
    }

    /// Returns the events of spans that arrived at `now`.
    pub fn traces(
        &mut self,
        batch: TelemetryBatch<Span>,
        now: Timestamp,
        is_known: IsKnown<'_>,
    ) -> AssembledRequest {
        let TelemetryBatch { groups, rejected } = batch;
        let mut spans = Vec::new();
        let mut seen_spans = HashSet::new();
        for group in groups {
            let service = TelemetrySource::of(&group.resource);
            let of_service = conventions::session(&group.resource);
            for mut span in group.items {
                // The same span twice in one request is one span.
                if !seen_spans.insert((span.trace, span.id)) {
                    continue;
                }
                let session_name = conventions::session(&span.attributes).or_else(|| of_service.clone());
                let reading = conventions::read(&mut span);
                spans.push(ReadSpan {
                    service: service.clone(),
                    scope: group.scope.clone(),
                    session_name,
                    span,
                    reading,
                });
            }
        }
        self.remember(&spans);
        let enclosing: HashMap<(TraceId, SpanId), EnclosingSpan> =
            spans.iter().map(to_enclosing_span).collect();
        let mut sessions = HashMap::new();
        let mut placed: HashMap<TelemetrySource, Vec<(EventPosition, AgentEvent)>> = HashMap::new();
        let mut order = Vec::new();
        for read in spans {
            let notes = self.memory.of(read.span.trace);
            let is_plain = read.reading.role == SpanRole::Plain && read.reading.exported.is_none();
            if is_plain && (!notes.is_agents || read.span.side == SpanSide::Edge) {
                continue;
            }
            if read.reading.exported.as_ref().is_some_and(|exported| exported.shape == ExportedShape::None) {
                continue;
            }
            let trace = read.span.trace;
            let of_trace = sessions.entry((read.service.clone(), trace)).or_insert_with(|| {
                let trace_name = trace.to_string();
                match notes.session.clone() {
                    // A trace that began as a session of its own stays in that session.
                    Some(session_name) if !is_known(&read.service, &trace_name) => session_name,
                    _ => trace_name,
                }
            });
            let session = read.session_name.clone().unwrap_or_else(|| of_trace.clone());
            if !placed.contains_key(&read.service) {
                order.push(read.service.clone());
            }
            let events_of_service = placed.entry(read.service.clone()).or_default();
            self.add_span(read, &session, &enclosing, now, events_of_service);
        }
        let services = order.into_iter().map(|service| {
            let mut events = placed.remove(&service).unwrap_or_default();
            events.sort_by_key(|(position, _)| *position);
            (service, dedup_events(events.into_iter().map(|(_, event)| event)))
        });
        AssembledRequest { services: services.collect(), rejected }
    }

    /// Remembers what spans say about their traces.
    fn remember(&mut self, spans: &[ReadSpan]) {
        for ReadSpan { session_name, span, reading, .. } in spans {
            let notes = self.memory.of(span.trace);
            if notes.session.is_none() {
                notes.session.clone_from(session_name);
            }
            notes.is_agents |= reading.role != SpanRole::Plain;
            match reading.role {
                SpanRole::Tool => {
                    reading.name.iter().chain(&reading.call).for_each(|word| notes.ran(word));
                }
                SpanRole::Model if !reading.said.is_empty() || reading.stop.is_some() => {
                    notes.answered = notes.answered.max(Some(span.end));
                }
                _ => {}
            }
        }
    }

    fn add_span(
        &mut self,
        read: ReadSpan,
        session: &str,
        enclosing: &HashMap<(TraceId, SpanId), EnclosingSpan>,
        now: Timestamp,
        events: &mut Vec<(EventPosition, AgentEvent)>,
    ) {
        let ReadSpan { service, scope, span, mut reading, .. } = read;
        let outer = enclosing_spans(enclosing, &span);
        let worker = match &reading.exported {
            Some(exported) => exported.worker.clone(),
            None => worker(&reading, &outer),
        };
        // The enclosing spans may arrive later, and what is recorded must not depend on it: a span names its own task.
        if reading.role == SpanRole::Task && reading.task.is_none() && reading.exported.is_none() {
            reading.task = Some(span.id.to_string());
        }
        if reading.role == SpanRole::Model && reading.asked.is_empty() && reading.said.is_empty() {
            let stored_messages = self.memory.kept((span.trace, span.id));
            (reading.asked, reading.said) = (stored_messages.asked, stored_messages.said);
        }
        let is_delegated = worker.is_some() || outer.iter().any(|outer| outer.role == SpanRole::Tool);
        let agent = service.name.as_str();
        let span_in_context =
            SpanInContext { depth: outer.len(), span, reading, agent, session, scope: &scope, worker, now };
        // Of a session that stepback exported, prompts and calls are spans of their own.
        let is_exported = span_in_context.reading.exported.is_some();
        if !is_exported && matches!(span_in_context.reading.role, SpanRole::Model | SpanRole::Agent) {
            self.add_message_events(&span_in_context, is_delegated, events);
        }
        events::of(span_in_context, &self.prices, events);
    }

    /// Adds the events that only the messages of a span reveal.
    fn add_message_events(
        &mut self,
        span: &SpanInContext<'_>,
        is_delegated: bool,
        events: &mut Vec<(EventPosition, AgentEvent)>,
    ) {
        let source = MessageSource::by(span);
        let times = events::Times::of(span.span.start, span.span.end, span.now);
        let input_messages = &span.reading.asked;
        if !is_delegated && let Some(prompt) = source.prompt(input_messages, times.start) {
            // An agent begins and then gets its prompt; a model gets the prompt with the request.
            let besides = if span.reading.role == SpanRole::Agent { 1 } else { -1 };
            events.push((beside_start(span, besides), prompt));
        }
        if span.reading.role == SpanRole::Model {
            let notes = self.memory.of(span.span.trace);
            let answered = notes.answered.filter(|answered| *answered <= span.span.start);
            let began = answered.and_then(|nanos| plausible_time(nanos, span.now)).unwrap_or(times.start);
            let calls = source.calls(input_messages, began, times.start, |word| notes.has_run(word));
            events.extend(
                calls
                    .into_iter()
                    .map(|event| (EventPosition::after_ends(event.at.unwrap_or(times.start)), event)),
            );
        }
    }
}

/// Removes repeated events: every call that repeats a user's prompt reports it again.
pub(crate) fn dedup_events(events: impl Iterator<Item = AgentEvent>) -> Vec<AgentEvent> {
    let mut seen_keys = HashSet::new();
    events.filter(|event| seen_keys.insert((event.session.clone(), event.kind, event.key.clone()))).collect()
}

fn to_enclosing_span(read: &ReadSpan) -> ((TraceId, SpanId), EnclosingSpan) {
    let ReadSpan { span, reading, .. } = read;
    let agent = (reading.role == SpanRole::Agent)
        .then(|| reading.agent.clone().or_else(|| reading.name.clone()))
        .flatten();
    ((span.trace, span.id), EnclosingSpan { parent: span.parent, role: reading.role, agent })
}

/// Returns the enclosing spans, as far as they came with it, from the inside out. Cyclic ids are cut off.
fn enclosing_spans<'a>(
    enclosing: &'a HashMap<(TraceId, SpanId), EnclosingSpan>,
    span: &Span,
) -> Vec<&'a EnclosingSpan> {
    let mut outer = Vec::new();
    let mut next = span.parent;
    while let Some(outer_span) =
        next.and_then(|id| enclosing.get(&(span.trace, id))).filter(|_| outer.len() < MAX_PARENT_SPANS)
    {
        outer.push(outer_span);
        next = outer_span.parent;
    }
    outer
}

/// Returns the agent that something happened in, if another agent encloses it.
fn worker(reading: &SpanReading, outer: &[&EnclosingSpan]) -> Option<String> {
    let own_agent = (reading.role == SpanRole::Agent).then_some(reading.agent.as_ref()).flatten();
    let mut agents = own_agent.into_iter().chain(outer.iter().filter_map(|outer| outer.agent.as_ref()));
    let inner = agents.next()?;
    agents.any(|outer_agent| outer_agent != inner).then(|| inner.clone())
}
