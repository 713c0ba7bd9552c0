//! Changing what requests and answers say.

use proptest::prelude::*;
use serde_json::{Value, json};
use stepback_llm_wire::edit::{self, AnswerText};
use stepback_llm_wire::semantics::{self, ContentPart};
use stepback_llm_wire::{Chunks, Response, Wire, sse};

use super::*;

/// A streamed answer of every wire.
fn streams() -> [(Wire, String); 5] {
    [
        (Wire::Messages, messages::stream()),
        (Wire::Chat, chat::stream()),
        (Wire::Responses, responses::stream()),
        (Wire::Gemini, gemini::stream()),
        (Wire::Gemini, gemini::array()),
    ]
}

/// An answer in pieces of so many bytes.
fn in_pieces(body: String, bytes: usize) -> Response {
    let mut made = response(body);
    let count = made.body.len().div_ceil(bytes);
    made.chunks = Chunks::default();
    for at in 0..count {
        made.chunks.push(at as u64 * 100, bytes.min(made.body.len() - at * bytes) as u64);
    }
    made
}

fn fits(response: &Response) {
    assert_eq!(response.chunks.0.iter().map(|chunk| chunk.bytes).sum::<u64>(), response.body.len() as u64);
}

#[test]
fn what_stays_the_same_is_not_touched() {
    for (wire, body) in streams() {
        let whole = response(body);
        assert_eq!(edit::answer(wire, &whole, &mut |_, _| None), None);
        assert_eq!(edit::answer(wire, &whole, &mut |_, text| Some(text.to_owned())), None);
    }
}

#[test]
fn every_text_and_input_can_be_changed_in_every_stream() {
    for (wire, body) in streams() {
        let before = answered(wire, body.as_str());
        for bytes in [1, 7, 100, 100_000] {
            let old = in_pieces(body.clone(), bytes);
            let mut seen = Vec::new();
            let changed = edit::answer(wire, &old, &mut |part, text| {
                seen.push(text.to_owned());
                Some(match part {
                    AnswerText::Text(_) => format!("<{text}>"),
                    AnswerText::Input { .. } => {
                        text.replace("ls", "cat").replace("\"a\"", "\"b\"").replace("Begin", "End")
                    }
                })
            });
            let new = changed.expect("something changed");
            fits(&new);
            assert_eq!(new.chunks.0.len(), old.chunks.0.len());
            let after = semantics::answered(wire, &new);
            assert_eq!((after.usage, after.stop, after.complete), (before.usage, before.stop.clone(), true));
            assert_eq!(seen.len(), before.content.len());
            for (old, new) in before.content.iter().zip(&after.content) {
                match (old, new) {
                    (ContentPart::Model(old), ContentPart::Model(new))
                    | (ContentPart::Thought(old), ContentPart::Thought(new)) => {
                        assert_eq!(*new, format!("<{old}>"));
                    }
                    (ContentPart::Call(old), ContentPart::Call(new)) => {
                        assert_eq!((&old.id, &old.name), (&new.id, &new.name));
                        assert!(old.input != new.input || old.input == json!({}));
                    }
                    other => panic!("{other:?}"),
                }
            }
            // No trace of what was replaced is left anywhere, also not where the wire says it twice.
            assert!(!new.body.contains("\\\"ls") && !new.body.contains("*** Begin"), "{}", new.body);
        }
    }
}

#[test]
fn what_a_stream_says_twice_changes_twice() {
    let old = response(responses::stream());
    let new =
        edit::answer(Wire::Responses, &old, &mut |_, text| (text == "On it.").then(|| "Never.".to_owned()));
    let body = new.expect("changed").body;
    assert!(!body.contains("On it.") && !body.contains("\"it.\""));
    // One delta, `output_text.done`, `content_part.done`, `output_item.done` and `response.completed`.
    assert_eq!(body.matches("Never.").count(), 5);
}

#[test]
fn a_document_is_changed_where_it_says_it() {
    let body = json!({"type": "message", "content": [
        {"type": "text", "text": "key AKIA"}, {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "x"}},
    ]});
    let new = edit::answer(Wire::Messages, &response(body.to_string()), &mut |part, text| match part {
        AnswerText::Text(0) => Some(text.replace("AKIA", "…")),
        AnswerText::Input { id: Some("t"), name: "Bash" } => Some(r#"{"command":"y"}"#.to_owned()),
        _ => None,
    })
    .expect("changed");
    fits(&new);
    let read: Value = serde_json::from_str(&new.body).expect("a document");
    assert_eq!(read["content"][0]["text"], "key …");
    assert_eq!(read["content"][1]["input"], json!({"command": "y"}));
}

#[test]
fn events_keep_everything_but_their_data() {
    let body = ": hello\r\nid: 7\r\nevent: content_block_delta\r\ndata: {\"type\":\"content_block_delta\",\r\n\
        data: \"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"old\"}}\r\n\r\n: bye\r\n\r\n";
    let new =
        edit::answer(Wire::Messages, &response(body), &mut |_, _| Some("new".to_owned())).expect("changed");
    assert!(new.body.starts_with(": hello\r\nid: 7\r\nevent: content_block_delta\r\ndata: {"));
    assert!(new.body.ends_with("}\r\n\r\n: bye\r\n\r\n"));
    assert_eq!(sse::events(&new.body).len(), 1);
    assert_eq!(semantics::answered(Wire::Messages, &new).content, [ContentPart::Model("new".into())]);
}

