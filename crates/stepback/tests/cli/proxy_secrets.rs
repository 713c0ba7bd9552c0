//! Keys and secrets that pass through `stepback proxy` are nowhere in the store.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::{files_below, items};
use crate::wire::{Carrying, Upstream, answer, document, events, post};

/// What nobody may find, each in the form in which it is written.
const KEY: &str = "sk-ant-api03-Qm9yZWRPZlRlc3RLZXlzMTIzNDU2Nzg5MGFiY2RlZg-AbCdEfAA";
const TOKEN: &str = "ghp_q7Hd82Kx91LmZp04RtYv63BnWc55AsDf70Ge";
const PLAIN: &str = "tr0ub4dor-and-3-more-words";

/// Fails the test if a word is anywhere in the store, as bytes or in anything that can be shown.
#[track_caller]
fn nowhere(world: &Sandbox, words: &[&str], when: &str) {
    let mut shown = String::new();
    for session in items(&world.json(["sessions"])) {
        let id = session["id"].as_str().unwrap();
        shown += &world.ok(["replay", id, "--json"]).out;
        shown += &world.ok(["replay", id]).out;
    }
    for words in [&["log", "--json"][..], &["log"], &["sessions", "--json"], &["op", "log", "--json"]] {
        shown += &world.ok(words).out;
    }
    let bytes: Vec<(PathBuf, Vec<u8>)> =
        files_below(&world.store).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    for word in words {
        assert!(!shown.contains(word), "{when}: {word} is shown:\n{shown}");
        for (path, bytes) in &bytes {
            let found = bytes.windows(word.len()).any(|part| part == word.as_bytes());
            assert!(!found, "{when}: {word} is in {}", path.display());
        }
    }
}

fn asking(text: &str) -> String {
    json!({ "model": "m", "messages": [{ "role": "user", "content": text }] }).to_string()
}

fn whole(text: &str) -> Value {
    json!({ "type": "message", "model": "m", "content": [{ "type": "text", "text": text }] })
}

#[test]
fn what_authorises_a_call_reaches_the_model_and_no_record() {
    let world = Sandbox::new();
    let said = [
        &b"HTTP/1.1 200 OK\r\nset-cookie: id=tr0ub4dor-and-3-more-words\r\n"[..],
        &document(200, &whole("yes"))[16..],
    ]
    .concat();
    let upstream = Upstream::saying(said);
    let proxy = Carrying::start(&world, &["--upstream", &upstream.url(), "--session", "s"]);
    let bearer = format!("Bearer {PLAIN}");
    for (path, headers) in [
        ("/v1/messages", vec![("x-api-key", PLAIN), ("cookie", PLAIN)]),
        ("/v1/chat/completions", vec![("authorization", bearer.as_str()), ("x-custom", bearer.as_str())]),
        ("/v1beta/models/x:generateContent", vec![("x-goog-api-key", PLAIN), ("proxy-authorization", PLAIN)]),
        ("/v1beta/models/x:generateContent?key=tr0ub4dor-and-3-more-words&alt=sse", vec![]),
        (
            "/v1/messages?api%5Fkey=tr0ub4dor-and-3-more-words",
            vec![("referer", "http://x/?key=tr0ub4dor-and-3-more-words")],
        ),
    ] {
        let got = post(&proxy.url, path, &headers, &asking("go"));
        assert!(got.contains("yes"), "{path}: {got}");
        assert!(upstream.asked().last().unwrap().contains(PLAIN), "{path}: the model gets it");
    }
    proxy.end().exits(0);
    nowhere(&world, &[PLAIN], "headers and addresses");
}

