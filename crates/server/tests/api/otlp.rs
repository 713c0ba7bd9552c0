//! Telemetry over HTTP: what is acknowledged is there, what makes no sense is counted, what cannot be read is refused in the
//! protocol's words. gRPC and the real SDK are tested with the program itself.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::support::{Reply, TestServer};

fn capture(name: &str) -> Vec<u8> {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../otlp/tests/captures");
    std::fs::read(captures.join(name)).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn send(place: &TestServer, path: &str, kind: &str, packed: bool, body: &[u8]) -> Reply {
    let packing = if packed { "content-encoding: gzip\r\n" } else { "" };
    place.send("POST", path, &format!("content-type: {kind}\r\n{packing}"), body)
}

/// The one session there is, besides those of people.
fn session(place: &TestServer) -> Value {
    let sessions = place.get("/sessions").with(200);
    let agents = sessions["items"].as_array().unwrap().iter().filter(|session| session["agent"] != "person");
    let agents: Vec<&Value> = agents.collect();
    let [session] = agents.as_slice() else { panic!("one session, not {agents:?}") };
    (*session).clone()
}

/// The steps of the one session there is, oldest first: kind and summary.
fn story(place: &TestServer) -> Vec<(String, String)> {
    let session = session(place);
    let id = session["id"].as_str().unwrap();
    let steps = place.get(&format!("/sessions/{id}/steps?oldest_first=true&limit=1000")).with(200);
    let word = |step: &Value, name: &str| step[name].as_str().unwrap().to_owned();
    steps["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| (word(step, "kind"), word(step, "summary")))
        .collect()
}

#[test]
fn a_trace_becomes_a_session_once_however_it_is_sent_and_how_often() {
    let place = TestServer::at(1_794_850_000_000_000);
    let name = "pydantic-ai__native.traces.1";
    let protobuf = capture(&format!("{name}.pb"));
    let reply = send(&place, "/v1/traces", "application/x-protobuf", false, &protobuf);
    assert_eq!((reply.status, reply.body.len()), (200, 0), "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/x-protobuf"));
    let story = story(&place);
    let kinds: Vec<&str> = story.iter().map(|(kind, _)| kind.as_str()).collect();
    let expected = [
        "agent-step",
        "user-input",
        "model-start",
        "model-end",
        "tool-start",
        "tool-end",
        "model-start",
        "model-end",
        "agent-step",
    ];
    assert_eq!(kinds, expected, "{story:?}");
    for (kind, packed, body) in [
        ("application/x-protobuf", true, gzip(&protobuf)),
        ("application/json", false, capture(&format!("{name}.json"))),
        ("application/json; charset=utf-8", true, gzip(&capture(&format!("{name}.json")))),
    ] {
        let reply = send(&place, "/v1/traces", kind, packed, &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(super::otlp::story(&place), story, "{kind} {packed}");
    }
    let session = session(&place);
    assert_eq!(session["agent"], "fixture-pydantic-ai");
    assert_eq!(session["title"], "Weather in Paris?");
    let workspace = place.get(&format!("/workspaces/{}", session["workspace"].as_str().unwrap())).with(200);
    assert_eq!(workspace["root"], "remote:fixture-pydantic-ai");
}

#[test]
fn a_workspace_elsewhere_has_no_files_to_keep() {
    let place = TestServer::at(1_794_850_000_000_000);
    send(&place, "/v1/traces", "application/json", false, &capture("openai__traceloop.traces.1.json"));
    let session = session(&place);
    let workspace = session["workspace"].as_str().unwrap();
    let problem =
        place.post(&format!("/workspaces/{workspace}/checkpoints"), &json!({ "label": "x" })).problem(409);
    assert_eq!(problem["code"], "refused");
    assert!(problem["detail"].as_str().unwrap().contains("not a directory on this machine"), "{problem}");
}

#[test]
fn everything_that_can_be_asked_of_a_session_is_answered() {
    let place = TestServer::at(1_794_850_000_000_000);
    send(&place, "/v1/traces", "application/json", false, &capture("langgraph__openinference.traces.1.json"));
    let session = session(&place);
    let id = session["id"].as_str().unwrap();
    let timeline = place.get(&format!("/sessions/{id}/timeline")).with(200);
    assert!(timeline.to_string().contains("get_weather"), "{timeline}");
    let found = place.get("/sessions/thread-42").with(200);
    assert_eq!(found["id"], session["id"]);
    let steps = place.get(&format!("/sessions/{id}/steps?kind=tool-start")).with(200);
    let number = &steps["items"][0]["number"];
    let step = place.get(&format!("/sessions/{id}/steps/{number}")).with(200);
    assert_eq!(step["metadata"]["trace_id"], "431de8aefddbce558828f750db7746cd");
    place.get(&format!("/sessions/{id}/steps/{number}/next?kind=tool-end")).with(200);
    for part in ["", "/conversation", "/memory", "/task", "/env"] {
        let reply = place.get(&format!("/sessions/{id}/steps/{number}/state{part}"));
        assert!(reply.status < 500, "{part}: {reply:?}");
    }
    place.get(&format!("/compare?a={id}&b={id}")).with(200);
    place.get("/statistics").with(200);
}

#[test]
fn what_makes_no_sense_is_counted_and_the_rest_is_taken() {
    let place = TestServer::at(1_794_850_000_000_000);
    let span = |trace: &str, id: &str| {
        json!({ "traceId": trace, "spanId": id, "name": "chat",
        "startTimeUnixNano": "1794767375000000000", "endTimeUnixNano": "1794767376000000000",
        "attributes": [{ "key": "gen_ai.operation.name", "value": { "stringValue": "chat" } }] })
    };
    let good = "431de8aefddbce558828f750db7746cd";
    let request = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [
        span(good, "e4d291b61a83d887"), span("", "e4d291b61a83d888"), span(&"0".repeat(32), "e4d291b61a83d889"),
        span(good, "zz"), span(good, "e4d2"), 7, { "traceId": good, "spanId": "e4d291b61a83d88a", "attributes": 5 },
    ] }] }] });
    let reply =
        send(&place, "/v1/traces", "application/json", false, request.to_string().as_bytes()).with(200);
    let partial = &reply["partialSuccess"];
    assert_eq!(partial["rejectedSpans"], "6");
    let why = partial["errorMessage"].as_str().unwrap();
    for part in ["it has no trace id", "not hex", "has 2 bytes"] {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(story(&place).len(), 2);
}

