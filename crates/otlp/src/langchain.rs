//! LangChain's own envelopes, which both OpenInference and OpenLLMetry pass on unchanged: the actual input or output is a
//! few levels down.

use serde_json::{Map, Value};

use crate::attributes::as_text;

/// The unwrapped output of a tool.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ToolOutput {
    /// The content of the output.
    pub content: Value,
    /// The id of the call.
    pub call: Option<String>,
    /// Whether the tool reports that it failed.
    pub failed: bool,
}

/// Splits `{"inputs": …, "tags": …, "metadata": …}` into the input and the rest.
pub fn input(value: Value) -> (Value, Option<Value>) {
    unwrap_field(value, &["inputs", "input_str"])
}

/// Splits `{"outputs": …, "kwargs": …}` into the output and the rest.
pub fn output(value: Value) -> (Value, Option<Value>) {
    unwrap_field(value, &["outputs", "output"])
}

fn unwrap_field(value: Value, names: &[&str]) -> (Value, Option<Value>) {
    let Value::Object(mut fields) = value else { return (value, None) };
    let is_envelope = ["tags", "metadata", "kwargs"].iter().any(|name| fields.contains_key(*name));
    let inner = names.iter().filter(|_| is_envelope).find_map(|name| fields.remove(*name));
    match inner {
        Some(inner) => (crate::attributes::document(inner), Some(Value::Object(fields))),
        None => (Value::Object(fields), None),
    }
}

/// Reads a tool's message: `{"type": "tool", "data": {…}}`, or `{"lc": 1, "id": […, "ToolMessage"], "kwargs": {…}}`.
pub fn tool_output(value: Value) -> ToolOutput {
    let message = match &value {
        Value::Object(fields) if fields.get("type").and_then(Value::as_str) == Some("tool") => {
            fields.get("data")
        }
        Value::Object(fields) if fields.contains_key("lc") => fields.get("kwargs"),
        _ => None,
    };
    let message = message.and_then(Value::as_object).filter(|message| message.contains_key("content"));
    let read = message.map(|message: &Map<String, Value>| ToolOutput {
        content: message.get("content").cloned().unwrap_or_default(),
        call: message.get("tool_call_id").and_then(as_text),
        failed: message.get("status").and_then(Value::as_str) == Some("error"),
    });
    read.unwrap_or_else(|| ToolOutput { content: value, ..ToolOutput::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn envelopes_are_opened_and_anything_else_stays() {
        let (inner, rest) = input(json!({ "inputs": { "a": 1 }, "tags": [], "metadata": { "b": 2 } }));
        assert_eq!((inner, rest), (json!({ "a": 1 }), Some(json!({ "tags": [], "metadata": { "b": 2 } }))));
        assert_eq!(input(json!({ "inputs": 1 })), (json!({ "inputs": 1 }), None));
        assert_eq!(output(json!("text")), (json!("text"), None));
    }

    #[test]
    fn what_a_tool_said_is_found_in_its_message() {
        let expected = ToolOutput { content: json!("sunny"), call: Some("c1".into()), failed: false };
        let data = json!({ "content": "sunny", "tool_call_id": "c1", "status": "success" });
        assert_eq!(tool_output(json!({ "type": "tool", "data": data })), expected);
        assert_eq!(tool_output(json!({ "lc": 1, "id": ["ToolMessage"], "kwargs": data })), expected);
        assert_eq!(tool_output(json!("sunny")).content, json!("sunny"));
        assert_eq!(tool_output(json!({ "type": "tool" })).content, json!({ "type": "tool" }));
    }
}
