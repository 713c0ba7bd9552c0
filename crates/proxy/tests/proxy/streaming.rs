//! Pieces of an answer come when they come, and its end waits for the sink.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime};

use stepback_llm_wire::{AnswerEnd, Exchange, ModelRequest};
use stepback_proxy::{ProxyLimits, Sink, start};

use crate::agent::Agent;
use crate::server::Server;
use crate::{STOP, config, proxy};

#[test]
fn a_piece_arrives_while_the_model_holds_the_next() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::start(move |mut connection| {
        connection.request();
        connection.stream();
        for n in 0..3 {
            connection.chunk(format!("data: {n}\n\n"));
            wait.lock().unwrap().recv().unwrap();
        }
        connection.chunk("");
    });
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.send("POST /v1/messages", "", "{}");
    assert_eq!(agent.head().unwrap().header("content-type"), Some("text/event-stream"));
    for n in 0..3 {
        assert_eq!(agent.piece().unwrap().unwrap(), format!("data: {n}\n\n").into_bytes());
        assert_eq!(told.ended_now(), 0);
        go.send(()).unwrap();
    }
    assert_eq!(agent.piece().unwrap(), None);
    let response = told.only().response;
    assert_eq!(response.body, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
    assert_eq!(response.chunks.0.iter().map(|chunk| chunk.bytes).collect::<Vec<_>>(), [9, 9, 9]);
    assert!(response.chunks.0.windows(2).all(|pair| pair[0].after <= pair[1].after));
    assert_eq!(response.first_byte, Some(response.chunks.0[0].after));
    assert!(response.took >= response.chunks.0[2].after);
}

#[test]
fn a_request_is_sent_on_while_the_agent_still_writes() {
    let (seen, see) = mpsc::channel();
    let server = Server::start(move |mut connection| {
        connection.head();
        seen.send(connection.bytes(4)).unwrap();
        seen.send(connection.bytes(4)).unwrap();
        connection.answer("", b"done");
        connection.until_closed();
    });
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.write("POST /v1/messages HTTP/1.1\r\nhost: proxy\r\ncontent-length: 8\r\n\r\nabcd");
    assert_eq!(see.recv().unwrap(), b"abcd");
    agent.write("efgh");
    assert_eq!(see.recv().unwrap(), b"efgh");
    assert_eq!(agent.answer().1, b"done");
    assert_eq!(told.only().request.body, "abcdefgh");
}

/// The end of what the model says, the end of a body of known length, and the end of a chunked one.
#[test]
fn the_sink_knows_before_the_agent_sees_the_end() {
    let server = Server::start(|mut connection| {
        while let Some(asked) = connection.request() {
            match &*asked.body {
                b"length" => connection.answer("", b"all of it"),
                b"chunks" => {
                    connection.stream();
                    connection.chunk("some");
                    connection.chunk("");
                }
                // The end of the body never comes; the agent does not wait for it either.
                _ => {
                    connection.stream();
                    connection.chunk("data: 1\n\n");
                    // The last event comes in two pieces.
                    connection.chunk(&STOP[..20]);
                    connection.chunk(&STOP[20..]);
                    connection.until_closed();
                }
            }
        }
    });
    let (proxy, told) = proxy(&server);
    for (n, how) in ["length", "chunks", "event"].into_iter().enumerate() {
        let mut agent = Agent::connect(proxy.addr());
        agent.send("POST /v1/messages", "", how);
        agent.head().unwrap();
        let mut body = Vec::new();
        while !body.ends_with(STOP.as_bytes()) {
            match agent.piece().unwrap() {
                Some(piece) => body.extend(piece),
                None => break,
            }
        }
        assert_eq!(told.ended_now(), n + 1, "{how}");
        drop(agent);
        let response = &told.ended(n + 1)[n].response;
        assert_eq!((response.body.as_bytes(), &response.ended), (&body[..], &AnswerEnd::Complete), "{how}");
    }
    assert_eq!(proxy.shutdown(crate::PATIENCE).cancelled, 0);
}

#[test]
fn what_only_looks_like_the_end_is_not_the_end() {
    let talk =
        "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"then message_stop comes\"}}\n\n";
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::start(move |mut connection| {
        connection.request();
        connection.stream();
        connection.chunk(talk);
        wait.lock().unwrap().recv().unwrap();
        connection.chunk("data: {\"type\":\"ping\"}\n\n");
        connection.chunk(STOP);
        connection.chunk("");
    });
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.send("POST /v1/messages", "", "{}");
    agent.head().unwrap();
    assert_eq!(agent.piece().unwrap().unwrap(), talk.as_bytes());
    assert_eq!(told.ended_now(), 0);
    go.send(()).unwrap();
    agent.rest().1.unwrap();
    assert!(told.only().response.body.ends_with(STOP));
}

