//! What happens is told as it happens, and nobody misses a step.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::TestServer;

/// Somebody who follows.
struct Follower {
    stream: BufReader<TcpStream>,
}

#[derive(Debug)]
struct Told {
    event: String,
    id: Option<u64>,
    data: Value,
}

impl Follower {
    fn new(place: &TestServer, query: &str, headers: &str) -> Self {
        let mut stream = BufReader::new(place.open("GET", &format!("/api/v1/events{query}"), headers));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        Self { stream }
    }

    /// The next event, or `None` at the end. An id alone is an event without a name.
    fn next(&mut self) -> Option<Told> {
        let mut told = Told { event: String::new(), id: None, data: Value::Null };
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("event", name)) => told.event = name.to_owned(),
                Some(("id", id)) => told.id = Some(id.parse().unwrap()),
                Some(("data", data)) => told.data = serde_json::from_str(data).unwrap(),
                _ if line.is_empty() && (told.id.is_some() || !told.event.is_empty()) => return Some(told),
                _ => {}
            }
        }
    }

    /// The next event of this name.
    fn await_event(&mut self, name: &str) -> Told {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            let told = self.next().expect("the stream goes on");
            if told.event == name {
                return told;
            }
        }
        panic!("no {name} within a minute");
    }

    /// The next line of what is inside the chunks.
    fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            let is_size = line.ends_with("\r\n") && usize::from_str_radix(line.trim(), 16).is_ok();
            if line == "0\r\n" {
                return None;
            }
            if !is_size && line != "\r\n" {
                return Some(line.trim_end_matches(['\r', '\n']).to_owned());
            }
        }
    }
}

fn report(place: &TestServer, session: &str, kind: &str, count: usize) {
    let one = |at: usize| json!({ "session": session, "kind": kind, "summary": format!("{session} {at}") });
    let events: Vec<Value> = (0..count).map(one).collect();
    let body = json!({ "workspace": "w", "agent": "mine", "events": events });
    assert_eq!(place.post("/ingest", &body).with(200)["accepted"], count);
}

#[test]
fn steps_are_told_with_their_place_and_everything_else_is_hinted_at() {
    let place = TestServer::new();
    report(&place, "before", "agent-step", 1);
    let mut follower = Follower::new(&place, "", "");
    let first = follower.next().unwrap();
    assert_eq!((first.event.as_str(), first.id), ("", Some(1)), "where it begins is said at once");
    report(&place, "s", "user-input", 2);
    let step = follower.await_event("step");
    assert_eq!((step.id, &step.data["position"], &step.data["number"]), (Some(2), &json!(2), &json!(2)));
    assert_eq!((&step.data["kind"], &step.data["summary"]), (&json!("user-input"), &json!("s 0")));
    assert_eq!(follower.await_event("step").id, Some(3));
    follower.await_event("changed");
    // What others commit beside the server is told as well.
    place.checkpoint("one");
    let step = follower.await_event("step");
    assert_eq!((&step.data["label"], &step.data["workspace"]), (&json!("one"), &json!(place.workspace())));
    let id = place.get(&format!("/workspaces/{}/checkpoints", place.workspace())).with(200)["items"][0]["id"]
        .clone();
    let path = format!("/checkpoints/{}", id.as_str().unwrap());
    place.ask("PATCH", &path, Some(&json!({ "note": "good" }))).with(200);
    follower.await_event("changed");
}

#[test]
fn agents_that_wait_are_told_and_when_they_go_on() {
    let place = TestServer::new();
    place.call("s", "c1", "file", "1", false);
    let mut follower = Follower::new(&place, "?session=s", "");
    let mut other = Follower::new(&place, &format!("?kinds=error&workspace={}", place.workspace()), "");
    place.stop_agent("s", "stop1");
    for follower in [&mut follower, &mut other] {
        let told = follower.await_event("stops");
        assert_eq!(told.data["items"][0]["id"], "stop1");
    }
    place.post("/stops/stop1/answer", &json!({ "answer": "resume" })).with(200);
    place.forget_stop("s", "stop1");
    assert_eq!(follower.await_event("stops").data["items"], json!([]));
}

