//! MCP at `/mcp` of a real server: both kinds of requests, the guard, and headers that say something else than the body.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::serving::Serving;
use crate::talk::Talk;
use crate::wire::body_of;

const MODERN: &str = "2026-07-28";

/// Posts to an address with these headers; status, head and body.
fn post(server: &Serving, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, String) {
    send(server, "POST", path, headers, body)
}

fn send(
    server: &Serving,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String, String) {
    let mut stream = TcpStream::connect(server.host()).unwrap();
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    // Who is refused while the body is still on its way cannot send the rest, but is told why.
    let sent = write!(
        stream,
        "{method} {path} HTTP/1.1\r\ncontent-length: {}\r\nconnection: close\r\n{more}\r\n{body}",
        body.len()
    );
    let mut text = String::new();
    let read = stream.read_to_string(&mut text);
    assert!(!text.is_empty(), "{sent:?}, {read:?}");
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let head = text.split("\r\n\r\n").next().unwrap().to_lowercase();
    (status, head, body_of(&text).to_owned())
}

/// A request that stands for itself, with the headers that repeat what it says.
fn ask(server: &Serving, path: &str, method: &str, mut params: Value) -> (u16, Value) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "claude-code", "version": "1" },
    });
    let bearer = format!("Bearer {}", server.token);
    let name =
        params.get("name").or(params.get("uri")).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut headers = vec![
        ("host", server.host()),
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", MODERN),
        ("mcp-method", method),
    ];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
    let (status, _, body) = post(server, path, &headers, &body);
    let answer: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error} in {body}"));
    assert_eq!(answer["id"], 7, "{answer}");
    (status, answer)
}

fn call(server: &Serving, path: &str, tool: &str, arguments: Value) -> Value {
    let (status, answer) = ask(server, path, "tools/call", json!({ "name": tool, "arguments": arguments }));
    assert_eq!((status, &answer["result"]["isError"]), (200, &json!(false)), "{answer:#}");
    answer["result"]["structuredContent"].clone()
}

#[test]
fn an_agent_works_over_http() {
    let world = Sandbox::new();
    world.write("a", "1\n");
    let talk = Talk::new(&world, "s1");
    talk.begin();
    talk.prompt("go");
    let server = Serving::start(&world, &[]);
    // The only workspace there is need not be named.
    call(&server, "/mcp", "checkpoint", json!({ "label": "before" }));
    talk.write("w1", "a", "2\n");
    assert_eq!(
        call(&server, "/mcp", "hypothesis", json!({ "do": "propose", "statement": "it is a" }))["item"],
        "H1"
    );
    // Plan and agreement are two requests, and nothing is remembered of a client in between.
    let plan = call(&server, "/mcp", "rewind_plan", json!({ "to": "before" }));
    call(&server, "/mcp", "rewind_apply", json!({ "plan": plan["plan"] }));
    assert_eq!(fs::read_to_string(world.path("a")).unwrap(), "1\n");
    let here = format!("/mcp?workspace={}", world.work.display());
    assert!(call(&server, &here, "mind", json!({})).to_string().contains("it is a"));
    assert!(call(&server, "/mcp?session=s1", "mind", json!({})).to_string().contains("it is a"));
    let (status, read) = ask(&server, "/mcp", "resources/read", json!({ "uri": "stepback://mind" }));
    assert_eq!((status, &read["result"]["ttlMs"]), (200, &json!(0)), "{read:#}");

    // Who reaches a server cannot run commands by it.
    call(&server, "/mcp", "verify_add", json!({ "title": "t", "run": "touch made" }));
    call(&server, "/mcp", "verify_add", json!({ "title": "t", "file": "a", "text": "1" }));
    let (_, refused) = ask(&server, "/mcp", "tools/call", json!({ "name": "verify_run" }));
    let said = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        said.contains("this server does not run commands") && !world.path("made").exists(),
        "{refused:#}"
    );
    let looked = call(&server, "/mcp", "verify_run", json!({ "checks": ["V2"] }));
    assert_eq!(looked["passed"], true, "{looked:#}");

    let (_, wrong) = ask(&server, "/mcp?workspace=nope", "tools/call", json!({ "name": "mind" }));
    assert!(
        wrong["result"]["content"][0]["text"].as_str().unwrap().contains("no workspace nope"),
        "{wrong:#}"
    );
    let (_, wrong) = ask(&server, "/mcp?what=ever", "tools/call", json!({ "name": "mind" }));
    assert_eq!(wrong["error"]["code"], -32602, "{wrong:#}");

    // Another workspace, and it must be said which is meant.
    let elsewhere = world.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    world.ok(["-C", elsewhere.to_str().unwrap(), "checkpoint", "create"]);
    let (_, unclear) = ask(&server, "/mcp", "tools/call", json!({ "name": "mind" }));
    let said = unclear["result"]["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("one of the 2 workspaces") && said.contains("?workspace="), "{said}");
    assert!(call(&server, &here, "mind", json!({})).to_string().contains("it is a"));
}

