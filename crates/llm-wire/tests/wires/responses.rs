//! OpenAI Responses.

use serde_json::{Value, json};
use stepback_llm_wire::Wire;
use stepback_llm_wire::semantics::{ContentPart, TokenUsage};

use super::*;

fn output() -> Value {
    json!([
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I think."}]},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "On it.", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell", "arguments": "{\"cmd\":\"ls\"}"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin"},
    ])
}

fn whole(status: &str) -> Value {
    json!({
        "id": "resp_1", "object": "response", "model": "gpt-5-codex", "status": status, "output": output(), "error": null,
        "usage": {
            "input_tokens": 500, "input_tokens_details": {"cached_tokens": 400},
            "output_tokens": 60, "output_tokens_details": {"reasoning_tokens": 20},
        },
    })
}

/// A thought, a text, a call with a document and a call with a text, each said in pieces and then again whole.
pub fn stream() -> String {
    let output = output();
    let at = |index: usize, kind: &str, mut more: Value| {
        more["type"] = json!(format!("response.{kind}"));
        more["output_index"] = json!(index);
        more
    };
    named(&[
        json!({"type": "response.created", "response": {"id": "resp_1", "model": "gpt-5-codex", "output": [], "error": null}}),
        json!({"type": "response.in_progress", "response": {"id": "resp_1", "model": "gpt-5-codex", "output": []}}),
        at(0, "output_item.added", json!({"item": {"type": "reasoning", "id": "rs_1", "summary": []}})),
        at(
            0,
            "reasoning_summary_part.added",
            json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
        ),
        at(0, "reasoning_summary_text.delta", json!({"summary_index": 0, "delta": "I "})),
        at(0, "reasoning_summary_text.delta", json!({"summary_index": 0, "delta": "think."})),
        at(0, "reasoning_summary_text.done", json!({"summary_index": 0, "text": "I think."})),
        at(
            0,
            "reasoning_summary_part.done",
            json!({"summary_index": 0, "part": {"type": "summary_text", "text": "I think."}}),
        ),
        at(0, "output_item.done", json!({"item": output[0]})),
        at(1, "output_item.added", json!({"item": {"type": "message", "id": "msg_1", "content": []}})),
        at(1, "content_part.added", json!({"content_index": 0, "part": {"type": "output_text", "text": ""}})),
        at(1, "output_text.delta", json!({"item_id": "msg_1", "content_index": 0, "delta": "On "})),
        at(1, "output_text.delta", json!({"item_id": "msg_1", "content_index": 0, "delta": "it."})),
        at(1, "output_text.done", json!({"item_id": "msg_1", "content_index": 0, "text": "On it."})),
        at(
            1,
            "content_part.done",
            json!({"content_index": 0, "part": {"type": "output_text", "text": "On it."}}),
        ),
        at(1, "output_item.done", json!({"item": output[1]})),
        at(
            2,
            "output_item.added",
            json!({"item": {
                "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell", "arguments": "",
            }}),
        ),
        at(2, "function_call_arguments.delta", json!({"item_id": "fc_1", "delta": "{\"cmd\":"})),
        at(2, "function_call_arguments.delta", json!({"item_id": "fc_1", "delta": "\"ls\"}"})),
        at(2, "function_call_arguments.done", json!({"item_id": "fc_1", "arguments": "{\"cmd\":\"ls\"}"})),
        at(2, "output_item.done", json!({"item": output[2]})),
        at(
            3,
            "output_item.added",
            json!({"item": {
                "type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "apply_patch", "input": "",
            }}),
        ),
        at(3, "custom_tool_call_input.delta", json!({"item_id": "ctc_1", "delta": "*** Begin"})),
        at(3, "custom_tool_call_input.done", json!({"item_id": "ctc_1", "input": "*** Begin"})),
        at(3, "output_item.done", json!({"item": output[3]})),
        json!({"type": "response.completed", "response": whole("completed")}),
    ])
}

fn said() -> Vec<ContentPart> {
    vec![
        ContentPart::Thought("I think.".into()),
        ContentPart::Model("On it.".into()),
        call("call_1", "shell", json!({"cmd": "ls"})),
        call("call_2", "apply_patch", json!("*** Begin")),
    ]
}

#[test]
fn a_stream() {
    let read = answered(Wire::Responses, stream());
    assert_eq!(read.model.as_deref(), Some("gpt-5-codex"));
    assert_eq!(read.content, said());
    assert_eq!(read.stop.as_deref(), Some("completed"));
    assert_eq!(
        read.usage,
        Some(TokenUsage { input: 100, output: 60, cache_read: 400, cache_write: 0, reasoning: 20 })
    );
    cut_anywhere(Wire::Responses, &stream(), "event: response.completed");
}

#[test]
fn a_document() {
    let read = answered(Wire::Responses, whole("completed").to_string());
    assert_eq!(read.content, said());
    assert!(read.complete);
}

#[test]
fn a_stream_without_deltas() {
    let output = output();
    let done = |index: usize| json!({"type": "response.output_item.done", "output_index": index, "item": output[index]});
    let read = answered(Wire::Responses, named(&[done(0), done(1), done(2), done(3)]));
    assert_eq!(read.content, said());
    assert!(!read.complete);
}

#[test]
fn errors() {
    let mut failed = whole("failed");
    failed["error"] = json!({"code": "server_error", "message": "It broke."});
    let read = answered(Wire::Responses, named(&[json!({"type": "response.failed", "response": failed})]));
    assert_eq!(read.error.as_deref(), Some("It broke."));
    assert!(read.complete);
    let event = json!({"type": "error", "code": "x", "message": "No."});
    assert_eq!(answered(Wire::Responses, named(&[event])).error.as_deref(), Some("No."));
    let document = json!({"error": {"message": "Bad key", "type": "invalid_request_error"}});
    assert_eq!(answered(Wire::Responses, document.to_string()).error.as_deref(), Some("Bad key"));
    let mut cut = whole("incomplete");
    cut["incomplete_details"] = json!({"reason": "max_output_tokens"});
    let read = answered(Wire::Responses, named(&[json!({"type": "response.incomplete", "response": cut})]));
    assert_eq!(read.stop.as_deref(), Some("max_output_tokens"));
}

#[test]
fn a_request() {
    let read = asked(
        "/v1/responses",
        json!({
            "model": "gpt-5-codex", "instructions": "Help.", "stream": true,
            "tools": [{"type": "function", "name": "shell"}, {"type": "web_search"}],
            "input": [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
                {"type": "reasoning", "summary": [], "encrypted_content": "abc"},
                {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{\"cmd\":\"ls\"}"},
                {"type": "function_call_output", "call_id": "c1", "output": "files"},
                {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin"},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": {"content": [{"text": "ok"}], "success": false}},
                {"role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
            ],
        }),
    );
    assert_eq!(read.system, "Help.");
    assert_eq!(read.tools, ["shell", "web_search"]);
    assert_eq!(
        read.messages,
        [
            ContentPart::System("Rules.".into()),
            ContentPart::User("go".into()),
            call("c1", "shell", json!({"cmd": "ls"})),
            result("c1", "files"),
            call("c2", "apply_patch", json!("*** Begin")),
            ContentPart::Result { id: Some("c2".into()), text: "ok".into(), failed: true },
            ContentPart::Model("Done.".into()),
        ]
    );
    let short = asked("/v1/responses", json!({"model": "m", "input": "go"}));
    assert_eq!(short.messages, [ContentPart::User("go".into())]);
}
