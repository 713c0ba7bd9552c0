//! Following and telling agents something, over one connection.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

use crate::support::TestServer;

struct Talk {
    socket: WebSocket<TcpStream>,
}

impl Talk {
    fn new(place: &TestServer, query: &str, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let (address, _) = place.server();
        let (cookie, key) = place.sign_in();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut request = format!("ws://{address}/api/v1/live{query}").into_client_request().unwrap();
        // As a browser does it, whose scripts can choose protocols and no other header.
        let protocols = format!("stepback, stepback.page.{key}");
        request.headers_mut().insert("cookie", cookie.parse().unwrap());
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Self { socket }),
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(reply))) => {
                Err(reply.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn next(&mut self) -> Option<Value> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    fn await_event(&mut self, name: &str) -> Value {
        loop {
            let told = self.next().expect("it goes on");
            if told["event"] == name {
                return told;
            }
        }
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.socket.send(Message::text(request.to_string())).unwrap();
        loop {
            let told = self.next().expect("it is answered");
            if told.get("reply").is_some() {
                assert_eq!(told["reply"], request["id"]);
                return told;
            }
        }
    }
}

#[test]
fn steps_are_told_and_agents_are_told_something() {
    let place = TestServer::new();
    place.call("s", "c1", "file", "1", false);
    let mut talk = Talk::new(&place, "?after=1&session=s", &[]).unwrap();
    assert_eq!(talk.next().unwrap(), json!({ "event": "hello", "position": 1 }));
    let step = talk.await_event("step");
    assert_eq!((&step["position"], &step["data"]["kind"]), (&json!(2), &json!("tool-end")));

    let workspace = place.workspace();
    let added = talk.ask(
        &json!({ "id": 1, "do": "add-breakpoint", "workspace": workspace, "on": "tool", "name": "Bash" }),
    );
    assert_eq!((&added["data"]["id"], &added["data"]["value"]), (&json!(1), &json!("Bash")));
    let switch = json!({ "id": "x", "do": "switch-breakpoint", "workspace": workspace, "breakpoint": 1, "enabled": false });
    assert_eq!(talk.ask(&switch)["data"]["enabled"], false);
    let list = json!({ "id": 2, "do": "breakpoints", "workspace": workspace });
    assert_eq!(talk.ask(&list)["data"]["items"].as_array().unwrap().len(), 1);
    let remove = json!({ "id": 3, "do": "remove-breakpoint", "workspace": workspace, "breakpoint": 1 });
    assert_eq!(talk.ask(&remove)["data"]["removed"], 1);
    assert_eq!(talk.ask(&json!({ "id": 4, "do": "pause", "session": "s" }))["data"]["paused"], true);
    assert_eq!(
        talk.ask(&json!({ "id": 5, "do": "inject", "session": "s", "text": "wait" }))["data"]["paused"],
        true
    );
    assert_eq!(talk.ask(&json!({ "id": 6, "do": "resume", "session": "s" }))["data"]["paused"], false);
    for (stop, say) in [
        ("a", json!({ "answer": "resume" })),
        ("b", json!({ "answer": "step" })),
        ("c", json!({ "answer": "deny", "reason": "no" })),
        ("d", json!({ "answer": "edit", "input": { "command": "ls" } })),
    ] {
        place.stop_agent("s", stop);
        let told = talk.await_event("stops");
        assert_eq!(told["data"]["items"][0]["id"], stop);
        let mut request = json!({ "id": stop, "do": "answer", "stop": stop });
        request.as_object_mut().unwrap().extend(say.as_object().unwrap().clone());
        assert_eq!(talk.ask(&request)["data"]["id"], stop);
        place.forget_stop("s", stop);
        assert_eq!(talk.await_event("stops")["data"]["items"], json!([]));
    }
}

#[test]
fn what_does_not_fit_is_answered_and_the_connection_stays() {
    let place = TestServer::new();
    place.call("s", "c1", "file", "1", false);
    let mut talk = Talk::new(&place, "", &[]).unwrap();
    for (wrong, status) in [
        (json!({ "id": 1 }), 400),
        (json!({ "id": 2, "do": "dance" }), 400),
        (json!({ "id": 3, "do": "pause" }), 400),
        (json!({ "id": 4, "do": "pause", "session": "nobody" }), 404),
        (json!({ "id": 5, "do": "answer", "stop": "none", "answer": "resume" }), 404),
        (json!({ "id": 6, "do": "answer", "stop": "none", "answer": "edit", "input": [] }), 400),
        (json!({ "id": 7, "do": "add-breakpoint", "workspace": "x", "on": "error" }), 404),
    ] {
        assert_eq!(talk.ask(&wrong)["problem"]["status"], status, "{wrong}");
    }
    talk.socket.send(Message::text("nonsense")).unwrap();
    assert_eq!(talk.next().unwrap()["problem"]["code"], "usage");
    assert_eq!(talk.ask(&json!({ "id": 8, "do": "stops" }))["data"]["items"], json!([]));
    talk.socket.send(Message::binary(vec![0; 4])).unwrap();
    while talk.next().is_some() {}
    let mut talk = Talk::new(&place, "", &[]).unwrap();
    let _ = talk.socket.send(Message::text("x".repeat(1 << 20)));
    while talk.next().is_some() {}
    place.get("/workspaces").with(200);
}

#[test]
fn only_who_may_ask_gets_a_connection() {
    let place = TestServer::new();
    assert_eq!(Talk::new(&place, "", &[("cookie", "stepback=wrong")]).err(), Some(401));
    let protocols = format!("stepback, stepback.page.{}", "0".repeat(64));
    for protocols in ["stepback", &protocols] {
        assert_eq!(Talk::new(&place, "", &[("sec-websocket-protocol", protocols)]).err(), Some(401));
    }
    assert_eq!(Talk::new(&place, "", &[("origin", "https://evil.example")]).err(), Some(403));
    assert_eq!(Talk::new(&place, "", &[("host", "evil.example")]).err(), Some(421));
    assert_eq!(Talk::new(&place, "?after=7", &[]).err(), Some(400));
    let (address, _) = place.server();
    assert!(Talk::new(&place, "", &[("origin", &format!("http://{address}"))]).is_ok());
    place.get("/live").problem(426);
}
