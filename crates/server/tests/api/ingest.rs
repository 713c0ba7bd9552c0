//! What agents elsewhere report: stored once, in order, and answered when it is durable.

use std::collections::HashSet;
use std::io::Write;
use std::thread;

use serde_json::{Value, json};

use crate::support::{Reply, TestServer};

fn event(session: &str, id: &str) -> Value {
    json!({ "session": session, "kind": "agent-step", "id": id, "summary": format!("step {id}"), "input": { "n": id } })
}

fn batch(events: &[Value]) -> Value {
    json!({ "workspace": "shop", "agent": "mine", "events": events })
}

fn send(place: &TestServer, headers: &str, body: &[u8]) -> Reply {
    place.send("POST", "/api/v1/ingest", headers, body)
}

fn numbers(taken: &Value) -> Vec<u64> {
    taken["steps"].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const JSON: &str = "content-type: application/json\r\n";
const LINES: &str = "content-type: application/x-ndjson\r\n";

#[test]
fn steps_are_found_by_the_task_and_the_trace_that_they_were_reported_with() {
    let place = TestServer::new();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let events = json!([
        { "session": "s", "kind": "task-started", "id": "1", "task": "t7" },
        { "session": "s", "kind": "tool-end", "id": "2", "tool": "sh", "trace_id": trace, "span_id": "a1", "parent_span_id": "a0" },
        { "session": "s", "kind": "model-end", "id": "3", "metadata": { "trace_id": trace, "span_id": "a2", "task_id": "t8" } },
        { "session": "s", "kind": "agent-step", "id": "4" },
        { "session": "s", "kind": "task-completed", "id": "5", "task": "t7" },
        { "session": "s", "kind": "agent-step", "id": "6" },
    ]);
    let reply =
        place.post("/ingest", &json!({ "workspace": "shop", "agent": "mine", "events": events })).with(200);
    assert_eq!(reply["accepted"], 6);
    let numbers = |path: &str| -> Vec<u64> {
        let page = place.get(path).with(200);
        page["items"].as_array().unwrap().iter().map(|step| step["number"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers("/steps?task=t7"), [5, 4, 1], "what the worker does meanwhile belongs to the task");
    assert_eq!(numbers(&format!("/steps?trace={trace}&order=oldest")), [2, 3]);
    assert_eq!(numbers("/steps?span=a2"), [3]);
    assert_eq!(numbers("/steps?task=t8"), [3]);
    let session = place.get("/steps?span=a1").with(200)["items"][0]["session"].as_str().unwrap().to_owned();
    assert_eq!(numbers(&format!("/sessions/{session}/steps?trace={trace}&oldest_first=true")), [2, 3]);
    let step = place.get(&format!("/sessions/{session}/steps/2")).with(200);
    assert_eq!(
        (&step["trace_id"], &step["span_id"], &step["parent_span_id"]),
        (&json!(trace), &json!("a1"), &json!("a0"))
    );
    let found = place.get("/search?q=t8").with(200);
    assert_eq!(
        (&found["items"][0]["number"], &found["items"][0]["snippets"][0]["field"]),
        (&json!(3), &json!("id"))
    );
    let long = json!([{ "session": "s", "kind": "agent-step", "task": "x".repeat(2000) }]);
    let refused =
        place.post("/ingest", &json!({ "workspace": "shop", "agent": "mine", "events": long })).with(200);
    assert!(
        refused["errors"][0]["detail"].as_str().unwrap().contains("its task has 2000 bytes"),
        "{refused}"
    );
}

#[test]
fn commands_of_reported_calls_are_listed_page_by_page() {
    let place = TestServer::new();
    place.write("file", "1");
    place.checkpoint("first");
    let mut events = Vec::new();
    for at in 0..5 {
        let id = format!("c{at}");
        let input = json!({ "command": format!("run {at}"), "cwd": "/app" });
        events.push(json!({ "session": "s", "kind": "tool-start", "id": id, "call": id, "tool": "sh", "input": input }));
        let output = json!({ "exit_code": at % 2, "stdout": "out", "stderr": "err" });
        events.push(json!({ "session": "s", "kind": "tool-end", "id": id, "call": id, "tool": "sh", "output": output, "duration_us": 7 }));
    }
    events.push(json!({ "session": "s", "kind": "tool-start", "id": "x", "call": "x", "tool": "sh", "input": { "command": "last" } }));
    let reply = place
        .post("/ingest", &json!({ "workspace": place.workspace(), "agent": "mine", "events": events }))
        .with(200);
    let path = format!("/workspaces/{}/commands", reply["workspace"].as_str().unwrap());
    let all = place.get(&path).with(200);
    let list = |page: &Value| -> Vec<String> {
        let of = |item: &Value| {
            format!(
                "{} {} {}",
                item["command"].as_str().unwrap(),
                item["status"].as_str().unwrap(),
                item["exit"]
            )
        };
        page["items"].as_array().unwrap().iter().map(of).collect()
    };
    let expected =
        ["last running null", "run 4 ran 0", "run 3 ran 1", "run 2 ran 0", "run 1 ran 1", "run 0 ran 0"];
    assert_eq!(list(&all), expected);
    let newest = &all["items"][1];
    assert_eq!(
        (&newest["stdout"], &newest["stderr"], &newest["directory"]),
        (&json!("out"), &json!("err"), &json!("/app"))
    );
    assert_eq!(
        (&newest["start"], &newest["step"], &newest["duration_us"]),
        (&json!(10), &json!(11), &json!(7))
    );
    let first = place.get(&format!("{path}?limit=4")).with(200);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = place.get(&format!("{path}?limit=4&after={cursor}")).with(200);
    assert_eq!([list(&first), list(&second)].concat(), expected);
    assert_eq!(
        list(&place.get(&format!("{path}?failed=true&session=s")).with(200)),
        ["run 3 ran 1", "run 1 ran 1"]
    );
    assert_eq!(list(&place.get(&format!("{path}?at=%234")).with(200)), ["run 1 running null", "run 0 ran 0"]);
    place.get(&format!("{path}?stat=ran")).with(400);
}

#[test]
fn messages_between_agents_are_steps_and_lines_between_lanes() {
    let place = TestServer::new();
    let message = |id: &str, worker: &str, message: Value| json!({ "session": "s", "kind": "message", "id": id, "worker": worker, "message": message });
    let asked = json!({ "session": "s", "kind": "message", "id": "1", "message":
        { "receiver": "tester", "performative": "ACHIEVE", "content": "run the tests", "id": "m1" } });
    let events = json!([
        asked,
        message(
            "2",
            "tester",
            json!({ "performative": "tell", "content": { "passed": 7 }, "answers": "m1" })
        ),
        message(
            "3",
            "tester",
            json!({ "receiver": "reviewer", "performative": "SendMessage", "content": "look", "id": "m2" })
        ),
        message("4", "r-17", json!({ "receiver": "tester", "performative": "reply", "answers": "m2" })),
        message("5", "tester", json!({ "receiver": "*", "performative": "broadcast" })),
    ]);
    let reply =
        place.post("/ingest", &json!({ "workspace": "shop", "agent": "mine", "events": events })).with(200);
    assert_eq!(reply["accepted"], 5, "{reply}");
    let found = place.get("/steps?kind=message&order=oldest").with(200);
    let summaries: Vec<&str> =
        found["items"].as_array().unwrap().iter().map(|step| step["summary"].as_str().unwrap()).collect();
    assert_eq!(summaries[0], "main → tester: achieve: run the tests");
    assert_eq!(summaries[1], "tester → main: tell: {\"passed\":7}");
    assert_eq!(summaries[2], "tester → reviewer: message/send: look");
    let session = found["items"][0]["session"].as_str().unwrap();
    let step = place.get(&format!("/sessions/{session}/steps/2")).with(200);
    assert_eq!((&step["worker"], &step["message"]["answers"]), (&json!("tester"), &json!("m1")));
    assert_eq!(step["message"]["content"], json!({ "passed": 7 }));
    let marks = place.get(&format!("/sessions/{session}/marks")).with(200);
    let lanes: Vec<&str> = marks["lanes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lane| lane["worker"].as_str().unwrap_or("main"))
        .collect();
    assert_eq!(lanes, ["main", "tester", "r-17"]);
    // A reviewer was asked whose id is known from its answer; a message to all goes to no lane.
    let expected = json!([
        { "number": 1, "to": 1, "performative": "achieve" },
        { "number": 2, "to": 0, "performative": "tell" },
        { "number": 3, "to": 2, "performative": "message/send" },
        { "number": 4, "to": 1, "performative": "reply" },
    ]);
    assert_eq!(marks["messages"], expected);
    assert_eq!(place.get("/search?q=achieve").with(200)["items"][0]["number"], 1);
}

#[test]
fn reported_messages_come_back_with_who_speaks_and_what_was_said() {
    let place = TestServer::new();
    let messages = json!([
        { "role": "user", "content": "fix it" },
        { "role": "assistant", "text": "looking" },
        { "role": "model", "parts": [{ "text": "a" }, { "text": "b" }] },
        { "role": "assistant", "content": [{ "type": "text", "text": "c" }, { "type": "tool_use", "id": "1", "name": "sh", "input": {} }] },
        { "role": "tool", "tool_call_id": "1", "content": "ok" },
        { "role": "developer", "content": ["d", "e"] },
        { "unheard": "of" },
    ]);
    let expected = [
        ("user", "fix it"),
        ("assistant", "looking"),
        ("assistant", "a\nb"),
        ("assistant", "c"),
        ("tool", "ok"),
        ("system", "d\ne"),
        ("", "{\"unheard\":\"of\"}"),
    ];
    // Also for an agent that writes conversations of its own elsewhere.
    for (agent, count) in [("mine", 7), ("claude", 6)] {
        let event = json!({ "session": agent, "kind": "model-end", "id": "m", "messages": messages });
        place.post("/ingest", &json!({ "workspace": "shop", "agent": agent, "events": [event] })).with(200);
        let steps = place.get(&format!("/sessions/{agent}/steps")).with(200);
        let number = steps["items"][0]["number"].as_u64().unwrap();
        let said = place.get(&format!("/sessions/{agent}/steps/{number}/state/conversation")).with(200);
        let said: Vec<(&str, &str)> = (said["items"].as_array().unwrap().iter())
            .map(|item| (item["role"].as_str().unwrap_or_default(), item["text"].as_str().unwrap()))
            .collect();
        assert_eq!(said, expected[..count], "{agent}");
    }
}

#[test]
fn an_empty_error_is_no_error() {
    let place = TestServer::new();
    let errors = [json!(""), json!(null), json!(false), json!({ "message": "" }), json!("no"), json!(true)];
    let event = |(at, error): (usize, &Value)| json!({ "session": "s", "kind": "tool-end", "id": at.to_string(), "tool": "sh", "error": error });
    let events: Vec<Value> = errors.iter().enumerate().map(event).collect();
    assert_eq!(place.post("/ingest", &batch(&events)).with(200)["rejected"], 0);
    let failed = place.get("/sessions/s/steps?failed=true&oldest_first=true").with(200);
    let numbers: Vec<_> = failed["items"].as_array().unwrap().iter().map(|step| &step["number"]).collect();
    assert_eq!(numbers, [5, 6]);
}

#[test]
fn a_batch_becomes_steps_of_a_session_that_can_be_gone_through() {
    let place = TestServer::new();
    let call = |kind: &str, more: Value| {
        let mut event = json!({ "session": "s1", "kind": kind, "id": "c1", "call": "c1", "tool": "search" });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let sent = batch(&[
        json!({ "session": "s1", "kind": "user-input", "id": "p1", "input": "find it", "at": "2026-01-02T03:04:05Z",
                "messages": [{ "role": "user", "content": "find it" }] }),
        call(
            "tool-start",
            json!({ "input": { "query": "it" }, "memory": { "seen": 1 }, "at": "2026-01-02T03:04:06Z" }),
        ),
        call("tool-end", json!({ "output": "here", "at": "2026-01-02T03:04:07.5Z" })),
        json!({ "session": "s1", "kind": "model-end", "id": "m1", "model": "some-model", "cost_usd": 0.25,
                "output": "found", "messages": [{ "role": "assistant", "content": "found" }], "ended": true }),
    ]);
    let taken = place.post("/ingest", &sent).with(200);
    assert_eq!((&taken["accepted"], &taken["rejected"]), (&json!(4), &json!(0)));
    assert_eq!(numbers(&taken), [1, 2, 3, 4]);

    let session = place.get("/sessions/s1").with(200);
    assert_eq!((&session["agent"], &session["title"]), (&json!("mine"), &json!("find it")));
    assert_eq!((&session["model"], &session["cost_usd"]), (&json!("some-model"), &json!(0.25)));
    assert_eq!((&session["workspace"], &session["imported"]), (&taken["workspace"], &json!(false)));
    assert!(session["ended_at"].is_string());
    let end = place.get("/sessions/s1/steps/3").with(200);
    assert_eq!((&end["output"], &end["duration_us"]), (&json!("here"), &json!(1_500_000)));
    assert_eq!(place.get("/sessions/s1/steps/2/state/memory").with(200), json!({ "seen": 1 }));
    let said = place.get("/sessions/s1/steps/4/state/conversation").with(200);
    assert_eq!(said["items"].as_array().unwrap().len(), 2);
    assert_eq!(said["items"][1]["message"]["content"], "found");
    assert_eq!(
        (&said["items"][1]["role"], &said["items"][1]["text"]),
        (&json!("assistant"), &json!("found"))
    );
    assert_eq!(place.get("/sessions/s1/timeline").with(200)["summary"]["steps"], 4);

    let again = place.post("/ingest", &sent).with(200);
    assert_eq!(again, taken, "delivered again, it is answered the same");
    assert_eq!(place.get("/sessions/s1").with(200)["cost_usd"], 0.25);
    assert_eq!(place.get("/sessions/s1/timeline").with(200)["summary"]["steps"], 4);

    // There are no files, and nothing pretends that there were.
    let workspace = taken["workspace"].as_str().unwrap();
    assert_eq!(place.get(&format!("/workspaces/{workspace}")).with(200)["root"], "remote:shop");
    place.post(&format!("/workspaces/{workspace}/checkpoints"), &json!({ "label": "x" })).problem(409);
    place.post(&format!("/workspaces/{workspace}/rewind-plans"), &json!({ "point": "#1" })).problem(404);
    place.get(&format!("/workspaces/{workspace}/changes")).problem(409);
}

#[test]
fn what_is_wrong_is_told_by_its_place_and_the_rest_is_stored() {
    let place = TestServer::new();
    let taken = place
        .post("/ingest", &batch(&[event("s", "1"), json!({ "session": "s" }), json!(7), event("s", "2")]))
        .with(200);
    assert_eq!((&taken["accepted"], &taken["rejected"]), (&json!(2), &json!(2)));
    assert_eq!(taken["steps"], json!([1, null, null, 2]));
    assert_eq!((&taken["errors"][0]["index"], &taken["errors"][1]["index"]), (&json!(1), &json!(2)));
    assert!(taken["errors"][0]["detail"].as_str().unwrap().contains("kind"));
    let nothing = place.post("/ingest", &batch(&[json!({})])).with(200);
    assert_eq!((&nothing["accepted"], &nothing["workspace"]), (&json!(0), &Value::Null));
}

#[test]
fn lines_and_gzip_are_taken_too_and_a_key_stands_for_missing_ids() {
    let place = TestServer::new();
    let lines = "{\"session\":\"s\",\"kind\":\"agent-step\"}\n\n{\"session\":\"s\",\"kind\":\"agent-step\"}\r\nnonsense\n";
    let target = "/api/v1/ingest?workspace=shop&agent=mine";
    let headers = format!("{LINES}content-encoding: gzip\r\nidempotency-key: batch-7\r\n");
    let first = place.send("POST", target, &headers, &packed(lines.as_bytes())).with(200);
    assert_eq!(first["steps"], json!([1, 2, null]));
    let again = place.send("POST", target, &headers, &packed(lines.as_bytes())).with(200);
    assert_eq!(again["steps"], first["steps"]);
    let other = place.send("POST", target, LINES, lines.as_bytes()).with(200);
    assert_eq!(other["steps"], json!([3, 4, null]), "without a key they are others");
}

#[test]
fn a_workspace_here_is_named_by_its_id_or_root() {
    let place = TestServer::new();
    place.write("file", "1");
    place.checkpoint("one");
    for name in [place.workspace(), place.root.to_str().unwrap().to_owned()] {
        let body = json!({ "workspace": name, "agent": "mine", "events": [event("s", &name)] });
        assert_eq!(place.post("/ingest", &body).with(200)["workspace"], place.workspace());
    }
    // Files are those of the step it grew from.
    let files = place.get("/sessions/s/steps/3/state").with(200);
    assert_eq!(files["items"][0]["path"], "file");
    for (name, status) in
        [("/nowhere".to_owned(), 404), ("0".repeat(32), 404), (" ".into(), 400), ("x".repeat(300), 400)]
    {
        let body = json!({ "workspace": name, "agent": "mine", "events": [event("s", "1")] });
        place.post("/ingest", &body).problem(status);
    }
}

#[test]
fn malformed_bodies_are_refused_and_nothing_is_stored() {
    let place = TestServer::new();
    let deep = format!("{{\"agent\":\"a\",\"events\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let many = format!("{{\"agent\":\"a\",\"events\":[{}0]}}", "0,".repeat(20_000));
    let gzip = format!("{JSON}content-encoding: gzip\r\n");
    let bomb = packed(&vec![b' '; 200 << 20]);
    assert!(bomb.len() < 2 << 20);
    let cut = &packed(batch(&[event("s", "1")]).to_string().as_bytes())[..40];
    for (headers, body, status) in [
        (JSON, &b""[..], 400),
        (JSON, b"\xff\xfe", 400),
        (JSON, b"{\"events\":[\"\xff\"]}", 400),
        (LINES, b"{\"session\":\"\xff\"}", 400),
        (LINES, b"\n \n", 400),
        (JSON, b"[]", 400),
        (JSON, b"{\"events\":[]}", 400),
        (JSON, b"{\"events\":{}}", 400),
        (JSON, b"{\"events\":[1],\"other\":1}", 400),
        (JSON, b"{\"events\":[1],\"agent\":1}", 400),
        (JSON, b"{\"events\":[1", 400),
        (JSON, many.as_bytes(), 413),
        ("", b"{\"events\":[1]}", 415),
        ("content-type: text/plain\r\n", b"{\"events\":[1]}", 415),
        ("content-type: application/json\r\ncontent-encoding: br\r\n", b"x", 415),
        (gzip.as_str(), b"{\"events\":[1]}", 400),
        (gzip.as_str(), cut, 400),
        (gzip.as_str(), &bomb, 413),
        (JSON, &vec![b' '; 100 << 20], 413),
        ("content-type: application/json\r\nidempotency-key: \r\n", b"{\"events\":[1]}", 400),
    ] {
        send(&place, headers, body).problem(status);
    }
    let deep = send(&place, JSON, deep.as_bytes()).with(200);
    assert_eq!(deep["accepted"], 0);
    assert_eq!(place.get("/workspaces").with(200)["items"], json!([]), "nothing was stored");
    // A body whose end nobody ever sends holds up nobody else.
    let _half =
        place.open("POST", "/api/v1/ingest", "content-type: application/json\r\ncontent-length: 100\r\n");
    assert_eq!(place.post("/ingest", &batch(&[event("s", "1")])).with(200)["accepted"], 1);
}

#[test]
fn who_sends_too_much_at_once_is_told_to_come_back() {
    let place = TestServer::new();
    // Room is taken before the body is read.
    let hog = || place.open("POST", "/api/v1/ingest", &format!("{JSON}content-length: {}\r\n", 16 << 20));
    let mut hogs: Vec<_> = (0..3).map(|_| hog()).collect();
    let sent = batch(&[event("s", "1")]);
    let refused = loop {
        let reply = place.post("/ingest", &sent);
        if reply.status != 200 {
            break reply;
        }
        // One that came while there was no room was refused itself.
        hogs.push(hog());
    };
    refused.problem(429);
    assert_eq!(refused.header("retry-after"), Some("1"));
    place.get("/workspaces").with(200);
    drop(hogs);
    let taken = loop {
        let reply = place.post("/ingest", &sent);
        if reply.status != 429 {
            break reply.with(200);
        }
    };
    assert_eq!(taken["accepted"], 1);
}

#[test]
fn many_at_once_are_all_stored_each_session_in_its_order() {
    let place = TestServer::new();
    let (sessions, batches, events) = (6, 12, 25);
    let stored: Vec<Vec<u64>> = thread::scope(|scope| {
        let place = &place;
        let one = |session: usize| {
            let mut all = Vec::new();
            for number in 0..batches {
                let ids: Vec<Value> =
                    (0..events).map(|at| event(&format!("s{session}"), &format!("{number}-{at}"))).collect();
                let workspace = format!("shop-{}", session % 2);
                let body = json!({ "workspace": workspace, "agent": "mine", "events": ids });
                all.extend(numbers(&place.post("/ingest", &body).with(200)));
            }
            all
        };
        let threads: Vec<_> = (0..sessions).map(|session| scope.spawn(move || one(session))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (session, numbers) in stored.iter().enumerate() {
        assert!(numbers.is_sorted(), "session {session} is in order");
        let first = place.get(&format!("/sessions/s{session}/steps/{}", numbers[0])).with(200);
        assert_eq!(first["summary"], "step 0-0");
        let shown = place.get(&format!("/sessions/s{session}/timeline?limit=1000")).with(200);
        assert_eq!(shown["summary"]["steps"], batches * events);
    }
    for half in 0..2 {
        let all: HashSet<u64> = stored.iter().skip(half).step_by(2).flatten().copied().collect();
        assert_eq!(all, (1..=(sessions / 2 * batches * events) as u64).collect(), "no gap and no double");
    }
}

#[test]
fn answers_from_a_recording_are_no_use_of_a_model() {
    let place = TestServer::new();
    let answer = |id: &str, replayed: bool| {
        let mut metadata = json!({ "model": "m", "usage": { "input": 10, "output": 5 }, "cost_usd": 0.5 });
        if replayed {
            metadata["replayed"] = json!(true);
        }
        json!({ "session": "s", "kind": "model-end", "id": id, "metadata": metadata })
    };
    place.post("/ingest", &batch(&[answer("1", false), answer("2", true)])).with(200);
    let usage = place.get("/usage").with(200);
    assert_eq!((&usage["total"]["calls"], &usage["total"]["input"]), (&json!(1), &json!(10)), "{usage}");
    assert_eq!(usage["total"]["cost_usd"], 0.5);
}
