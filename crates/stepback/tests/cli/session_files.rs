//! `export` in the formats that hold one session: as files, to standard output, and to a receiver of spans.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::Talk;

/// A world with a session of one call.
fn played() -> Sandbox {
    let world = Sandbox::new();
    world.write("parser.rs", "one\n");
    let agent = Talk::new(&world, "first");
    agent.begin();
    agent.prompt("teach the parser about commas");
    agent.say(&[json!({ "type": "user", "uuid": "u", "message": { "role": "user", "content": "commas" } })]);
    agent.bash("call", "echo comma >> parser.rs", || world.write("parser.rs", "one\ncomma\n"));
    world
}

#[test]
fn every_format_is_written_and_no_file_is_replaced_by_accident() {
    let world = played();
    for (arguments, name) in [
        (&["--html"][..], "a.html"),
        (&["--atif"], "a.json"),
        (&["--agent-trace"], "b.json"),
        (&["--har"], "c.har"),
        (&["--format", "otlp"], "d.json"),
    ] {
        let export = |more: &[&str]| world.run([&["export", "-o", name], arguments, more].concat());
        let wrote = export(&[]).exits(0);
        assert!(wrote.out.starts_with("Wrote 1 session with"), "{}", wrote.out);
        let text = fs::read_to_string(world.work.join(name)).unwrap();
        let refused = export(&[]).exits(9);
        assert!(refused.err.contains("exists") && refused.err.contains("--force"), "{}", refused.err);
        assert_eq!(fs::read_to_string(world.work.join(name)).unwrap(), text);
        let document = export(&["--force", "--json"]).exits(0).json();
        assert_eq!(document["bytes"], fs::metadata(world.work.join(name)).unwrap().len());
        assert_eq!(document["exported"]["sessions"], 1);
    }
    let page = fs::read_to_string(world.work.join("a.html")).unwrap();
    assert!(page.contains("teach the parser about commas") && page.contains("echo comma"), "{page}");
    let trace: Value = serde_json::from_slice(&fs::read(world.work.join("b.json")).unwrap()).unwrap();
    assert_eq!(trace["files"][0]["path"], "parser.rs");
    assert_eq!(trace["files"][0]["conversations"][0]["ranges"], json!([{ "start_line": 2, "end_line": 2 }]));
    // Standard output, and what makes no sense.
    let out = world.ok(["export", "--atif"]).out;
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["schema_version"], "ATIF-v1.7");
    world.run(["export", "--html", "--atif"]).exits(2);
    world.run(["export", "--html", "--format", "jsonl"]).exits(2);
    world.run(["export", "--html", "first", "first"]).exits(2);
    world.run(["export", "--html", "nobody"]).exits(3);
    world.run(["export", "--html", "-o", "https://a.example/x"]).exits(2);
    world.run(["export", "--otlp", "spans.json", "-o", "other.json"]).exits(2);
    world.ok(["export", "--otlp", "spans.json"]);
    assert!(world.work.join("spans.json").exists());
}

/// Answers one request with a status and a body, and returns what was sent: the head and the body.
fn receive(answer: &'static str) -> (String, JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            head.push_str(&lower);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        reader.into_inner().write_all(answer.as_bytes()).unwrap();
        (head, body)
    });
    (url, thread)
}

#[test]
fn spans_are_sent_to_a_receiver_and_its_answer_is_told() {
    let world = played();
    let (url, thread) = receive("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
    let sent = world.ok(["export", "--otlp", &url]);
    assert!(sent.out.starts_with("Sent 1 session with"), "{}", sent.out);
    let (head, body) = thread.join().unwrap();
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    let request: Value = serde_json::from_slice(&body).unwrap();
    let spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    assert!(spans.iter().any(|span| span["name"] == "execute_tool Bash"), "{spans:#?}");

    let partial = "HTTP/1.1 200 OK\r\ncontent-length: 65\r\nconnection: close\r\n\r\n{\"partialSuccess\":{\"rejectedSpans\":\"3\",\"errorMessage\":\"too old\"}}";
    let (url, thread) = receive(partial);
    let told = world.run(["export", "--otlp", &url]).exits(5);
    assert!(told.err.contains("rejected 3 spans: too old"), "{}", told.err);
    thread.join().unwrap();

    let (url, thread) =
        receive("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let told = world.run(["export", "--otlp", &url]).exits(9);
    assert!(told.err.contains("401") && told.err.contains("OTEL_EXPORTER_OTLP_HEADERS"), "{}", told.err);
    thread.join().unwrap();

    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = world.run(["export", "--otlp", &format!("http://{unused}")]).exits(7);
    assert!(told.err.contains("cannot send to"), "{}", told.err);
    let told = world.run(["export", "--otlp", concat!("https://user:", "hunter2@a.example")]).exits(2);
    assert!(!told.err.contains("hunter2"), "{}", told.err);
}
