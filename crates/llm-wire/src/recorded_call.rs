//! What a recorded model call returned and used: its answer, tokens and cost, as the proxy, hook, telemetry or import wrote them.

use serde::Serialize;
use serde_json::Value;

use crate::semantics::{self, ContentPart, ResponseSummary, TokenUsage, WireCall};
use crate::{Response, Wire};

/// Parses a recorded answer: the `output` of a step, if a proxy or telemetry recorded it. Without a wire, the first wire
/// format is used in which the answer has any content.
pub fn parse_answer(output: &Value, wire: Option<Wire>) -> Option<ResponseSummary> {
    if !output.is_object() {
        return None;
    }
    if let Some(messages) = output.get("messages").and_then(Value::as_array) {
        let content = messages.iter().flat_map(content_of).collect();
        return Some(ResponseSummary { content, complete: true, ..ResponseSummary::default() });
    }
    let response = serde_json::from_value::<Response>(output.clone()).ok()?;
    if let Some(wire) = wire {
        return Some(semantics::answered(wire, &response));
    }
    let answers = Wire::ALL.into_iter().map(|wire| semantics::answered(wire, &response));
    answers.into_iter().find(|answer| !answer.content.is_empty())
}

/// Returns the content of a message as telemetry records it: text, thoughts and the calls that the model requests.
fn content_of(message: &Value) -> Vec<ContentPart> {
    let text = |name: &str| message.get(name).and_then(Value::as_str).map(str::to_owned);
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let calls = calls.map(|call| {
        let word = |name: &str| call.get(name).and_then(Value::as_str).map(str::to_owned);
        let input = call.get("arguments").cloned().unwrap_or_default();
        ContentPart::Call(WireCall { id: word("id"), name: word("name").unwrap_or_default(), input })
    });
    let words =
        text("thinking").map(ContentPart::Thought).into_iter().chain(text("content").map(ContentPart::Model));
    words.chain(calls).collect()
}

/// The model, tokens and cost of a model call, from the detail of its step.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct CallUsage {
    /// The name of the model.
    pub model: Option<String>,
    /// The token counts, if they were recorded.
    pub tokens: Option<TokenUsage>,
    /// The cost in US dollars, if known.
    pub cost_usd: Option<f64>,
    /// Whether the answer came from a recording: no model was called, and nothing was spent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
}

impl CallUsage {
    /// Reads the detail of a step; `None` if it has no data about a model call.
    ///
    /// A proxy writes `usage`, in our field names; a hook or an import writes `tokens`.
    pub fn of(detail: &Value) -> Option<Self> {
        let metadata = detail.get("metadata")?;
        let tokens =
            metadata.get("usage").or_else(|| metadata.get("tokens")).filter(|value| value.is_object());
        let usage = Self {
            model: metadata.get("model").and_then(Value::as_str).map(str::to_string),
            tokens: tokens.map(count_tokens),
            cost_usd: metadata.get("cost_usd").and_then(Value::as_f64),
            replayed: metadata.get("replayed").and_then(Value::as_bool).unwrap_or(false),
        };
        (usage != Self::default()).then_some(usage)
    }
}

/// Reads token counts in our field names, or in those of opencode, which nests the cache counts.
fn count_tokens(tokens: &Value) -> TokenUsage {
    let first = |names: &[&str]| {
        names.iter().find_map(|name| tokens.pointer(name).and_then(Value::as_u64)).unwrap_or(0)
    };
    TokenUsage {
        input: first(&["/input"]),
        output: first(&["/output"]),
        cache_read: first(&["/cache_read", "/cache/read"]),
        cache_write: first(&["/cache_write", "/cache/write"]),
        reasoning: first(&["/reasoning"]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_telemetry_told_of_an_answer_is_read_like_any_other() {
        let output = json!({ "messages": [{ "role": "assistant", "thinking": "Hm.", "content": "Let me look.",
            "tool_calls": [{ "id": "c1", "name": "read", "arguments": { "path": "a" } }] }] });
        let call = WireCall { id: Some("c1".into()), name: "read".into(), input: json!({ "path": "a" }) };
        let content = vec![
            ContentPart::Thought("Hm.".into()),
            ContentPart::Model("Let me look.".into()),
            ContentPart::Call(call),
        ];
        assert_eq!(parse_answer(&output, None).map(|answer| answer.content), Some(content));
        assert_eq!(parse_answer(&json!("text"), None), None);
    }

    #[test]
    fn tokens_are_read_from_every_source() {
        let tokens =
            |metadata| CallUsage::of(&json!({ "metadata": metadata })).and_then(|usage| usage.tokens);
        let expected = TokenUsage { input: 5, output: 7, cache_read: 2, cache_write: 1, reasoning: 0 };
        let proxy = json!({ "usage": { "input": 5, "output": 7, "cache_read": 2, "cache_write": 1, "reasoning": 0 } });
        assert_eq!(tokens(proxy), Some(expected));
        let import = json!({ "tokens": { "input": 5, "output": 7, "cache_read": 2, "cache_write": 1 } });
        assert_eq!(tokens(import), Some(expected));
        let parts = json!({ "tokens": { "input": 5, "output": 7, "cache": { "read": 2, "write": 1 } } });
        assert_eq!(tokens(parts), Some(expected));
        assert_eq!(expected.total(), 15);
        assert_eq!(CallUsage::of(&json!({ "metadata": { "model": null, "tokens": null } })), None);
        assert_eq!(CallUsage::of(&json!({})), None);
    }

    #[test]
    fn an_answer_is_understood_without_its_wire() {
        let answer = |body: Value| {
            let output = json!({
                "status": 200, "body": body.to_string(), "chunks": "", "ended": "complete", "took": 1,
            });
            parse_answer(&output, None).map(|answer| format!("{:?}", answer.content)).unwrap_or_default()
        };
        let messages = json!({ "type": "message", "role": "assistant", "content": [{ "type": "text", "text": "hello" }] });
        assert!(answer(messages).contains("hello"));
        let chat = json!({ "choices": [{ "message": { "role": "assistant", "content": "hello" } }] });
        assert!(answer(chat).contains("hello"));
        assert_eq!(answer(json!({ "else": 1 })), "");
        assert!(parse_answer(&json!("a text"), None).is_none());
    }
}
