//! The recorder against a real server, and against none.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use stepback_client::{Capture, Recorder, RecorderConfig, StepKind, StepReport, TraceContext};
use stepback_engine::Engine;
use stepback_model::env::FrozenEnv;
use stepback_model::time::Timestamp;
use stepback_server::{AppState, HttpServer, ServerConfig as Served, serve};
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::port::{StepQuery, StepRow};

#[path = "../../../examples/report.rs"]
#[expect(dead_code, reason = "its main function takes arguments; the test calls what it does with them")]
mod report;

const LONG: Duration = Duration::from_secs(60);

fn start(store: Arc<dyn Store>, top: &Path, listen: SocketAddr) -> HttpServer {
    let env = FrozenEnv::new(Timestamp::from_micros(1_700_000_000_000_000), 1);
    let config = Served::new(listen, top.join("token"));
    serve(AppState::new(Engine::new(store, Arc::new(env))), config).unwrap()
}

struct TestServer {
    store: Arc<dyn Store>,
    server: Option<HttpServer>,
    address: SocketAddr,
    token: String,
    dir: tempfile::TempDir,
}

impl TestServer {
    fn new() -> Self {
        let dir = tempfile::tempdir_in(stepback_testkit::tree::scratch_place()).unwrap();
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&dir.path().join("store")).unwrap());
        let server = start(store.clone(), dir.path(), "127.0.0.1:0".parse().unwrap());
        let (address, token) = (server.address(), server.token().as_str().to_owned());
        Self { store, server: Some(server), address, token, dir }
    }

    fn config(&self) -> RecorderConfig {
        let url = format!("http://{}", self.address);
        RecorderConfig::new(&url, &self.token)
            .workspace("shop")
            .agent("mine")
            .batch(10, Duration::from_millis(5))
    }

    fn steps(&self) -> Vec<StepRow> {
        let Some(workspace) = self.store.workspace_at(b"remote:shop").unwrap() else { return Vec::new() };
        self.store.steps(workspace.id, &StepQuery { oldest_first: true, ..StepQuery::default() }).unwrap()
    }

    fn summaries(&self) -> Vec<String> {
        self.steps().into_iter().map(|stored| stored.step.summary).collect()
    }

    fn detail(&self, stored: &StepRow) -> serde_json::Value {
        let hash = stored.step.meta.detail.unwrap();
        stepback_model::json::load(&Source(&*self.store), hash).unwrap()
    }
}

struct Source<'a>(&'a dyn Store);

impl stepback_model::object::ObjectSource for Source<'_> {
    fn read(
        &self,
        kind: stepback_model::ObjectKind,
        hash: stepback_model::Hash,
    ) -> Result<Vec<u8>, stepback_model::object::ObjectError> {
        self.0.read(kind, hash)
    }
}

#[test]
fn the_example_reports_a_session() {
    let place = TestServer::new();
    report::report(&format!("http://{}", place.address), &place.token).unwrap();
    let kinds: Vec<&str> = place.steps().iter().map(|stored| stored.step.kind.as_str()).collect();
    assert_eq!(kinds, ["user-input", "tool-start", "tool-end", "tool-start", "tool-end", "agent-step"]);
}

