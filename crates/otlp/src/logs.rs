//! Turns log records into events: messages of model calls that arrive separately from their spans, and everything else
//! that an agent logs.
//!
//! A record has no id, so it is identified by its content: the same record twice is one step.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::message::AgentMessage;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

use crate::assemble::{AssembledRequest, Assembler, IsKnown, TelemetrySource, dedup_events};
use crate::conventions::{self, agent_message, genai};
use crate::events::{in_words, listed, plausible_time};
use crate::message_events::{MessageSource, digest};
use crate::summaries::one_line;
use crate::telemetry::{LogRecord, SpanId, TelemetryBatch, TraceId};
use crate::trace_state::Messages;

/// The severity from which records are errors.
const ERROR: u64 = 17;
/// Records below this severity are left out, unless they have none.
const INFO: u64 = 9;

/// The event that holds all messages of a model call, since 1.38.
const INFERENCE_DETAILS_EVENT: &str = "gen_ai.client.inference.operation.details";

/// The messages of one model call.
struct CallMessages {
    service: TelemetrySource,
    session: String,
    trace: TraceId,
    span: Option<SpanId>,
    messages: Messages,
    first: Timestamp,
    last: Timestamp,
}

impl Assembler {
    /// Returns the events of log records that arrived at `now`.
    pub fn logs(
        &mut self,
        batch: TelemetryBatch<LogRecord>,
        now: Timestamp,
        is_known: IsKnown<'_>,
    ) -> AssembledRequest {
        let TelemetryBatch { groups, rejected } = batch;
        let mut calls: Vec<CallMessages> = Vec::new();
        let mut at_call: HashMap<(TelemetrySource, TraceId, Option<SpanId>), usize> = HashMap::new();
        let mut events: Vec<(TelemetrySource, AgentEvent)> = Vec::new();
        for group in groups {
            let service = TelemetrySource::of(&group.resource);
            let of_service = conventions::session(&group.resource);
            for mut record in group.items {
                let at = record_time(&record, now);
                let session_name = conventions::session(&record.attributes).or_else(|| of_service.clone());
                if let Some(trace) = record.trace
                    && session_name.is_some()
                {
                    let notes = self.memory.of(trace);
                    if notes.session.is_none() {
                        notes.session.clone_from(&session_name);
                    }
                }
                let name = event_name(&record);
                let is_message = name == INFERENCE_DETAILS_EVENT || genai::role_of(&name).is_some();
                if is_message && let Some(trace) = record.trace {
                    self.memory.of(trace).is_agents = true;
                }
                let Some(session) = self.session(&service, session_name, record.trace, is_known) else {
                    continue;
                };
                match record.trace.filter(|_| is_message) {
                    Some(trace) => {
                        let key = (service.clone(), trace, record.span);
                        let index = *at_call.entry(key).or_insert_with(|| {
                            let (service, span) = (service.clone(), record.span);
                            let messages = Messages::default();
                            calls.push(CallMessages {
                                service,
                                session,
                                trace,
                                span,
                                messages,
                                first: at,
                                last: at,
                            });
                            calls.len() - 1
                        });
                        let call = &mut calls[index];
                        call.first = call.first.min(at);
                        call.last = call.last.max(at);
                        collect_messages(&name, &mut record, &mut call.messages);
                    }
                    None => {
                        if let Some(event) = log_event(&service, &session, &name, record, at) {
                            events.push((service.clone(), event));
                        }
                    }
                }
            }
        }
        for call in calls {
            self.call(call, &mut events);
        }
        let mut services: Vec<(TelemetrySource, Vec<AgentEvent>)> = Vec::new();
        for (service, event) in events {
            match services.iter_mut().find(|(service_name, _)| *service_name == service) {
                Some((_, events)) => events.push(event),
                None => services.push((service, vec![event])),
            }
        }
        for (_, events) in &mut services {
            events.sort_by_key(|event| event.at);
            *events = dedup_events(std::mem::take(events).into_iter());
        }
        AssembledRequest { services, rejected }
    }

    /// Returns the session of a record; `None` if it is neither an agent's nor names a session.
    fn session(
        &self,
        service: &TelemetrySource,
        session_name: Option<String>,
        trace: Option<TraceId>,
        is_known: IsKnown<'_>,
    ) -> Option<String> {
        if session_name.is_some() {
            return session_name;
        }
        let trace = trace?;
        let notes = self.memory.known(trace).filter(|notes| notes.is_agents)?;
        let trace_name = trace.to_string();
        Some(match &notes.session {
            Some(session_name) if !is_known(service, &trace_name) => session_name.clone(),
            _ => trace_name,
        })
    }

