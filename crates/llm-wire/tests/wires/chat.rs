//! OpenAI Chat Completions.

use serde_json::{Value, json};
use stepback_llm_wire::Wire;
use stepback_llm_wire::semantics::{ContentPart, TokenUsage};

use super::*;

fn chunk(delta: Value, reason: Value) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5-2025-08-07",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    })
}

/// A thought, a text in two pieces, and two calls whose pieces alternate.
pub fn stream() -> String {
    let mut last = chunk(json!({}), Value::Null);
    last["choices"] = json!([]);
    last["usage"] = json!({
        "prompt_tokens": 1000, "completion_tokens": 70, "total_tokens": 1070,
        "prompt_tokens_details": {"cached_tokens": 600}, "completion_tokens_details": {"reasoning_tokens": 30},
    });
    let none = Value::Null;
    let arguments = |index: u64, text: &str| {
        chunk(json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]}), Value::Null)
    };
    let begin = |index: u64, id: &str, name: &str| {
        let function = json!({"name": name, "arguments": ""});
        chunk(
            json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}),
            Value::Null,
        )
    };
    let mut body = unnamed(&[
        chunk(json!({"role": "assistant", "content": "", "refusal": null}), none.clone()),
        chunk(json!({"reasoning_content": "Well."}), none.clone()),
        chunk(json!({"content": "Two "}), none.clone()),
        chunk(json!({"content": "files."}), none),
        begin(0, "call_a", "read"),
        arguments(0, "{\"path\":"),
        begin(1, "call_b", "list"),
        arguments(0, "\"a\"}"),
        arguments(1, "{}"),
        chunk(json!({}), json!("tool_calls")),
        last,
    ]);
    body.push_str("data: [DONE]\n\n");
    body
}

#[test]
fn a_stream() {
    let read = answered(Wire::Chat, stream());
    assert_eq!(read.model.as_deref(), Some("gpt-5-2025-08-07"));
    assert_eq!(
        read.content,
        [
            ContentPart::Thought("Well.".into()),
            ContentPart::Model("Two files.".into()),
            call("call_a", "read", json!({"path": "a"})),
            call("call_b", "list", json!({})),
        ]
    );
    assert_eq!(read.stop.as_deref(), Some("tool_calls"));
    assert_eq!(
        read.usage,
        Some(TokenUsage { input: 400, output: 70, cache_read: 600, cache_write: 0, reasoning: 30 })
    );
    cut_anywhere(Wire::Chat, &stream(), "\"finish_reason\":\"tool_calls\"");
}

#[test]
fn a_document() {
    let read = answered(
        Wire::Chat,
        json!({
            "object": "chat.completion", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": {
                "role": "assistant", "content": "Hi", "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "not json"}},
                ],
            }}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 1},
        })
        .to_string(),
    );
    assert_eq!(read.content, [ContentPart::Model("Hi".into()), call("c1", "f", json!("not json"))]);
    assert_eq!(read.usage, Some(TokenUsage { input: 7, output: 1, ..TokenUsage::default() }));
    assert!(read.complete);
}

#[test]
fn calls_without_an_index_are_told_apart_by_their_ids() {
    let whole = |id: &str, path: &str| {
        let function = json!({"name": "read", "arguments": json!({"path": path}).to_string()});
        chunk(json!({"tool_calls": [{"id": id, "type": "function", "function": function}]}), Value::Null)
    };
    let read = answered(Wire::Chat, unnamed(&[whole("c1", "a"), whole("c2", "b")]));
    let calls = [call("c1", "read", json!({"path": "a"})), call("c2", "read", json!({"path": "b"}))];
    assert_eq!(read.content, calls);
}

#[test]
fn a_document_without_its_end_is_not_complete() {
    let body = json!({"choices": [{"finish_reason": "stop", "message": {"content": "Hi"}}]}).to_string();
    let cut = answered(Wire::Chat, &body[..body.len() - 1]);
    assert_eq!((cut.content, cut.complete), (vec![ContentPart::Model("Hi".into())], false));
}

#[test]
fn errors() {
    let error =
        json!({"error": {"message": "Rate limit", "type": "requests", "code": "rate_limit_exceeded"}});
    assert_eq!(answered(Wire::Chat, error.to_string()).error.as_deref(), Some("Rate limit"));
    let within = answered(Wire::Chat, unnamed(&[chunk(json!({"content": "so"}), Value::Null), error]));
    assert_eq!(within.error.as_deref(), Some("Rate limit"));
    assert_eq!(within.content, [ContentPart::Model("so".into())]);
    let plain = answered(Wire::Chat, r#"{"error":"no such model"}"#);
    assert_eq!(plain.error.as_deref(), Some("no such model"));
}

#[test]
fn a_request() {
    let read = asked(
        "/v1/chat/completions",
        json!({
            "model": "gpt-5", "tools": [{"type": "function", "function": {"name": "f"}}],
            "messages": [
                {"role": "system", "content": "Help."},
                {"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "image_url", "image_url": {}}]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "done"},
                {"role": "developer", "content": "Be quick."},
            ],
        }),
    );
    assert_eq!(read.system, "Help.");
    assert_eq!(read.tools, ["f"]);
    assert!(!read.stream);
    assert_eq!(
        read.messages,
        [
            ContentPart::User("go\n[image_url]".into()),
            call("c1", "f", json!({"a": 1})),
            result("c1", "done"),
            ContentPart::System("Be quick.".into()),
        ]
    );
}
