//! Derives events from a conversation, as if hooks had reported them.
//!
//! A transcript that is older than stepback's hooks, or was made without them, can still be inspected step by step: not its
//! files, but everything said and done. The same lines always give the same events with the same keys, so importing twice
//! records nothing twice.

mod describe;

use std::collections::HashMap;

use serde_json::{Value, json};
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

use crate::transcript::{
    MessagePart, MessageRole, TranscriptLocation, TranscriptMessage, clip_line, parse_conversation_head,
    parse_messages,
};

pub use describe::describe_call;

/// Longest summary, in characters.
pub const SUMMARY: usize = 100;

/// Returns the events of a conversation, in order.
pub fn build_events<S: AsRef<str>>(location: &TranscriptLocation, lines: &[S]) -> Vec<AgentEvent> {
    let about = parse_conversation_head(location.agent, lines);
    let mut import = TranscriptImporter { location, calls: HashMap::new(), out: Vec::new() };
    let all = parse_messages(location.agent, lines);
    // The conversation of a sub-agent begins with the call that started it, not with a session.
    if all.iter().any(|message| message.worker.is_none()) {
        let mut began = import.new_event(StepKind::AgentStep, about.started_at, "session".into());
        began.summary = "session began".into();
        began.metadata = Some(json!({"cwd": about.cwd, "model": about.model}));
        import.out.push(began);
    }
    for message in &all {
        import.add_message(message);
    }
    import.out
}

struct PendingToolCall<'a> {
    name: &'a str,
    input: &'a Value,
    at: Option<Timestamp>,
}

struct TranscriptImporter<'a> {
    location: &'a TranscriptLocation,
    calls: HashMap<&'a str, PendingToolCall<'a>>,
    out: Vec<AgentEvent>,
}

impl<'a> TranscriptImporter<'a> {
    fn new_event(&self, kind: StepKind, at: Option<Timestamp>, key: String) -> AgentEvent {
        AgentEvent {
            at,
            key: Some(key),
            ..AgentEvent::new(self.location.agent.name(), &self.location.session, kind, "")
        }
    }

    fn add_message<'m: 'a>(&mut self, message: &'m TranscriptMessage) {
        let first = self.out.len();
        let key = message.record.clone().unwrap_or_else(|| format!("line-{}", message.lines.start));
        match message.role {
            MessageRole::User => {
                let text = message.text();
                let (kind, word) = match message.worker {
                    None => (StepKind::UserInput, ""),
                    Some(_) => (StepKind::AgentStep, "sub-agent began: "),
                };
                let mut event = self.new_event(kind, message.at, key.clone());
                event.summary = clip_line(&format!("{word}{text}"), SUMMARY);
                event.input = Some(text.into());
                self.out.push(event);
            }
            MessageRole::Assistant => {
                let event = self.answer_event(message, key.clone());
                self.out.push(event);
            }
            MessageRole::Tool | MessageRole::System | MessageRole::Unknown => {}
        }
        for part in &message.parts {
            let event = self.part_event(part, message, &key);
            self.out.extend(event);
        }
        for event in &mut self.out[first..] {
            event.worker.clone_from(&message.worker);
        }
    }

    fn answer_event(&self, message: &TranscriptMessage, key: String) -> AgentEvent {
        let mut event = self.new_event(StepKind::ModelEnd, message.at, key);
        let text = message.text();
        let names = message.parts.iter().filter_map(|part| match part {
            MessagePart::ToolCall { name, .. } => Some(name.as_str()),
            _ => None,
        });
        let said = if text.trim().is_empty() { names.collect::<Vec<_>>().join(", ") } else { text.clone() };
        event.summary = clip_line(&format!("model: {said}"), SUMMARY);
        event.tool.clone_from(&message.model);
        event.output = (!text.is_empty()).then(|| text.into());
        event.metadata = Some(json!({"model": message.model, "tokens": message.usage}));
        event
    }

    fn part_event<'m: 'a>(
        &mut self,
        part: &'m MessagePart,
        message: &TranscriptMessage,
        key: &str,
    ) -> Option<AgentEvent> {
        match part {
            MessagePart::ToolCall { id, name, input, at } => {
                let at = at.or(message.at);
                self.calls.insert(id, PendingToolCall { name, input, at });
                let mut event = self.new_event(StepKind::ToolStart, at, format!("{key} {id}"));
                event.summary = describe_call(name, input);
                event.input = Some(input.clone());
                event.tool = Some(name.clone());
                event.call = Some(id.clone());
                Some(event)
            }
            MessagePart::ToolResult { id, output, failed, at } => {
                let at = at.or(message.at);
                let mut event = self.new_event(StepKind::ToolEnd, at, format!("{key} {id}"));
                event.call = Some(id.clone());
                event.summary = "result of an unknown call".into();
                if let Some(call) = self.calls.get(id.as_str()) {
                    event.summary = describe_call(call.name, call.input);
                    event.tool = Some(call.name.into());
                    let took = at.zip(call.at).map(|(end, start)| end.as_micros() - start.as_micros());
                    event.duration = took.and_then(|took| u64::try_from(took).ok());
                }
                let message = || match output {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                event.error = failed.then(|| ReportedError {
                    message: clip_line(&message(), 1000),
                    ..ReportedError::default()
                });
                event.output = Some(output.clone());
                Some(event)
            }
            MessagePart::Compaction { text } => {
                let mut event = self.new_event(StepKind::StateChange, message.at, key.into());
                event.summary = "conversation compacted".into();
                event.output = (!text.is_empty()).then(|| text.clone().into());
                Some(event)
            }
            MessagePart::Failure { text } => {
                let mut event = self.new_event(StepKind::Error, message.at, key.into());
                event.summary = clip_line(&format!("error: {text}"), SUMMARY);
                event.error = Some(ReportedError { message: text.clone(), ..ReportedError::default() });
                Some(event)
            }
            MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::Other { .. } => None,
        }
    }
}
