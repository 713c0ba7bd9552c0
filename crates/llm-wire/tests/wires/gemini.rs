//! Gemini.

use serde_json::{Value, json};
use stepback_llm_wire::Wire;
use stepback_llm_wire::semantics::{ContentPart, TokenUsage};

use super::*;

fn chunks() -> Vec<Value> {
    let chunk = |parts: Value| json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}}], "modelVersion": "gemini-2.5-pro"});
    let mut last = chunk(json!([{"functionCall": {"id": "f1", "name": "read_file", "args": {"path": "a"}}}]));
    last["candidates"][0]["finishReason"] = json!("STOP");
    last["usageMetadata"] = json!({
        "promptTokenCount": 900, "cachedContentTokenCount": 500, "candidatesTokenCount": 40, "thoughtsTokenCount": 25,
        "totalTokenCount": 965,
    });
    vec![
        chunk(json!([{"text": "Let me ", "thought": true}])),
        chunk(json!([{"text": "see.", "thought": true}, {"text": "Reading"}])),
        chunk(json!([{"text": " a."}])),
        last,
    ]
}

/// A thought, a text and a call, as events.
pub fn stream() -> String {
    unnamed(&chunks())
}

/// The same as the elements of an array, as it comes without `alt=sse`.
pub fn array() -> String {
    let chunks: Vec<String> = chunks().iter().map(|chunk| format!("{chunk:#}")).collect();
    format!("[{}]", chunks.join("\n,\r\n"))
}

#[test]
fn a_stream() {
    for body in [stream(), array()] {
        let read = answered(Wire::Gemini, body.as_str());
        assert_eq!(read.model.as_deref(), Some("gemini-2.5-pro"));
        assert_eq!(
            read.content,
            [
                ContentPart::Thought("Let me see.".into()),
                ContentPart::Model("Reading a.".into()),
                call("f1", "read_file", json!({"path": "a"})),
            ]
        );
        assert_eq!(read.stop.as_deref(), Some("STOP"));
        assert_eq!(
            read.usage,
            Some(TokenUsage { input: 400, output: 65, cache_read: 500, cache_write: 0, reasoning: 25 })
        );
        cut_anywhere(Wire::Gemini, &body, "finishReason");
    }
}

#[test]
fn a_document_and_a_wrapped_one() {
    let document = json!({
        "candidates": [{"content": {"parts": [{"text": "Hi"}, {"functionCall": {"name": "f", "args": {}}}]}, "finishReason": "STOP"}],
    });
    for body in [document.to_string(), json!({"response": document}).to_string()] {
        let read = answered(Wire::Gemini, body);
        let ContentPart::Call(made) = &read.content[1] else { panic!("a call") };
        assert_eq!((made.id.as_deref(), made.name.as_str()), (None, "f"));
        assert_eq!(read.content[0], ContentPart::Model("Hi".into()));
        assert!(read.complete);
    }
}

#[test]
fn errors() {
    let error = json!({"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}});
    for body in [error.to_string(), format!("[{error}]"), unnamed(&[error])] {
        assert_eq!(answered(Wire::Gemini, body).error.as_deref(), Some("Quota"));
    }
    let blocked = answered(Wire::Gemini, r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#);
    assert_eq!(blocked.stop.as_deref(), Some("SAFETY"));
    assert!(blocked.complete);
}

#[test]
fn a_request() {
    let body = json!({
        "systemInstruction": {"role": "user", "parts": [{"text": "Help."}]},
        "tools": [{"functionDeclarations": [{"name": "read_file"}, {"name": "shell"}]}],
        "contents": [
            {"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": [
                {"text": "hm", "thought": true}, {"text": "Ok."}, {"functionCall": {"id": "f1", "name": "shell", "args": {"c": "ls"}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "f1", "name": "shell", "response": {"output": "files"}}},
                {"functionResponse": {"id": "f2", "name": "shell", "response": {"error": "no"}}},
                {"inlineData": {"mimeType": "image/png"}},
            ]},
        ],
    });
    let read = asked("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", body.clone());
    assert_eq!(read.model.as_deref(), Some("gemini-2.5-pro"));
    assert_eq!(read.system, "Help.");
    assert_eq!(read.tools, ["read_file", "shell"]);
    assert!(read.stream);
    assert_eq!(
        read.messages,
        [
            ContentPart::User("go".into()),
            ContentPart::Thought("hm".into()),
            ContentPart::Model("Ok.".into()),
            call("f1", "shell", json!({"c": "ls"})),
            result("f1", "files"),
            ContentPart::Result { id: Some("f2".into()), text: "no".into(), failed: true },
            ContentPart::User("[inlineData]".into()),
        ]
    );
    let wrapped = json!({"model": "gemini-2.5-pro", "request": body});
    let wrapped = asked("/v1internal:streamGenerateContent?alt=sse", wrapped);
    assert_eq!(wrapped, read);
    assert!(!asked("/v1beta/models/m:generateContent", json!({})).stream);
}
