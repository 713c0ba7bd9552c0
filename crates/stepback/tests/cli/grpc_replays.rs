//! The real program serves gRPC, and runs a session again for a client that speaks nothing else.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use stepback_testkit::python::python;

use crate::sandbox::Sandbox;
use crate::serving::Serving;

#[test]
fn a_session_is_run_again_over_grpc() {
    let world = Sandbox::new();
    let script = r#"{"turns": [
        {"text": "I write.", "calls": [{"tool": "write", "input": {"path": "made.txt", "content": "one\n"}}]},
        {"text": "I look.", "calls": [{"tool": "bash", "input": {"command": "cat made.txt"}}]},
        {"text": "All is done."}]}"#;
    let file = world.home.join("script.json");
    fs::write(&file, script).unwrap();
    world.ok(["agent", "--provider", "scripted", file.to_str().unwrap(), "do the work"]);
    let before = world.files();
    let server = Serving::start(&world, &[]);
    let mut client = Command::new(python())
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/grpc_replays.py"))
        .arg(server.host())
        .env_clear()
        .env("PYTHONUTF8", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    writeln!(input, "{}", server.token).unwrap();
    drop(input);
    let output = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        said,
        "same: completed\nwith two: diverged\nmade.txt: two\nagain: FAILED_PRECONDITION\n\
         interrupt: FAILED_PRECONDITION\n"
    );
    world.expect_files(&before, "nothing of it happens in the workspace");
}
