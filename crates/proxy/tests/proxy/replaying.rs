//! Answers from a recording, with the model gone.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use stepback_llm_wire::{AnswerEnd, Chunks, Exchange, ModelRequest, Response};
use stepback_proxy::{Decision, Proxy, Responder, Timing, start};

use crate::agent::{Agent, ask};
use crate::server::Server;
use crate::sink::Told;
use crate::{STOP, config, proxy};

type Decide = dyn Fn(&str, &mut ModelRequest) -> Decision + Send + Sync;

struct By(Box<Decide>);

impl Responder for By {
    fn answer(&self, id: &str, request: &mut ModelRequest) -> Decision {
        (self.0)(id, request)
    }
}

fn deciding(
    upstream: &str,
    decide: impl Fn(&str, &mut ModelRequest) -> Decision + Send + Sync + 'static,
) -> (Proxy, Arc<Told>) {
    let told = Arc::new(Told::default());
    let mut config = config(upstream, told.clone());
    config.responder = Some(Arc::new(By(Box::new(decide))));
    (start(config).unwrap(), told)
}

/// Nothing answers there.
const GONE: &str = "http://127.0.0.1:9";

fn replaying(exchanges: Vec<Exchange>) -> (Proxy, Arc<Told>) {
    deciding(GONE, move |_, request| {
        match exchanges.iter().find(|exchange| exchange.request.body == request.body) {
            Some(exchange) => {
                Decision::Recorded { response: exchange.response.clone(), timing: Timing::Instant }
            }
            None => Decision::Refuse { status: 409, message: "never asked".into() },
        }
    })
}

fn recorded(body: &str, chunks: &str, ended: AnswerEnd) -> Response {
    Response {
        status: 200,
        headers: vec![("content-type".into(), "text/event-stream".into()), ("x-kept".into(), "1".into())],
        body: body.into(),
        chunks: Chunks::parse(chunks).unwrap(),
        ended,
        first_byte: None,
        took: 0,
        left_out: 0,
    }
}

#[test]
fn what_was_recorded_comes_back_without_the_model() {
    let server = Server::start(|mut connection| {
        while let Some(asked) = connection.request() {
            match &*asked.body {
                b"\"stream\"" => {
                    connection.stream();
                    connection.chunk("data: 1\n\n");
                    connection.chunk(STOP);
                    connection.chunk("");
                }
                b"\"packed\"" => {
                    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                    encoder.write_all(b"{\"packed\":true}").unwrap();
                    connection.answer("content-encoding: gzip\r\n", &encoder.finish().unwrap());
                }
                b"\"error\"" => {
                    connection.write("HTTP/1.1 429 Slow\r\nretry-after: 1\r\ncontent-length: 2\r\n\r\nno")
                }
                b"\"cut\"" => {
                    connection.stream();
                    connection.chunk("data: 1\n\n");
                    return;
                }
                // No answer at all.
                _ => return,
            }
        }
    });
    let (first, told) = proxy(&server);
    let given = |addr, what: &str| {
        let mut agent = Agent::connect(addr);
        agent.send("POST /v1/messages", "", format!("\"{what}\""));
        let head = agent.head().unwrap();
        let (body, end) = agent.rest();
        (head, body, end.is_ok())
    };
    let all = ["stream", "packed", "error", "cut", "failed"];
    let before = all.map(|what| given(first.addr(), what));
    let exchanges = told.ended(all.len());
    drop((first, server));
    let (second, told_again) = replaying(exchanges.clone());
    for (what, (head, body, ended_well)) in all.into_iter().zip(before) {
        let again = given(second.addr(), what);
        assert_eq!((again.0.status, again.2), (head.status, ended_well), "{what}");
        assert_eq!(again.0.header("retry-after"), head.header("retry-after"), "{what}");
        assert_eq!(again.0.header("content-encoding"), None, "{what}");
        let expected = if what == "packed" { b"{\"packed\":true}".to_vec() } else { body };
        assert_eq!(again.1, expected, "{what}");
    }
    let kind = |ended: &AnswerEnd| std::mem::discriminant(ended);
    for (before, again) in exchanges.iter().zip(told_again.ended(all.len())) {
        assert_eq!(
            (&again.request.body, &again.response.body),
            (&before.request.body, &before.response.body)
        );
        assert_eq!(kind(&again.response.ended), kind(&before.response.ended));
    }
    let (head, body) = ask(second.addr(), "POST /v1/messages", "", "\"unknown\"");
    assert_eq!(head.status, 409);
    assert!(String::from_utf8(body).unwrap().contains("never asked"));
}

