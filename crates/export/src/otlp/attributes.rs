//! Attributes of spans in OTLP's JSON encoding, and messages in the form of the GenAI conventions.

use serde_json::{Value, json};
use stepback_llm_wire::recorded_call::CallUsage;
use stepback_llm_wire::semantics::{ContentPart, TokenUsage};

use crate::recording::AnswerPart;

/// The attributes of one span.
#[derive(Default)]
pub struct SpanAttributes(Vec<Value>);

impl SpanAttributes {
    /// Adds a text.
    pub fn text(&mut self, key: &str, value: &str) {
        self.0.push(json!({ "key": key, "value": { "stringValue": value } }));
    }

    /// Adds a number; one that no signed integer holds is as large as one can be.
    pub fn count(&mut self, key: &str, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.0.push(json!({ "key": key, "value": { "intValue": value.to_string() } }));
    }

    /// Adds a number with a fraction.
    pub fn number(&mut self, key: &str, value: f64) {
        self.0.push(json!({ "key": key, "value": { "doubleValue": value } }));
    }

    /// Adds a list of one text.
    pub fn texts(&mut self, key: &str, value: &str) {
        let values = json!({ "values": [{ "stringValue": value }] });
        self.0.push(json!({ "key": key, "value": { "arrayValue": values } }));
    }

    /// Adds that something is so.
    pub fn flag(&mut self, key: &str) {
        self.0.push(json!({ "key": key, "value": { "boolValue": true } }));
    }

    /// Adds a value: a text as it is, anything else as JSON; nothing for `null`.
    pub fn document(&mut self, key: &str, value: &Value) {
        match value {
            Value::Null => {}
            Value::String(text) => self.text(key, text),
            other => self.text(key, &other.to_string()),
        }
    }

    /// Adds parts of the detail of a step as JSON, for our own receiver.
    pub fn stored(&mut self, detail: &Value, names: &[&str]) {
        for name in names {
            if let Some(value) = detail.get(*name).filter(|value| !value.is_null()) {
                self.text(&format!("stepback.{name}"), &value.to_string());
            }
        }
    }

    /// Adds what a model call used.
    pub fn usage(&mut self, usage: &CallUsage) {
        if let Some(model) = &usage.model {
            self.text("gen_ai.response.model", model);
        }
        self.tokens(usage.tokens);
        if let Some(cost) = usage.cost_usd.filter(|cost| cost.is_finite()) {
            self.number("gen_ai.usage.cost", cost);
        }
        if usage.replayed {
            self.flag("stepback.replayed");
        }
    }

    /// Adds token counts. Those of the input include what was read from and written to a cache.
    pub fn tokens(&mut self, usage: Option<TokenUsage>) {
        let Some(usage) = usage else { return };
        let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        self.count("gen_ai.usage.input_tokens", input);
        self.count("gen_ai.usage.output_tokens", usage.output);
        let rest = [
            ("gen_ai.usage.cache_read.input_tokens", usage.cache_read),
            ("gen_ai.usage.cache_creation.input_tokens", usage.cache_write),
            ("gen_ai.usage.reasoning.output_tokens", usage.reasoning),
        ];
        rest.iter().filter(|(_, tokens)| *tokens > 0).for_each(|(key, tokens)| self.count(key, *tokens));
    }

    /// The attributes as OTLP writes them.
    pub fn into_value(self) -> Value {
        Value::Array(self.0)
    }
}

fn message(parts: Vec<Value>, stop: Option<&str>) -> Value {
    json!([{ "role": "assistant", "parts": parts, "finish_reason": stop.unwrap_or("unknown") }])
}

/// An answer as a list of one message.
pub fn answer_messages(content: &[ContentPart], stop: Option<&str>) -> Value {
    let part = |part: &ContentPart| match part {
        ContentPart::Model(text) => Some(json!({ "type": "text", "content": text })),
        ContentPart::Thought(text) => Some(json!({ "type": "reasoning", "content": text })),
        ContentPart::Call(call) => {
            Some(json!({ "type": "tool_call", "id": call.id, "name": call.name, "arguments": call.input }))
        }
        ContentPart::User(_) | ContentPart::System(_) | ContentPart::Result { .. } => None,
    };
    message(content.iter().filter_map(part).collect(), stop)
}

/// An answer of one text.
pub fn output_messages(text: &str, stop: Option<&str>) -> Value {
    message(vec![json!({ "type": "text", "content": text })], stop)
}

/// An answer from the conversation.
pub fn parts_messages(parts: &[AnswerPart]) -> Value {
    let part = |part: &AnswerPart| match part {
        AnswerPart::Text(text) => json!({ "type": "text", "content": text }),
        AnswerPart::Thought(text) => json!({ "type": "reasoning", "content": text }),
    };
    message(parts.iter().map(part).collect(), None)
}