#[test]
fn what_a_program_records_is_in_the_store_in_its_order() {
    let place = TestServer::new();
    let recorder = Recorder::start(place.config().capture(Capture::everything()).longest_text(1000)).unwrap();
    let trace = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
    let session = recorder.session("order-1").in_trace(trace);
    session.prompt("buy milk");
    let call = session.tool("search", json!({ "query": "milk" }));
    assert!(call.traceparent().unwrap().contains("0af7651916cd43dd8448eb211c80319c"));
    call.finish(json!({ "text": "x".repeat(5000) }));
    session.tool("pay", json!({ concat!("pass", "word"): "hunter2" })).fail("no money");
    drop(session.tool("wait", json!(null)));
    let asked = session.model("some-model", "what now?");
    let answered = asked.ending().output("give up").model("some-model", 0.5).memory(json!({ "tried": true }));
    asked.finish_with(answered.messages(vec![json!({ "role": "assistant", "content": "give up" })]));
    session.error(&std::io::Error::other("it broke"));
    session.end();
    assert!(recorder.flush(LONG));
    let steps = place.steps();
    let kinds: Vec<&str> = steps.iter().map(|stored| stored.step.kind.as_str()).collect();
    let expected = [
        "user-input",
        "tool-start",
        "tool-end",
        "tool-start",
        "tool-end",
        "tool-start",
        "tool-end",
        "model-start",
        "model-end",
        "error",
        "agent-step",
    ];
    assert_eq!(kinds, expected);
    let found = place.detail(&steps[2]);
    assert!(found["output"]["text"].as_str().unwrap().contains("bytes left out"));
    assert_eq!(found["metadata"]["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(found["metadata"]["span_id"], place.detail(&steps[1])["metadata"]["span_id"]);
    assert!(!place.detail(&steps[3]).to_string().contains("hunter2"));
    assert!(steps[4].step.meta.failed && steps[4].step.meta.duration.is_some());
    let counts = recorder.counts();
    assert_eq!((counts.stored, counts.waiting, counts.dropped, counts.rejected), (11, 0, 0, 0));
    assert!(counts.left_out_bytes > 4000);
    let session = place.store.session(steps[0].step.session).unwrap().unwrap();
    assert_eq!((session.agent.as_str(), session.info.cost), ("mine", 500_000));
    assert!(session.info.ended_at.is_some() && session.info.tip.is_some());
}

#[test]
fn what_waits_is_sent_when_the_last_recorder_goes() {
    let place = TestServer::new();
    let recorder = Recorder::start(place.config().batch(1000, LONG)).unwrap();
    let session = recorder.session("s");
    for number in 0..50 {
        session.record(StepReport::new(StepKind::AgentStep).summary(&number.to_string()));
    }
    drop(recorder);
    assert_eq!(place.steps().len(), 0, "the session has a recorder too");
    drop(session);
    assert_eq!(place.summaries(), (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn kinds_and_samples_are_chosen_and_calls_stay_whole() {
    let place = TestServer::new();
    let kinds = [StepKind::ToolStart, StepKind::ToolEnd, StepKind::Error, StepKind::UserInput];
    let recorder = Recorder::start(place.config().kinds(kinds).sample_rate(0.3)).unwrap();
    let session = recorder.session("s");
    session.prompt("always");
    session.record(StepReport::new(StepKind::AgentStep));
    for number in 0..200 {
        session.tool("t", number).finish(number);
    }
    session.error(&std::io::Error::other("always"));
    session.tool("bad", 1).fail("always");
    assert!(recorder.flush(LONG));
    let steps = place.steps();
    let of = |kind: StepKind, tool: &str| -> Vec<String> {
        let own =
            |stored: &&StepRow| stored.step.kind == kind && stored.step.meta.tool.as_deref() == Some(tool);
        steps.iter().filter(own).filter_map(|stored| stored.step.meta.call.clone()).collect()
    };
    let calls = of(StepKind::ToolStart, "t");
    assert_eq!(calls, of(StepKind::ToolEnd, "t"));
    assert!((20..110).contains(&calls.len()), "{}", calls.len());
    assert_eq!(of(StepKind::ToolEnd, "bad").len(), 1);
    let counts = recorder.counts();
    assert_eq!(counts.stored + counts.skipped, 1 + 1 + 400 + 1 + 2);
    recorder.enable(false);
    session.prompt("never");
    assert_eq!(recorder.counts(), counts);
}

#[test]
fn a_server_that_comes_late_gets_everything_and_a_gap_where_something_is_missing() {
    let mut place = TestServer::new();
    place.server.take().unwrap().stop();
    let recorder = Recorder::start(place.config().most_waiting(20, 1 << 20)).unwrap();
    let session = recorder.session("s");
    let before = Instant::now();
    for number in 0..100 {
        session.record(StepReport::new(StepKind::AgentStep).summary(&format!("n{number}")));
    }
    assert!(before.elapsed() < Duration::from_secs(30), "nobody waits for a server");
    assert!(!recorder.flush(Duration::from_millis(50)));
    let counts = recorder.counts();
    assert_eq!(counts.stored, 0);
    assert!(counts.dropped >= 60 && counts.waiting + counts.dropped == 100, "{counts:?}");
    place.server = Some(start(place.store.clone(), place.dir.path(), place.address));
    assert!(recorder.flush(LONG));
    session.record(StepReport::new(StepKind::AgentStep).summary("after"));
    assert!(recorder.flush(LONG));
    let summaries = place.summaries();
    // What came before the sender took its first steps, and what came later, may be missing in two places.
    let (gaps, steps): (Vec<_>, Vec<_>) =
        summaries.into_iter().partition(|text| text.contains(" are missing"));
    let missing = gaps.iter().map(|gap| {
        let (number, why) = gap.split_once(' ').unwrap();
        assert_eq!(why, "steps are missing: more was recorded than could be sent");
        number.parse::<u64>().unwrap()
    });
    assert_eq!(missing.sum::<u64>(), counts.dropped);
    assert_eq!(steps.len() as u64, 100 - counts.dropped + 1);
    assert_eq!((steps[0].as_str(), steps[steps.len() - 1].as_str()), ("n0", "after"));
    let counts = recorder.counts();
    assert_eq!((counts.stored + counts.dropped, counts.waiting), (101, 0), "gaps are not steps: {counts:?}");
}

#[test]
fn an_answer_that_is_lost_on_the_way_stores_nothing_twice() {
    let place = TestServer::new();
    // Between the two stands somebody who delivers the first request and swallows its answer.
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, far) = (between.local_addr().unwrap(), place.address);
    std::thread::spawn(move || {
        for (number, stream) in between.incoming().enumerate() {
            let (mut stream, mut server) = (stream.unwrap(), std::net::TcpStream::connect(far).unwrap());
            let (mut up, mut down) = (stream.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut up, &mut down));
            if number == 0 {
                let _ = server.read(&mut [0; 1]);
                let _ = stream.shutdown(std::net::Shutdown::Both);
                continue;
            }
            std::thread::spawn(move || std::io::copy(&mut server, &mut stream));
        }
    });
    let url = format!("http://{near}");
    let recorder =
        Recorder::start(RecorderConfig::new(&url, &place.token).workspace("shop").agent("mine")).unwrap();
    recorder.session("s").prompt("once");
    assert!(recorder.flush(LONG));
    assert_eq!(place.summaries(), ["once"]);
    assert_eq!((recorder.counts().stored, recorder.counts().retries), (1, 1));
}

#[test]
fn a_server_that_never_answers_does_not_hold_up_the_end_of_the_program() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let farewell = Duration::from_millis(200);
    let recorder = Recorder::start(RecorderConfig::new(&url, "t").timeouts(LONG, farewell)).unwrap();
    recorder.session("s").prompt("hello");
    let before = Instant::now();
    drop(recorder);
    assert!(before.elapsed() < Duration::from_secs(30));
}

#[test]
fn what_the_server_refuses_is_counted_and_the_rest_goes_on() {
    let place = TestServer::new();
    let recorder = Recorder::start(place.config()).unwrap();
    let session = recorder.session("s");
    session.record(StepReport::new(StepKind::Rewind).summary("nobody reports this"));
    session.prompt("fine");
    assert!(recorder.flush(LONG));
    assert_eq!((recorder.counts().stored, recorder.counts().rejected), (1, 1));
    let refused = Recorder::start(place.config().workspace("/nowhere")).unwrap();
    refused.session("s").prompt("lost");
    assert!(refused.flush(LONG));
    assert_eq!(refused.counts().rejected, 1);
    for wrong in [
        RecorderConfig::new("ftp://x", "t"),
        RecorderConfig::new("https://x", "t"),
        RecorderConfig::new("http://x", "a b"),
        place.config().sample_rate(2.0),
        place.config().agent(""),
        place.config().batch(0, LONG),
    ] {
        assert!(Recorder::start(wrong).is_err());
    }
}

#[test]
fn nothing_is_sent_in_the_clear_that_the_program_did_not_say() {
    let heard = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", heard.local_addr().unwrap());
    let listening = std::thread::spawn(move || {
        let (mut stream, _) = heard.accept().unwrap();
        let mut bytes = vec![0; 64 << 10];
        let mut text = String::new();
        while !text.contains("]}") {
            let read = stream.read(&mut bytes).unwrap();
            text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        let _ = stream.write_all(b"HTTP/1.1 400 No\r\ncontent-length: 0\r\n\r\n");
        text
    });
    let recorder = Recorder::start(RecorderConfig::new(&url, "thetoken")).unwrap();
    let secret = concat!("ghp_", "0123456789abcdefghijABCDEFGHIJ012345");
    recorder.session("s").prompt(&format!("use {secret}"));
    assert!(recorder.flush(LONG));
    let text = listening.join().unwrap();
    assert!(
        text.contains("authorization: Bearer thetoken")
            && text.contains("redacted")
            && !text.contains(secret)
    );
}
