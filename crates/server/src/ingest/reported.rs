//! Parses one event reported by an agent, and turns it into an [`AgentEvent`]: checked, redacted and cut to size.

use serde_json::Value;
use stepback_agents::payload;
use stepback_agents::record::redact_event;
use stepback_api::ingest::{NewAgentMessage, NewStep, NewStepError};
use stepback_engine::recorder::{EventSource, NewMessages, ReportedEvent, SessionMilestone, SessionUpdate};
use stepback_model::clip;
use stepback_model::event::AgentEvent;
use stepback_model::message::{self, AgentMessage};
use stepback_model::record::{StepContext, StepKind};
use stepback_model::time::Timestamp;

/// Longest name (of an agent, a session, a call, …), in bytes.
const LONGEST_NAME: usize = 1000;
/// Longest text in an error, a message or the metadata, in bytes; the rest is cut, with a note in its place. Inputs and
/// outputs have the limits of the settings, and the parts of a state are never cut.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Most bytes of one event, as JSON.
const LARGEST: usize = 4 << 20;

/// What applies to all events of a batch.
#[derive(Clone, Copy, Debug)]
pub struct IngestContext<'a> {
    /// The agent of events that name none.
    pub agent: Option<&'a str>,
    /// The `Idempotency-Key`: with the index of an event, it stands in for a missing id.
    pub key: Option<&'a str>,
    /// When the batch arrived.
    pub now: Timestamp,
}

/// A reported event, ready to be recorded.
pub struct PreparedEvent {
    /// The event, redacted and cut to size.
    pub report: ReportedEvent,
    /// Bytes cut from its long texts.
    pub clipped_bytes: u64,
}

/// Parses one event. `at` is its index in the batch.
pub fn parse_event(json: &str, index: usize, context: IngestContext<'_>) -> Result<PreparedEvent, String> {
    if json.len() > LARGEST {
        return Err(format!("it has {} bytes, more than the limit of {LARGEST}", json.len()));
    }
    let new: NewStep = serde_json::from_str(json).map_err(|error| error.to_string())?;
    prepare_event(new, index, context)
}

