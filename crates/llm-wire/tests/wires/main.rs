//! What requests ask and answers say, for every wire, as servers and agents write them.

mod chat;
mod edits;
mod gemini;
mod messages;
mod responses;

use serde_json::Value;
use stepback_llm_wire::semantics::{ContentPart, RequestSummary, ResponseSummary, WireCall};
use stepback_llm_wire::{AnswerEnd, Chunks, ModelRequest, Response, Wire, semantics};

/// An answer that came in one piece.
fn response(body: impl Into<String>) -> Response {
    let body = body.into();
    let mut chunks = Chunks::default();
    chunks.push(10, body.len() as u64);
    let headers = Vec::new();
    Response {
        status: 200,
        headers,
        body,
        chunks,
        ended: AnswerEnd::Complete,
        first_byte: None,
        took: 10,
        left_out: 0,
    }
}

fn request(path: &str, body: Value) -> ModelRequest {
    let wire = Wire::of("POST", path);
    ModelRequest { wire, method: "POST".into(), path: path.into(), headers: Vec::new(), body, bytes: 0 }
}

/// A stream of named events; the name is the document's type.
fn named(events: &[Value]) -> String {
    let event =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("message"));
    events.iter().map(event).collect()
}

/// A stream of events without names.
fn unnamed(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn answered(wire: Wire, body: impl Into<String>) -> ResponseSummary {
    semantics::answered(wire, &response(body))
}

fn asked(path: &str, body: Value) -> RequestSummary {
    let request = request(path, body);
    semantics::asked(request.wire.expect("a known path"), &request)
}

fn call(id: &str, name: &str, input: Value) -> ContentPart {
    ContentPart::Call(WireCall { id: Some(id.into()), name: name.into(), input })
}

fn result(id: &str, text: &str) -> ContentPart {
    ContentPart::Result { id: Some(id.into()), text: text.into(), failed: false }
}

/// However a stream is cut, what is read of it is a beginning of what it says, and it is complete only after `whole` bytes.
fn cut_anywhere(wire: Wire, body: &str, complete_from: &str) {
    let full = answered(wire, body);
    assert!(full.complete);
    let ends = body.find(complete_from).expect("the stream holds its end");
    for at in (0..body.len()).filter(|at| body.is_char_boundary(*at)) {
        let part = answered(wire, &body[..at]);
        assert!(part.content.len() <= full.content.len());
        assert!(!part.complete || at > ends, "complete at {at}, before its end at {ends}");
        for (less, more) in part.content.iter().zip(&full.content) {
            if let (ContentPart::Model(less), ContentPart::Model(more))
            | (ContentPart::Thought(less), ContentPart::Thought(more)) = (less, more)
            {
                assert!(more.starts_with(less.as_str()), "{more:?} does not begin with {less:?}");
            }
        }
    }
}

#[test]
fn a_page_instead_of_an_answer_is_an_error() {
    for wire in Wire::ALL {
        let mut page = response("<html>Bad gateway</html>");
        page.status = 502;
        let read = semantics::answered(wire, &page);
        assert_eq!(read.error.as_deref(), Some("<html>Bad gateway</html>"));
        assert!(!read.complete && read.content.is_empty());
        page.body.clear();
        assert_eq!(semantics::answered(wire, &page).error.as_deref(), Some("status 502"));
    }
}

#[test]
fn nothing_says_nothing() {
    for wire in Wire::ALL {
        assert_eq!(answered(wire, ""), ResponseSummary::default());
        let path = "/models/m:generateContent";
        assert!(semantics::asked(wire, &request(path, Value::Null)).messages.is_empty());
    }
}

#[test]
fn the_end_of_a_stream_is_seen_in_a_piece() {
    let last = |wire, piece: &str| semantics::is_last(wire, piece.as_bytes());
    assert!(last(Wire::Messages, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
    assert!(last(Wire::Messages, "event: error\ndata: {\"type\": \"error\",\"error\":{}}\n\n"));
    assert!(!last(Wire::Messages, "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n"));
    assert!(!last(Wire::Messages, r#"data: {"delta":{"text":"an \"error\" happened"}}"#));
    assert!(last(Wire::Chat, "data: [DONE]\n\n"));
    assert!(last(Wire::Chat, r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#));
    assert!(!last(
        Wire::Chat,
        r#"data: {"choices":[{"delta":{"content":"x"},"finish_reason":null}],"error":null}"#
    ));
    assert!(last(Wire::Chat, r#"data: {"error":{"message":"overloaded"}}"#));
    for end in ["completed", "failed", "incomplete"] {
        assert!(last(Wire::Responses, &format!("event: response.{end}\ndata: {{}}\n\n")));
    }
    assert!(!last(Wire::Responses, r#"data: {"type":"response.in_progress","response":{"error":null}}"#));
    assert!(last(Wire::Responses, r#"data: {"type":"error","message":"no"}"#));
    assert!(last(Wire::Gemini, r#"data: {"candidates":[{"finishReason": "STOP"}]}"#));
    assert!(!last(Wire::Gemini, r#"data: {"candidates":[{"content":{"parts":[{"text":"x"}]}}]}"#));
}

#[test]
fn what_an_agent_may_act_on_before_the_end_is_seen() {
    let waits = |wire, events: &str| semantics::may_be_followed_by_the_end(wire, events.as_bytes());
    assert!(waits(Wire::Messages, "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n"));
    assert!(!waits(
        Wire::Messages,
        "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\n"
    ));
    assert!(waits(Wire::Responses, "data: {\"type\":\"response.output_item.done\"}\n\n"));
    assert!(!waits(Wire::Responses, "data: {\"type\":\"response.output_text.delta\"}\n\n"));
    assert!(waits(Wire::Chat, r#"data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#));
    // Text is passed on as it comes, whatever each piece of it says about the end.
    let text = r#"{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]}"#;
    assert!(!waits(Wire::Gemini, text));
    let call =
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]},"finishReason":"STOP"}]}"#;
    assert!(waits(Wire::Gemini, call));
}
