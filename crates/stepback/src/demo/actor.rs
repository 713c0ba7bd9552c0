//! The demo's agent: a separate process whose output is shown with a margin, and which never outlives the demo.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::stage::POLL_INTERVAL;

/// How long an agent that was asked to end may take to record its state.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A running agent process.
#[derive(Debug)]
pub struct AgentProcess {
    child: Child,
    lines: Receiver<String>,
}

/// The result of waiting for an agent's output.
#[derive(Debug)]
pub enum OutputWait {
    /// The agent printed this line.
    Line(String),
    /// The agent printed nothing within the time.
    Nothing,
    /// The agent's output has ended.
    Ended,
}

impl AgentProcess {
    /// Starts the agent in its own process group: Ctrl-C reaches only the demo, which then ends the agent in an orderly
    /// way.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.process_group(0).spawn()?;
        let (send, lines) = channel();
        if let Some(out) = child.stdout.take() {
            forward_lines(out, send.clone());
        }
        if let Some(err) = child.stderr.take() {
            forward_lines(err, send);
        }
        Ok(Self { child, lines })
    }

    /// Returns the next line, waiting at most for `time`.
    pub fn next_line(&self, time: Duration) -> OutputWait {
        match self.lines.recv_timeout(time) {
            Ok(line) => OutputWait::Line(line),
            Err(RecvTimeoutError::Timeout) => OutputWait::Nothing,
            Err(RecvTimeoutError::Disconnected) => OutputWait::Ended,
        }
    }

    /// Waits until the process has ended.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return };
        let is_over = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if is_over(&mut self.child) {
            return;
        }
        let _ = kill_process(id, Signal::TERM);
        let until = Instant::now() + EXIT_TIMEOUT;
        while !is_over(&mut self.child) {
            if Instant::now() > until {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Forwards lines as they arrive, until the end of the output.
fn forward_lines(from: impl Read + Send + 'static, to: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            if !line.is_ok_and(|line| to.send(line).is_ok()) {
                return;
            }
        }
    });
}
