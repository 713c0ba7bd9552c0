//! `stepback proxy` when things go wrong: the agent gets every byte there is, and the record says what happened.

use std::fs;
use std::io::{Read, Write};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::{of_kind, workspace_dir};
use crate::wire::{Carrying, Upstream, answer, ask, body_of, document, events, post, steps, until};

fn asking() -> String {
    json!({ "model": "m", "messages": [{ "role": "user", "content": "do it" }] }).to_string()
}

fn whole(text: &str) -> Value {
    json!({
        "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{ "type": "text", "text": text }], "usage": { "input_tokens": 3, "output_tokens": 5 },
    })
}

/// The pieces of a streamed answer that says `texts`.
fn pieces(texts: &[&str]) -> Vec<Value> {
    let mut all = vec![
        json!({ "type": "message_start", "message": { "model": "m", "usage": { "input_tokens": 3 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
    ];
    all.extend(texts.iter().map(|text| {
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } })
    }));
    all.push(json!({ "type": "content_block_stop", "index": 0 }));
    all.push(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 5 } }));
    all.push(json!({ "type": "message_stop" }));
    all
}

/// One call through a proxy: what the client got, and the step that tells of it.
fn carried(upstream: &Upstream) -> (String, Value) {
    let world = Sandbox::new();
    let proxy = Carrying::start(&world, &["--upstream", &upstream.url()]);
    let got = post(&proxy.url, "/v1/messages", &[], &asking());
    proxy.end().exits(0);
    let end = steps(&world, None).pop().unwrap();
    assert_eq!(end["kind"], "model-end");
    (got, end)
}

#[test]
fn a_model_that_refuses_is_recorded_as_such() {
    for (status, kind, message) in
        [(429, "rate_limit_error", "Slow down."), (529, "overloaded_error", "Overloaded")]
    {
        let said = json!({ "type": "error", "error": { "type": kind, "message": message } });
        let (got, end) = carried(&Upstream::saying(document(status, &said)));
        assert!(got.starts_with(&format!("HTTP/1.1 {status}")), "{got}");
        assert_eq!(body_of(&got), said.to_string());
        assert_eq!((&end["failed"], &end["output"]["status"]), (&json!(true), &json!(status)));
        let summary = end["summary"].as_str().unwrap();
        assert!(summary.contains(&status.to_string()) && summary.contains(message), "{summary}");
        assert_eq!(end["metadata"]["cost_usd"], Value::Null);
    }
    // In the middle of a stream.
    let mut all = pieces(&["It "])[..3].to_vec();
    all.push(json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } }));
    let (_, end) = carried(&Upstream::saying(events(&all)));
    assert_eq!(end["failed"], true, "{end}");
    assert!(end["summary"].as_str().unwrap().contains("Overloaded"), "{end}");
}

#[test]
fn a_model_that_is_not_there_is_an_answer_and_a_failed_step() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let world = Sandbox::new();
    let proxy = Carrying::start(&world, &["--upstream", &format!("http://{free}")]);
    let got = post(&proxy.url, "/v1/messages", &[], &asking());
    assert!(got.starts_with("HTTP/1.1 502") && got.contains("stepback proxy"), "{got}");
    serde_json::from_str::<Value>(body_of(&got)).unwrap();
    proxy.end().exits(0);
    let end = steps(&world, None).pop().unwrap();
    assert_eq!(end["failed"], true);
    assert!(end["summary"].as_str().unwrap().starts_with("no answer"), "{end}");
}

#[test]
fn a_stream_that_breaks_off_is_passed_on_as_far_as_it_goes() {
    let bytes = events(&pieces(&["It is ", "done."]));
    let cut = bytes.len() - 120;
    let part = bytes[..cut].to_vec();
    let (got, end) = carried(&Upstream::saying(part.clone()));
    assert_eq!(body_of(&got), body_of(&String::from_utf8_lossy(&part)));
    assert_eq!(end["failed"], true, "{end}");
    assert!(end["summary"].as_str().unwrap().contains("interrupted"), "{end}");
    assert_eq!(end["output"]["body"], body_of(&String::from_utf8_lossy(&part)));
}

