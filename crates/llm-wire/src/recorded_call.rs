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
    /// Whether counts or a cost were recorded that are impossible: negative, not a number, or larger than any model allows.
    /// They are left out.
    #[serde(skip)]
    pub impossible: bool,
}

/// More tokens than any model reads or writes in one call.
pub const MAX_CALL_TOKENS: u64 = 1_000_000_000;
/// A higher cost of one call, in dollars, is a mistake.
const MAX_CALL_DOLLARS: f64 = 1_000_000.0;

impl CallUsage {
    /// Reads the detail of a step; `None` if it has no data about a model call.
    ///
    /// A proxy writes `usage`, in our field names; a hook or an import writes `tokens`.
    pub fn of(detail: &Value) -> Option<Self> {
        let metadata = detail.get("metadata")?;
        let tokens =
            metadata.get("usage").or_else(|| metadata.get("tokens")).filter(|value| value.is_object());
        let counted = tokens.map(count_tokens);
        let cost = metadata.get("cost_usd").filter(|cost| !cost.is_null());
        let cost_usd =
            cost.and_then(Value::as_f64).filter(|dollars| (0.0..=MAX_CALL_DOLLARS).contains(dollars));
        let usage = Self {
            model: metadata.get("model").and_then(Value::as_str).map(str::to_string),
            tokens: counted.flatten(),
            cost_usd,
            replayed: metadata.get("replayed").and_then(Value::as_bool).unwrap_or(false),
            impossible: counted == Some(None) || cost.is_some() && cost_usd.is_none(),
        };
        (usage != Self::default()).then_some(usage)
    }
}

/// Reads token counts in our field names, or in those of opencode, which nests the cache counts and does not count reasoning as
/// output. `None` if a count is impossible.
fn count_tokens(tokens: &Value) -> Option<TokenUsage> {
    let first = |names: &[&str]| {
        let found = names.iter().find_map(|name| tokens.pointer(name).filter(|count| !count.is_null()));
        found.map_or(Some(0), |count| count.as_u64().filter(|count| *count <= MAX_CALL_TOKENS))
    };
    let (output, reasoning) = (first(&["/output"])?, first(&["/reasoning"])?);
    let is_nested = tokens.get("cache").is_some_and(Value::is_object);
    Some(TokenUsage {
        input: first(&["/input"])?,
        output: if is_nested { output + reasoning } else { output },
        cache_read: first(&["/cache_read", "/cache/read"])?,
        cache_write: first(&["/cache_write", "/cache/write"])?,
        reasoning,
    })
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
    fn impossible_usage_is_unknown_and_not_zero() {
        let read = |metadata| CallUsage::of(&json!({ "metadata": metadata })).unwrap();
        for tokens in [json!({ "input": -5 }), json!({ "output": 1e300 }), json!({ "input": u64::MAX })] {
            let usage = read(json!({ "model": "m", "usage": tokens }));
            assert_eq!((usage.tokens, usage.impossible), (None, true), "{tokens}");
        }
        for cost in [json!(-1.0), json!("free"), json!(1e12)] {
            let usage = read(json!({ "model": "m", "usage": { "input": 1 }, "cost_usd": cost }));
            assert_eq!((usage.tokens.map(|tokens| tokens.input), usage.cost_usd), (Some(1), None));
            assert!(usage.impossible);
        }
        let unknown = read(json!({ "model": "m", "usage": null, "cost_usd": null }));
        assert!(!unknown.impossible && unknown.tokens.is_none());
    }

    #[test]
    fn reasoning_that_is_counted_beside_the_output_is_added_to_it() {
        let tokens = json!({ "input": 5, "output": 7, "reasoning": 3, "cache": { "read": 0, "write": 0 } });
        let usage = CallUsage::of(&json!({ "metadata": { "tokens": tokens } })).unwrap().tokens.unwrap();
        assert_eq!((usage.output, usage.reasoning), (10, 3));
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
