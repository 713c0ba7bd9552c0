//! Messages between an agent and a model, in one form whatever convention they came in.
//!
//! As JSON, which is how steps hold them:
//! `{"role": "assistant", "content": "…", "thinking": "…", "tool_calls": [{"id", "name", "arguments"}],
//! "tool_results": [{"id", "name", "content"}], "other": […]}`, with only those fields that say something.

use serde_json::{Map, Value, json};

use crate::attributes::{as_text, document};

/// One message.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// The speaker's name.
    pub name: Option<String>,
    /// What is said.
    pub text: String,
    /// What the model thought.
    pub thinking: String,
    /// Calls that the model asks for.
    pub calls: Vec<Call>,
    /// What calls gave back.
    pub results: Vec<Outcome>,
    /// Images, files, and what else there is.
    pub other: Vec<Value>,
}

/// A call that a model asks for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Call {
    /// Its id.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// What goes in.
    pub arguments: Value,
}

/// What a call gave back.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// The id of the call.
    pub id: Option<String>,
    /// The tool, if that is said.
    pub name: Option<String>,
    /// What came out.
    pub content: Value,
}

impl Message {
    /// A message of plain text.
    pub fn text(role: &str, text: impl Into<String>) -> Self {
        Self { role: role.to_owned(), text: text.into(), ..Self::default() }
    }

    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
            && self.thinking.is_empty()
            && self.calls.is_empty()
            && self.results.is_empty()
            && self.other.is_empty()
    }

    /// How steps hold it.
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
        put("tool_calls", self.calls.iter().map(Call::value).collect(), !self.calls.is_empty());
        put("tool_results", self.results.iter().map(Outcome::value).collect(), !self.results.is_empty());
        put("other", json!(self.other), !self.other.is_empty());
        Value::Object(fields)
    }

    /// A message in the form of the GenAI conventions, or of the chat API that everybody speaks. A text is what a user says.
    pub fn read(value: Value, role: &str) -> Self {
        let mut fields = match document(value) {
            Value::Object(fields) => fields,
            Value::String(text) => return Self::text(role, text),
            other => return Self { role: role.to_owned(), other: vec![other], ..Self::default() },
        };
        if fields.get("contents").is_some_and(is_said) {
            // OpenInference says the same twice: whole, and in parts.
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
                "reasoning_content" | "thinking" => message.thinking.push_str(&plain(&value)),
                "finish_reason" | "type" | "index" => {}
                _ => message.other.push(json!({ name: value })),
            }
        }
        if message.role == "tool" && message.results.is_empty() {
            let content = Value::String(std::mem::take(&mut message.text));
            message.results.push(Outcome {
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
            Value::String(text) => self.say(&text),
            // A tool may have given back a document.
            other => self.say(&other.to_string()),
        }
    }

    fn say(&mut self, text: &str) {
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    fn take_part(&mut self, part: Value) {
        let Value::Object(mut fields) = part else {
            match part {
                Value::String(text) => self.say(&text),
                other => self.other.push(other),
            }
            return;
        };
        // OpenInference wraps each part once more.
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
            ("text" | "input_text" | "output_text" | "", Some(said)) => self.say(&said),
            ("reasoning" | "thinking", Some(thought)) => self.thinking.push_str(&thought),
            ("tool_call" | "tool_use" | "function_call", _) => self.calls.push(Call {
                id,
                name: fields.get("name").and_then(as_text).unwrap_or_default(),
                arguments: document(first(&mut fields, &["arguments", "input"])),
            }),
            ("tool_call_response" | "tool_result" | "function_call_output", _) => {
                self.results.push(Outcome {
                    id,
                    name: fields.get("name").and_then(as_text),
                    content: document(first(&mut fields, &["response", "result", "content", "output"])),
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
            let arguments = document(first(&mut fields, &["arguments", "args", "input"]));
            self.calls.push(Call { id, name, arguments });
        }
    }
}

impl Call {
    fn value(&self) -> Value {
        json!({ "id": self.id, "name": self.name, "arguments": self.arguments })
    }
}

impl Outcome {
    fn value(&self) -> Value {
        let mut value = json!({ "id": self.id, "content": self.content });
        if let Some(name) = &self.name {
            value["name"] = json!(name);
        }
        value
    }
}

/// A list of messages, or what counts as one.
pub fn read_all(value: Value, role: &str) -> Vec<Message> {
    let messages: Vec<Message> = match document(value) {
        Value::Null => Vec::new(),
        Value::Array(items) => items.into_iter().map(|item| Message::read(unwrapped(item), role)).collect(),
        other => vec![Message::read(other, role)],
    };
    messages.into_iter().filter(|message| !message.is_empty()).collect()
}

/// OpenInference wraps each message once more.
fn unwrapped(value: Value) -> Value {
    match value {
        Value::Object(mut fields) if fields.len() == 1 => match fields.remove("message") {
            Some(inner) => inner,
            None => Value::Object(fields),
        },
        other => other,
    }
}

fn first(fields: &mut Map<String, Value>, names: &[&str]) -> Value {
    names.iter().find_map(|name| fields.remove(*name)).unwrap_or_default()
}

fn plain(value: &Value) -> String {
    as_text(value).unwrap_or_default()
}

/// Whether a value says anything.
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
            assert_eq!(Message::read(form, "user").value(), expected);
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
            let value = Message::read(form, "user").value();
            assert_eq!(value, json!({ "role": "tool", "tool_results": [{ "id": "c1", "content": "done" }] }));
        }
    }

    #[test]
    fn nothing_unknown_is_lost() {
        let message = Message::read(
            json!({ "role": "user", "weather": "fine", "parts": [{ "type": "image" }] }),
            "user",
        );
        assert_eq!(message.value()["other"], json!([{ "type": "image" }, { "weather": "fine" }]));
        assert_eq!(Message::read(json!(7), "user").value(), json!({ "role": "user", "other": [7] }));
        assert_eq!(Message::read(json!("hi"), "user").value(), json!({ "role": "user", "content": "hi" }));
    }
}