#[test]
fn what_comes_after_the_end_is_still_passed_on() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::start(move |mut connection| {
        connection.request();
        connection.stream();
        connection.chunk(STOP);
        connection.chunk(": a little later\n\n");
        wait.lock().unwrap().recv().unwrap();
        connection.chunk(": much later\n\n");
        connection.chunk("");
    });
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.send("POST /v1/messages", "", "{}");
    agent.head().unwrap();
    // Nothing more arrives for a while, so the sink is called and the agent gets what was held back.
    assert_eq!(agent.piece().unwrap().unwrap(), STOP.as_bytes());
    assert_eq!(told.ended_now(), 1);
    go.send(()).unwrap();
    let (rest, end) = agent.rest();
    end.unwrap();
    assert_eq!(rest, b": a little later\n\n: much later\n\n");
    let response = told.only().response;
    assert_eq!(response.ended, AnswerEnd::Complete);
    assert!(response.body.starts_with(STOP) && !response.body.contains("much later"), "{}", response.body);
}

#[test]
fn usage_after_the_finish_reason_is_recorded() {
    let finish = "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n";
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n";
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::start(move |mut connection| {
        connection.request();
        connection.stream();
        connection.chunk(finish);
        wait.lock().unwrap().recv().unwrap();
        connection.chunk(usage);
        connection.chunk("data: [DONE]\n\n");
        connection.chunk("");
    });
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.send("POST /v1/chat/completions", "", "{}");
    agent.head().unwrap();
    assert_eq!(agent.piece().unwrap().unwrap(), finish.as_bytes());
    go.send(()).unwrap();
    agent.rest().1.unwrap();
    assert!(told.only().response.body.contains(usage));
}

/// Some agents begin with a call as soon as it is whole: what it came of is on record by then if the end is right behind it.
#[test]
fn a_whole_call_waits_for_the_end_right_behind_it_and_for_nothing_else() {
    let done = "data: {\"type\":\"response.output_item.done\",\"item\":{\"type\":\"function_call\"}}\n\n";
    let delta = "data: {\"type\":\"response.output_text.delta\"}\n\n";
    let end = "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n";
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::start(move |mut connection| {
        connection.request();
        connection.stream();
        // The model goes on at once, then thinks for long, then ends.
        connection.chunk(done);
        connection.chunk(delta);
        wait.lock().unwrap().recv().unwrap();
        connection.chunk(done);
        wait.lock().unwrap().recv().unwrap();
        // In one writing, so that nothing comes between them.
        connection.write(format!("{:x}\r\n{done}\r\n{:x}\r\n{end}\r\n", done.len(), end.len()));
        wait.lock().unwrap().recv().unwrap();
        connection.chunk("");
    });
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.send("POST /v1/responses", "", "{}");
    agent.head().unwrap();
    for piece in [done, delta, done] {
        assert_eq!(agent.piece().unwrap().unwrap(), piece.as_bytes());
        assert_eq!(told.ended_now(), 0);
        if piece == delta {
            go.send(()).unwrap();
        }
    }
    go.send(()).unwrap();
    assert_eq!(agent.piece().unwrap().unwrap(), done.as_bytes());
    assert_eq!(told.ended_now(), 1, "the answer is on record before the call");
    assert_eq!(agent.piece().unwrap().unwrap(), end.as_bytes());
    go.send(()).unwrap();
    agent.rest().1.unwrap();
    assert_eq!(told.only().response.body, [done, delta, done, done, end].concat());
}

