//! Models that are not there, break off, or talk nonsense; agents that go away.

use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use stepback_llm_wire::AnswerEnd;
use stepback_proxy::start;

use crate::agent::{Agent, ask};
use crate::server::Server;
use crate::sink::Told;
use crate::{config, proxy};

/// The response that an agent gets, and what is recorded, when its model is `upstream`.
fn failure(upstream: &str) -> (u16, String, String) {
    let told = Arc::new(Told::default());
    let mut config = config(upstream, told.clone());
    config.limits.idle = Duration::from_millis(500);
    config.limits.connect = Duration::from_millis(500);
    let proxy = start(config).unwrap();
    let (head, body) = ask(proxy.addr(), "POST /v1/messages", "", "{}");
    let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(document["type"], "error");
    let response = told.only().response;
    let AnswerEnd::Failed(reason) = &response.ended else { panic!("{:?}", response.ended) };
    assert_eq!((response.status, response.body.as_bytes()), (head.status, &body[..]));
    (head.status, document["error"]["message"].as_str().unwrap().to_owned(), reason.clone())
}

#[test]
fn a_model_that_is_not_there() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let (status, message, reason) = failure(&upstream);
    assert_eq!(status, 502);
    assert!(message.contains(&reason) && reason.contains("refused the connection"), "{message}");
    assert!(message.contains("Check the address"), "{message}");
}

#[test]
fn a_name_that_does_not_exist() {
    let (status, message, _) = failure("http://no-such-host.invalid:1");
    assert_eq!(status, 502);
    assert!(message.contains("no-such-host.invalid:1: its name could not be resolved"), "{message}");
}

#[test]
fn a_server_that_talks_no_http_or_no_tls_or_not_at_all() {
    let nonsense = Server::start(|mut connection| {
        connection.request();
        connection.write("SSH-2.0-OpenSSH_9.9\r\n\r\n");
    });
    let (status, message, _) = failure(&nonsense.url());
    assert_eq!(status, 502);
    assert!(message.contains("not HTTP"), "{message}");

    let plain = Server::start(|mut connection| connection.write("HTTP/1.1 400 Bad Request\r\n\r\n"));
    let (status, message, _) = failure(&plain.url().replace("http:", "https:"));
    assert_eq!(status, 502);
    assert!(message.contains("no secure connection"), "{message}");

    let closes = Server::start(|mut connection| drop(connection.request()));
    let (status, message, _) = failure(&closes.url());
    assert_eq!(status, 502);
    assert!(message.contains("without an answer"), "{message}");

    let silent = Server::start(|mut connection| connection.until_closed());
    assert_eq!(failure(&silent.url()).0, 504);
    // Nor does it say anything when a secure connection is asked for.
    assert_eq!(failure(&silent.url().replace("http:", "https:")).0, 504);
}

#[test]
fn no_model_at_all() {
    let told = Arc::new(Told::default());
    let mut config = config("http://127.0.0.1:9", told.clone());
    config.upstreams.default = None;
    let proxy = start(config).unwrap();
    for (path, wire) in
        [("/v1/chat/completions", "chat"), ("/v1beta/models/m:generateContent", "gemini"), ("/x", "none")]
    {
        let (head, body) = ask(proxy.addr(), &format!("POST {path}"), "", "{}");
        let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(head.status, 502, "{wire}");
        assert!(
            document["error"]["message"].as_str().unwrap().contains("no model URL is configured"),
            "{wire}"
        );
    }
    assert_eq!(told.ended(2).len(), 2);
}

#[test]
fn errors_and_odd_answers_of_the_model_are_passed_on() {
    for (answer, status, body) in [
        ("HTTP/1.1 529 Overloaded\r\ncontent-length: 2\r\nretry-after: 3\r\n\r\nno", 529, "no"),
        ("HTTP/1.0 200 OK\r\ncontent-type: text/html\r\n\r\n<html>", 200, "<html>"),
        ("HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\ncontent-length: 0\r\n\r\n", 302, ""),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1", 200, "1"),
    ] {
        let server = Server::start(move |mut connection| {
            connection.request();
            connection.write(answer);
        });
        let (proxy, told) = proxy(&server);
        let (head, given) = ask(proxy.addr(), "POST /v1/messages", "", "{}");
        assert_eq!((head.status, given.as_slice()), (status, body.as_bytes()));
        let response = told.only().response;
        assert_eq!(
            (response.status, response.body.as_str(), response.ended),
            (status, body, AnswerEnd::Complete)
        );
    }
}