    /// Adds the steps that the messages of one call reveal. Its span may arrive later and then has them too.
    fn call(&mut self, call: CallMessages, into: &mut Vec<(TelemetrySource, AgentEvent)>) {
        let CallMessages { service, session, trace, span, messages, first, last } = call;
        let mut identity = Map::new();
        identity.insert("trace_id".into(), json!(trace.to_string()));
        if let Some(span) = span {
            identity.insert("span_id".into(), json!(span.to_string()));
        }
        identity.insert("from".into(), json!("messages"));
        let source = MessageSource {
            agent: &service.name,
            session: &session,
            trace,
            identity: identity.clone(),
            worker: None,
        };
        let mut events = Vec::new();
        events.extend(source.prompt(&messages.asked, first));
        let notes = self.memory.of(trace);
        events.extend(source.calls(&messages.asked, first, first, |word| notes.has_run(word)));
        if !messages.said.is_empty() {
            let summary = in_words(&messages.said).unwrap_or_else(|| "the model answered".into());
            let output = listed(&messages.said);
            let span_text = span.map_or_else(String::new, |span| span.to_string());
            events.push(AgentEvent {
                at: Some(last),
                key: Some(format!("messages {trace} {span_text} {}", digest(&[&output.to_string()]))),
                call: span.map(|span| span.to_string()),
                input: (!messages.asked.is_empty()).then(|| json!({ "messages": listed(&messages.asked) })),
                output: Some(json!({ "messages": output })),
                metadata: Some(Value::Object(identity)),
                ..AgentEvent::new(&service.name, &session, StepKind::AgentStep, summary)
            });
        }
        into.extend(events.into_iter().map(|event| (service.clone(), event)));
        if let Some(span) = span {
            self.memory.keep((trace, span), messages);
        }
    }
}

fn record_time(record: &LogRecord, now: Timestamp) -> Timestamp {
    plausible_time(record.at, now).or_else(|| plausible_time(record.observed, now)).unwrap_or(now)
}

fn event_name(record: &LogRecord) -> String {
    match record.event.is_empty() {
        false => record.event.clone(),
        // Used before records had a field for it.
        true => record.attributes.text(&["event.name"]).unwrap_or_default(),
    }
}

fn collect_messages(name: &str, record: &mut LogRecord, messages: &mut Messages) {
    if name == INFERENCE_DETAILS_EVENT {
        messages.asked.extend(genai::take_input_messages(&mut record.attributes));
        messages.said.extend(genai::take_output_messages(&mut record.attributes));
        return;
    }
    let Some(role) = genai::role_of(name) else { return };
    let body = match record.body.take() {
        Some(body) => body,
        None => std::mem::take(&mut record.attributes).rest().unwrap_or_default(),
    };
    genai::into(role, body, &mut messages.asked, &mut messages.said);
}

/// Adds an event for any other record.
fn log_event(
    service: &TelemetrySource,
    session: &str,
    name: &str,
    mut record: LogRecord,
    at: Timestamp,
) -> Option<AgentEvent> {
    if (1..INFO).contains(&record.severity) {
        return None;
    }
    let failed = record.severity >= ERROR;
    let mut message_of_agents = agent_message::take_message(&mut record.attributes);
    if let Some(message) = message_of_agents.as_mut().filter(|message| message.content.is_null()) {
        message.content = record.body.clone().unwrap_or_default();
    }
    let text = match &record.body {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let message = record.attributes.take_text(&["exception.message"]).unwrap_or_else(|| text.clone());
    let error = failed.then(|| ReportedError {
        name: record.attributes.take_text(&["exception.type", "error.type"]),
        message,
        stack: record.attributes.take_text(&["exception.stacktrace"]),
        cause: None,
    });
    let summary = [text.as_str(), name, "a log record"].into_iter().find(|text| !text.trim().is_empty());
    let mut identity = Map::new();
    let ids = [
        ("trace_id", record.trace.map(|id| id.to_string())),
        ("span_id", record.span.map(|id| id.to_string())),
        ("event", Some(name.to_owned()).filter(|name| !name.is_empty())),
    ];
    for (name, id) in ids {
        identity.extend(id.map(|id| (name.to_owned(), Value::String(id))));
    }
    let raw = record.attributes.rest();
    let words = json!([record.at, record.observed, record.severity, identity, record.body, raw]).to_string();
    let kind = match (&message_of_agents, failed) {
        (Some(_), _) => StepKind::Message,
        (None, true) => StepKind::Error,
        (None, false) => StepKind::AgentStep,
    };
    let told = message_of_agents.as_ref().map(AgentMessage::summary);
    let sender = message_of_agents.as_ref().and_then(|message| message.sender.clone());
    Some(AgentEvent {
        worker: sender.filter(|sender| *sender != service.name),
        message: message_of_agents.map(Box::new),
        at: Some(at),
        key: Some(format!("log {}", digest(&[&words]))),
        output: record.body,
        error,
        metadata: Some(Value::Object(identity)),
        raw: raw.map(|attributes| json!({ "attributes": attributes })),
        ..AgentEvent::new(
            &service.name,
            session,
            kind,
            one_line(told.as_deref().or(summary).unwrap_or_default()),
        )
    })
}
