//! Events: what an agent reported, in one vocabulary for all agents.
//!
//! A hook, an import or a proxy converts what it saw into events; the engine converts events into steps. The original
//! report is kept beside the event, so that fields which stepback does not know yet are not lost.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::hash::{Hash, ObjectKind};
use crate::message::AgentMessage;
use crate::record::{StepContext, StepKind};
use crate::time::Timestamp;

/// Number of hash digits in the id of a call to which its agent gave none.
const DERIVED_ID_DIGITS: usize = 12;

/// An error, as the agent reported it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ReportedError {
    /// The kind of error, if it has a name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// The error message.
    pub message: String,
    /// The stack trace, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stack: Option<String>,
    /// The cause, if it was reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<String>,
}

impl ReportedError {
    /// Returns the error that a reported value describes. Many tools always send an error field; an empty one (`null`,
    /// `false`, zero, an empty string, or a list or object of such values only) means that nothing failed.
    pub fn reported(value: &Value) -> Option<Self> {
        if is_nothing(value) {
            return None;
        }
        let text =
            |pointer: &str| value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let message = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) => "it failed".to_owned(),
            _ => ["/message", "/data/message"]
                .into_iter()
                .find_map(text)
                .map_or_else(|| value.to_string(), str::to_owned),
        };
        let first = |places: &[&str]| places.iter().find_map(|place| text(place)).map(str::to_owned);
        Some(Self {
            name: first(&["/name", "/type", "/code", "/data/name"]),
            message,
            stack: first(&["/stack", "/stack_trace", "/stacktrace", "/traceback", "/data/stack"]),
            cause: value.get("cause").or_else(|| value.pointer("/data/cause")).and_then(describe_cause),
        })
    }
}

/// Returns the chain of causes, outermost first, as far as the agent reports it: `Error: no network: EAI_AGAIN`.
fn describe_cause(cause: &Value) -> Option<String> {
    /// Most causes that are listed.
    const MAX_CAUSES: usize = 16;
    let mut parts = Vec::new();
    let mut next = Some(cause);
    while let Some(cause) = next.filter(|_| parts.len() < MAX_CAUSES) {
        match cause {
            Value::String(text) if !text.trim().is_empty() => parts.push(text.clone()),
            Value::Object(fields) => {
                let text =
                    |name: &str| fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
                let name = text("name").or_else(|| text("type")).or_else(|| text("code"));
                let both: Vec<&str> = name.into_iter().chain(text("message")).collect();
                if !both.is_empty() {
                    parts.push(both.join(": "));
                }
            }
            _ => {}
        }
        next = cause.get("cause");
    }
    (!parts.is_empty()).then(|| parts.join(": "))
}

/// Whether a value is empty: see [`ReportedError::reported`].
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_set) => !is_set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.iter().all(is_nothing),
        Value::Object(fields) => fields.values().all(is_nothing),
    }
}

/// One thing that an agent reported.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgentEvent {
    /// The agent's stable name.
    pub agent: String,
    /// The agent's own id of the session.
    pub session: String,
    /// The kind of step that it becomes.
    pub kind: StepKind,
    /// When it happened; `None` if the agent does not say, and then the time of arrival counts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<Timestamp>,
    /// What distinguishes two events of the same kind (a call id, a prompt id). An event delivered twice is recorded once.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// The id that pairs the start and the end of a call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call: Option<String>,
    /// Name of the tool or model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tool: Option<String>,
    /// The sub-agent that did it; `None` for the main agent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub worker: Option<String>,
    /// One line for display.
    pub summary: String,
    /// The input of the call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub input: Option<Value>,
    /// The output of the call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<Value>,
    /// The error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<ReportedError>,
    /// How long it took, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duration: Option<u64>,
    /// The message from one agent to another, if the event is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<Box<AgentMessage>>,
    /// The task, and the place in a distributed trace.
    #[serde(skip_serializing_if = "StepContext::is_empty", default)]
    pub context: StepContext,
    /// Tokens, cost, and other named values.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub metadata: Option<Value>,
    /// The original report, if it contains more than the fields above.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub raw: Option<Value>,
}

impl AgentEvent {
    /// The id of a call whose agent assigns no ids, derived from the tool and the input.
    pub fn derived_call(tool: &str, input: &Value) -> String {
        let described = format!("{tool} {input}");
        format!(
            "{tool}#{}",
            &Hash::of(ObjectKind::Blob, described.as_bytes()).to_string()[..DERIVED_ID_DIGITS]
        )
    }

    /// Whether the call's id was not assigned by its agent: it is missing or derived.
    pub fn is_derived_call(call: Option<&str>) -> bool {
        let Some(call) = call else { return true };
        let hash = call.rsplit_once('#').map(|(_, hash)| hash);
        hash.is_some_and(|hash| {
            hash.len() == DERIVED_ID_DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    }

    /// Creates an event with only these fields set.
    pub fn new(agent: &str, session: &str, kind: StepKind, summary: impl Into<String>) -> Self {
        Self {
            agent: agent.to_owned(),
            session: session.to_owned(),
            kind,
            at: None,
            key: None,
            call: None,
            tool: None,
            worker: None,
            summary: summary.into(),
            input: None,
            output: None,
            error: None,
            duration: None,
            message: None,
            context: StepContext::default(),
            metadata: None,
            raw: None,
        }
    }

    /// Creates the event of a message. Its step is one of the sender.
    pub fn of_message(agent: &str, session: &str, message: AgentMessage) -> Self {
        Self {
            worker: message.sender.clone(),
            message: Some(Box::new(message)),
            ..Self::new(agent, session, StepKind::Message, "")
        }
    }

    /// The ids of the event: its own, and those that its agent put into the metadata.
    pub fn known_context(&self) -> StepContext {
        let told = self.metadata.as_ref().map(StepContext::from_metadata).unwrap_or_default();
        self.context.clone().or(told)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_error_is_no_error() {
        for nothing in [
            json!(null),
            json!(""),
            json!(" \n"),
            json!(false),
            json!(0),
            json!([]),
            json!({}),
            json!({ "message": "", "code": 0, "details": [null] }),
        ] {
            assert_eq!(ReportedError::reported(&nothing), None, "{nothing}");
        }
        let message = |value: Value| ReportedError::reported(&value).map(|error| error.message);
        assert_eq!(message(json!("no such file")).as_deref(), Some("no such file"));
        assert_eq!(message(json!({ "message": "no", "type": "x" })).as_deref(), Some("no"));
        assert_eq!(message(json!({ "code": 2 })).as_deref(), Some(r#"{"code":2}"#));
        assert_eq!(message(json!(true)).as_deref(), Some("it failed"));
    }
}
