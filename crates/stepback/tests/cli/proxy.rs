//! `stepback proxy`: model calls become steps, whatever wire they speak, in the session they belong to.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};
use crate::wire::{Carrying, Upstream, body_of, document, events, post, steps};

/// A way to ask a model: where, with what, and what comes back at once or in pieces.
struct Way {
    path: &'static str,
    request: Value,
    whole: Value,
    pieces: Vec<Value>,
    /// In millionths of a dollar.
    cost: u64,
    model: &'static str,
}

/// All of them; each answers "It is done." for 1000 tokens in and 100 out.
fn ways() -> Vec<Way> {
    let said = json!([{ "role": "user", "content": "do it" }]);
    let messages = Way {
        path: "/v1/messages?beta=true",
        request: json!({ "model": "claude-sonnet-4-5", "max_tokens": 99, "messages": said }),
        whole: json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": [{ "type": "text", "text": "It is done." }], "stop_reason": "end_turn",
            "usage": { "input_tokens": 1000, "output_tokens": 100 },
        }),
        pieces: vec![
            json!({ "type": "message_start", "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
                "usage": { "input_tokens": 1000, "output_tokens": 1 } } }),
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "It is " } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "done." } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 100 } }),
            json!({ "type": "message_stop" }),
        ],
        cost: 4500,
        model: "claude-sonnet-4-5",
    };
    let chat = Way {
        path: "/v1/chat/completions",
        request: json!({ "model": "gpt-4o", "messages": said }),
        whole: json!({
            "id": "c1", "object": "chat.completion", "model": "gpt-4o",
            "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "It is done." } }],
            "usage": { "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 },
        }),
        pieces: vec![
            json!({ "model": "gpt-4o", "choices": [{ "index": 0, "delta": { "role": "assistant", "content": "It is " } }] }),
            json!({ "model": "gpt-4o", "choices": [{ "index": 0, "delta": { "content": "done." } }] }),
            json!({ "model": "gpt-4o", "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }),
            json!({ "model": "gpt-4o", "choices": [], "usage": { "prompt_tokens": 1000, "completion_tokens": 100 } }),
        ],
        cost: 3500,
        model: "gpt-4o",
    };
    let response = json!({
        "id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5",
        "output": [{ "type": "message", "id": "m1", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": "It is done.", "annotations": [] }] }],
        "usage": { "input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100 },
    });
    let responses = Way {
        path: "/v1/responses",
        request: json!({ "model": "gpt-5", "input": said }),
        pieces: vec![
            json!({ "type": "response.created", "response": { "id": "resp_1", "model": "gpt-5", "output": [] } }),
            json!({ "type": "response.output_item.added", "output_index": 0, "item": response["output"][0] }),
            json!({ "type": "response.output_text.delta", "item_id": "m1", "output_index": 0, "content_index": 0, "delta": "It is " }),
            json!({ "type": "response.output_text.delta", "item_id": "m1", "output_index": 0, "content_index": 0, "delta": "done." }),
            json!({ "type": "response.output_item.done", "output_index": 0, "item": response["output"][0] }),
            json!({ "type": "response.completed", "response": response }),
        ],
        whole: response,
        cost: 2250,
        model: "gpt-5",
    };
    let candidate = |text: &str, finish: Value| {
        json!({
            "candidates": [{ "content": { "role": "model", "parts": [{ "text": text }] }, "finishReason": finish }],
            "modelVersion": "gemini-2.5-pro",
            "usageMetadata": { "promptTokenCount": 1000, "candidatesTokenCount": 100, "totalTokenCount": 1100 },
        })
    };
    let gemini = Way {
        path: "/v1beta/models/gemini-2.5-pro:generateContent",
        request: json!({ "contents": [{ "role": "user", "parts": [{ "text": "do it" }] }] }),
        whole: candidate("It is done.", json!("STOP")),
        pieces: vec![candidate("It is ", Value::Null), candidate("done.", json!("STOP"))],
        cost: 2250,
        model: "gemini-2.5-pro",
    };
    vec![messages, chat, responses, gemini]
}

#[test]
fn every_wire_becomes_steps_with_tokens_and_cost() {
    for way in ways() {
        for streamed in [false, true] {
            let world = Sandbox::new();
            let bytes = if streamed { events(&way.pieces) } else { document(200, &way.whole) };
            let upstream = Upstream::saying(bytes.clone());
            let proxy = Carrying::start(&world, &["--upstream", &upstream.url()]);
            let path =
                if streamed { way.path.replace(":generate", ":streamGenerate") } else { way.path.into() };
            let mut request = way.request.clone();
            request["stream"] = json!(streamed);
            let got = post(&proxy.url, &path, &[], &request.to_string());
            let sent = String::from_utf8_lossy(&bytes).into_owned();
            assert_eq!(body_of(&got), body_of(&sent), "{path}: every byte arrives as it was");
            proxy.end().exits(0);

            let when = format!("{path}, streamed: {streamed}");
            let steps = steps(&world, None);
            let kinds: Vec<&Value> = steps.iter().map(|step| &step["kind"]).collect();
            assert_eq!(kinds, ["model-start", "model-end"], "{when}");
            let (start, end) = (&steps[0], &steps[1]);
            assert_eq!(start["input"]["body"], request, "{when}");
            assert_eq!(end["output"]["body"], body_of(&sent), "{when}");
            assert_eq!(end["output"]["status"], 200, "{when}");
            assert_eq!((&start["tool"], &end["tool"]), (&json!(way.model), &json!(way.model)), "{when}");
            assert_eq!(end["summary"], "It is done.", "{when}");
            assert_eq!(end["failed"], false, "{when}");
            let known = &end["metadata"];
            assert_eq!(
                (&known["usage"]["input"], &known["usage"]["output"]),
                (&json!(1000), &json!(100)),
                "{when}: {known}"
            );
            assert_eq!(known["cost_usd"], json!(way.cost as f64 / 1e6), "{when}");
            let (first, took) =
                (known["first_byte_us"].as_u64().unwrap(), end["duration_us"].as_u64().unwrap());
            assert!(0 < first && first <= took, "{when}: {first} {took}");
            let session = &items(&world.json(["sessions"]))[0];
            assert_eq!(session["agent"], "model-api", "{when}");
            assert_eq!(session["cost_usd"], json!(way.cost as f64 / 1e6), "{when}: {session}");
        }
    }
}

/// A model with a name of the test's choice that says one thing.
fn saying(model: &str, text: &str) -> Upstream {
    Upstream::saying(document(
        200,
        &json!({
            "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn",
            "content": [{ "type": "text", "text": text }],
            "usage": { "input_tokens": 1_000_000, "output_tokens": 100_000 },
        }),
    ))
}

fn asking(model: &str) -> String {
    json!({ "model": model, "messages": [{ "role": "user", "content": "do it" }] }).to_string()
}

#[test]
fn an_unknown_model_has_no_cost_and_a_person_can_give_it_one() {
    let world = Sandbox::new();
    let upstream = saying("house-model", "yes");
    let ask = || {
        let proxy = Carrying::start(&world, &["--upstream", &upstream.url(), "--session", "s"]);
        post(&proxy.url, "/v1/messages", &[], &asking("house-model"));
        proxy.end().exits(0);
        steps(&world, None).pop().unwrap()["metadata"]["cost_usd"].clone()
    };
    assert_eq!(ask(), Value::Null, "none is guessed");
    let prices = world.store.join("prices.json");
    fs::write(&prices, r#"{"house-model": {"input": 2, "output": 10}}"#).unwrap();
    assert_eq!(ask(), json!(3.0));
    for wrong in ["{", "[]", r#"{"house-model": 3}"#, r#"{"house-model": {"input": "free", "output": 1}}"#] {
        fs::write(&prices, wrong).unwrap();
        let ran = world.run(["proxy", "--upstream", &upstream.url()]).exits(2);
        assert!(ran.err.contains("prices.json") && ran.err.contains("per million"), "{wrong}: {}", ran.err);
    }
}

type Headers = &'static [(&'static str, &'static str)];

#[test]
fn calls_belong_to_the_session_that_their_headers_name() {
    let cases: [(Headers, &str, &str); 6] = [
        (&[("x-claude-code-session-id", "s-claude")], "claude", "s-claude"),
        (&[("originator", "codex_cli_rs"), ("session_id", "s-codex")], "codex", "s-codex"),
        (&[("user-agent", "opencode/1.0"), ("x-session-affinity", "s-open")], "opencode", "s-open"),
        // Nobody was at work yet whose it could be.
        (&[("x-claude-code-session-id", "")], "model-api", "run-"),
        (&[("x-session-id", "s-any")], "model-api", "s-any"),
        (&[("user-agent", "GeminiCLI/1.0 (linux; x64)")], "gemini", "run-"),
    ];
    let world = Sandbox::new();
    let upstream = saying("m", "yes");
    let proxy = Carrying::start(&world, &["--upstream", &upstream.url()]);
    for (headers, _, _) in cases {
        post(&proxy.url, "/v1/messages", headers, &asking("m"));
    }
    proxy.end().exits(0);
    let sessions = items(&world.json(["sessions"]));
    assert_eq!(sessions.len(), cases.len(), "{sessions:#?}");
    for (_, agent, id) in cases {
        let is_it = |session: &&Value| {
            session["agent"] == agent && session["agent_session"].as_str().unwrap().starts_with(id)
        };
        let session = sessions.iter().find(is_it).unwrap_or_else(|| panic!("{agent} {id} in {sessions:#?}"));
        assert_eq!(session["model"], "m");
    }
}

#[test]
fn what_is_said_on_the_command_line_fills_in_what_calls_do_not_tell() {
    let world = Sandbox::new();
    let upstream = saying("m", "yes");
    let proxy =
        Carrying::start(&world, &["--upstream", &upstream.url(), "--agent", "mine", "--session", "s-7"]);
    post(&proxy.url, "/v1/messages", &[], &asking("m"));
    post(&proxy.url, "/v1/messages", &[("x-session-id", "other")], &asking("m"));
    proxy.end().exits(0);
    let mut ids: Vec<String> = items(&world.json(["sessions"]))
        .iter()
        .map(|session| format!("{} {}", session["agent"], session["agent_session"]))
        .collect();
    ids.sort();
    assert_eq!(ids, [r#""mine" "other""#, r#""mine" "s-7""#]);
}

#[test]
fn calls_join_the_session_that_hooks_report() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s-joined");
    let upstream = saying("m", "yes");
    let proxy = Carrying::start(&world, &["--upstream", &upstream.url()]);
    agent.begin();
    agent.prompt("do it");
    post(&proxy.url, "/v1/messages", &[("x-claude-code-session-id", "s-joined")], &asking("m"));
    agent.bash("b1", "echo x > file", || world.write("file", "x\n"));
    // One that does not say whose it is belongs to whoever of that agent is at work.
    post(&proxy.url, "/v1/messages", &[("user-agent", "claude-cli/2.0")], &asking("m"));
    agent.stop();
    proxy.end().exits(0);
    assert_eq!(items(&world.json(["sessions"])).len(), 1);
    let kinds: Vec<String> =
        agent.steps().iter().map(|step| step["kind"].as_str().unwrap().to_string()).collect();
    let order = [
        "agent-step",
        "user-input",
        "model-start",
        "model-end",
        "tool-start",
        "tool-end",
        "model-start",
        "model-end",
    ];
    assert_eq!(kinds[..order.len()], order);
    world.ok(["rewind", "tool:bash:last", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "base\n");
}

#[test]
fn two_proxies_share_a_workspace() {
    let world = Sandbox::new();
    let upstream = saying("m", "yes");
    let start =
        |session: &str| Carrying::start(&world, &["--upstream", &upstream.url(), "--session", session]);
    let proxies = [start("one"), start("two")];
    std::thread::scope(|scope| {
        for proxy in &proxies {
            for _ in 0..4 {
                scope.spawn(|| post(&proxy.url, "/v1/messages", &[], &asking("m")));
            }
        }
    });
    for proxy in proxies {
        proxy.end().exits(0);
    }
    for session in ["one", "two"] {
        let steps = steps(&world, Some(session));
        let ends = steps.iter().filter(|step| step["kind"] == "model-end" && step["failed"] == false);
        assert_eq!(ends.count(), 4, "{session}");
    }
    world.expect_sound("after two proxies");
}

#[test]
fn an_address_that_cannot_be_used_is_an_error_that_says_so() {
    let world = Sandbox::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    for listen in ["", "here", "127.0.0.1", "127.0.0.1:99999", "localhost:http"] {
        let ran = world.run(["proxy", "--listen", listen]).exits(2);
        assert!(
            ran.err.contains("not a valid address") && ran.err.contains("ADDR:PORT"),
            "{listen}: {}",
            ran.err
        );
    }
    let ran = world.run(["proxy", "--listen", &at]).exits(7);
    assert!(ran.err.contains(&at) && ran.err.contains("--listen"), "{}", ran.err);
    for upstream in ["nonsense", "ftp://x", concat!("http://user:", "pw@host"), "http://"] {
        let ran = world.run(["proxy", "--upstream", upstream]).exits(2);
        assert!(ran.err.contains("--upstream") && !ran.err.contains("pw@"), "{upstream}: {}", ran.err);
    }
    let ran = world.run(["proxy", "--listen", &at, "--upstream", &format!("http://{at}")]);
    assert_ne!(ran.code, Some(0));
    for empty in ["--agent", "--session"] {
        let ran = world.run(["proxy", empty, ""]).exits(2);
        assert!(ran.err.contains(empty), "{}", ran.err);
    }
}
