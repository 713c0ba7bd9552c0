//! What a model call returned and used: its answer, tokens and cost, as the proxy, hook or import recorded them.

use serde::Serialize;
use serde_json::Value;
use stepback_llm_wire::semantics::{self, ContentPart, ResponseSummary, TokenUsage, WireCall};
use stepback_llm_wire::{Response, Wire};

/// Parses a recorded answer: the `output` of a step, if a proxy or telemetry recorded it. Without a wire, the first wire
/// format is used in which the answer has any content.
pub fn answer_of(output: &Value, wire: Option<Wire>) -> Option<ResponseSummary> {
    if !output.is_object() {
        return None;
    }
    if let Some(messages) = output.get("messages").and_then(Value::as_array) {
        let said = messages.iter().flat_map(said_in).collect();
        return Some(ResponseSummary { said, complete: true, ..ResponseSummary::default() });
    }
    let response = serde_json::from_value::<Response>(output.clone()).ok()?;
    if let Some(wire) = wire {
        return Some(semantics::answered(wire, &response));
    }
    let answers = Wire::ALL.into_iter().map(|wire| semantics::answered(wire, &response));
    answers.into_iter().find(|answer| !answer.said.is_empty())
}

/// Returns the content of a message as telemetry records it: text, thoughts and the calls that the model requests.
fn said_in(message: &Value) -> Vec<ContentPart> {
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

/// Returns the total token usage of many calls.
pub fn add_up(calls: impl IntoIterator<Item = TokenUsage>) -> TokenUsage {
    calls.into_iter().fold(TokenUsage::default(), |sum, call| TokenUsage {
        input: sum.input + call.input,
        output: sum.output + call.output,
        cache_read: sum.cache_read + call.cache_read,
        cache_write: sum.cache_write + call.cache_write,
        reasoning: sum.reasoning + call.reasoning,
    })
}

/// Returns the total of tokens read and written; reasoning is part of what was written.
pub fn all_tokens(usage: TokenUsage) -> u64 {
    usage.input + usage.output + usage.cache_read + usage.cache_write
}

/// The model, tokens and cost of a model call, from the detail of its step.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Spent {
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

impl Spent {
    /// Reads the detail of a step; `None` if it has no data about a model call.
    ///
    /// A proxy writes `usage`, in our field names; a hook or an import writes `tokens`.
    pub fn of(detail: &Value) -> Option<Self> {
        let metadata = detail.get("metadata")?;
        let tokens =
            metadata.get("usage").or_else(|| metadata.get("tokens")).filter(|value| value.is_object());
        let spent = Self {
            model: metadata.get("model").and_then(Value::as_str).map(str::to_string),
            tokens: tokens.map(counted),
            cost_usd: metadata.get("cost_usd").and_then(Value::as_f64),
            replayed: metadata.get("replayed").and_then(Value::as_bool).unwrap_or(false),
        };
        (spent != Self::default()).then_some(spent)
    }
}

/// Reads token counts in our field names, or in those of opencode, which nests the cache counts.
fn counted(tokens: &Value) -> TokenUsage {
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
        let said = vec![
            ContentPart::Thought("Hm.".into()),
            ContentPart::Model("Let me look.".into()),
            ContentPart::Call(call),
        ];
        assert_eq!(answer_of(&output, None).map(|answer| answer.said), Some(said));
        assert_eq!(answer_of(&json!("text"), None), None);
    }
}
