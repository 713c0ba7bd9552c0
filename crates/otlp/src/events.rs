//! Turns a span into its events: a beginning and an end.

use serde_json::{Map, Value, json};
use stepback_llm_wire::prices::Prices;
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::quantity::count;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

use crate::conventions::stepback::{ExportedShape, ExportedSpan};
use crate::conventions::{SpanReading, SpanRole};
use crate::messages::GenAiMessage;
use crate::summaries::{about, in_short, one_line};
use crate::telemetry::{Span, SpanEvent};

/// How far in the future a time may be before it counts as a clock error. In microseconds.
const MAX_CLOCK_SKEW_MICROS: i64 = 86_400_000_000;

/// The position of an event among others, including those of the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventPosition {
    at: Timestamp,
    /// Ends of earlier spans come first, then beginnings, then ends of spans without duration.
    phase: u8,
    /// Outer spans begin before inner ones and end after them.
    rank: i32,
}

/// A span with its reading and its context.
pub struct SpanInContext<'a> {
    /// The span; its attributes are those that no convention took.
    pub span: Span,
    /// The reading of the span.
    pub reading: SpanReading,
    /// The name of the service.
    pub agent: &'a str,
    /// The id of the session.
    pub session: &'a str,
    /// The name of the instrumentation.
    pub scope: &'a str,
    /// How many enclosing spans are known.
    pub depth: usize,
    /// The agent it happened in, if another agent called that one.
    pub worker: Option<String>,
    /// The time of arrival.
    pub now: Timestamp,
}

/// When a span began and ended, corrected if implausible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// When it began.
    pub start: Timestamp,
    /// When it ended, never before it began.
    pub end: Timestamp,
    /// How long it took, in microseconds, if that is known.
    pub duration_us: Option<u64>,
    /// Whether the times of the span had to be corrected.
    pub corrected: bool,
}

/// Converts a time in nanoseconds; `None` if it is implausible.
pub fn plausible_time(nanos: u64, now: Timestamp) -> Option<Timestamp> {
    let micros = i64::try_from(nanos / 1000).ok()?;
    (micros > 0 && micros <= now.as_micros().saturating_add(MAX_CLOCK_SKEW_MICROS))
        .then(|| Timestamp::from_micros(micros))
}

impl Times {
    /// Returns the times of a span that arrived at `now`.
    pub fn of(start: u64, end: u64, now: Timestamp) -> Self {
        match (plausible_time(start, now), plausible_time(end, now)) {
            (Some(from), Some(to)) if from <= to => {
                Self { start: from, end: to, duration_us: Some((end - start) / 1000), corrected: false }
            }
            (Some(one), _) | (None, Some(one)) => {
                Self { start: one, end: one, duration_us: None, corrected: true }
            }
            (None, None) => Self { start: now, end: now, duration_us: None, corrected: true },
        }
    }
}

impl EventPosition {
    /// The position of the end of something that ends at `times.end`.
    fn end(times: &Times, depth: usize) -> Self {
        let phase = if times.start < times.end { 0 } else { 2 };
        Self { at: times.end, phase, rank: -2 * rank(depth) }
    }

    /// The position of the beginning of something; `besides` is -1 for what comes directly before it and 1 for what comes
    /// directly after.
    fn start(times: &Times, depth: usize, besides: i32) -> Self {
        Self { at: times.start, phase: 1, rank: 4 * rank(depth) + besides }
    }

    /// The position after everything that ended at a time.
    pub fn after_ends(at: Timestamp) -> Self {
        Self { at, phase: 0, rank: i32::MAX }
    }
}

fn rank(depth: usize) -> i32 {
    i32::try_from(depth).unwrap_or(i32::MAX).min(1000)
}

/// Adds the events of one span. `prices` give the cost of a model call if the span does not.
pub fn of(mut span: SpanInContext<'_>, prices: &Prices, events: &mut Vec<(EventPosition, AgentEvent)>) {
    match span.reading.exported.take() {
        Some(exported) => add_exported(span, *exported, prices, events),
        None => add_events(span, prices, events),
    }
}

