//! A step, as a program reports it.

use serde_json::{Map, Value, json};
use stepback_model::clip;
use stepback_model::record::StepKind;

use crate::config::RecorderConfig;
use crate::trace::TraceContext;

/// Texts are searched for secrets up to so many times the longest text, so that none is missed because it was cut.
const REDACTION_WINDOW_FACTOR: usize = 4;

/// One step of an agent.
#[derive(Clone, Debug)]
#[must_use = "a step is recorded by `Session::record`"]
pub struct StepReport {
    pub(crate) kind: StepKind,
    pub(crate) fields: Map<String, Value>,
    pub(crate) trace: Option<TraceContext>,
}

impl StepReport {
    /// Creates a step of a kind; all other fields are optional.
    pub fn new(kind: StepKind) -> Self {
        Self { kind, fields: Map::new(), trace: None }
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the id that identifies it among steps of its kind in the session; generated if not set.
    pub fn id(self, id: &str) -> Self {
        self.with("id", id)
    }

    /// Sets the id by which the start and the end of a call are paired.
    pub fn call(self, call: &str) -> Self {
        self.with("call", call)
    }

    /// Sets the name of the tool or model.
    pub fn tool(self, tool: &str) -> Self {
        self.with("tool", tool)
    }

    /// Sets the sub-agent that did it.
    pub fn worker(self, worker: &str) -> Self {
        self.with("worker", worker)
    }

    /// Sets the one-line summary for people.
    pub fn summary(self, summary: &str) -> Self {
        self.with("summary", summary)
    }

    /// Sets the input of the call.
    pub fn input(self, input: impl Into<Value>) -> Self {
        self.with("input", input)
    }

    /// Sets the output of the call.
    pub fn output(self, output: impl Into<Value>) -> Self {
        self.with("output", output)
    }

    /// Sets the error message.
    pub fn error(self, message: &str) -> Self {
        self.with("error", message)
    }

    /// Sets the error, with its chain of causes.
    pub fn failed(self, error: &dyn std::error::Error) -> Self {
        let mut causes = Vec::new();
        let mut cause = error.source();
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        let cause = (!causes.is_empty()).then(|| causes.join(": "));
        self.with("error", json!({ "message": error.to_string(), "cause": cause }))
    }

    /// Sets the duration.
    pub fn duration(self, took: std::time::Duration) -> Self {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX >> 1);
        self.with("duration_us", micros)
    }

    /// Adds a named value to the metadata.
    pub fn metadata(mut self, name: &str, value: impl Into<Value>) -> Self {
        let metadata = self.fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(fields) = metadata {
            fields.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Sets the model that the session uses, and the cost to add to the session, in dollars.
    pub fn model(self, model: &str, cost_usd: f64) -> Self {
        self.with("model", model).with("cost_usd", cost_usd)
    }

    /// Sets the messages that the conversation grew by.
    pub fn messages(self, messages: Vec<Value>) -> Self {
        self.with("messages", messages)
    }

    /// Sets the agent's whole memory as it is now.
    pub fn memory(self, memory: impl Into<Value>) -> Self {
        self.with("memory", memory)
    }

    /// Sets the whole task list as it is now.
    pub fn tasks(self, tasks: impl Into<Value>) -> Self {
        self.with("tasks", tasks)
    }

    /// Sets the names of the session's tools and variables.
    pub fn environment(self, environment: impl Into<Value>) -> Self {
        self.with("environment", environment)
    }

    /// Sets the id of the task that it is part of.
    pub fn task(self, id: &str) -> Self {
        self.with("task", id)
    }

    /// Sets its position in a trace.
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Whether it reports an error.
    pub(crate) fn is_failure(&self) -> bool {
        self.kind == StepKind::Error || self.fields.contains_key("error")
    }

    /// Returns the fields to send: only the captured parts, redacted, with long texts cut; and how many bytes were cut.
    pub(crate) fn finished(mut self, config: &RecorderConfig) -> (Map<String, Value>, u64) {
        if let Some(trace) = self.trace {
            self = self.metadata("trace_id", trace.trace_id()).metadata("span_id", trace.span_id());
        }
        let capture = config.capture;
        let mut fields = self.fields;
        fields.retain(|name, _| match name.as_str() {
            "input" | "output" => capture.inputs_and_outputs,
            "messages" => capture.conversation,
            "memory" => capture.memory,
            "tasks" => capture.tasks,
            "environment" => capture.environment,
            _ => true,
        });
        let mut left_out = 0;
        for (_, value) in &mut fields {
            left_out += clip::value(value, config.longest_text.saturating_mul(REDACTION_WINDOW_FACTOR));
        }
        let mut whole = Value::Object(fields);
        if config.redact {
            stepback_redact::redact_value(&mut whole);
        }
        let Value::Object(mut fields) = whole else { return (Map::new(), left_out) };
        for (_, value) in &mut fields {
            left_out += clip::value(value, config.longest_text);
        }
        fields.insert("kind".into(), self.kind.as_str().into());
        (fields, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Capture;

    #[test]
    fn only_what_is_captured_is_sent_without_secrets_and_not_too_long() {
        let secret = concat!("ghp_", "0123456789abcdefghijABCDEFGHIJ012345");
        let step = StepReport::new(StepKind::ToolEnd)
            .input(json!({ "header": secret }))
            .output("x".repeat(10_000))
            .memory(json!({ "a": 1 }))
            .messages(vec!["hello".into()])
            .trace(TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap());
        let config = RecorderConfig::new("http://x", "").longest_text(1000);
        let (fields, left_out) = step.clone().finished(&config);
        let text = Value::Object(fields.clone()).to_string();
        assert!(!text.contains(secret) && text.len() < 2000, "{text}");
        assert!(left_out > 8000 && text.contains("bytes left out"));
        assert_eq!(fields["metadata"]["trace_id"], "0af7651916cd43dd8448eb211c80319c");
        assert!(fields.contains_key("memory") && !fields.contains_key("messages"));
        let (fields, _) = step.finished(&config.capture(Capture::nothing_but_steps()));
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["kind", "metadata"]);
    }

    #[test]
    fn a_secret_at_the_cut_is_not_left_in_half() {
        let secret = concat!("ghp_", "0123456789abcdefghijABCDEFGHIJ012345");
        for before in (0..5000).step_by(7) {
            let text = format!("{} {secret} {}", "x ".repeat(before / 2), "y ".repeat(3000));
            let config = RecorderConfig::new("http://x", "").longest_text(1000);
            let (fields, _) = StepReport::new(StepKind::Error).output(text).finished(&config);
            assert!(!fields["output"].as_str().unwrap().contains("ghp_0"), "{before}");
        }
    }
}