#[test]
fn refusals_are_in_the_words_of_the_protocol() {
    let place = TestServer::new();
    let garbage = send(&place, "/v1/traces", "application/json", false, b"not json");
    assert_eq!(garbage.with(400)["code"], 3);
    assert_eq!(garbage.header("content-type"), Some("application/json"));
    let protobuf = send(&place, "/v1/logs", "application/x-protobuf", false, b"\x0a\xff\xff");
    assert_eq!((protobuf.status, &protobuf.body[..3]), (400, &[8, 3, 0x12][..]), "{protobuf:?}");
    assert_eq!(protobuf.header("content-type"), Some("application/x-protobuf"));
    let bomb = gzip(&vec![b' '; 65 << 20]);
    assert_eq!(send(&place, "/v1/traces", "application/json", true, &bomb).with(413)["code"], 8);
    assert_eq!(send(&place, "/v1/traces", "application/json", true, b"not gzip").with(400)["code"], 3);
    assert_eq!(send(&place, "/v1/traces", "text/plain", false, b"x").with(415)["code"], 3);
    let metrics = send(&place, "/v1/metrics", "application/json", false, b"{}").with(404);
    assert!(metrics["message"].as_str().unwrap().contains("OTEL_METRICS_EXPORTER"), "{metrics}");
    let stranger = place.send_bare("POST", "/v1/traces", "content-type: application/json\r\n", b"{}");
    assert_eq!(stranger.with(401)["code"], 16);
    let get = place.send("GET", "/v1/traces", "", b"");
    assert_eq!(get.with(405)["code"], 12);
    // Elsewhere, refusals are as they were.
    place.send_bare("GET", "/api/v1/sessions", "", b"").problem(401);
}

#[test]
fn messages_that_come_as_log_records_and_their_spans_are_one_session() {
    let name = |signal: &str| format!("openai__otel-v2-default.{signal}.1.pb");
    for signals in [["traces", "logs"], ["logs", "traces"]] {
        let place = TestServer::at(1_794_850_000_000_000);
        for signal in signals {
            let path = format!("/v1/{signal}");
            let reply = send(&place, &path, "application/x-protobuf", false, &capture(&name(signal)));
            assert_eq!(reply.status, 200, "{reply:?}");
        }
        let story = story(&place);
        let count = |wanted: &str| story.iter().filter(|(kind, _)| kind == wanted).count();
        let counts = [count("user-input"), count("model-end"), count("tool-start"), count("tool-end")];
        assert_eq!(counts, [1, 2, 1, 1], "{signals:?}: {story:?}");
        assert!(story.iter().any(|(_, summary)| summary == "It is sunny in Paris, 21 C."), "{story:?}");
    }
}

#[test]
fn secrets_are_taken_out() {
    let place = TestServer::at(1_794_850_000_000_000);
    let secret = concat!("ghp_", "0123456789abcdefghij", "0123456789abcdef");
    let text = String::from_utf8(capture("openai__traceloop.traces.1.json")).unwrap();
    let text = text.replace("Weather in Paris?", &format!("My token is {secret}"));
    let reply = send(&place, "/v1/traces", "application/json", false, text.as_bytes());
    assert_eq!(reply.status, 200);
    let session = session(&place);
    let id = session["id"].as_str().unwrap();
    let steps = place.get(&format!("/sessions/{id}/steps?oldest_first=true")).with(200);
    let mut all = steps.to_string();
    for step in steps["items"].as_array().unwrap() {
        all += &place.get(&format!("/sessions/{id}/steps/{}", step["number"])).with(200).to_string();
    }
    assert!(all.contains("My token is"), "{all}");
    assert!(!all.contains(secret), "{all}");
}
