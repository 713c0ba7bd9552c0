//! `stepback mcp` as a client sees the wire: what makes no sense, what takes long, what comes in which order, and the official
//! inspector.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use stepback_testkit::mcp::Counterparts;

use crate::mcp_client::Client;
use crate::sandbox::{PROGRAM, Sandbox};

#[test]
fn what_makes_no_sense_is_refused_and_harms_nothing() {
    let world = Sandbox::new();
    let mut agent = Client::started(&world, &[], &[]);
    // Nothing is recorded here yet.
    agent.introduce("test");
    let listed = agent.ask("resources/list", json!({}));
    assert_eq!(listed["result"]["resources"].as_array().unwrap().len(), 3, "{listed:#}");
    assert!(agent.end().is_empty());
    let mut agent = Client::started(&world, &[], &[]);
    // Before anybody is introduced.
    let early = agent.ask("tools/list", json!({}));
    assert_eq!(early["error"]["code"], -32600, "{early}");
    assert_eq!(agent.ask("ping", json!({}))["result"], json!({}));
    for (line, code) in [
        ("{", -32700),
        ("\u{0}\u{1}", -32700),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        ("null", -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}"#, -32700),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e999}}"#, -32700),
    ] {
        agent.send(line);
        assert_eq!(agent.hear()["error"]["code"], code, "{line}");
    }
    // A revision that nobody knows: as before 2026 it is agreed on another one, since then it is refused.
    let answer = agent.ask("initialize", json!({ "protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } }));
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
    agent.introduce("test");
    let meta = |version: &str| json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {} } });
    let answer = agent.ask("tools/list", meta("2999-01-01"));
    assert_eq!(answer["error"]["code"], -32022, "{answer}");
    assert_eq!(answer["error"]["data"]["supported"][0], "2026-07-28");
    assert_eq!(agent.ask("server/discover", json!({}))["error"]["code"], -32602);
    assert_eq!(agent.ask("no/such", json!({}))["error"]["code"], -32601);
    assert_eq!(agent.ask("tools/call", json!({ "name": "no_such" }))["error"]["code"], -32602);
    assert_eq!(agent.ask("tools/call", json!({}))["error"]["code"], -32602);
    assert_eq!(agent.ask("tools/call", json!({ "name": "mind", "arguments": [] }))["error"]["code"], -32602);
    assert_eq!(agent.ask("resources/read", json!({ "uri": "stepback://nothing" }))["error"]["code"], -32002);
    assert_eq!(agent.ask("resources/read", json!({ "uri": "file:///etc/passwd" }))["error"]["code"], -32002);
    assert_eq!(agent.ask("prompts/get", json!({ "name": "no-such" }))["error"]["code"], -32602);
    assert_eq!(agent.ask("tools/list", json!({ "cursor": "x" }))["error"]["code"], -32602);
    let cases = [
        ("hypothesis", json!({}), "do is missing"),
        ("hypothesis", json!({ "do": "guess" }), "do must be one of"),
        ("hypothesis", json!({ "do": "propose" }), "needs \"statement\""),
        ("hypothesis", json!({ "do": "propose", "statement": "x", "prior": "NaN" }), "must be a number"),
        ("hypothesis", json!({ "do": "propose", "statement": "x", "prior": 1.5 }), "from 0.0 to 1.0"),
        ("hypothesis", json!({ "do": "propose", "statement": "x", "odd": 1 }), "unknown field odd"),
        ("hypothesis", json!({ "do": "reject", "hypothesis": "H9" }), "there is no hypothesis H9"),
        ("hypothesis", json!({ "do": "reject", "hypothesis": "B1" }), "B1 is not a hypothesis"),
        ("evidence", json!({ "hypothesis": "H1", "text": "x" }), "strength"),
        ("belief", json!({ "do": "depend", "belief": "B1", "on": "B1" }), "B1"),
        ("gap", json!({ "do": "fill", "gap": "G1", "text": "x" }), "G1"),
        ("verify_run", json!({}), "no check is left to run"),
        ("verify_add", json!({ "title": "x" }), "requires something to check"),
        ("verify_add", json!({ "title": "x", "run": "true", "timeout_s": 1e300 }), "timeout_s"),
        ("mind", json!({ "item": "H7" }), "there is no hypothesis H7"),
        ("mind", json!({ "at": "#99" }), "no step 99"),
        ("mind", json!({ "session": "nobody" }), "nobody"),
        ("mind", json!({ "session": 5 }), "session must be a text"),
        ("show", json!({ "point": "#99" }), ""),
        ("search", json!({ "query": "\"unclosed" }), "query"),
        ("rewind_apply", json!({ "plan": "0123" }), "unknown plan"),
        ("rewind_plan", json!({}), "one of to, between, last and changes"),
        ("why", json!({}), "either path or item"),
        ("recover", json!({ "budget": 1 }), "budget"),
    ];
    for (tool, arguments, expected) in cases {
        let said = agent.refused(tool, arguments.clone());
        assert!(said.contains(expected) && said.len() < 1000, "{tool} {arguments}: {said}");
    }
    // Arguments of many megabytes, and a line that is too long altogether.
    let huge = "x".repeat(3 << 20);
    let said = agent.refused("note", json!({ "text": huge }));
    assert!(said.len() < 1000, "{}", said.len());
    agent.send(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "y".repeat(17 << 20)));
    let long = agent.hear();
    assert_eq!(long["error"]["code"], -32600, "{long}");
    // After all that, nothing is on the board and everything works.
    assert_eq!(agent.call("mind", json!({}))["parts"], json!([]));
    agent.call("note", json!({ "text": "still here" }));
    assert!(agent.end().is_empty());
}