#[test]
fn answers_that_are_no_answers_pass_through_and_are_kept() {
    let odd: [(&str, &[u8]); 5] = [
        ("application/json", b"{\"type\": \"mess"),
        ("text/html", b"<html><body>502 Bad Gateway</body></html>"),
        ("text/event-stream", b"data: {nonsense\n\ndata: [DONE]\n\n:\n\nid"),
        ("application/octet-stream", b"\xff\xfe\x00binary\x80"),
        ("application/json", b""),
    ];
    for (kind, bytes) in odd {
        let world = Sandbox::new();
        let upstream = Upstream::saying(answer(200, kind, bytes));
        let proxy = Carrying::start(&world, &["--upstream", &upstream.url()]);
        let mut got = Vec::new();
        ask(&proxy.url, "/v1/messages", &[], &asking()).read_to_end(&mut got).unwrap();
        assert!(got.ends_with(bytes), "{kind}");
        proxy.end().exits(0);
        let end = steps(&world, None).pop().unwrap();
        assert_eq!(end["kind"], "model-end");
        assert_eq!(end["output"]["body"], String::from_utf8_lossy(bytes).as_ref(), "{kind}");
        assert_eq!(end["metadata"]["usage"], Value::Null, "{kind}: nothing is guessed");
        world.expect_sound(kind);
    }
}

#[test]
fn requests_that_are_no_requests_pass_through_too() {
    let world = Sandbox::new();
    let upstream = Upstream::saying(document(400, &json!({ "error": { "message": "what?" } })));
    let proxy = Carrying::start(&world, &["--upstream", &upstream.url(), "--session", "s"]);
    for body in ["", "{", "[1, 2]", "null", "\"text\"", "{\"model\": 7, \"messages\": {}}"] {
        for path in
            ["/v1/messages", "/v1/chat/completions", "/v1/responses", "/v1beta/models/x:generateContent"]
        {
            let got = post(&proxy.url, path, &[], body);
            assert!(got.contains("what?"), "{path} {body}: {got}");
        }
    }
    proxy.end().exits(0);
    assert_eq!(of_kind(&world, "model-end").len(), 24);
    assert!(of_kind(&world, "gap").is_empty());
}

#[test]
fn a_compressed_answer_arrives_compressed_and_is_recorded_in_words() {
    // "{\"type\":\"message\",…}" by gzip is made by the system's own program.
    let text = whole("It is done.").to_string();
    let mut gzip = std::process::Command::new("gzip")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    gzip.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let packed = gzip.wait_with_output().unwrap().stdout;
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        packed.len()
    );
    for (bytes, is_whole) in [(packed.clone(), true), (vec![7; packed.len()], false)] {
        let world = Sandbox::new();
        let upstream = Upstream::saying([head.as_bytes(), &bytes].concat());
        let proxy = Carrying::start(&world, &["--upstream", &upstream.url()]);
        let mut got = Vec::new();
        ask(&proxy.url, "/v1/messages", &[], &asking()).read_to_end(&mut got).unwrap();
        assert!(got.ends_with(&bytes), "not a byte is changed");
        proxy.end().exits(0);
        let end = steps(&world, None).pop().unwrap();
        assert_eq!(end["summary"] == "It is done.", is_whole, "{end}");
    }
}

