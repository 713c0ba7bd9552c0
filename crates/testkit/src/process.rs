//! Real processes for tests: a test binary that runs one of its own tests again, as a child.
//!
//! The child is an ordinary test that returns at once unless [`task`] returns a task, so a test binary needs no separate
//! helper program, and the child is always built from the same sources.

use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Output, Stdio};

use crate::skip::skip;

const TASK: &str = "STEPBACK_TEST_TASK";

/// The task that the parent gave this process; `None` in an ordinary test run.
pub fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// The test called `name` of this binary as a child process with `task`.
pub fn command(name: &str, task: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(TASK, task);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts the test called `name` of this binary as a child process with `task`.
pub fn spawn(name: &str, task: &str) -> Child {
    command(name, task).spawn().unwrap()
}

/// Runs the test called `name` of this binary as a child process with `task`, to its end.
pub fn run(name: &str, task: &str) -> Output {
    spawn(name, task).wait_with_output().unwrap()
}

/// Runs the test called `name` of this binary again as an unprivileged user, if this process is root: permission bits do
/// not restrict root. Returns whether it did so, and the caller has nothing left to do.
pub fn ran_as_ordinary_user(name: &str) -> bool {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let unprivileged_command = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    match unprivileged_command().arg("--list").output() {
        Ok(output) if output.status.success() => {}
        _ => {
            skip("the test binary cannot be run as an ordinary user (setpriv --reuid=65534)");
            return true;
        }
    }
    let child =
        unprivileged_command().args(["--exact", name, "--nocapture", "--test-threads=1"]).spawn().unwrap();
    expect_success(child);
    true
}

/// Waits for a child and fails the test with the child's output if it failed.
pub fn expect_success(child: Child) {
    let output = child.wait_with_output().unwrap();
    let to_text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "a child failed:\n{}\n{}",
        to_text(&output.stdout),
        to_text(&output.stderr)
    );
    assert!(
        to_text(&output.stdout).contains("1 passed"),
        "the child ran no test:\n{}",
        to_text(&output.stdout)
    );
}