#[test]
fn requests_that_stand_for_themselves() {
    let world = Sandbox::new();
    let mut agent = Client::started(&world, &[], &[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "claude-code", "version": "1" },
    });
    let found = agent.ask("server/discover", json!({ "_meta": meta }));
    assert_eq!(
        found["result"]["supportedVersions"],
        json!(["2026-07-28", "2025-11-25", "2025-06-18"]),
        "{found:#}"
    );
    assert_eq!(found["result"]["resultType"], "complete");
    let listed = agent.ask("tools/list", json!({ "_meta": meta }));
    assert!(listed["result"]["ttlMs"].is_u64() && listed["result"]["cacheScope"] == "private", "{listed:#}");
    let called =
        agent.ask("tools/call", json!({ "_meta": meta, "name": "note", "arguments": { "text": "x" } }));
    assert_eq!(called["result"]["structuredContent"]["item"], "N1", "{called:#}");
    assert_eq!(called["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "stepback");
    assert_eq!(agent.ask("ping", json!({ "_meta": meta }))["error"]["code"], -32601);
    let missing = agent.ask("resources/read", json!({ "_meta": meta, "uri": "stepback://step/99" }));
    assert_eq!(missing["error"]["code"], -32602, "{missing:#}");
}

#[test]
fn a_check_that_takes_long_keeps_nobody_waiting() {
    let world = Sandbox::new();
    let mut agent = Client::introduced(&world, "test", &[]);
    let go = world.path("go");
    agent.call("verify_add", json!({ "title": "waits", "run": "until [ -e go ]; do sleep 0.01; done" }));
    let params = json!({ "name": "verify_run", "arguments": {}, "_meta": { "progressToken": "p" } });
    agent.send(
        &json!({ "jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": params }).to_string(),
    );
    let told = agent.hear();
    assert_eq!(
        (&told["method"], &told["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("p"))
    );
    assert_eq!(agent.ask("ping", json!({}))["result"], json!({}));
    agent.call("note", json!({ "text": "meanwhile" }));
    fs::write(&go, "").unwrap();
    let told = agent.hear();
    assert_eq!(told["params"]["progress"], 1, "{told}");
    let answer = agent.hear();
    assert_eq!(
        (&answer["id"], &answer["result"]["structuredContent"]["passed"]),
        (&json!("slow"), &json!(true))
    );
}

#[test]
fn what_was_asked_before_the_end_is_answered_in_order() {
    let world = Sandbox::new();
    let mut agent = Client::introduced(&world, "test", &[]);
    for number in 0..50 {
        let params = json!({ "name": "note", "arguments": { "text": format!("note {number}") } });
        agent.send(
            &json!({ "jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params }).to_string(),
        );
    }
    let answers = agent.end();
    let items: Vec<&Value> =
        answers.iter().map(|answer| &answer["result"]["structuredContent"]["item"]).collect();
    let expected: Vec<Value> = (1..=50).map(|number| json!(format!("N{number}"))).collect();
    assert_eq!(items, expected.iter().collect::<Vec<_>>());
}

/// The official inspector lists the tools and calls one.
#[test]
fn the_official_inspector_gets_along_with_it() {
    let world = Sandbox::new();
    world.write("a", "1\n");
    let counterparts = Counterparts::installed();
    let inspect = |words: &[&str]| -> Value {
        let mut command = Command::new(counterparts.node());
        command.arg(counterparts.inspector()).args(["--cli", PROGRAM, "mcp"]).args(words);
        command.current_dir(&world.work).env_clear();
        for (name, value) in [("HOME", &world.home), ("STEPBACK_HOME", &world.store)] {
            command.env(name, value);
        }
        let node = counterparts.node();
        let path = format!("{}:/usr/bin:/bin", node.parent().unwrap().display());
        let ran = command.env("PATH", path).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{words:?}: {out}{err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error} in {out}{err}"))
    };
    let listed = inspect(&["--method", "tools/list"]);
    counterparts.keep("inspector-tools.json", &format!("{listed:#}\n"));
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.starts_with(&["recover", "mind", "next"]), "{names:?}");
    let called = inspect(&[
        "--method",
        "tools/call",
        "--tool-name",
        "hypothesis",
        "--tool-arg",
        "do=propose",
        "--tool-arg",
        "statement=it is the cache",
    ]);
    assert_eq!(called["structuredContent"]["item"], "H1", "{called:#}");
    let read = inspect(&["--method", "resources/read", "--uri", "stepback://mind"]);
    assert!(read.to_string().contains("it is the cache"), "{read:#}");
    let prompts = inspect(&["--method", "prompts/list"]);
    assert_eq!(prompts["prompts"].as_array().unwrap().len(), 3, "{prompts:#}");
}