#[test]
fn a_secret_that_is_asked_is_not_kept() {
    let world = Sandbox::new();
    let upstream = Upstream::saying(document(200, &whole("yes")));
    let proxy = Carrying::start(&world, &["--upstream", &upstream.url(), "--session", "s"]);
    for body in [
        asking(&format!("my key is {KEY}, use it")),
        // A request that cannot be read is kept as it is, only without them.
        format!("{{\"model\": \"m\", \"messages\": [{KEY} {TOKEN}"),
        json!({ "model": KEY, "messages": [{ "role": "user", "content": [{ "type": "tool_result",
            "tool_use_id": TOKEN, "content": format!("GITHUB_TOKEN={TOKEN}\n") }] }] })
        .to_string(),
    ] {
        post(&proxy.url, "/v1/messages", &[("x-note", TOKEN)], &body);
        assert!(upstream.asked().last().unwrap().ends_with(&body), "the model gets every byte");
    }
    proxy.end().exits(0);
    nowhere(&world, &[KEY, TOKEN], "requests");
}

#[test]
fn a_secret_that_is_answered_is_not_kept_however_it_arrives() {
    let delta = |text: &str| json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } });
    let input = |text: &str| json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "input_json_delta", "partial_json": text } });
    let begin = |block: Value| {
        vec![
            json!({ "type": "message_start", "message": { "model": "m" } }),
            json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        ]
    };
    let split = |one: &dyn Fn(&str) -> Value, block: Value, text: &str, end: bool| {
        let mut all = begin(block);
        let pieces: Vec<char> = text.chars().collect();
        all.extend(pieces.chunks(7).map(|piece| one(&piece.iter().collect::<String>())));
        if end {
            all.push(json!({ "type": "content_block_stop", "index": 0 }));
            all.push(json!({ "type": "message_stop" }));
        }
        events(&all)
    };
    let text = json!({ "type": "text", "text": "" });
    let call = json!({ "type": "tool_use", "id": "t1", "name": "Bash", "input": {} });
    let command = json!({ "command": format!("curl -H 'x-api-key: {KEY}'"), "token": TOKEN }).to_string();
    let refused = json!({ "error": { "message": format!("Incorrect API key provided: {KEY}"), "code": "invalid_api_key" } });
    let mut cut = split(&delta, text.clone(), &format!("the key is {KEY} and {TOKEN}"), true);
    cut.truncate(cut.len() - 180);
    let ways = [
        ("at once", document(200, &whole(&format!("the key is {KEY}, and {TOKEN}")))),
        ("in pieces", split(&delta, text.clone(), &format!("the key is {KEY} and {TOKEN}."), true)),
        (
            "in pieces without an end",
            split(&delta, text, &format!("the key is {KEY}. The other: {TOKEN}. So"), false),
        ),
        ("cut off", cut),
        ("in a call", split(&input, call, &command, true)),
        ("in an error", document(401, &refused)),
        ("in a page", answer(500, "text/html", format!("<pre>key {KEY} {TOKEN}</pre>"))),
        ("in what is no JSON", answer(200, "application/json", format!("{{\"x\": \"{KEY} {TOKEN}"))),
        (
            "in another field",
            document(
                200,
                &json!({ "type": "message", "model": "m", "content": [], "debug": { "k": [KEY, TOKEN] } }),
            ),
        ),
        (
            "in an event of another kind",
            events(&[json!({ "type": "debug", "said": format!("{KEY} {TOKEN}") })]),
        ),
        (
            "in a comment of the stream",
            answer(200, "text/event-stream", format!(": {KEY}\n\ndata: {TOKEN}\n\n")),
        ),
        (
            "as the model's name",
            document(200, &json!({ "type": "message", "model": KEY, "stop_reason": TOKEN, "content": [] })),
        ),
    ];
    for (when, bytes) in ways {
        let world = Sandbox::new();
        let upstream = Upstream::saying(bytes);
        let proxy = Carrying::start(&world, &["--upstream", &upstream.url()]);
        let got = post(&proxy.url, "/v1/messages", &[], &asking("go"));
        assert!(!got.is_empty());
        proxy.end().exits(0);
        nowhere(&world, &[KEY, TOKEN], when);
    }
}