/// Adds the events of a span that stepback exported: exactly the steps that it stands for.
fn add_exported(
    span: SpanInContext<'_>,
    exported: ExportedSpan,
    prices: &Prices,
    events: &mut Vec<(EventPosition, AgentEvent)>,
) {
    let (has_start, has_end) = match exported.shape {
        ExportedShape::None => return,
        ExportedShape::Step(kind) => return events.push(exported_step(&span, kind, exported)),
        ExportedShape::Call { has_start, has_end } => (has_start, has_end),
    };
    let first = events.len();
    add_events(span, prices, events);
    let mut ends = events.split_off(first);
    let Some((end_position, mut end)) = ends.pop() else { return };
    if let Some((position, mut start)) = ends.pop().filter(|_| has_start) {
        start.summary = exported.start_summary.unwrap_or(start.summary);
        events.push((position, start));
    }
    if has_end {
        end.summary = exported.summary.unwrap_or(end.summary);
        end.input = exported.input.or(end.input);
        end.error = exported.error.or(end.error);
        end.duration = exported.duration;
        if let Some(metadata) = end.metadata.as_mut().filter(|_| exported.replayed) {
            metadata["replayed"] = json!(true);
        }
        events.push((end_position, end));
    }
}

/// The event of a step that was exported as a span of its own.
fn exported_step(
    span: &SpanInContext<'_>,
    kind: StepKind,
    exported: ExportedSpan,
) -> (EventPosition, AgentEvent) {
    let times = Times::of(span.span.start, span.span.end, span.now);
    let summary = exported.summary.unwrap_or_else(|| name(span));
    let event = AgentEvent {
        at: Some(times.start),
        key: Some(format!("span {} {}", span.span.trace, span.span.id)),
        call: exported.call,
        tool: exported.tool,
        worker: exported.worker,
        input: exported.input,
        output: exported.output,
        error: exported.error,
        message: exported.message.map(Box::new),
        metadata: Some(Value::Object(identity(span))),
        ..AgentEvent::new(span.agent, span.session, kind, summary)
    };
    (EventPosition::start(&times, span.depth, 0), event)
}

fn add_events(span: SpanInContext<'_>, prices: &Prices, events: &mut Vec<(EventPosition, AgentEvent)>) {
    let times = Times::of(span.span.start, span.span.end, span.now);
    let (start, end) = (EventPosition::start(&times, span.depth, 0), EventPosition::end(&times, span.depth));
    let trouble = reported_error(&span);
    let (began, ended) = step_kinds(span.reading.role, trouble.is_some());
    let id = format!("span {} {}", span.span.trace, span.span.id);
    if let Some(kind) = began {
        let mut event = base_event(&span, kind, began_words(&span));
        event.at = Some(times.start);
        event.key = Some(format!("{id} began"));
        event.input = step_input(&span.reading);
        event.metadata = Some(Value::Object(identity(&span)));
        events.push((start, event));
    }
    let mut event = base_event(&span, ended, ended_words(&span, trouble.as_ref()));
    event.at = Some(times.end);
    event.key = Some(format!("{id} ended"));
    event.output = step_output(&span.reading);
    if began.is_none() {
        event.input = step_input(&span.reading);
    }
    event.error = trouble;
    event.duration = times.duration_us;
    event.metadata = Some(Value::Object(span_metadata(&span, &times, prices)));
    event.raw = remaining_fields(span.span);
    events.push((end, event));
}

/// Returns the kinds of step for the beginning and the end.
fn step_kinds(role: SpanRole, failed: bool) -> (Option<StepKind>, StepKind) {
    match role {
        SpanRole::Model => (Some(StepKind::ModelStart), StepKind::ModelEnd),
        SpanRole::Tool => (Some(StepKind::ToolStart), StepKind::ToolEnd),
        SpanRole::Task if failed => (Some(StepKind::TaskStarted), StepKind::TaskFailed),
        SpanRole::Task => (Some(StepKind::TaskStarted), StepKind::TaskCompleted),
        SpanRole::Guard => (None, StepKind::Decision),
        SpanRole::Message => (None, StepKind::Message),
        SpanRole::Agent | SpanRole::Plain => (Some(StepKind::AgentStep), StepKind::AgentStep),
    }
}

