//! The agent at work: a process of its own whose lines are shown with a margin, and which never outlives the demo.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::stage::GLANCE;

/// How long an agent that was told to end may take to write down how far it came.
const TO_END: Duration = Duration::from_secs(5);

/// An agent that was started.
#[derive(Debug)]
pub struct Actor {
    child: Child,
    lines: Receiver<String>,
}

/// What came of listening to an agent.
#[derive(Debug)]
pub enum Said {
    /// It said this.
    Line(String),
    /// Nothing, so far.
    Nothing,
    /// Nothing, and it never will.
    Ended,
}

impl Actor {
    /// Starts it, in a process group of its own: Ctrl-C is for the demo, which then ends the agent in order.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.process_group(0).spawn()?;
        let (send, lines) = channel();
        if let Some(out) = child.stdout.take() {
            pass_on(out, send.clone());
        }
        if let Some(err) = child.stderr.take() {
            pass_on(err, send);
        }
        Ok(Self { child, lines })
    }

    /// What it says next, within so much time.
    pub fn next_line(&self, time: Duration) -> Said {
        match self.lines.recv_timeout(time) {
            Ok(line) => Said::Line(line),
            Err(RecvTimeoutError::Timeout) => Said::Nothing,
            Err(RecvTimeoutError::Disconnected) => Said::Ended,
        }
    }

    /// Waits until the process is gone.
    pub fn end(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return };
        let is_over = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if is_over(&mut self.child) {
            return;
        }
        let _ = kill_process(id, Signal::TERM);
        let until = Instant::now() + TO_END;
        while !is_over(&mut self.child) {
            if Instant::now() > until {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(GLANCE);
        }
    }
}

/// Sends lines on as they come, until there are no more.
fn pass_on(from: impl Read + Send + 'static, to: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            if !line.is_ok_and(|line| to.send(line).is_ok()) {
                return;
            }
        }
    });
}
