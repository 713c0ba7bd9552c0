//! Messages between an agent and a model, in one form for all conventions.
//!
//! As JSON, which is how steps store them: `{"role": "assistant", "content": "…", "thinking": "…", "tool_calls": [{"id",
//! "name", "arguments"}], "tool_results": [{"id", "name", "content"}], "other": […]}`, without empty fields.

use serde_json::{Map, Value, json};

use crate::attributes::{as_text, document};

/// One message.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GenAiMessage {
    /// The role of the author: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// The name of the author.
    pub name: Option<String>,
    /// The text of the message.
    pub text: String,
    /// The thoughts of the model.
    pub thinking: String,
    /// Calls that the model requests.
    pub calls: Vec<MessageCall>,
    /// Results of calls.
    pub results: Vec<CallOutcome>,
    /// Images, files, and other parts.
    pub other: Vec<Value>,
}

/// A call that a model requests.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MessageCall {
    /// The id of the call.
    pub id: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The input of the call.
    pub arguments: Value,
}

/// The result of a call.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CallOutcome {
    /// The id of the call.
    pub id: Option<String>,
    /// The name of the tool, if it is given.
    pub name: Option<String>,
    /// The output of the call.
    pub content: Value,
}

impl GenAiMessage {
    /// Creates a message of plain text.
    pub fn text(role: &str, text: impl Into<String>) -> Self {
        Self { role: role.to_owned(), text: text.into(), ..Self::default() }
    }

    /// Whether the message has no content.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
            && self.thinking.is_empty()
            && self.calls.is_empty()
            && self.results.is_empty()
            && self.other.is_empty()
    }

    /// Returns the message in the form that steps store.
    pub fn value(&self) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value, says: bool| {
            if says {
                fields.insert(name.to_owned(), value);
            }
        };
        put("role", json!(self.role), true);
        put("name", json!(self.name), self.name.is_some());
        put("content", json!(self.text), !self.text.is_empty());
        put("thinking", json!(self.thinking), !self.thinking.is_empty());
        put("tool_calls", self.calls.iter().map(MessageCall::value).collect(), !self.calls.is_empty());
        put("tool_results", self.results.iter().map(CallOutcome::value).collect(), !self.results.is_empty());
        put("other", json!(self.other), !self.other.is_empty());
        Value::Object(fields)
    }

    /// Reads a message in the form of the GenAI conventions, or of the widespread chat API. A plain text is a user's
    /// message.
    pub fn read(value: Value, role: &str) -> Self {
        let mut fields = match document(value) {
            Value::Object(fields) => fields,
            Value::String(text) => return Self::text(role, text),
            other => return Self { role: role.to_owned(), other: vec![other], ..Self::default() },
        };
        if fields.get("contents").is_some_and(is_said) {
            // OpenInference has the content twice: as a whole, and in parts.
            fields.remove("content");
        }
        let mut message = Self { role: role.to_owned(), ..Self::default() };
        let mut call_id = None;
        for (name, value) in fields.into_iter().filter(|(_, value)| is_said(value)) {
            match name.as_str() {
                "role" => message.role = as_text(&value).unwrap_or(message.role),
                "name" => message.name = as_text(&value),
                "parts" | "content" | "contents" => message.take_content(value),
                "tool_calls" => message.take_calls(value),
                "tool_call_id" | "id" => call_id = as_text(&value),
                "reasoning_content" | "thinking" => message.thinking.push_str(&plain_text(&value)),
                "finish_reason" | "type" | "index" => {}
                _ => message.other.push(json!({ name: value })),
            }
        }
        if message.role == "tool" && message.results.is_empty() {
            let content = Value::String(std::mem::take(&mut message.text));
            message.results.push(CallOutcome {
                id: call_id,
                name: message.name.take(),
                content: document(content),
            });
        }
        message
    }

    fn take_content(&mut self, value: Value) {
        match document(value) {
            Value::Null => {}
            Value::Array(parts) => parts.into_iter().for_each(|part| self.take_part(part)),
            Value::String(text) => self.append_text(&text),
            // A tool may have returned a document.
            other => self.append_text(&other.to_string()),
        }
    }

    fn append_text(&mut self, text: &str) {
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    fn take_part(&mut self, part: Value) {
        let Value::Object(mut fields) = part else {
            match part {
                Value::String(text) => self.append_text(&text),
                other => self.other.push(other),
            }
            return;
        };
        // OpenInference adds a wrapper around each part.
        if let Some(Value::Object(inner)) = fields.remove("message_content") {
            fields = inner;
        }
        let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let text = |fields: &Map<String, Value>| {
            ["content", "text", "thinking"]
                .iter()
                .find_map(|name| fields.get(*name)?.as_str().map(str::to_owned))
        };
        let id = ["id", "call_id", "tool_call_id", "tool_use_id"]
            .iter()
            .find_map(|name| as_text(fields.get(*name)?));
        match (kind.as_str(), text(&fields)) {
            ("text" | "input_text" | "output_text" | "", Some(message_text)) => {
                self.append_text(&message_text)
            }
            ("reasoning" | "thinking", Some(thought)) => self.thinking.push_str(&thought),
            ("tool_call" | "tool_use" | "function_call", _) => self.calls.push(MessageCall {
                id,
                name: fields.get("name").and_then(as_text).unwrap_or_default(),
                arguments: document(take_first(&mut fields, &["arguments", "input"])),
            }),
            ("tool_call_response" | "tool_result" | "function_call_output", _) => {
                self.results.push(CallOutcome {
                    id,
                    name: fields.get("name").and_then(as_text),
                    content: document(take_first(&mut fields, &["response", "result", "content", "output"])),
                })
            }
            _ => self.other.push(Value::Object(fields)),
        }
    }

    fn take_calls(&mut self, value: Value) {
        let Value::Array(calls) = document(value) else { return };
        for call in calls {
            let Value::Object(mut fields) = call else { continue };
            if let Some(Value::Object(inner)) = fields.remove("tool_call") {
                fields = inner;
            }
            let id = fields.get("id").and_then(as_text);
            if let Some(Value::Object(function)) = fields.remove("function") {
                fields = function;
            }
            let name = fields.get("name").and_then(as_text).unwrap_or_default();
            let arguments = document(take_first(&mut fields, &["arguments", "args", "input"]));
            self.calls.push(MessageCall { id, name, arguments });
        }
    }
}

