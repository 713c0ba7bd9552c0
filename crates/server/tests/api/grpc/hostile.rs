//! Clients that send what is no message, too much, or nothing that they then read.

use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use prost::Message;
use stepback_grpc::v1::*;
use stepback_server::ServerConfig;
use tonic::Code;

use super::connection::Connection;
use super::raw::{GRPC, LIST, RawConnection, frame};
use crate::support::TestServer;

#[test]
fn what_is_no_message_is_refused_and_the_server_goes_on() {
    let server = TestServer::new();
    let raw = RawConnection::new(&server, 1 << 20);
    let good = frame(0, 0, b"");
    assert_eq!(raw.call(LIST, GRPC, good.clone()), (StatusCode::OK, Some(0)));
    let mut two = good.clone();
    two.extend(&good);
    let broken: [(&str, Vec<u8>); 11] = [
        ("nothing", vec![]),
        ("half a head", vec![0, 0, 0]),
        ("less than it says", frame(0, 100, b"abc")),
        ("more than it says", frame(0, 0, b"abc")),
        ("longer than anything", frame(0, u32::MAX, b"abc")),
        ("compressed without a name", frame(1, 3, b"abc")),
        ("an unknown flag", frame(7, 0, b"")),
        ("no protobuf", frame(0, 4, &[0xff; 4])),
        ("a length that leads out", frame(0, 3, &[0x0a, 0x7f, b'x'])),
        ("text that is not UTF-8", frame(0, 4, &[0x0a, 2, 0xff, 0xfe])),
        ("two messages", two),
    ];
    for (what, body) in broken {
        let (status, code) = raw.call(LIST, GRPC, body);
        assert_eq!(status, StatusCode::OK, "{what}");
        assert!(code.is_some_and(|code| code != 0) || what == "two messages", "{what}: {code:?}");
    }
    // Fields that a later client knows are ignored.
    let unknown = ListSessionsRequest::default().encode_to_vec();
    let unknown = [unknown, vec![0xfa, 0x7f, 3, 1, 2, 3]].concat();
    assert_eq!(raw.call(LIST, GRPC, frame(0, unknown.len() as u32, &unknown)).1, Some(0));
    assert_eq!(raw.call(LIST, GRPC, good).1, Some(0));
}

#[test]
fn a_huge_message_is_refused_and_a_large_one_is_read() {
    let server = TestServer::new();
    server.write("file", "1");
    server.checkpoint("one");
    let grpc = Connection::new(&server);
    let paths = |count: usize| PlanRewindRequest {
        workspace: server.workspace(),
        point: Some("one".into()),
        paths: vec!["x".repeat(1000); count],
        ..Default::default()
    };
    // The operation itself says that there are no such paths, and not with all of their names.
    let read = grpc.wait(grpc.plans().plan_rewind(paths(5000))).unwrap_err();
    assert_eq!(read.code(), Code::InvalidArgument);
    assert!(
        read.message().contains("matches xxx") && read.message().len() < 8000,
        "{}",
        read.message().len()
    );
    let refused = grpc.wait(grpc.plans().plan_rewind(paths(9000))).unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    assert!(refused.message().contains("the limit is: 8388608 bytes"), "{refused:?}");
    // One that only says that it is huge is refused before it is read.
    let raw = RawConnection::new(&server, 1 << 20);
    let endless = futures_util::stream::once(async { Ok(Bytes::from(frame(0, 1 << 30, &[0; 1000]))) });
    let endless = futures_util::StreamExt::chain(
        endless,
        futures_util::stream::pending::<Result<Bytes, axum::Error>>(),
    );
    assert_eq!(raw.call(LIST, GRPC, Body::from_stream(endless)).1, Some(Code::OutOfRange as i32));
    grpc.wait(grpc.sessions().list_sessions(ListSessionsRequest::default())).unwrap();
}

#[test]
fn a_deadline_ends_calls_and_streams() {
    let server = TestServer::new();
    let raw = RawConnection::new(&server, 1 << 20);
    let call = |path: &str, timeout: &'static str| {
        let mut request = raw.request(Method::POST, path, GRPC, frame(0, 0, b""));
        request.headers_mut().insert("grpc-timeout", HeaderValue::from_static(timeout));
        raw.code(request)
    };
    assert_eq!(call(LIST, "0n"), (StatusCode::OK, Some(Code::DeadlineExceeded as i32)));
    assert_eq!(call(LIST, "60S"), (StatusCode::OK, Some(0)));
    assert_eq!(call(LIST, "soon"), (StatusCode::OK, Some(Code::InvalidArgument as i32)));
    // A stream that never ends by itself.
    let follow = "/stepback.v1.Events/FollowEvents";
    assert_eq!(call(follow, "300m"), (StatusCode::OK, Some(Code::DeadlineExceeded as i32)));
}

