//! `bash`: runs a shell command in the workspace, with a time limit.
//!
//! The command has the whole environment of the user who started the agent. Processes that it leaves in its process group are
//! killed with it: their later changes to files could not be attributed to any call.

use std::cell::Cell;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::clip::Clipped;
use super::{ToolInput, ToolLimits, ToolResult};

/// Default timeout of a command, in seconds.
const DEFAULT_TIMEOUT_SECONDS: u64 = 120;
/// Longest timeout that a call can set, in seconds.
const MAX_TIMEOUT_SECONDS: u64 = 3600;
/// How often to check whether the user ended the run.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long to wait for output after the command has ended.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

enum CommandEnd {
    Status(ExitStatus),
    TimedOut,
    Interrupted,
}

/// Runs a command.
pub fn bash(root: &Path, given: &ToolInput<'_>, limits: &ToolLimits<'_>) -> Result<ToolResult, String> {
    let command = given.text("command")?;
    let seconds = given.number("timeout")?.unwrap_or(DEFAULT_TIMEOUT_SECONDS).clamp(1, MAX_TIMEOUT_SECONDS);
    let begun = Instant::now();
    let until = begun + Duration::from_secs(seconds);
    let until = limits.deadline.map_or(until, |deadline| deadline.min(until));
    let (mut child, output) = start(root, command)?;
    let (text, ended) = spawn_reader(output);
    let end = wait(&mut child, &ended, until, limits);
    let took = begun.elapsed().as_secs();
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The group may be empty; then there is nothing to kill.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    // A process that left the group can hold the pipe open; it is not waited for.
    ended.wait_at_most(OUTPUT_DRAIN_TIMEOUT);
    let text = text.lock().unwrap_or_else(PoisonError::into_inner).text();
    let (last, failed) = match end {
        CommandEnd::Status(status) => match (status.code(), status.signal()) {
            (Some(0), _) => ("[exit code 0]".to_string(), false),
            (Some(code), _) => (format!("[exit code {code}]"), true),
            (None, signal) => (format!("[killed by signal {}]", signal.unwrap_or_default()), true),
        },
        CommandEnd::TimedOut => (format!("[timed out after {took} s]"), true),
        CommandEnd::Interrupted => ("[interrupted]".into(), true),
    };
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    Ok(ToolResult { text: format!("{text}{gap}{last}"), failed })
}

/// Starts the shell with both outputs in one pipe.
fn start(root: &Path, command: &str) -> Result<(Child, std::io::PipeReader), String> {
    let cannot = |error: std::io::Error| format!("cannot run a shell: {error}");
    let begin = |shell: &str| -> std::io::Result<_> {
        let (output, to) = std::io::pipe()?;
        let mut words = Command::new(shell);
        words.arg("-c").arg(command).current_dir(root).stdin(Stdio::null());
        words.stderr(to.try_clone()?).stdout(to).process_group(0);
        Ok((words.spawn()?, output))
    };
    match begin("bash") {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => begin("sh").map_err(cannot),
        other => other.map_err(cannot),
    }
}

/// Waits for the end of a command's output.
struct OutputEnd {
    end_signal: Receiver<()>,
    is_over: Cell<bool>,
}

impl OutputEnd {
    /// Waits for the end of the output, at most this long.
    fn wait_at_most(&self, time: Duration) {
        if !self.is_over.get() {
            self.is_over.set(self.end_signal.recv_timeout(time).is_ok());
        }
    }
}

/// Reads the output in a thread, and signals its end.
fn spawn_reader(mut output: std::io::PipeReader) -> (Arc<Mutex<Clipped>>, OutputEnd) {
    let text = Arc::new(Mutex::new(Clipped::default()));
    let (over, told) = mpsc::channel();
    let kept = text.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 16 << 10];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(&bytes[..count]);
        }
        let _ = over.send(());
    });
    (text, OutputEnd { end_signal: told, is_over: Cell::new(false) })
}

fn wait(child: &mut Child, ended: &OutputEnd, until: Instant, limits: &ToolLimits<'_>) -> CommandEnd {
    let mut glance = Duration::from_micros(100);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return CommandEnd::Status(status),
            Err(_) => return CommandEnd::Interrupted,
            Ok(None) if limits.is_over() => return CommandEnd::Interrupted,
            Ok(None) if Instant::now() >= until => return CommandEnd::TimedOut,
            Ok(None) => {}
        }
        // When its output has ended, the command usually has too.
        match ended.is_over.get() {
            true => std::thread::sleep(glance),
            false => ended.wait_at_most(STOP_POLL_INTERVAL),
        }
        if ended.is_over.get() {
            glance = (glance * 2).min(STOP_POLL_INTERVAL);
        }
    }
}