impl MessageCall {
    fn value(&self) -> Value {
        json!({ "id": self.id, "name": self.name, "arguments": self.arguments })
    }
}

impl CallOutcome {
    fn value(&self) -> Value {
        let mut value = json!({ "id": self.id, "content": self.content });
        if let Some(name) = &self.name {
            value["name"] = json!(name);
        }
        value
    }
}

/// Reads a list of messages, or a single one.
pub fn read_all(value: Value, role: &str) -> Vec<GenAiMessage> {
    let messages: Vec<GenAiMessage> = match document(value) {
        Value::Null => Vec::new(),
        Value::Array(items) => {
            items.into_iter().map(|item| GenAiMessage::read(unwrap_message(item), role)).collect()
        }
        other => vec![GenAiMessage::read(other, role)],
    };
    messages.into_iter().filter(|message| !message.is_empty()).collect()
}

/// Removes the wrapper that OpenInference adds around each message.
fn unwrap_message(value: Value) -> Value {
    match value {
        Value::Object(mut fields) if fields.len() == 1 => match fields.remove("message") {
            Some(inner) => inner,
            None => Value::Object(fields),
        },
        other => other,
    }
}

fn take_first(fields: &mut Map<String, Value>, names: &[&str]) -> Value {
    names.iter().find_map(|name| fields.remove(*name)).unwrap_or_default()
}

fn plain_text(value: &Value) -> String {
    as_text(value).unwrap_or_default()
}

/// Whether a value is not empty.
fn is_said(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_message_in_every_form_is_the_same() {
        let forms = [
            json!({ "role": "assistant", "parts": [
                { "type": "text", "content": "Let me look." },
                { "type": "tool_call", "id": "c1", "name": "read", "arguments": "{\"path\": \"a\"}" }] }),
            json!({ "role": "assistant", "content": "Let me look.", "tool_calls": [
                { "id": "c1", "type": "function", "function": { "name": "read", "arguments": "{\"path\": \"a\"}" } }] }),
            json!({ "role": "assistant", "content": "Let me look.",
                "contents": [{ "message_content": { "type": "text", "text": "Let me look." } }], "tool_calls": [
                { "tool_call": { "id": "c1", "function": { "name": "read", "arguments": "{\"path\": \"a\"}" } } }] }),
            json!({ "role": "assistant", "content": [
                { "type": "text", "text": "Let me look." },
                { "type": "tool_use", "id": "c1", "name": "read", "input": { "path": "a" } }] }),
        ];
        let expected = json!({ "role": "assistant", "content": "Let me look.",
            "tool_calls": [{ "id": "c1", "name": "read", "arguments": { "path": "a" } }] });
        for form in forms {
            assert_eq!(GenAiMessage::read(form, "user").value(), expected);
        }
    }

    #[test]
    fn what_a_tool_gave_back_is_found_in_every_form() {
        let forms = [
            json!({ "role": "tool", "tool_call_id": "c1", "content": "done" }),
            json!({ "role": "tool", "id": "c1", "content": "done" }),
            json!({ "role": "tool", "parts": [{ "type": "tool_call_response", "id": "c1", "response": "done" }] }),
            json!({ "role": "tool", "content": [{ "type": "tool_result", "tool_use_id": "c1", "content": "done" }] }),
        ];
        for form in forms {
            let value = GenAiMessage::read(form, "user").value();
            assert_eq!(value, json!({ "role": "tool", "tool_results": [{ "id": "c1", "content": "done" }] }));
        }
    }

    #[test]
    fn nothing_unknown_is_lost() {
        let message = GenAiMessage::read(
            json!({ "role": "user", "weather": "fine", "parts": [{ "type": "image" }] }),
            "user",
        );
        assert_eq!(message.value()["other"], json!([{ "type": "image" }, { "weather": "fine" }]));
        assert_eq!(GenAiMessage::read(json!(7), "user").value(), json!({ "role": "user", "other": [7] }));
        assert_eq!(
            GenAiMessage::read(json!("hi"), "user").value(),
            json!({ "role": "user", "content": "hi" })
        );
    }
}