#[test]
fn unknown_methods_and_other_protocols_are_told_what_is_wrong() {
    let server = TestServer::new();
    let raw = RawConnection::new(&server, 1 << 20);
    let good = || frame(0, 0, b"");
    let unimplemented = (StatusCode::OK, Some(Code::Unimplemented as i32));
    for path in [
        "/stepback.v1.Sessions/Nothing",
        "/stepback.v1.Nothing/ListSessions",
        "/stepback.v2.Sessions/ListSessions",
        "/other.Service/Method",
        "/",
        "/api/v1/nothing",
    ] {
        assert_eq!(raw.call(path, GRPC, good()), unimplemented, "{path}");
    }
    for kind in ["application/json", "application/grpc-web", "application/grpc+json", "text/plain"] {
        assert_eq!(raw.call(LIST, kind, good()), (StatusCode::UNSUPPORTED_MEDIA_TYPE, None), "{kind}");
    }
    let get = raw.send(raw.request(Method::GET, LIST, GRPC, Body::empty()));
    assert_ne!(get.headers()["grpc-status"], "0");
    // An operation of the HTTP API is no method.
    let (_, code) = raw.call("/api/v1/sessions", GRPC, good());
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    let old = server.send("POST", LIST, "content-type: application/grpc\r\n", &good());
    assert!(old.problem(505)["detail"].as_str().unwrap().contains("HTTP/2"));
    let plain = server.send("POST", LIST, "content-type: application/json\r\n", b"{}").problem(415);
    assert!(plain["hints"][0].as_str().unwrap().contains("/api/v1"));
}

#[test]
fn clients_that_read_nothing_lose_their_streams_and_delay_no_others() {
    let server =
        TestServer::with(|config| ServerConfig { write_timeout: Duration::from_millis(500), ..config });
    for number in 0..40 {
        server.call("s1", &format!("c{number}"), "file", &"x".repeat(number + 1), false);
    }
    // Each stream has more to send than its window and the queue hold.
    let raw = RawConnection::new(&server, 256);
    let request = FollowEventsRequest { after: Some(0), ..Default::default() }.encode_to_vec();
    let follow = || {
        let body = frame(0, request.len() as u32, &request);
        raw.send(raw.request(Method::POST, "/stepback.v1.Events/FollowEvents", GRPC, body))
    };
    let (mut open, mut refused) = (Vec::new(), 0);
    for _ in 0..150 {
        let answer = follow();
        match answer.headers().get("grpc-status") {
            None => open.push(answer),
            Some(_) => refused += 1,
        }
    }
    assert!(refused > 0 || open.len() > 128, "{} streams, {refused} refused", open.len());
    // Calls over the same connection, and over another one, are answered meanwhile.
    assert_eq!(raw.call(LIST, GRPC, frame(0, 0, b"")).1, Some(0));
    let grpc = Connection::new(&server);
    grpc.wait(grpc.sessions().list_sessions(ListSessionsRequest::default())).unwrap();
    // The places of those that read nothing become free, although their connection is alive.
    let begun = Instant::now();
    loop {
        let request = FollowEventsRequest { after: Some(0), ..Default::default() };
        if let Ok(stream) = grpc.wait(grpc.events().follow_events(request)) {
            let mut stream = stream.into_inner();
            assert!(grpc.wait(stream.message()).unwrap().is_some());
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no stream ended");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Who reads now gets what was sent before, and then the reason.
    let rest = raw.runtime.block_on(open.remove(0).into_body().collect()).unwrap();
    let trailers = rest.trailers().cloned().unwrap();
    assert_eq!(trailers["grpc-status"], (Code::ResourceExhausted as i32).to_string());
    assert!(rest.to_bytes().len() < 100_000);
}

#[test]
fn calls_that_are_given_up_free_what_they_held() {
    let server = TestServer::new();
    server.call("s1", "c1", "file", "1", false);
    let grpc = Connection::new(&server);
    // More than may follow at once.
    let begun = Instant::now();
    let mut followed = 0;
    while followed < 200 {
        let request = FollowEventsRequest::default();
        match grpc.wait(grpc.events().follow_events(request)) {
            Ok(stream) => {
                drop(stream);
                followed += 1;
            }
            Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{followed} streams");
    }
    for _ in 0..50 {
        let mut client = grpc.search();
        let call = client.search_steps(SearchStepsRequest { q: "x".into(), ..Default::default() });
        // Given up at once: the request may or may not have been sent.
        let _ = grpc.wait(async { tokio::time::timeout(Duration::ZERO, call).await });
    }
    grpc.wait(grpc.sessions().list_sessions(ListSessionsRequest::default())).unwrap();
    let metrics = String::from_utf8(server.send("GET", "/metrics", "", b"").body).unwrap();
    assert!(metrics.contains("stepback_requests_in_flight "), "{metrics}");
}