#[test]
fn each_recorded_piece_is_one_piece_again() {
    let response = recorded("aaabbc\u{20ac}", "10+3 0+2 5+1 1+2 1+1", AnswerEnd::Complete);
    let (proxy, told) = deciding(GONE, move |_, _| Decision::Recorded {
        response: response.clone(),
        timing: Timing::Instant,
    });
    let mut agent = Agent::connect(proxy.addr());
    agent.send("POST /v1/messages", "", "{}");
    let head = agent.head().unwrap();
    assert_eq!((head.header("x-kept"), head.header("content-length")), (Some("1"), None));
    let mut pieces = Vec::new();
    while let Some(piece) = agent.piece().unwrap() {
        pieces.push(piece.len());
    }
    assert_eq!(pieces, [3, 2, 1, 2, 1]);
    let sizes: Vec<u64> = told.only().response.chunks.0.iter().map(|chunk| chunk.bytes).collect();
    assert_eq!(sizes, [3, 2, 1, 2, 1]);
}

#[test]
fn real_timing_takes_the_time_it_took() {
    let response = recorded("ab", "100000+1 200000+1", AnswerEnd::Complete);
    let (proxy, _) =
        deciding(GONE, move |_, _| Decision::Recorded { response: response.clone(), timing: Timing::Real });
    let since = Instant::now();
    assert_eq!(ask(proxy.addr(), "POST /v1/messages", "", "{}").1, b"ab");
    assert!(since.elapsed().as_micros() >= 300_000);
}

#[test]
fn recorded_ends_are_kept() {
    let cases = [
        recorded("ab", "0+1 0+1", AnswerEnd::CutOff("reset".into())),
        recorded("ab", "0+2", AnswerEnd::Cancelled),
        Response { left_out: 5, ..recorded("ab", "0+2", AnswerEnd::Complete) },
        Response { status: 0, ..recorded("", "", AnswerEnd::Cancelled) },
    ];
    for response in cases {
        let expected = response.clone();
        let (proxy, told) = deciding(GONE, move |_, _| Decision::Recorded {
            response: response.clone(),
            timing: Timing::Instant,
        });
        let mut agent = Agent::connect(proxy.addr());
        agent.send("POST /v1/messages", "", "{}");
        match agent.head() {
            Err(_) => assert_eq!(expected.status, 0),
            Ok(_) => {
                let (body, end) = agent.rest();
                assert_eq!((body, end.is_err()), (b"ab".to_vec(), true), "{expected:?}");
                assert!(matches!(told.only().response.ended, AnswerEnd::CutOff(_)));
            }
        }
    }
    let (proxy, _) = deciding(GONE, |_, _| Decision::Recorded {
        response: recorded("", "", AnswerEnd::Failed("it was down".into())),
        timing: Timing::Instant,
    });
    let (head, body) = ask(proxy.addr(), "POST /v1/messages", "", "{}");
    assert_eq!(head.status, 502);
    assert!(String::from_utf8(body).unwrap().contains("it was down"));
}

#[test]
fn a_live_request_goes_on_as_it_came_and_a_changed_one_as_it_was_changed() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = {
        let seen = Arc::clone(&seen);
        Server::start(move |mut connection| {
            while let Some(asked) = connection.request() {
                seen.lock().unwrap().push((asked.head, asked.body));
                connection.answer("", b"{}");
            }
        })
    };
    let ids = Arc::new(Mutex::new(Vec::new()));
    let (proxy, told) = {
        let ids = Arc::clone(&ids);
        deciding(&server.url(), move |id, request| {
            ids.lock().unwrap().push(id.to_owned());
            if request.body["n"] == 1 {
                return Decision::Live;
            }
            assert!(request.path.contains("key=[redacted]"));
            request.path = request.path.replace("models/a:", "models/b:");
            request.body["n"] = 3.into();
            Decision::LiveChanged
        })
    };
    let path = "POST /v1beta/models/a:generateContent?key=hush";
    ask(proxy.addr(), path, "", "{ \"n\" : 1 }");
    ask(proxy.addr(), path, "", "{ \"n\" : 2 }");
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].1, b"{ \"n\" : 1 }");
    assert_eq!(seen[1].1, b"{\"n\":3}");
    assert!(
        seen[1].0.starts_with("POST /v1beta/models/b:generateContent?key=hush HTTP/1.1"),
        "{}",
        seen[1].0
    );
    let ended = told.ended(2);
    assert_eq!(ended[1].request.body, serde_json::json!({ "n": 3 }));
    assert_eq!(*ids.lock().unwrap(), [ended[0].id.clone(), ended[1].id.clone()]);
}

#[test]
fn requests_without_a_model_can_be_answered_and_a_panic_forwards_nothing() {
    let server = Server::answering("", "live");
    let (proxy, told) = deciding(&server.url(), |_, request| {
        assert_ne!(request.body, "panic");
        Decision::Refuse { status: 404, message: format!("{} is not there", request.path) }
    });
    let (head, body) = ask(proxy.addr(), "GET /v1/models", "", "");
    assert_eq!(head.status, 404);
    assert!(String::from_utf8(body).unwrap().contains("/v1/models is not there"));
    assert_eq!(ask(proxy.addr(), "POST /v1/messages", "", "panic").0.status, 500);
    assert_eq!(server.connections(), 0);
    assert_eq!(told.ended_now(), 0);
}