#[test]
fn a_client_that_introduces_itself_works_over_http() {
    let world = Sandbox::new();
    world.ok(["checkpoint", "create"]);
    let server = Serving::start(&world, &["--allow-commands"]);
    let bearer = format!("Bearer {}", server.token);
    let base =
        [("host", server.host()), ("authorization", bearer.as_str()), ("content-type", "application/json")];
    let say = |more: &[(&str, &str)], body: Value| {
        post(&server, "/mcp", &[&base, more].concat(), &body.to_string())
    };
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } } });
    let (status, head, body) = say(&[], hello);
    assert_eq!(status, 200, "{body}");
    assert!(!head.contains("mcp-session-id") && body.contains("2025-06-18"), "{head} {body}");
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(say(&[], told).0, 202);
    let version = ("mcp-protocol-version", "2025-06-18");
    let note = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "note", "arguments": { "text": "x" } } });
    let (status, _, body) = say(&[version], note);
    assert!(status == 200 && body.contains("N1"), "{body}");
    let unknown = json!({ "jsonrpc": "2.0", "id": 3, "method": "no/such" });
    let (status, _, body) = say(&[version], unknown.clone());
    assert!(status == 200 && body.contains("-32601"), "{body}");
    let (status, _, body) = say(&[("mcp-protocol-version", "1999-01-01")], unknown);
    assert!(status == 400 && body.contains("2026-07-28"), "{body}");
    // Progress is told as it happens, to who listens.
    say(
        &[version],
        json!({ "jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {
        "name": "verify_add", "arguments": { "title": "t", "run": "true" } } }),
    );
    let run = json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {
        "name": "verify_run", "arguments": {}, "_meta": { "progressToken": 9 } } });
    let (status, head, body) = say(&[version, ("accept", "application/json, text/event-stream")], run);
    assert!(status == 200 && head.contains("text/event-stream"), "{head}");
    assert!(body.find("notifications/progress").unwrap() < body.find("\"passed\":true").unwrap(), "{body}");
}

#[test]
fn who_may_not_ask_is_refused_and_headers_must_agree() {
    let world = Sandbox::new();
    world.ok(["checkpoint", "create"]);
    let server = Serving::start(&world, &[]);
    let bearer = format!("Bearer {}", server.token);
    let (host, token, json_body) =
        (("host", server.host()), ("authorization", bearer.as_str()), ("content-type", "application/json"));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let status = |headers: &[(&str, &str)], body: &str| post(&server, "/mcp", headers, body).0;
    assert_eq!(status(&[host, token, json_body], ping), 200);
    assert_eq!(status(&[host, json_body], ping), 401);
    assert_eq!(status(&[host, ("authorization", "Bearer x"), json_body], ping), 401);
    assert_eq!(status(&[("host", "evil.example"), token, json_body], ping), 421);
    assert_eq!(status(&[host, token, json_body, ("origin", "http://evil.example")], ping), 403);
    assert_eq!(status(&[host, token, ("content-type", "text/plain")], ping), 415);
    assert_eq!(status(&[host, token, json_body], "{"), 400);
    assert_eq!(status(&[host, token, json_body], &format!("[{ping}]")), 400);
    assert_eq!(status(&[host, token, json_body], &"x".repeat(9 << 20)), 413);
    for method in ["GET", "DELETE"] {
        assert_eq!(send(&server, method, "/mcp", &[host, token], "").0, 405, "{method}");
    }
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mind = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "mind", "_meta": meta } }).to_string();
    let code = |more: &[(&str, &str)]| {
        let (status, _, body) = post(&server, "/mcp", &[&[host, token, json_body], more].concat(), &mind);
        let answer: Value = serde_json::from_str(&body).unwrap();
        (status, answer["error"]["code"].as_i64().unwrap_or_default())
    };
    let (version, method, name) =
        (("mcp-protocol-version", MODERN), ("mcp-method", "tools/call"), ("mcp-name", "mind"));
    assert_eq!(code(&[version, method, name]), (200, 0));
    assert_eq!(code(&[version, method, ("mcp-name", "=?base64?bWluZA==?=")]), (200, 0));
    let mismatch = (400, -32020);
    assert_eq!(code(&[method, name]), mismatch);
    assert_eq!(code(&[("mcp-protocol-version", "2025-11-25"), method, name]), mismatch);
    assert_eq!(code(&[version, name]), mismatch);
    assert_eq!(code(&[version, ("mcp-method", "tools/list"), name]), mismatch);
    assert_eq!(code(&[version, method]), mismatch);
    assert_eq!(code(&[version, method, ("mcp-name", "note")]), mismatch);
    assert_eq!(code(&[version, method, ("mcp-name", "=?base64?!?=")]), mismatch);
}
