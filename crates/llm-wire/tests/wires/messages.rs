//! Anthropic Messages.

use serde_json::json;
use stepback_llm_wire::Wire;
use stepback_llm_wire::semantics::{ContentPart, TokenUsage};

use super::*;

/// A thought, a text in three pieces and a call in four.
pub fn stream() -> String {
    named(&[
        json!({"type": "message_start", "message": {
            "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929", "content": [],
            "stop_reason": null, "usage": {
                "input_tokens": 12, "cache_creation_input_tokens": 300, "cache_read_input_tokens": 4000, "output_tokens": 3,
            },
        }}),
        json!({"type": "ping"}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Look "}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "first."}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "EqQB"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "I will "}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "look — "}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "now."}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2, "content_block": {
            "type": "tool_use", "id": "toolu_01", "name": "Bash", "input": {},
        }}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ""}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"comm"}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "and\": \"ls"}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": " -l\"}"}}),
        json!({"type": "content_block_stop", "index": 2}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 55}}),
        json!({"type": "message_stop"}),
    ])
}

#[test]
fn a_stream() {
    let read = answered(Wire::Messages, stream());
    assert_eq!(read.model.as_deref(), Some("claude-sonnet-4-5-20250929"));
    assert_eq!(
        read.content,
        [
            ContentPart::Thought("Look first.".into()),
            ContentPart::Model("I will look — now.".into()),
            call("toolu_01", "Bash", json!({"command": "ls -l"})),
        ]
    );
    assert_eq!(read.stop.as_deref(), Some("tool_use"));
    assert_eq!(
        read.usage,
        Some(TokenUsage { input: 12, output: 55, cache_read: 4000, cache_write: 300, reasoning: 0 })
    );
    assert_eq!(read.error, None);
    cut_anywhere(Wire::Messages, &stream(), "event: message_stop");
}

#[test]
fn a_document() {
    let body = json!({
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-haiku-4-5",
        "content": [{"type": "text", "text": "Hello"}, {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 5, "output_tokens": 2},
    })
    .to_string();
    let read = answered(Wire::Messages, body.as_str());
    assert_eq!(read.content, [ContentPart::Model("Hello".into()), call("t1", "Read", json!({}))]);
    assert_eq!(read.usage, Some(TokenUsage { input: 5, output: 2, ..TokenUsage::default() }));
    assert!(read.complete);
    let cut = answered(Wire::Messages, &body[..body.len() - 1]);
    assert!(!cut.complete);
}

#[test]
fn errors() {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let whole = answered(Wire::Messages, error.to_string());
    assert_eq!(whole.error.as_deref(), Some("Overloaded"));
    let mut body = stream();
    body.truncate(body.find("event: content_block_stop").unwrap());
    body.push_str(&named(&[error]));
    let within = answered(Wire::Messages, body);
    assert_eq!(within.error.as_deref(), Some("Overloaded"));
    assert_eq!(within.content, [ContentPart::Thought("Look first.".into())]);
    assert!(within.complete);
}

#[test]
fn an_unfinished_input_is_kept_as_text() {
    let mut body = stream();
    body.truncate(body.find(r#" -l\"}"#).unwrap());
    body.truncate(body.rfind("event:").unwrap());
    let read = answered(Wire::Messages, body);
    assert_eq!(read.content[2], call("toolu_01", "Bash", json!("{\"command\": \"ls")));
    assert!(!read.complete);
}

#[test]
fn a_request() {
    let read = asked(
        "/v1/messages?beta=true",
        json!({
            "model": "claude-sonnet-4-5", "stream": true, "max_tokens": 100,
            "system": [{"type": "text", "text": "You help."}, {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "Bash", "input_schema": {}}, {"name": "Read"}],
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                    {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": true},
                    {"type": "image", "source": {}},
                ]},
                {"role": "system", "content": "The date changed."},
            ],
        }),
    );
    assert_eq!(read.model.as_deref(), Some("claude-sonnet-4-5"));
    assert_eq!(read.system, "You help.\nBe brief.");
    assert_eq!(read.tools, ["Bash", "Read"]);
    assert!(read.stream);
    assert_eq!(
        read.messages,
        [
            ContentPart::User("go".into()),
            ContentPart::Thought("hm".into()),
            ContentPart::Model("Looking.".into()),
            call("t1", "Bash", json!({"command": "ls"})),
            result("t1", "a\nb"),
            ContentPart::Result { id: Some("t2".into()), text: "no".into(), failed: true },
            ContentPart::User("[image]".into()),
            ContentPart::System("The date changed.".into()),
        ]
    );
}
