//! Real processes for tests: a test binary that runs one of its own tests again, as a child.
//!
//! The child is an ordinary test that returns at once unless [`task`] gives it something to do, so a test binary needs no
//! helper program beside it, and the child is always built from the same sources.

use std::process::{Child, Command, Output, Stdio};

const TASK: &str = "STEPBACK_TEST_TASK";

/// What the parent asked this process to do; `None` in an ordinary test run.
pub fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// Starts the test called `name` of this binary as a child process with `task`.
pub fn spawn(name: &str, task: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs the test called `name` of this binary as a child process with `task`, to its end.
pub fn run(name: &str, task: &str) -> Output {
    spawn(name, task).wait_with_output().unwrap()
}

/// Waits for a child and fails the test with what the child said if it failed.
pub fn expect_success(child: Child) {
    let output = child.wait_with_output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "a child failed:\n{}\n{}", said(&output.stdout), said(&output.stderr));
    assert!(said(&output.stdout).contains("1 passed"), "the child ran no test:\n{}", said(&output.stdout));
}