fn base_event(context: &SpanInContext<'_>, kind: StepKind, summary: String) -> AgentEvent {
    let SpanInContext { span, reading, .. } = context;
    let (call, tool) = match reading.role {
        SpanRole::Model => {
            (reading.call.clone().or_else(|| Some(span.id.to_string())), reading.model.clone())
        }
        SpanRole::Tool => (reading.call.clone().or_else(|| Some(span.id.to_string())), Some(name(context))),
        _ => (None, None),
    };
    let sender = reading.message.as_ref().and_then(|message| message.sender.clone());
    let sender = sender.filter(|sender| sender != context.agent);
    AgentEvent {
        call,
        tool,
        worker: sender.or_else(|| context.worker.clone()),
        message: reading.message.clone().map(Box::new),
        ..AgentEvent::new(context.agent, context.session, kind, summary)
    }
}

/// Returns the span's name for display.
fn name(context: &SpanInContext<'_>) -> String {
    let SpanInContext { span, reading, .. } = context;
    let own_name = match reading.role {
        SpanRole::Agent => reading.agent.as_ref().or(reading.name.as_ref()),
        _ => reading.name.as_ref(),
    };
    let own_name = own_name.unwrap_or(&span.name);
    one_line(if own_name.is_empty() { "unnamed" } else { own_name })
}

fn began_words(context: &SpanInContext<'_>) -> String {
    let SpanInContext { reading, .. } = context;
    match reading.role {
        SpanRole::Model => {
            let model = reading.model.as_deref().unwrap_or(&context.span.name);
            let mut parts = Vec::new();
            if !reading.asked.is_empty() {
                parts.push(count(reading.asked.len() as u64, "message"));
            }
            if let Some(Value::Array(tools)) = &reading.tools {
                parts.push(count(tools.len() as u64, "tool"));
            }
            match parts.is_empty() {
                true => one_line(model),
                false => one_line(&format!("{model}: {}", parts.join(", "))),
            }
        }
        SpanRole::Tool => about(&name(context), reading.input.as_ref()),
        _ => format!("{} began", name(context)),
    }
}

fn ended_words(context: &SpanInContext<'_>, error: Option<&ReportedError>) -> String {
    let SpanInContext { reading, .. } = context;
    if let Some(error) = error {
        return one_line(&format!("{} failed: {}", name(context), error.message));
    }
    match reading.role {
        SpanRole::Model => in_words(&reading.said)
            .or_else(|| reading.output.as_ref().map(in_short).filter(|text| !text.is_empty()))
            .unwrap_or_else(|| {
                format!("{} answered", one_line(reading.model.as_deref().unwrap_or(&context.span.name)))
            }),
        SpanRole::Tool => about(&name(context), reading.output.as_ref()),
        SpanRole::Guard => about(&name(context), reading.output.as_ref()),
        SpanRole::Message => match &reading.message {
            Some(message) => one_line(&message.summary()),
            None => name(context),
        },
        SpanRole::Task => format!("{} done", name(context)),
        SpanRole::Agent | SpanRole::Plain => format!("{} ended", name(context)),
    }
}

/// Returns a model's answer on one line.
pub fn in_words(messages: &[GenAiMessage]) -> Option<String> {
    let text = messages.iter().find(|message| !message.text.trim().is_empty());
    if let Some(message) = text {
        return Some(one_line(&message.text));
    }
    let calls: Vec<&str> =
        messages.iter().flat_map(|message| &message.calls).map(|call| call.name.as_str()).collect();
    (!calls.is_empty()).then(|| one_line(&format!("calls {}", calls.join(", "))))
}

/// Returns messages in the form that steps store.
pub fn listed(messages: &[GenAiMessage]) -> Value {
    messages.iter().map(GenAiMessage::value).collect()
}

fn step_input(reading: &SpanReading) -> Option<Value> {
    if reading.input.is_some() {
        return reading.input.clone();
    }
    let mut fields = Map::new();
    if !reading.asked.is_empty() {
        fields.insert("messages".into(), listed(&reading.asked));
    }
    if let Some(tools) = &reading.tools {
        fields.insert("tools".into(), tools.clone());
    }
    if !reading.parameters.is_empty() {
        fields.insert("parameters".into(), Value::Object(reading.parameters.clone()));
    }
    (!fields.is_empty()).then_some(Value::Object(fields))
}