#[test]
fn only_what_is_asked_for_is_told() {
    let place = TestServer::new();
    report(&place, "a", "agent-step", 3);
    report(&place, "b", "user-input", 3);
    report(&place, "a", "user-input", 1);
    let ids = |query: &str, count: usize| -> Vec<u64> {
        let mut follower = Follower::new(&place, query, "");
        (0..count).map(|_| follower.await_event("step").id.unwrap()).collect()
    };
    assert_eq!(ids("?after=0", 7), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(ids("?after=0&session=b", 3), [4, 5, 6]);
    assert_eq!(ids("?after=0&session=a&kinds=user-input,error", 1), [7]);
    assert_eq!(ids("?after=5", 2), [6, 7]);
    for (query, headers, status) in [
        ("?after=8", "", 400),
        ("?after=-1", "", 400),
        ("?after=x", "", 400),
        ("?kinds=moon", "", 400),
        ("?session=nobody", "", 404),
        ("?workspace=nowhere", "", 404),
        ("", "last-event-id: x\r\n", 400),
        ("", "last-event-id: 99999999999999999999\r\n", 400),
        ("", "last-event-id: 8\r\n", 400),
    ] {
        place.send("GET", &format!("/api/v1/events{query}"), headers, b"").problem(status);
    }
    place.send_bare("GET", "/api/v1/events", "", b"").problem(401);
}

#[test]
fn whoever_comes_back_misses_nothing_that_was_written_meanwhile() {
    let place = TestServer::new();
    let (writers, batches, count) = (4, 40, 10);
    let all = writers * batches * count;
    let seen: Vec<u64> = std::thread::scope(|scope| {
        let place = &place;
        for writer in 0..writers {
            scope.spawn(move || {
                for _ in 0..batches {
                    report(place, &format!("s{writer}"), "agent-step", count);
                }
            });
        }
        let (mut seen, mut last) = (Vec::new(), 0);
        let mut round = 0;
        while seen.len() < all {
            // It is cut off again and again, each time somewhere else.
            round += 1;
            let mut follower = Follower::new(place, "?after=0", &format!("last-event-id: {last}\r\n"));
            for _ in 0..(round * 37) % 200 + 1 {
                if seen.len() == all {
                    break;
                }
                let told = follower.await_event("step");
                last = told.id.unwrap();
                seen.push(last);
            }
        }
        seen
    });
    assert_eq!(seen, (1..=all as u64).collect::<Vec<_>>());
}

/// Whether the server's end of a connection is open, as the system knows it.
fn is_held(place: &TestServer, client: &TcpStream) -> bool {
    let (near, far) = (place.server().0.port(), client.local_addr().unwrap().port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_end = |at: usize, port: u16| fields[at].ends_with(&format!(":{port:04X}"));
        // 01 is ESTABLISHED.
        is_end(1, near) && is_end(2, far) && fields[3] == "01"
    })
}

#[test]
fn a_client_that_stops_reading_is_dropped_and_holds_up_nobody() {
    let place = TestServer::with_patience(Duration::from_millis(300));
    for _ in 0..20 {
        report(&place, "s", "agent-step", 1000);
    }
    // More than the buffers of a connection hold.
    let mut silent = place.open("GET", "/api/v1/events?after=0", "");
    rustix::net::sockopt::set_socket_recv_buffer_size(&silent, 64 << 10).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let before = Instant::now();
    report(&place, "s", "agent-step", 1);
    assert!(before.elapsed() < Duration::from_secs(30));
    // The server ends the connection although nothing was read: what was on its way is all there is.
    let all_there_is =
        place.get("/sessions/s/timeline?limit=1").with(200)["summary"]["steps"].as_u64().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while is_held(&place, &silent) {
        assert!(Instant::now() < until, "the server holds on to a client that does not read");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut bytes = Vec::new();
    let _ = silent.read_to_end(&mut bytes);
    let told = bytes.windows(12).filter(|some| some == b"event: step\n").count() as u64;
    assert!(told > 0 && told < all_there_is, "{told} of {all_there_is}");
    // It can come back and go on.
    let last = String::from_utf8_lossy(&bytes)
        .lines()
        .filter_map(|line| line.strip_prefix("id: ")?.parse::<u64>().ok())
        .next_back();
    let mut follower = Follower::new(&place, "", &format!("last-event-id: {}\r\n", last.unwrap() - 1));
    assert_eq!(follower.await_event("step").id, last);
}

#[test]
fn the_number_of_clients_is_limited() {
    let place = TestServer::new();
    let mut all: Vec<Follower> = (0..128).map(|_| Follower::new(&place, "", "")).collect();
    place.get("/events").problem(503);
    place.get("/workspaces").with(200);
    all.pop();
    // Its place is free once the server has noticed.
    while place.send("GET", "/api/v1/events?kinds=moon", "", b"").status != 400 {}
    loop {
        let mut stream = place.open("GET", "/api/v1/events", "");
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        if &start == b"HTTP/1.1 200" {
            break;
        }
        // Something must be written before the server can notice that somebody left.
        report(&place, "s", "agent-step", 1);
    }
}

#[test]
fn who_follows_is_let_go_when_the_server_ends() {
    let place = TestServer::new();
    let mut follower = Follower::new(&place, "", "");
    follower.next().unwrap();
    let mut idle = place.open("GET", "/healthz", "");
    idle.flush().unwrap();
    place.stop();
    while follower.next().is_some() {}
}