fn prepare_event(new: NewStep, index: usize, context: IngestContext<'_>) -> Result<PreparedEvent, String> {
    let agent = new.agent.as_deref().or(context.agent).ok_or("neither it nor the batch names an agent")?;
    for (what, name) in [
        ("agent", Some(agent)),
        ("session", Some(new.session.as_str())),
        ("id", new.id.as_deref()),
        ("call", new.call.as_deref()),
        ("tool", new.tool.as_deref()),
        ("worker", new.worker.as_deref()),
        ("model", new.model.as_deref()),
        ("task", new.task.as_deref()),
        ("trace_id", new.trace_id.as_deref()),
        ("span_id", new.span_id.as_deref()),
        ("parent_span_id", new.parent_span_id.as_deref()),
    ] {
        check_name(what, name)?;
    }
    if new.kind.is_own() {
        return Err(format!("steps of kind {} are reserved for stepback", new.kind.as_str()));
    }
    let message = match (new.kind, new.message) {
        (StepKind::Message, Some(message)) => {
            Some(Box::new(prepare_message(message, new.worker.as_deref())?))
        }
        (StepKind::Message, None) => return Err("a step of kind message needs a message".into()),
        (kind, Some(_)) => {
            return Err(format!("a message belongs to a step of kind message, not {}", kind.as_str()));
        }
        (_, None) => None,
    };
    let cost = match new.cost_usd.unwrap_or_default() {
        usd if (0.0..=1e9).contains(&usd) => (usd * 1e6).round() as u64,
        _ => return Err("cost_usd is not a valid amount".into()),
    };
    let key = new.id.or_else(|| context.key.map(|key| format!("{key} {index}")));
    let summary = new.summary.unwrap_or_default();
    let mut event = AgentEvent {
        at: new.at,
        key,
        call: new.call,
        tool: new.tool,
        worker: message.as_ref().and_then(|message| message.sender.clone()).or(new.worker),
        message,
        input: new.input,
        output: new.output,
        error: new.error.and_then(NewStepError::into_reported_error),
        duration: new.duration_us.filter(|micros| i64::try_from(*micros).is_ok()),
        context: StepContext {
            task: new.task,
            trace: new.trace_id,
            span: new.span_id,
            parent_span: new.parent_span_id,
        },
        metadata: new.metadata,
        ..AgentEvent::new(agent, &new.session, new.kind, summary)
    };
    redact_event(&mut event);
    let mut left_out = 0;
    if let Some(value) = &mut event.metadata {
        left_out += clip::value(value, MAX_TEXT_BYTES);
    }
    if let Some(error) = &mut event.error {
        for text in [Some(&mut error.message), error.stack.as_mut(), error.cause.as_mut()] {
            left_out += text.map_or(0, |text| clip::text(text, MAX_TEXT_BYTES));
        }
    }
    if let Some(message) = &mut event.message {
        left_out += clip::value(&mut message.content, MAX_TEXT_BYTES);
    }
    event.summary = payload::summary_line(&summary_line(&event));
    let mut update = SessionUpdate {
        model: new.model,
        milestone: new.ended.then_some(SessionMilestone::Ended),
        cost,
        ..SessionUpdate::default()
    };
    for (slot, value) in [
        (&mut update.memory, new.memory),
        (&mut update.tasks, new.tasks),
        (&mut update.environment, new.environment),
    ] {
        *slot = value.map(|mut value| {
            stepback_redact::redact_value(&mut value);
            value
        });
    }
    let mut lines = Vec::new();
    for mut message in new.messages {
        stepback_redact::redact_value(&mut message);
        lines.push(message.to_string());
    }
    // Earlier messages are kept: there is no transcript to read them from again.
    let messages = (!lines.is_empty()).then(|| NewMessages { lines, ..NewMessages::default() });
    let at = event.at.unwrap_or(context.now);
    let report =
        ReportedEvent { source: EventSource::Keyed, messages, update, ..ReportedEvent::new(event, at) };
    Ok(PreparedEvent { report, clipped_bytes: left_out })
}

/// Checks the names in a message, and writes its performative as stepback does. A message without a sender is the worker's.
fn prepare_message(new: NewAgentMessage, worker: Option<&str>) -> Result<AgentMessage, String> {
    let NewAgentMessage { sender, receiver, performative, content, id, answers } = new;
    for (what, name) in [
        ("message's sender", sender.as_deref()),
        ("message's receiver", receiver.as_deref()),
        ("message's performative", Some(performative.trim())),
        ("message's id", id.as_deref()),
        ("message's answers", answers.as_deref()),
    ] {
        check_name(what, name)?;
    }
    Ok(AgentMessage {
        sender: sender.or_else(|| worker.map(str::to_owned)),
        receiver,
        performative: message::performative(&performative),
        content: content.unwrap_or_default(),
        id,
        answers,
    })
}

fn check_name(what: &str, name: Option<&str>) -> Result<(), String> {
    match name {
        Some("") => Err(format!("its {what} is empty")),
        Some(name) if name.len() > LONGEST_NAME => {
            Err(format!("its {what} has {} bytes, more than the limit of {LONGEST_NAME}", name.len()))
        }
        _ => Ok(()),
    }
}