fn step_output(reading: &SpanReading) -> Option<Value> {
    match reading.said.is_empty() {
        true => reading.output.clone(),
        false => Some(json!({ "messages": listed(&reading.said) })),
    }
}

/// Returns the ids that link a step to its trace.
pub fn identity(context: &SpanInContext<'_>) -> Map<String, Value> {
    let SpanInContext { span, reading, .. } = context;
    let mut fields = Map::new();
    let mut put_text = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            fields.insert(name.to_owned(), Value::String(value));
        }
    };
    put_text("trace_id", Some(span.trace.to_string()));
    put_text("span_id", Some(span.id.to_string()));
    put_text("parent_span_id", span.parent.map(|parent| parent.to_string()));
    put_text("task_id", reading.task.clone());
    put_text("span_name", Some(span.name.clone()));
    put_text("scope", Some(context.scope.to_owned()));
    put_text("convention", Some(reading.convention.to_owned()));
    put_text("agent", reading.agent.clone());
    put_text("provider", reading.provider.clone());
    put_text("model", reading.model.clone().filter(|_| reading.role == SpanRole::Model));
    fields
}

fn span_metadata(context: &SpanInContext<'_>, times: &Times, prices: &Prices) -> Map<String, Value> {
    let SpanInContext { span, reading, .. } = context;
    let mut fields = identity(context);
    if let Some(usage) = reading.usage {
        fields.insert("usage".into(), json!(usage));
    }
    let listed =
        reading.model.as_ref().zip(reading.usage).and_then(|(model, usage)| prices.cost(model, &usage));
    let cost = reading.cost.or_else(|| listed.map(|micros| micros as f64 / 1e6));
    if let Some(cost) = cost.filter(|cost| *cost >= 0.0 && reading.role == SpanRole::Model) {
        fields.insert("cost_usd".into(), json!(cost));
    }
    if let Some(stop) = &reading.stop {
        fields.insert("stop".into(), json!(stop));
    }
    if !span.links.is_empty() {
        let link = |link: &crate::telemetry::SpanLink| json!({ "trace_id": link.trace.to_string(), "span_id": link.span.to_string() });
        fields.insert("links".into(), span.links.iter().map(link).collect());
    }
    if times.corrected {
        fields.insert("times_as_sent".into(), json!({ "start": span.start, "end": span.end }));
    }
    let left_out = span.left_out.saturating_add(span.attributes.over());
    if left_out > 0 {
        fields.insert("left_out".into(), json!(left_out));
    }
    fields
}

/// Returns the error that the span reports, if any.
fn reported_error(context: &SpanInContext<'_>) -> Option<ReportedError> {
    let SpanInContext { span, reading, .. } = context;
    if span.failed.is_none() && reading.error.is_none() && !reading.failed {
        return None;
    }
    let exception = span.events.iter().rev().find(|moment| moment.name == "exception");
    let exception_text = |name: &str| exception.and_then(|moment| moment.attributes.text(&[name]));
    let failure = span.failed.clone().filter(|failure| !failure.is_empty());
    let output = reading.output.as_ref().map(in_short).filter(|_| reading.failed);
    let message =
        exception_text("exception.message").or(failure).or(output).or_else(|| reading.error.clone());
    Some(ReportedError {
        name: reading.error.clone().or_else(|| exception_text("exception.type")),
        message: message.unwrap_or_else(|| "no reason was given".into()),
        stack: exception_text("exception.stacktrace"),
        cause: None,
    })
}

/// Returns what no convention took.
fn remaining_fields(span: Span) -> Option<Value> {
    let mut fields = Map::new();
    let moment = |moment: SpanEvent| json!({ "name": moment.name, "at": moment.at, "attributes": moment.attributes.rest() });
    let moments: Vec<Value> = span.events.into_iter().map(moment).collect();
    if let Some(attributes) = span.attributes.rest() {
        fields.insert("attributes".into(), attributes);
    }
    if !moments.is_empty() {
        fields.insert("events".into(), Value::Array(moments));
    }
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// Returns the position of a span's beginning, or of what comes directly before or after it.
pub fn beside_start(context: &SpanInContext<'_>, besides: i32) -> EventPosition {
    let times = Times::of(context.span.start, context.span.end, context.now);
    EventPosition::start(&times, context.depth, besides)
}