/// The connection breaks, or the agent goes away, while a whole call waits for what comes behind it.
#[test]
fn what_waits_is_passed_on_whatever_comes() {
    let stop = "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n";
    let server = Server::start(move |mut connection| {
        connection.request();
        connection.stream();
        connection.chunk(stop);
    });
    let (proxy, told) = proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.send("POST /v1/messages", "", "{}");
    agent.head().unwrap();
    let (rest, end) = agent.rest();
    assert_eq!(rest, stop.as_bytes(), "not a byte is lost");
    assert!(end.is_err(), "and the break is passed on");
    let response = &told.ended(1)[0].response;
    assert!(matches!(response.ended, AnswerEnd::CutOff(_)) && response.body == stop, "{response:?}");

    let server = Server::start(move |mut connection| {
        connection.request();
        connection.stream();
        connection.chunk(stop);
        connection.until_closed();
    });
    let (proxy, told) = self::proxy(&server);
    let mut agent = Agent::connect(proxy.addr());
    agent.send("POST /v1/messages", "", "{}");
    agent.head().unwrap();
    drop(agent);
    assert_eq!(told.ended(1)[0].response.ended, AnswerEnd::Cancelled);
}

/// Panics, or never comes back until it is let go.
struct Bad(Option<Mutex<mpsc::Receiver<()>>>);

impl Sink for Bad {
    fn begun(&self, _: &str, _: SystemTime, _: &ModelRequest, _: &[(String, String)]) {
        self.ended_badly();
    }

    fn ended(&self, _: &str, _: &Exchange) {
        self.ended_badly();
    }
}

impl Bad {
    fn ended_badly(&self) {
        match &self.0 {
            None => panic!("a sink that panics"),
            // An error when the test is over is as good as an end.
            Some(wait) => drop(wait.lock().map(|wait| wait.recv())),
        }
    }
}

#[test]
fn a_sink_that_panics_or_hangs_does_not_harm_the_stream() {
    let server = Server::start(|mut connection| {
        while connection.request().is_some() {
            connection.stream();
            connection.chunk("data: 1\n\n");
            connection.chunk(STOP);
            connection.chunk("");
        }
    });
    let (let_go, wait) = mpsc::channel();
    let mut let_go = Some(let_go);
    for sink in [Bad(None), Bad(Some(Mutex::new(wait)))] {
        let hangs = sink.0.is_some();
        let mut config = config(&server.url(), Arc::new(sink));
        config.limits = ProxyLimits::default();
        let proxy = start(config).unwrap();
        let mut agent = Agent::connect(proxy.addr());
        for _ in 0..3 {
            agent.send("POST /v1/messages", "", "{}");
            assert_eq!(agent.answer().1, format!("data: 1\n\n{STOP}").into_bytes());
        }
        let stats = proxy.stats();
        if hangs {
            assert_eq!((stats.sink_late, stats.sink_panicked), (3, 0));
            drop(let_go.take());
            assert_eq!(proxy.shutdown(crate::PATIENCE).exchanges, 3);
        } else {
            let stats = proxy.shutdown(crate::PATIENCE);
            assert_eq!((stats.exchanges, stats.sink_panicked), (3, 6));
        }
    }
}

#[test]
fn two_hundred_streams_at_once() {
    const STREAMS: usize = 200;
    const PIECES: usize = 20;
    let all_here = Arc::new(std::sync::Barrier::new(STREAMS));
    let server = {
        let all_here = Arc::clone(&all_here);
        Server::start(move |mut connection| {
            let asked = connection.request().unwrap();
            connection.stream();
            // No stream goes on before all of them have begun.
            all_here.wait();
            for n in 0..PIECES {
                connection.chunk(format!("data: {} {n}\n\n", String::from_utf8_lossy(&asked.body)));
            }
            connection.chunk(STOP);
            connection.chunk("");
            connection.until_closed();
        })
    };
    let (proxy, told) = proxy(&server);
    let addr = proxy.addr();
    let agents: Vec<_> = (0..STREAMS)
        .map(|n| {
            std::thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(move || {
                    let mut agent = Agent::connect(addr);
                    agent.send("POST /v1/messages", "", n.to_string());
                    let body = String::from_utf8(agent.answer().1).unwrap();
                    let expected: String =
                        (0..PIECES).map(|piece| format!("data: {n} {piece}\n\n")).collect();
                    assert_eq!(body, expected + STOP);
                })
                .unwrap()
        })
        .collect();
    for agent in agents {
        agent.join().unwrap();
    }
    assert_eq!(told.ended(STREAMS).len(), STREAMS);
    for exchange in told.ended(STREAMS) {
        assert_eq!(exchange.response.ended, AnswerEnd::Complete);
        assert!(exchange.response.body.starts_with(&format!("data: {} 0\n", exchange.request.body)));
    }
    let stats = proxy.shutdown(Duration::from_secs(10));
    assert_eq!((stats.running, stats.recorded_bytes), (0, 0));
}
