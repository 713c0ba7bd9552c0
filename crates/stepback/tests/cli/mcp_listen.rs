//! Being told of changes of resources: over lines in both kinds of revisions, over HTTP in the one that has streams for it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::mcp_client::Client;
use crate::sandbox::Sandbox;
use crate::serving::Serving;
use crate::talk::Talk;

const MODERN: &str = "2026-07-28";
const MIND: &str = "stepback://mind";
const SESSION: &str = "stepback://session/s1";
const STAMP: &str = "/params/_meta/io.modelcontextprotocol~1subscriptionId";

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "claude-code", "version": "1" },
    })
}

/// A request to hear of changes at these addresses.
fn listen(id: u64, addresses: &[&str]) -> String {
    let params = json!({ "_meta": meta(), "notifications": { "resourceSubscriptions": addresses } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params }).to_string()
}

/// What a message says to have changed.
#[track_caller]
fn changed(message: &Value) -> &str {
    assert_eq!(message["method"], "notifications/resources/updated", "{message}");
    message["params"]["uri"].as_str().unwrap()
}

#[test]
fn a_connection_subscribes_to_resources_one_by_one() {
    let world = Sandbox::new();
    world.write("a", "1\n");
    let talk = Talk::new(&world, "s1");
    talk.begin();
    talk.prompt("go");
    let mut agent = Client::started(&world, &[], &[]);
    let hello = agent.introduce("claude-code");
    assert_eq!(hello["result"]["capabilities"]["resources"], json!({ "subscribe": true }), "{hello:#}");
    // One report of an agent may be several steps, and so several changes of its session.
    let answered = |agent: &mut Client, what: &str, params: Value| {
        let method = format!("resources/{what}");
        agent.send(&json!({ "jsonrpc": "2.0", "id": "x", "method": method, "params": params }).to_string());
        loop {
            let heard = agent.hear();
            match heard.get("id") {
                Some(_) => return heard,
                None => assert_eq!(changed(&heard), SESSION),
            }
        }
    };
    let subscribe = |agent: &mut Client, what: &str, uri: &str| {
        let answer = answered(agent, what, json!({ "uri": uri }));
        assert_eq!(answer["result"], json!({}), "{answer:#}");
    };
    subscribe(&mut agent, "subscribe", MIND);
    // Somebody else writes on the board, in another process.
    world.ok(["board", "note", "add", "from elsewhere"]);
    assert_eq!(changed(&agent.hear()), MIND);
    // A step that changes no board, then one that does.
    subscribe(&mut agent, "subscribe", SESSION);
    talk.prompt("go on");
    assert_eq!(changed(&agent.hear()), SESSION);
    subscribe(&mut agent, "unsubscribe", MIND);
    world.ok(["board", "note", "add", "unheard"]);
    assert_eq!(changed(&agent.hear()), SESSION);
    for (params, expected) in [
        (json!({ "uri": "stepback://file/@/a" }), "stepback://file/@/a does not support subscriptions"),
        (json!({ "uri": "stepback://session/nobody" }), "does not support subscriptions"),
        (json!({ "uri": 7 }), "\"uri\" must be given"),
        (json!({}), "\"uri\" must be given"),
    ] {
        let refused = answered(&mut agent, "subscribe", params);
        assert_eq!(refused["error"]["code"], -32602, "{refused:#}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(expected), "{refused:#}");
    }
    // Unlike in the other kind, where this is no method.
    let refused = answered(&mut agent, "subscribe", json!({ "uri": MIND, "_meta": meta() }));
    assert_eq!(refused["error"]["code"], -32601, "{refused:#}");
    agent.end().iter().for_each(|left| assert_eq!(changed(left), SESSION));
}

#[test]
fn a_subscription_of_its_own_is_acknowledged_and_says_which_it_is() {
    let world = Sandbox::new();
    world.write("a", "1\n");
    let mut agent = Client::started(&world, &[], &[]);
    agent.send(
        &json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": meta() } })
            .to_string(),
    );
    assert_eq!(agent.hear()["result"]["capabilities"]["resources"]["subscribe"], true);
    agent.send(&listen(2, &[MIND, "stepback://step/@", "nothing"]));
    let told = agent.hear();
    assert_eq!(told["method"], "notifications/subscriptions/acknowledged", "{told:#}");
    assert_eq!(told["params"]["notifications"], json!({ "resourceSubscriptions": [MIND] }), "{told:#}");
    assert_eq!(told.pointer(STAMP), Some(&json!(2)), "{told:#}");
    world.ok(["board", "note", "add", "one"]);
    let told = agent.hear();
    assert_eq!((changed(&told), told.pointer(STAMP)), (MIND, Some(&json!(2))), "{told:#}");
    // Cancelled, and another one opened: only that one is told.
    let cancel = json!({ "requestId": 2 });
    agent.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }).to_string(),
    );
    agent.send(&listen(3, &[MIND]));
    assert_eq!(agent.hear().pointer(STAMP), Some(&json!(3)));
    world.ok(["board", "note", "add", "two"]);
    assert_eq!(agent.hear().pointer(STAMP), Some(&json!(3)));
    for (wanted, expected) in [
        (json!({}), "\"notifications\" must be given"),
        (json!({ "notifications": { "resourceSubscriptions": "x" } }), "must be a list"),
        (json!({ "notifications": { "resourceSubscriptions": [1] } }), "must be a text"),
        (json!({ "notifications": { "resourceSubscriptions": vec![MIND; 101] } }), "at most 100"),
    ] {
        let mut params = wanted;
        params["_meta"] = meta();
        let request =
            json!({ "jsonrpc": "2.0", "id": 4, "method": "subscriptions/listen", "params": params });
        agent.send(&request.to_string());
        let refused = agent.hear();
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(4), &json!(-32602)), "{refused:#}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(expected), "{refused:#}");
    }
    let rest = agent.end();
    assert_eq!(rest.len(), 1, "{rest:#?}");
    assert_eq!((&rest[0]["id"], &rest[0]["result"]["resultType"]), (&json!(3), &json!("complete")));
    assert_eq!(rest[0]["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 3);
}

/// A stream of messages over HTTP.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(server: &Serving, body: &str) -> Self {
        let mut stream = TcpStream::connect(server.host()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (host, token, length) = (server.host(), &server.token, body.len());
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: {MODERN}\r\n\
             mcp-method: subscriptions/listen\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut stream = Self(BufReader::new(stream));
        assert!(stream.line().starts_with("HTTP/1.1 200"));
        let head: Vec<String> =
            std::iter::repeat_with(|| stream.line()).take_while(|line| !line.is_empty()).collect();
        assert!(head.iter().any(|line| line.contains("text/event-stream")), "{head:?}");
        stream
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The next message; none at the end.
    fn hear(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }
}

#[test]
fn changes_are_told_over_http_until_the_server_ends() {
    let world = Sandbox::new();
    world.write("a", "1\n");
    let talk = Talk::new(&world, "s1");
    talk.begin();
    talk.prompt("go");
    let server = Serving::start(&world, &[]);
    let mut stream = Stream::open(&server, &listen(5, &[MIND, SESSION]));
    let told = stream.hear().unwrap();
    assert_eq!(told["method"], "notifications/subscriptions/acknowledged", "{told:#}");
    assert_eq!(told["params"]["notifications"]["resourceSubscriptions"].as_array().unwrap().len(), 2);
    let mut other = Stream::open(&server, &listen(6, &[MIND]));
    assert_eq!(other.hear().unwrap().pointer(STAMP), Some(&json!(6)));
    talk.prompt("go on");
    let told = stream.hear().unwrap();
    assert_eq!((changed(&told), told.pointer(STAMP)), (SESSION, Some(&json!(5))));
    world.ok(["board", "note", "add", "from elsewhere"]);
    while changed(&stream.hear().unwrap()) != MIND {}
    assert_eq!(changed(&other.hear().unwrap()), MIND);
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    for (stream, id) in [(&mut stream, 5), (&mut other, 6)] {
        let mut last = stream.hear().unwrap();
        while last.get("id").is_none() {
            assert_eq!(changed(&last), SESSION);
            last = stream.hear().unwrap();
        }
        assert_eq!(
            (&last["id"], &last["result"]["resultType"]),
            (&json!(id), &json!("complete")),
            "{last:#}"
        );
        assert_eq!(stream.hear(), None);
    }
}