#[test]
fn an_agent_that_goes_away_is_recorded_as_gone() {
    let world = Sandbox::new();
    let upstream = Upstream::start(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        for _ in 0..3000 {
            if stream.write_all(b"event: ping\ndata: {\"type\": \"ping\"}\n\n").is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let proxy = Carrying::start(&world, &["--upstream", &upstream.url()]);
    let mut stream = ask(&proxy.url, "/v1/messages", &[], &asking());
    stream.read_exact(&mut [0; 64]).unwrap();
    drop(stream);
    until("the step that says so", || !of_kind(&world, "model-end").is_empty());
    proxy.end().exits(0);
    let end = steps(&world, None).pop().unwrap();
    assert_eq!(end["failed"], true);
    assert!(end["summary"].as_str().unwrap().contains("disconnected"), "{end}");
}

#[test]
fn both_ways_to_end_it_record_what_was_carried() {
    for signal in [Signal::TERM, Signal::INT] {
        let world = Sandbox::new();
        let upstream = Upstream::start(|_, stream| {
            let bytes = events(&pieces(&["It is ", "done."]));
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let (first, rest) = text.split_at(text.find("content_block_stop").unwrap());
            let _ = stream.write_all(first.as_bytes());
            std::thread::sleep(Duration::from_millis(700));
            let _ = stream.write_all(rest.as_bytes());
        });
        let proxy = Carrying::start(&world, &["--upstream", &upstream.url()]);
        let url = proxy.url.clone();
        let client = std::thread::spawn(move || post(&url, "/v1/messages", &[], &asking()));
        until("the request", || !upstream.asked().is_empty());
        proxy.end_with(signal).exits(0);
        assert!(client.join().unwrap().contains("message_stop"), "a call that is under way may end");
        let end = steps(&world, None).pop().unwrap();
        assert_eq!((&end["kind"], &end["summary"]), (&json!("model-end"), &json!("It is done.")));
    }
}

#[test]
fn nothing_that_passes_can_paint_a_terminal() {
    let evil = "\u{1b}[31mred\u{7}\u{202e}";
    let said = json!({ "type": "message", "model": evil, "stop_reason": evil, "content": [
        { "type": "text", "text": evil }, { "type": "tool_use", "id": evil, "name": evil, "input": { evil: evil } } ] });
    for said in [said, json!({ "error": { "message": evil } })] {
        let world = Sandbox::new();
        let status = if said["error"].is_null() { 200 } else { 418 };
        let upstream = Upstream::saying(document(status, &said));
        let proxy = Carrying::start(&world, &["--upstream", &upstream.url()]);
        let body = json!({ "model": evil, "messages": [{ "role": "user", "content": evil }], "tools": [{ "name": evil }] });
        post(&proxy.url, "/v1/messages", &[], &body.to_string());
        proxy.end().exits(0);
        for words in [&["log"][..], &["replay"], &["sessions"], &["status"], &["inspect"]] {
            let ran = world.run(words);
            let shown = ran.out + &ran.err;
            for part in ["\u{1b}", "\u{7}", "\u{202e}"] {
                assert!(!shown.contains(part), "{words:?}: {shown:?}");
            }
        }
    }
}

#[test]
fn a_disk_that_is_full_costs_the_agent_nothing() {
    let upstream = Upstream::saying(document(200, &whole("It is done.")));
    let mut missing = 0;
    for n in (1..40).step_by(3) {
        for kind in ["enospc", "eio"] {
            let world = Sandbox::new();
            world.ok(["checkpoint", "create", "one"]);
            let fault = format!("{kind}:{n}");
            let words = ["--upstream", &upstream.url(), "--session", "s"];
            let proxy = match Carrying::with(&world, &words, &[("STEPBACK_FAULT", &fault)]) {
                Ok(proxy) => proxy,
                Err(ran) => {
                    assert_eq!(ran.code, Some(7), "{fault}: {ran:?}");
                    continue;
                }
            };
            for _ in 0..3 {
                let got = post(&proxy.url, "/v1/messages", &[], &asking());
                assert_eq!(body_of(&got), whole("It is done.").to_string(), "{fault}");
            }
            let ran = proxy.end().exits(0);
            let ends = of_kind(&world, "model-end").len();
            if ends < 3 {
                missing += 1;
                let is_said = !of_kind(&world, "gap").is_empty() || ran.err.contains("Warning");
                assert!(is_said, "{fault}: {ends} of 3, and nobody says so: {}", ran.err);
            }
            world.expect_sound(&fault);
        }
    }
    assert!(missing > 0, "no fault hit the recording");
}

#[test]
fn a_store_that_cannot_be_written_to_costs_the_agent_nothing() {
    let world = Sandbox::new();
    let upstream = Upstream::saying(document(200, &whole("It is done.")));
    let proxy = Carrying::start(&world, &["--upstream", &upstream.url()]);
    // Permissions would not keep root from it.
    let in_the_way = workspace_dir(&world).join("carried");
    fs::write(&in_the_way, "").unwrap();
    let got = post(&proxy.url, "/v1/messages", &[], &asking());
    assert!(got.contains("It is done."), "{got}");
    let ran = proxy.end().exits(0);
    assert!(ran.err.contains("Warning: some of them could not be recorded"), "{}", ran.err);
    assert!(of_kind(&world, "gap")[0]["summary"].as_str().unwrap().contains("a model call"));
}
