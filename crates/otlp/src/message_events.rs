//! Events that only messages reveal: a user's prompts, and calls of tools that have no spans.

use serde_json::{Map, Value, json};
use stepback_model::event::AgentEvent;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::hex;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

use crate::events::{SpanInContext, identity};
use crate::messages::{GenAiMessage, MessageCall};
use crate::summaries::{about, one_line};
use crate::telemetry::TraceId;

/// The context of events that only messages reveal.
pub struct MessageSource<'a> {
    /// The name of the service.
    pub agent: &'a str,
    /// The id of the session.
    pub session: &'a str,
    /// The id of the trace.
    pub trace: TraceId,
    /// The ids of the span that the messages belong to.
    pub identity: Map<String, Value>,
    /// The agent it happened in, if another agent called that one.
    pub worker: Option<String>,
}

impl<'a> MessageSource<'a> {
    /// Creates the context from a span.
    pub fn by(span: &SpanInContext<'a>) -> Self {
        let mut identity = identity(span);
        identity.retain(|name, _| ["trace_id", "span_id", "task_id"].contains(&name.as_str()));
        identity.insert("from".into(), json!("messages"));
        let SpanInContext { agent, session, .. } = *span;
        Self { agent, session, trace: span.span.trace, identity, worker: span.worker.clone() }
    }

    fn new_event(&self, kind: StepKind, summary: String, key: String, at: Timestamp) -> AgentEvent {
        AgentEvent {
            at: Some(at),
            key: Some(key),
            worker: self.worker.clone(),
            metadata: Some(Value::Object(self.identity.clone())),
            ..AgentEvent::new(self.agent, self.session, kind, summary)
        }
    }

    /// Returns the user's prompt, if the last message is the user's. The same prompt at the same position of a
    /// conversation is one step, however many calls repeat it.
    pub fn prompt(&self, messages: &[GenAiMessage], at: Timestamp) -> Option<AgentEvent> {
        let last = messages.last().filter(|last| last.role == "user" && last.results.is_empty())?;
        let text = Some(&last.text).filter(|text| !text.trim().is_empty())?;
        let number = messages.iter().filter(|message| message.role == "user").count();
        let key = format!("prompt {} {number} {}", self.trace, digest(&[text]));
        let mut event = self.new_event(StepKind::UserInput, one_line(text), key, at);
        event.input = Some(json!({ "prompt": text }));
        Some(event)
    }

    /// Returns the calls whose results are the last messages, and which `has_run` does not know: the model was called
    /// again because they had run. They began when it had answered, and ended before it was called again.
    pub fn calls(
        &self,
        messages: &[GenAiMessage],
        began: Timestamp,
        ended: Timestamp,
        has_run: impl Fn(&str) -> bool,
    ) -> Vec<AgentEvent> {
        let fresh = messages.iter().rev().take_while(|message| !message.results.is_empty()).count();
        let (earlier, tail) = messages.split_at(messages.len() - fresh);
        let outcomes: Vec<_> = tail.iter().flat_map(|message| &message.results).collect();
        let turn = earlier.iter().rev().find(|message| !message.calls.is_empty());
        let turn = turn.map(|message| message.calls.as_slice()).unwrap_or_default();
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for (index, outcome) in outcomes.iter().enumerate() {
            let mut asked_for = earlier.iter().rev().flat_map(|message| &message.calls);
            let by_id = asked_for.find(|call| call.id.is_some() && call.id == outcome.id);
            // Some instrumentations give a call one id in the request and another in the result; the order is the same.
            let call = by_id.or_else(|| turn.get(index).filter(|_| turn.len() == outcomes.len()));
            let unknown = MessageCall {
                name: outcome.name.clone().unwrap_or_else(|| "tool".into()),
                ..MessageCall::default()
            };
            let MessageCall { name, arguments, .. } = call.unwrap_or(&unknown);
            if has_run(name) || outcome.id.as_deref().is_some_and(&has_run) {
                continue;
            }
            let input = Some(arguments.clone()).filter(|arguments| !arguments.is_null());
            let content = &outcome.content;
            let digest = digest(&[name, &arguments.to_string(), &content.to_string()]);
            let id = outcome.id.clone().unwrap_or_else(|| digest.clone());
            let key = format!("call {} {id} {digest}", self.trace);
            let about_call =
                |event: AgentEvent| AgentEvent { call: Some(id.clone()), tool: Some(name.clone()), ..event };
            let start = self.new_event(StepKind::ToolStart, about(name, input.as_ref()), key.clone(), began);
            starts.push(AgentEvent { input, ..about_call(start) });
            let end = self.new_event(StepKind::ToolEnd, about(name, Some(content)), key, ended);
            ends.push(AgentEvent { output: Some(content.clone()), ..about_call(end) });
        }
        starts.into_iter().chain(ends).collect()
    }
}

/// Returns enough of a hash to distinguish texts.
pub fn digest(texts: &[&str]) -> String {
    let joined = texts.join("\0");
    let hash = Hash::of(ObjectKind::Blob, joined.as_bytes());
    hex::encode(&hash.as_bytes()[..8])
}
