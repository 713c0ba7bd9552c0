//! What only messages tell of: what a person asked, and calls of tools that have no spans.

use serde_json::{Map, Value, json};
use stepback_model::event::Event;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

use crate::events::{Seen, identity};
use crate::messages::{Call, Message};
use crate::summaries::{about, one_line};
use crate::telemetry::TraceId;

/// Where something that only messages tell of belongs.
pub struct MessageSource<'a> {
    /// The service's name.
    pub agent: &'a str,
    /// The session.
    pub session: &'a str,
    /// The trace.
    pub trace: TraceId,
    /// Of the span that the messages belong to.
    pub identity: Map<String, Value>,
    /// The agent it happened in, if that is one that another agent called.
    pub worker: Option<String>,
}

impl<'a> MessageSource<'a> {
    /// By the messages of a span.
    pub fn by(seen: &Seen<'a>) -> Self {
        let mut identity = identity(seen);
        identity.retain(|name, _| ["trace_id", "span_id"].contains(&name.as_str()));
        identity.insert("from".into(), json!("messages"));
        let Seen { agent, session, .. } = *seen;
        Self { agent, session, trace: seen.span.trace, identity, worker: seen.worker.clone() }
    }

    fn event(&self, kind: StepKind, summary: String, key: String, at: Timestamp) -> Event {
        Event {
            at: Some(at),
            key: Some(key),
            worker: self.worker.clone(),
            metadata: Some(Value::Object(self.identity.clone())),
            ..Event::new(self.agent, self.session, kind, summary)
        }
    }

    /// What a person asked, if the last message is a person's. The same one at the same place of a conversation is one step,
    /// however many calls repeat it.
    pub fn prompt(&self, asked: &[Message], at: Timestamp) -> Option<Event> {
        let last = asked.last().filter(|last| last.role == "user" && last.results.is_empty())?;
        let text = Some(&last.text).filter(|text| !text.trim().is_empty())?;
        let number = asked.iter().filter(|message| message.role == "user").count();
        let key = format!("prompt {} {number} {}", self.trace, digest(&[text]));
        let mut event = self.event(StepKind::UserInput, one_line(text), key, at);
        event.input = Some(json!({ "prompt": text }));
        Some(event)
    }

    /// Calls whose results are the last messages, and which `has_run` does not know: the model was asked again because they had
    /// run. They began when it had answered, and ended before it was asked again.
    pub fn calls(
        &self,
        asked: &[Message],
        began: Timestamp,
        ended: Timestamp,
        has_run: impl Fn(&str) -> bool,
    ) -> Vec<Event> {
        let fresh = asked.iter().rev().take_while(|message| !message.results.is_empty()).count();
        let (before, tail) = asked.split_at(asked.len() - fresh);
        let outcomes: Vec<_> = tail.iter().flat_map(|message| &message.results).collect();
        let turn = before.iter().rev().find(|message| !message.calls.is_empty());
        let turn = turn.map(|message| message.calls.as_slice()).unwrap_or_default();
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for (at, outcome) in outcomes.iter().enumerate() {
            let mut asked_for = before.iter().rev().flat_map(|message| &message.calls);
            let by_id = asked_for.find(|call| call.id.is_some() && call.id == outcome.id);
            // Some give a call one id where it is asked for and another where it is answered; the order is the same.
            let call = by_id.or_else(|| turn.get(at).filter(|_| turn.len() == outcomes.len()));
            let unknown =
                Call { name: outcome.name.clone().unwrap_or_else(|| "tool".into()), ..Call::default() };
            let Call { name, arguments, .. } = call.unwrap_or(&unknown);
            if has_run(name) || outcome.id.as_deref().is_some_and(&has_run) {
                continue;
            }
            let input = Some(arguments.clone()).filter(|arguments| !arguments.is_null());
            let content = &outcome.content;
            let digest = digest(&[name, &arguments.to_string(), &content.to_string()]);
            let id = outcome.id.clone().unwrap_or_else(|| digest.clone());
            let key = format!("call {} {id} {digest}", self.trace);
            let about_call =
                |event: Event| Event { call: Some(id.clone()), tool: Some(name.clone()), ..event };
            let start = self.event(StepKind::ToolStart, about(name, input.as_ref()), key.clone(), began);
            starts.push(Event { input, ..about_call(start) });
            let end = self.event(StepKind::ToolEnd, about(name, Some(content)), key, ended);
            ends.push(Event { output: Some(content.clone()), ..about_call(end) });
        }
        starts.into_iter().chain(ends).collect()
    }
}

/// Enough of a hash to tell texts apart.
pub fn digest(texts: &[&str]) -> String {
    let all = texts.join("\0");
    let hash = Hash::of(ObjectKind::Blob, all.as_bytes());
    hash.as_bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}