#[test]
fn an_answer_before_the_end_of_the_request_is_given() {
    let server = Server::start(|mut connection| {
        connection.head();
        connection.answer("x-early: 1\r\n", b"too much");
        connection.until_closed();
    });
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.write("POST /v1/messages HTTP/1.1\r\nhost: proxy\r\ncontent-length: 1000000\r\n\r\nsome");
    let (head, body) = agent.answer();
    assert_eq!((head.header("x-early"), body.as_slice()), (Some("1"), &b"too much"[..]));
    let exchange = told.only();
    assert_eq!((exchange.request.bytes, exchange.response.ended), (4, AnswerEnd::Complete));
}

#[test]
fn an_answer_that_breaks_off_breaks_off_for_the_agent_too() {
    for (how, head) in [
        ("chunks", "transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata"),
        ("length", "content-length: 100\r\n\r\ndata: 1\n\ndata"),
        ("nonsense", "transfer-encoding: chunked\r\n\r\nd\r\ndata: 1\n\ndata\r\nnonsense\r\n"),
    ] {
        let server = Server::start(move |mut connection| {
            connection.request();
            connection.write(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{head}"));
        });
        let (proxy, told) = proxy(&server);
        let mut agent = Agent::connect(proxy.addr());
        agent.send("POST /v1/messages", "", "{}");
        agent.head().unwrap();
        let (body, end) = agent.rest();
        assert_eq!(body, b"data: 1\n\ndata", "{how}");
        assert!(end.is_err(), "{how}: it must not look complete");
        let response = told.only().response;
        assert_eq!(response.body, "data: 1\n\ndata", "{how}");
        assert!(matches!(response.ended, AnswerEnd::CutOff(_)), "{how}: {:?}", response.ended);
    }
}

#[test]
fn a_stream_that_falls_silent_is_cut() {
    let server = Server::start(|mut connection| {
        connection.request();
        connection.stream();
        connection.chunk("data: 1\n\n");
        connection.until_closed();
    });
    let told = Arc::new(Told::default());
    let mut config = config(&server.url(), told.clone());
    config.limits.idle = Duration::from_millis(200);
    let proxy = start(config).unwrap();
    let mut agent = Agent::connect(proxy.addr());
    agent.send("POST /v1/messages", "", "{}");
    agent.head().unwrap();
    let (body, end) = agent.rest();
    assert_eq!((body, end.is_err()), (b"data: 1\n\n".to_vec(), true));
    assert_eq!(told.only().response.ended, AnswerEnd::CutOff("no data for 0.2 s".into()));
}

#[test]
fn an_agent_that_goes_away_ends_the_request() {
    for before_the_answer in [true, false] {
        let (seen, see) = mpsc::channel();
        let server = Server::start(move |mut connection| {
            connection.request();
            if !before_the_answer {
                connection.stream();
                connection.chunk("data: 1\n\n");
            }
            seen.send("asked").unwrap();
            connection.until_closed();
            seen.send("closed").unwrap();
        });
        let (proxy, told) = proxy(&server);
        let mut agent = Agent::connect(proxy.addr());
        agent.send("POST /v1/messages", "", "{}");
        assert_eq!(see.recv().unwrap(), "asked");
        if !before_the_answer {
            agent.head().unwrap();
            agent.piece().unwrap();
        }
        drop(agent);
        assert_eq!(see.recv_timeout(crate::PATIENCE).unwrap(), "closed");
        let response = told.only().response;
        assert_eq!(response.ended, AnswerEnd::Cancelled);
        let expected = if before_the_answer { (0, "") } else { (200, "data: 1\n\n") };
        assert_eq!((response.status, response.body.as_str()), expected);
        assert_eq!(proxy.stats().cancelled, 1);
    }
}

#[test]
fn an_agent_that_goes_away_while_it_asks() {
    let server = Server::start(|mut connection| drop(connection.request()));
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.write("POST /v1/messages HTTP/1.1\r\nhost: proxy\r\ncontent-length: 100\r\n\r\nhalf");
    drop(agent);
    let exchange = told.only();
    assert_eq!((exchange.response.ended, exchange.response.status), (AnswerEnd::Cancelled, 0));
    assert_eq!(exchange.request.bytes, 4);
}

#[test]
fn a_connect_request_is_refused_and_nonsense_does_no_harm() {
    let server = Server::answering("", "fine");
    let (proxy, _) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.write("CONNECT example.invalid:443 HTTP/1.1\r\nhost: example.invalid\r\n\r\n");
    assert_eq!(agent.head().unwrap().status, 405);
    let mut agent = Agent::connect(proxy.addr());
    agent.write("\x16\x03\x01 not http at all\r\n\r\n");
    assert!(agent.head().map_or(true, |head| head.status == 400));
    assert_eq!(ask(proxy.addr(), "POST /v1/messages", "", "{}").1, b"fine");
}
