//! The settings of the recorder reach whatever records: clients, telemetry, the proxy and imports, as they reach hooks.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::serving::Serving;
use crate::talk::items;
use crate::wire::{Carrying, Upstream, document, post, steps};

/// What no record may have; the user's own pattern says so.
const OWN: &str = "ACME-42";

/// A world in which outputs are short and [`OWN`] is redacted.
fn strict() -> Sandbox {
    let world = Sandbox::new();
    world.ok(["checkpoint", "create", "begin"]);
    world.ok(["settings", "record.redact", "ACME-[0-9]+"]);
    world.ok(["settings", "record.output-bytes", "1000"]);
    world
}

/// Sends a document to a server, which must take it.
#[track_caller]
fn send(server: &Serving, path: &str, body: &Value) {
    let bearer = format!("Bearer {}", server.token);
    let reply = post(&server.url, path, &[("authorization", &bearer)], &body.to_string());
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}

/// The only end of a call that a server knows.
#[track_caller]
fn call_end(server: &Serving) -> Value {
    let found = items(&server.get("/steps?kind=tool-end"));
    let [end] = found.as_slice() else { panic!("one call, not {found:#?}") };
    server.get(&format!("/sessions/{}/steps/{}", end["session"].as_str().unwrap(), end["number"]))
}

/// Fails the test unless an output was cut where anyone sees it, and redacted.
#[track_caller]
fn expect_cut(output: &Value, truncated: &Value, bytes: usize) {
    let text = output.as_str().unwrap();
    assert!(text.len() <= 1000 && text.contains("[redacted:own-pattern]"), "{text}");
    assert!(text.contains("bytes left out"), "the cut is visible: {text}");
    assert!(truncated["output"]["bytes"].as_u64().unwrap() >= bytes as u64, "{truncated}");
}

/// Fails the test if [`OWN`] can be found.
#[track_caller]
fn expect_redacted(world: &Sandbox) {
    let sessions = items(&world.json(["sessions", "--all-workspaces"]));
    assert!(!sessions.is_empty());
    for session in sessions {
        let told = world.ok(["replay", session["id"].as_str().unwrap(), "--json"]).out;
        assert!(!told.contains(OWN), "{told}");
    }
    let found = |text: &str| items(&world.json(["search", "--all-workspaces", "--substring", text])).len();
    assert_eq!((found(OWN), found("redacted:own-pattern") > 0), (0, true));
}

fn long_output() -> String {
    format!("{OWN} {}", "0123456789".repeat(500))
}

#[test]
fn what_clients_report_is_cut_and_redacted() {
    let world = strict();
    let server = Serving::start(&world, &[]);
    let event = |kind: &str, more: Value| {
        let mut event = json!({ "session": "s1", "kind": kind, "id": kind });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let events = [
        event("user-input", json!({ "input": format!("about {OWN}") })),
        event("tool-start", json!({ "tool": "sh", "call": "c1", "input": { "command": OWN } })),
        event("tool-end", json!({ "tool": "sh", "call": "c1", "output": long_output() })),
    ];
    send(&server, "/api/v1/ingest", &json!({ "workspace": "shop", "agent": "mine", "events": events }));
    let end = call_end(&server);
    expect_cut(&end["output"], &end["truncated"], 5000);
    drop(server);
    expect_redacted(&world);
}

#[test]
fn what_telemetry_tells_is_cut_and_redacted() {
    let world = strict();
    let server = Serving::start(&world, &[]);
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let span = json!({ "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7",
        "name": "execute_tool sh", "kind": 1,
        "startTimeUnixNano": "1794850000000000000", "endTimeUnixNano": "1794850001000000000",
        "attributes": [text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", "sh"),
            text("gen_ai.conversation.id", "s1"), text("gen_ai.tool.call.id", "c1"),
            text("gen_ai.tool.call.arguments", &json!({ "command": OWN }).to_string()),
            text("gen_ai.tool.call.result", &long_output())] });
    let resource = json!({ "attributes": [text("service.name", "bot")] });
    let traces = json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "spans": [span] }] }] });
    send(&server, "/v1/traces", &traces);
    let end = call_end(&server);
    expect_cut(&end["output"], &end["truncated"], 5000);
    drop(server);
    expect_redacted(&world);
}

#[test]
fn what_the_proxy_carries_is_redacted_and_left_out_and_the_model_gets_all_of_it() {
    let world = strict();
    let said = json!({ "type": "message", "model": "m", "content": [{ "type": "text", "text": format!("yes, {OWN}") }] });
    let upstream = Upstream::saying(document(200, &said));
    let ask = |world: &Sandbox| {
        let proxy = Carrying::start(world, &["--upstream", &upstream.url(), "--session", "s"]);
        let body =
            json!({ "model": "m", "messages": [{ "role": "user", "content": format!("about {OWN}") }] });
        let got = post(&proxy.url, "/v1/messages", &[], &body.to_string());
        assert!(got.contains(OWN) && upstream.asked().last().unwrap().contains(OWN), "{got}");
        proxy.end().exits(0);
        steps(world, None)
    };
    let told = ask(&world);
    assert!(told[0]["input"]["body"].to_string().contains("about [redacted:own-pattern]"), "{told:#?}");
    expect_redacted(&world);
    world.ok(["settings", "record.capture", "no-model-bodies"]);
    let told = ask(&world);
    let [.., start, end] = told.as_slice() else { panic!("{told:#?}") };
    assert_eq!((&start["kind"], &end["kind"]), (&json!("model-start"), &json!("model-end")));
    assert_eq!((start["input"].get("body"), end["output"].get("body")), (None, None), "{start:#} {end:#}");
}

#[test]
fn what_is_imported_is_cut_and_redacted() {
    let world = strict();
    let line = |at: u32, kind: &str, content: Value| {
        json!({ "type": kind, "uuid": format!("u{at}"), "sessionId": "old", "cwd": world.work, "version": "2.1.0",
            "timestamp": format!("2026-01-01T00:00:{at:02}Z"), "message": { "role": kind, "content": content } })
    };
    let call = json!([{ "type": "tool_use", "id": "c1", "name": "Bash", "input": { "command": OWN } }]);
    let result = json!([{ "type": "tool_result", "tool_use_id": "c1", "content": long_output() }]);
    let lines =
        [line(1, "user", json!(format!("about {OWN}"))), line(2, "assistant", call), line(3, "user", result)];
    let file = world.home.join("old.jsonl");
    fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    world.ok(["import", file.to_str().unwrap(), "--agent", "claude"]);
    let told = steps(&world, None);
    let end = told.iter().find(|step| step["kind"] == "tool-end").unwrap();
    expect_cut(&end["output"], &end["truncated"], 5000);
    expect_redacted(&world);
}
