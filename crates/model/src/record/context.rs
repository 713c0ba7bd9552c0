//! The task that a step belongs to, and its place in a distributed trace, by which a step is found from other systems.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest id, in bytes; a longer text in one of these fields is no id.
const MAX_ID_BYTES: usize = 1000;

/// Ids that other systems know a step by. All of them are texts as the agent or its telemetry gave them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StepContext {
    /// The task that the step is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The trace that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The span that it begins, ends, or happened in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<String>,
    /// The span around that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span: Option<String>,
}

impl StepContext {
    /// Whether no id is known.
    pub fn is_empty(&self) -> bool {
        self.ids().all(|id| id.is_none())
    }

    /// The ids, in the order of the fields.
    pub fn ids(&self) -> impl Iterator<Item = Option<&str>> {
        [&self.task, &self.trace, &self.span, &self.parent_span].into_iter().map(Option::as_deref)
    }

    /// The ids in an event's metadata: `task_id`, `trace_id`, `span_id` and `parent_span_id`.
    pub fn from_metadata(metadata: &Value) -> Self {
        let id = |name: &str| {
            let id = metadata.get(name)?.as_str()?;
            (!id.is_empty() && id.len() <= MAX_ID_BYTES).then(|| id.to_owned())
        };
        Self {
            task: id("task_id"),
            trace: id("trace_id"),
            span: id("span_id"),
            parent_span: id("parent_span_id"),
        }
    }

    /// These ids, and those of `other` that are unknown here. A span belongs to its trace: of another trace, none is taken.
    pub fn or(self, other: Self) -> Self {
        let is_same_trace = self.trace.is_none() || other.trace.is_none() || self.trace == other.trace;
        let rest = if is_same_trace { other } else { Self { task: other.task, ..Self::default() } };
        Self {
            task: self.task.or(rest.task),
            trace: self.trace.or(rest.trace),
            span: self.span.or(rest.span),
            parent_span: self.parent_span.or(rest.parent_span),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_come_from_metadata_and_what_is_no_id_does_not() {
        let known = StepContext::from_metadata(&json!({
            "task_id": "t7", "trace_id": "4bf9", "span_id": 7, "parent_span_id": "", "model": "m",
        }));
        assert_eq!(
            known,
            StepContext { task: Some("t7".into()), trace: Some("4bf9".into()), ..StepContext::default() }
        );
        assert!(StepContext::from_metadata(&json!({ "trace_id": "x".repeat(1001) })).is_empty());
        assert!(StepContext::from_metadata(&json!("trace_id")).is_empty());
    }

    #[test]
    fn spans_of_two_traces_are_not_mixed() {
        let of = |trace: &str, span: Option<&str>, task: Option<&str>| StepContext {
            trace: Some(trace.into()),
            span: span.map(Into::into),
            task: task.map(Into::into),
            ..StepContext::default()
        };
        assert_eq!(of("a", None, None).or(of("b", Some("s"), Some("t"))), of("a", None, Some("t")));
        assert_eq!(of("a", None, None).or(of("a", Some("s"), None)), of("a", Some("s"), None));
    }
}
