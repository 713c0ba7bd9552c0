//! What the sink receives, and what it never receives.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use stepback_llm_wire::{AnswerEnd, Wire};
use stepback_proxy::start;

use crate::agent::ask;
use crate::server::Server;
use crate::sink::Told;
use crate::{STOP, config, noise, proxy};

#[test]
fn an_exchange_says_what_was_asked_and_answered() {
    let server =
        Server::answering("content-type: application/json\r\nrequest-id: r1\r\n", "{\"type\":\"message\"}");
    let (proxy, told) = proxy(&server);
    let headers = "Anthropic-Version: 2023-06-01\r\nX-Session: s1\r\nContent-Type: application/json\r\n";
    ask(proxy.addr(), "POST /v1/messages?beta=true", headers, "{\"model\":\"m\"}");
    let exchange = told.only();
    let (id, request, all_headers) = told.begun(1).remove(0);
    assert_eq!((id, &request), (exchange.id.clone(), &exchange.request));
    assert!(all_headers.contains(&("x-session".into(), "s1".into())));
    assert!(all_headers.contains(&("host".into(), "proxy".into())));
    assert_eq!(request.wire, Some(Wire::Messages));
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/messages?beta=true"));
    assert!(request.headers.contains(&("anthropic-version".into(), "2023-06-01".into())));
    assert!(!request.headers.iter().any(|(name, _)| name == "host" || name == "content-length"));
    assert_eq!((request.body, request.bytes), (serde_json::json!({ "model": "m" }), 13));
    let response = exchange.response;
    assert_eq!((response.status, response.body.as_str()), (200, "{\"type\":\"message\"}"));
    assert_eq!(response.ended, AnswerEnd::Complete);
    assert!(response.headers.contains(&("request-id".into(), "r1".into())));
    assert!(!response.headers.iter().any(|(name, _)| name == "content-length"));
}

#[test]
fn nothing_that_authorises_reaches_the_sink() {
    let answer =
        concat!("Set-Coo", "kie: a=hush1\r\nX-Refresh-Token: hush2\r\nLocation: /x?access_token=hush3\r\n");
    let server = Server::answering(answer, "{}");
    let (proxy, told) = proxy(&server);
    let headers = "Authorization: Bearer hush4\r\nProxy-Authorization: Basic hush5\r\nX-Api-Key: hush6\r\n\
                   Api-Key: hush7\r\nx-goog-api-key: hush8\r\nCookie: hush9\r\nX-My-Secret-Thing: hush10\r\n\
                   X-Custom: Bearer hush11\r\nReferer: http://h/?key=hush12\r\nX-Auth-Token: hush13\r\n";
    let path =
        "/v1beta/models/m:generateContent?alt=sse&key=hush14&api_key=hush15&ToKeN=hush16&access_token=hush17";
    ask(proxy.addr(), &format!("POST {path}"), headers, "{}");
    let exchange = told.only();
    let everything = format!("{exchange:?} {:?}", told.begun(1));
    assert!(!everything.contains("hush"), "{everything}");
    assert!(exchange.request.path.starts_with("/v1beta/models/m:generateContent?alt=sse&key=[redacted]&"));

    // Nor when no server answers.
    let (closed, told) = (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(Told::default()));
    let upstream = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let proxy = start(config(&upstream, told.clone())).unwrap();
    let (_, body) = ask(proxy.addr(), &format!("POST {path}"), headers, "{}");
    let everything = format!("{:?} {:?} {}", told.only(), told.begun(1), String::from_utf8(body).unwrap());
    assert!(!everything.contains("hush"), "{everything}");
}

fn gzip(pieces: &[&str]) -> Vec<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut packed: Vec<Vec<u8>> = pieces
        .iter()
        .map(|piece| {
            encoder.write_all(piece.as_bytes()).unwrap();
            encoder.flush().unwrap();
            std::mem::take(encoder.get_mut())
        })
        .collect();
    packed.push(encoder.finish().unwrap());
    packed
}

#[test]
fn a_packed_stream_is_passed_on_packed_and_recorded_unpacked() {
    let events = ["data: {\"type\":\"ping\"}\n\n", STOP];
    let packed = gzip(&events);
    let server = {
        let packed = packed.clone();
        Server::start(move |mut connection| {
            connection.request();
            connection
                .write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n");
            connection.write("transfer-encoding: chunked\r\n\r\n");
            for piece in &packed {
                connection.chunk(piece);
                // Pieces of their own, as far as the network goes; the record is right in any case.
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            connection.chunk("");
        })
    };
    let (proxy, told) = proxy(&server);
    let (head, body) = ask(proxy.addr(), "POST /v1/messages", "accept-encoding: gzip\r\n", "{}");
    assert_eq!(head.header("content-encoding"), Some("gzip"));
    assert_eq!(body, packed.concat());
    let response = told.only().response;
    assert_eq!(response.body, events.concat());
    assert_eq!(response.chunks.0.iter().map(|chunk| chunk.bytes).sum::<u64>(), response.body.len() as u64);
    assert!(!response.headers.iter().any(|(name, _)| name == "content-encoding"));
}

#[test]
fn what_cannot_be_unpacked_is_kept_and_says_so() {
    for encoding in ["gzip", "br", "zstd", "deflate", "unheard-of"] {
        let headers = format!("content-encoding: {encoding}\r\n");
        let body =
            b"{\"type\":\"error\", and a good deal more of plain text, which is not packed at all \xff}"
                .to_vec();
        let server = Server::answering(headers.leak(), body.clone());
        let (proxy, told) = proxy(&server);
        assert_eq!(ask(proxy.addr(), "POST /v1/messages", "", "{}").1, body);
        let response = told.only().response;
        assert!(response.headers.contains(&("content-encoding".into(), encoding.into())), "{encoding}");
        assert_eq!(response.body, String::from_utf8_lossy(&body), "{encoding}");
        assert_eq!(
            response.chunks.0.iter().map(|chunk| chunk.bytes).sum::<u64>(),
            response.body.len() as u64
        );
    }
}

#[test]
fn a_packed_request_is_recorded_unpacked() {
    let server = Server::answering("", "{}");
    let (proxy, told) = proxy(&server);
    let packed = gzip(&["{\"model\":", "\"m\"}"]).concat();
    ask(proxy.addr(), "POST /v1/responses", "content-encoding: gzip\r\n", &packed);
    let request = told.only().request;
    assert_eq!((request.body, request.bytes), (serde_json::json!({ "model": "m" }), packed.len() as u64));
}

#[test]
fn what_is_too_much_is_passed_on_and_counted() {
    let body = noise(10_000);
    let server = Server::answering("", body.clone());
    let told = Arc::new(Told::default());
    let mut config = config(&server.url(), told.clone());
    config.limits.recorded_body = 1000;
    let proxy = start(config).unwrap();
    assert!(ask(proxy.addr(), "POST /v1/messages", "", &body).1 == body);
    let exchange = told.only();
    assert_eq!((exchange.response.left_out, exchange.request.bytes), (9000, 10_000));
}

#[test]
fn all_exchanges_together_have_a_limit() {
    let server = Server::answering("", "an answer");
    let told = Arc::new(Told::default());
    let mut config = config(&server.url(), told.clone());
    config.limits.recorded_total = 5;
    let proxy = start(config).unwrap();
    assert_eq!(ask(proxy.addr(), "POST /v1/messages", "", "12345").1, b"an answer");
    let response = told.only().response;
    assert_eq!((response.body.as_str(), response.left_out), ("", 9));
    assert_eq!(proxy.shutdown(crate::PATIENCE).recorded_bytes, 0);
}
