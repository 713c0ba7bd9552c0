//! Runs the commands of checks so that they cannot hang, print without end or leave processes behind.
//!
//! A command leads a process group of its own. When it ends, times out or prints too much, the whole group is killed; a
//! process that left the group on purpose is not waited for. The number of processes of the command's user is limited, so that
//! a command that forks without end stops by itself.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal};

/// How many bytes of output are kept from its beginning, and again from its end.
const KEPT_OUTPUT_BYTES: usize = 512 << 10;
/// A command that prints more bytes than this is killed.
pub const MOST_OUTPUT: u64 = 64 << 20;
/// How many processes may run in addition to those that exist when the command starts.
const MORE_PROCESSES: u64 = 512;
/// How long to wait for the end of the output after the group was killed.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandEnd {
    /// It exited with this code.
    Exit(i32),
    /// It was killed by this signal, which we did not send.
    Signal(i32),
    /// It timed out and was killed.
    TimedOut,
    /// It printed more than [`MOST_OUTPUT`] and was killed.
    OutputLimitExceeded,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// How it ended.
    pub end: CommandEnd,
    /// Both output streams, interleaved as they arrived; if there is too much, the beginning and the end.
    pub output: Vec<u8>,
    /// How long it ran.
    pub elapsed: Duration,
}

enum ProcessEvent {
    Exited(io::Result<std::process::ExitStatus>),
    OutputLimitExceeded,
    Read(Vec<u8>),
}

/// Runs `command` with `sh` in `dir`, for at most `timeout`.
pub fn run_command(command: &str, dir: &Path, timeout: Duration) -> io::Result<CommandOutput> {
    let started = Instant::now();
    let (reader, writer) = io::pipe()?;
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .spawn()?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    limit_processes(group);
    let (sender, news) = mpsc::channel();
    let events = sender.clone();
    std::thread::spawn(move || read_output(reader, &events));
    std::thread::spawn(move || {
        let _ = sender.send(ProcessEvent::Exited(child.wait()));
    });
    let mut end = None;
    let mut output = None;
    let deadline = started + timeout;
    while end.is_none() {
        match news.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(ProcessEvent::Exited(status)) => {
                let status = status?;
                let code = || {
                    status
                        .code()
                        .map_or(CommandEnd::Signal(status.signal().unwrap_or_default()), CommandEnd::Exit)
                };
                end = Some(code());
            }
            Ok(ProcessEvent::OutputLimitExceeded) => end = Some(CommandEnd::OutputLimitExceeded),
            Ok(ProcessEvent::Read(bytes)) => output = Some(bytes),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                end = Some(CommandEnd::TimedOut)
            }
        }
    }
    let elapsed = started.elapsed();
    if let Some(group) = group {
        // If the group does not exist, all its processes have ended.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    let drain_deadline = Instant::now() + OUTPUT_DRAIN_TIMEOUT;
    while output.is_none() {
        match news.recv_timeout(drain_deadline.saturating_duration_since(Instant::now())) {
            Ok(ProcessEvent::Read(bytes)) => output = Some(bytes),
            Ok(_) => {}
            // A process that left the group holds the other end; the output read so far is lost.
            Err(_) => break,
        }
    }
    Ok(CommandOutput {
        end: end.unwrap_or(CommandEnd::TimedOut),
        output: output.unwrap_or_default(),
        elapsed,
    })
}

/// Limits the number of processes of the command's user.
fn limit_processes(pid: Option<Pid>) {
    let running = std::fs::read_to_string("/proc/loadavg").ok();
    let running =
        running.as_deref().and_then(|text| text.split(' ').nth(3)?.split('/').nth(1)?.parse::<u64>().ok());
    if let (Some(pid), Some(running)) = (pid, running) {
        let present_limit = rustix::process::getrlimit(Resource::Nproc);
        let limit = Some(running + MORE_PROCESSES);
        let current = match (present_limit.current, limit) {
            (Some(present_limit), Some(limit)) => Some(present_limit.min(limit)),
            (present_limit, limit) => present_limit.or(limit),
        };
        let _ = rustix::process::prlimit(
            Some(pid),
            Resource::Nproc,
            Rlimit { current, maximum: present_limit.maximum },
        );
    }
}

/// Reads to the end of the output and keeps its beginning and its end. Reports once if it exceeds [`MOST_OUTPUT`].
fn read_output(mut pipe: io::PipeReader, events: &mpsc::Sender<ProcessEvent>) {
    let (mut head, mut tail): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 64 << 10];
    let (mut total, mut reported) = (0u64, false);
    loop {
        let count = match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        total += count as u64;
        let (first, rest) = buffer[..count].split_at(count.min(KEPT_OUTPUT_BYTES - head.len()));
        head.extend_from_slice(first);
        tail.extend_from_slice(rest);
        if tail.len() > 2 * KEPT_OUTPUT_BYTES {
            tail.drain(..tail.len() - KEPT_OUTPUT_BYTES);
        }
        if total > MOST_OUTPUT && !reported {
            reported = true;
            let _ = events.send(ProcessEvent::OutputLimitExceeded);
        }
    }
    let left_out = total - (head.len() + tail.len()) as u64;
    if left_out > 0 {
        head.extend_from_slice(format!("\n[… {left_out} bytes left out …]\n").as_bytes());
    }
    head.extend_from_slice(&tail);
    let _ = events.send(ProcessEvent::Read(head));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(command: &str, timeout: Duration) -> CommandOutput {
        run_command(command, Path::new("/"), timeout).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_command_has_its_exit_code_and_both_streams() {
        let done = sh("echo out; echo err >&2; exit 3", LONG);
        assert_eq!(done.end, CommandEnd::Exit(3));
        assert_eq!(String::from_utf8(done.output).unwrap(), "out\nerr\n");
    }

    #[test]
    fn one_that_hangs_is_ended_with_everything_it_started() {
        let begun = Instant::now();
        let done = sh("echo begun; sleep 1000 & sleep 1000", Duration::from_millis(300));
        assert_eq!(done.end, CommandEnd::TimedOut);
        assert_eq!(done.output, b"begun\n", "the pipe was closed, so no process holds it");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn one_that_leaves_a_process_behind_is_not_waited_for() {
        let begun = Instant::now();
        let done = sh("sleep 1000 & echo done", LONG);
        assert_eq!((done.end, done.output.as_slice()), (CommandEnd::Exit(0), b"done\n".as_slice()));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn one_that_prints_without_end_is_ended_and_little_is_kept() {
        let done = sh("yes", LONG);
        assert_eq!(done.end, CommandEnd::OutputLimitExceeded);
        assert!(done.output.len() < 4 * KEPT_OUTPUT_BYTES);
        assert!(String::from_utf8_lossy(&done.output).contains("bytes left out"));
    }

    #[test]
    fn one_that_forks_without_end_is_ended() {
        let done = sh("f() { sleep 1000 & f; }; f", Duration::from_millis(300));
        assert!(
            matches!(done.end, CommandEnd::TimedOut | CommandEnd::Exit(_) | CommandEnd::Signal(_)),
            "{:?}",
            done.end
        );
        assert!(sh("true", LONG).end == CommandEnd::Exit(0), "others can be run after it");
    }
}