/// Returns one line that summarises an event, generated if it came without one.
fn summary_line(event: &AgentEvent) -> String {
    if !event.summary.trim().is_empty() {
        return event.summary.clone();
    }
    if let Some(message) = &event.message {
        return message.summary();
    }
    let said = |value: &Option<Value>| value.as_ref().and_then(Value::as_str).map(str::to_owned);
    let text = event.error.as_ref().map(|error| error.message.clone());
    let text = text.or_else(|| said(&event.input)).or_else(|| said(&event.output));
    match (&event.tool, text) {
        (Some(tool), Some(text)) => format!("{tool}: {}", text.trim()),
        (Some(tool), None) => match &event.input {
            Some(input) => stepback_agents::import::describe_call(tool, input),
            None => tool.clone(),
        },
        (None, Some(text)) if !text.trim().is_empty() => text,
        (None, _) => event.kind.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AROUND: IngestContext<'_> =
        IngestContext { agent: Some("mine"), key: None, now: Timestamp::from_micros(7) };

    fn parse_test_event(value: &Value) -> Result<PreparedEvent, String> {
        super::parse_event(&value.to_string(), 3, AROUND)
    }

    #[test]
    fn what_is_missing_is_made_up_and_what_is_wrong_is_named() {
        let plain = parse_test_event(&json!({ "session": "s", "kind": "user-input", "input": "do it\nnow" }))
            .unwrap();
        let event = &plain.report.event;
        assert_eq!((event.agent.as_str(), event.summary.as_str()), ("mine", "do it"));
        assert_eq!((plain.report.at, &event.key), (AROUND.now, &None));
        let keyed = IngestContext { key: Some("batch 1"), ..AROUND };
        let keyed =
            super::parse_event(r#"{"session":"s","kind":"error","error":"it broke"}"#, 3, keyed).unwrap();
        assert_eq!(keyed.report.event.key.as_deref(), Some("batch 1 3"));
        assert_eq!(keyed.report.event.summary, "it broke");
        for (wrong, why) in [
            (json!([]), "struct NewStep"),
            (json!({ "kind": "error" }), "session"),
            (json!({ "session": "", "kind": "error" }), "session is empty"),
            (json!({ "session": "s" }), "kind"),
            (json!({ "session": "s", "kind": "moon" }), "moon"),
            (json!({ "session": "s", "kind": "rewind" }), "reserved for stepback"),
            (json!({ "session": "s", "kind": "error", "tool": 1 }), "expected a string"),
            (json!({ "session": "s", "kind": "error", "at": "yesterday" }), "year"),
            (json!({ "session": "s", "kind": "error", "color": "red" }), "color"),
            (json!({ "session": "s", "kind": "message" }), "needs a message"),
            (json!({ "session": "s", "kind": "error", "message": { "performative": "tell" } }), "not error"),
            (
                json!({ "session": "s", "kind": "message", "message": { "performative": " " } }),
                "performative is empty",
            ),
            (
                json!({ "session": "s", "kind": "message", "message": { "performative": "tell", "to": "b" } }),
                "to",
            ),
            (json!({ "session": "s", "kind": "error", "cost_usd": -1 }), "cost_usd"),
            (json!({ "session": "s", "kind": "error", "duration_us": -1 }), "-1"),
            (json!({ "session": "x".repeat(2000), "kind": "error" }), "2000 bytes"),
        ] {
            let error = parse_test_event(&wrong).err().unwrap();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        let deep = format!(
            "{{\"session\":\"s\",\"kind\":\"error\",\"input\":{}1{}}}",
            "[".repeat(200),
            "]".repeat(200)
        );
        assert!(super::parse_event(&deep, 0, AROUND).err().unwrap().contains("recursion"));
    }

    #[test]
    fn secrets_go_and_long_texts_are_cut() {
        let secret = concat!("ghp_", "0123456789abcdefghijABCDEFGHIJ012345");
        let ready = parse_test_event(&json!({
            "session": "s", "kind": "tool-end", "tool": "sh", "input": { "command": format!("curl -H {secret}") },
            "metadata": { "note": "x".repeat(200_000) }, "memory": { "token": secret }, "messages": [{ "role": "user", "content": secret }],
        }))
        .unwrap();
        let all = format!("{:?} {:?}", ready.report.event, ready.report.update.memory);
        assert!(!all.contains(secret) && !ready.report.messages.unwrap().lines[0].contains(secret));
        assert!(ready.clipped_bytes > 100_000);
        assert!(ready.report.event.metadata.unwrap().to_string().contains("bytes left out"));
    }
}
