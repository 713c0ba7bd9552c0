//! The client that most programs use: grpcio, which knows nothing but what the server says about itself.

use std::io::Write;
use std::process::{Command, Stdio};

use stepback_testkit::python::python;

use crate::support::TestServer;

#[test]
fn grpcio_reads_the_same_over_grpc_and_over_http() {
    let server = TestServer::new();
    server.write("kept.txt", "one\n");
    let first = server.checkpoint("first");
    server.call("s1", "c1", "src/a b%.txt", "two\n", false);
    server.said("test", "s1", &[r#"{"role":"user","content":"go on"}"#]);
    server.call("s1", "c2", "kept.txt", "three\n", true);
    server.call("s1", "c3", "large", &"x".repeat(200_000), false);
    let second = server.checkpoint("second");
    let workspace = server.workspace();
    let sessions = server.get("/sessions").with(200);
    let session = sessions["items"][0]["id"].as_str().unwrap();
    let steps = server.get(&format!("/sessions/{session}/steps")).with(200);
    let number = steps["items"][1]["number"].to_string();
    let checkpoint = |number: u64| {
        let point = server.get(&format!("/workspaces/{workspace}/points/{number}")).with(200);
        point["id"].as_str().unwrap().to_owned()
    };
    let mut client = Command::new(python())
        .arg("-c")
        .arg(include_str!("client.py"))
        .args([&server.server().0.to_string(), &workspace, session, &number])
        .args([checkpoint(first), checkpoint(second)])
        .env_clear()
        .env("PYTHONUTF8", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    writeln!(input, "{}", server.server().1).unwrap();
    drop(input);
    let output = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.trim(), "29 reads, 11 services");
    assert_eq!(server.read("kept.txt").as_deref(), Some("three\n"), "the rewind was undone");
}