#[test]
fn requests_of_every_wire() {
    let cases = [
        (
            "/v1/messages",
            json!({"model": "old", "system": [{"type": "text", "text": "s1"}, {"type": "text", "text": "s2"}], "messages": [
                {"role": "user", "content": [{"type": "text", "text": "<note>go"}, {"type": "text", "text": "go"}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "r"}]}]},
            ]}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "old", "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "<note>go"},
                {"role": "user", "content": "go"},
                {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "r"},
            ]}),
        ),
        (
            "/v1/responses",
            json!({"model": "old", "instructions": "s", "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<note>go"}]},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "r"},
            ]}),
        ),
        (
            "/v1beta/models/old:streamGenerateContent?alt=sse",
            json!({"systemInstruction": {"role": "user", "parts": [{"text": "s"}]}, "contents": [
                {"role": "user", "parts": [{"text": "<note>go"}, {"text": "go"}]},
                {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "f", "args": {}}}]},
                {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "f", "response": {"output": "r"}}}]},
            ]}),
        ),
    ];
    for (path, body) in cases {
        let mut changed = request(path, body);
        let wire = changed.wire.expect("a known path");
        let unchanged = changed.body.clone();
        assert!(!edit::set_result(wire, &mut changed.body, "c2", "x"));
        assert!(!edit::set_prompt(wire, &mut changed.body, "not in the request", "x"));
        assert!(!edit::set_prompt(wire, &mut changed.body, "", "x"));
        assert_eq!(changed.body, unchanged);
        assert!(edit::set_result(wire, &mut changed.body, "c1", "another result"));
        assert!(edit::set_prompt(wire, &mut changed.body, "go", "stop"));
        assert!(edit::set_prompt(wire, &mut changed.body, "note", "hint"));
        edit::set_system(wire, &mut changed.body, "other rules");
        edit::set_model(wire, &mut changed.path, &mut changed.body, "new");
        let read = semantics::asked(wire, &changed);
        assert_eq!(read.model.as_deref(), Some("new"), "{path}");
        assert_eq!(read.system, "other rules", "{path}");
        let call = call("c1", "f", json!({}));
        let said = [
            ContentPart::User("<hint>go".into()),
            ContentPart::User("stop".into()),
            call,
            result("c1", "another result"),
        ];
        assert_eq!(read.messages, said, "{path}");
    }
}

#[test]
fn a_body_that_is_no_document_stays_as_it_is() {
    for wire in Wire::ALL {
        for mut body in [
            Value::Null,
            json!("text"),
            json!([1]),
            json!({"messages": ["x"], "contents": [{"parts": ["x"]}]}),
        ] {
            let before = body.clone();
            assert!(!edit::set_result(wire, &mut body, "x", "y"));
            assert!(!edit::set_prompt(wire, &mut body, "z", "y"));
            assert_eq!(body, before);
            edit::set_system(wire, &mut body, "s");
            edit::set_model(wire, &mut "models/".to_owned(), &mut body, "m");
        }
    }
}

proptest! {
    #[test]
    fn nothing_makes_reading_or_editing_panic(text in "(data: |event: |[{}\\[\\]\",:\\\\\r\n]|[a-z]{1,4}|é){0,60}") {
        sse::events(&text);
        for wire in Wire::ALL {
            let made = in_pieces(text.clone(), 3);
            semantics::answered(wire, &made);
            semantics::is_last(wire, text.as_bytes());
            if let Some(new) = edit::answer(wire, &made, &mut |_, text| Some(format!("{text}!"))) {
                fits(&new);
            }
        }
    }

    #[test]
    fn streams_cut_and_broken_anywhere_are_read(which in 0usize..5, cut in 0usize..6000, hole in 0usize..6000, bytes in 1usize..50) {
        let (wire, mut body) = streams()[which].clone();
        let near = |body: &str, at: usize| (0..=at.min(body.len())).rev().find(|at| body.is_char_boundary(*at)).unwrap_or(0);
        body.truncate(near(&body, cut));
        let hole = near(&body, hole);
        if hole < body.len() {
            body.remove(hole);
        }
        let old = in_pieces(body, bytes);
        let read = semantics::answered(wire, &old);
        if let Some(new) = edit::answer(wire, &old, &mut |_, text| Some(format!("{text}!"))) {
            fits(&new);
            prop_assert_eq!(semantics::answered(wire, &new).content.len(), read.content.len());
        }
        prop_assert_eq!(edit::answer(wire, &old, &mut |_, text| Some(text.to_owned())), None);
    }

    #[test]
    fn events_of_a_stream_that_grows_only_grow(cut in 0usize..3000) {
        let body = messages::stream();
        let cut = (0..=cut.min(body.len())).rev().find(|at| body.is_char_boundary(*at)).unwrap_or(0);
        let (some, all) = (sse::events(&body[..cut]), sse::events(&body));
        prop_assert_eq!(&all[..some.len()], &some[..]);
        prop_assert!(some.iter().all(|event| event.end <= cut));
    }
}
