//! `bench tui`: how long the TUI takes to show a session of 100,000 steps, and to respond to a key, at a pseudo-terminal.
//!
//! Times are measured from outside: from the start of the process, or the write of a key, to the last byte of the frame
//! that shows the effect. The session is reported to a server first; then the TUI opens the store itself, and uses the
//! server after that.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use crate::benchmarks::server::BATCH_SIZE;
use crate::benchmarks::server::asking::{Batch, HttpConnection};
use crate::benchmarks::server::process::ServerProcess;
use crate::report::goals::{Goal, at_most};
use crate::report::markdown::{MarkdownTable, goal_list};
use crate::report::results::{ms, percentile};
use crate::run::Run;

/// Steps of the session.
const STEPS: u64 = 100_000;
/// How long anything may take.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
/// The end of a frame: the cursor is hidden again.
const FRAME_END: &[u8] = b"\x1b[?25l";
/// A frame in which nothing changed.
const UNCHANGED_FRAME: &[u8] = b"\x1b[39m\x1b[49m\x1b[59m\x1b[0m\x1b[?25l";

/// The results of this benchmark.
#[derive(Default)]
pub struct TuiResults {
    steps: u64,
    /// The measured actions, and how long each took, in milliseconds.
    took: Vec<(&'static str, Vec<f64>)>,
}

/// Runs this benchmark.
pub fn measure(run: &mut Run<'_>) -> Result<TuiResults> {
    let steps = if run.options.quick { STEPS / 10 } else { STEPS };
    let server = ServerProcess::start(&run.area, &run.binary, None)?;
    let mut connection = HttpConnection::open(&server)?;
    let mut batch = Batch::new(0, 0);
    for number in 0..steps / BATCH_SIZE as u64 {
        batch.renumber(number, 0);
        connection.post_until_taken(batch.body())?;
    }
    ensure!(server.count_steps()? == steps, "not all steps are stored");
    let sessions = connection.get("/sessions")?;
    // The user has a session of their own in every workspace.
    let recorded = sessions["items"].as_array().into_iter().flatten().find(|one| one["agent"] != "person");
    let session = recorded.and_then(|one| one["id"].as_str()).context("there is no session")?.to_owned();
    let mut measured = TuiResults { steps, ..TuiResults::default() };
    let url = format!("http://{}", server.address);
    let ways: [(_, Vec<&str>); 2] =
        [("store", vec!["tui", &session]), ("server", vec!["tui", "--server", &url, &session])];
    for (source, words) in &ways {
        run.monitor.begin_block(source);
        let name =
            |action: &'static str, prefixed: &'static str| if *source == "store" { action } else { prefixed };
        let mut start = Vec::new();
        for _ in 0..run.options.runs.min(20) {
            let (_, duration) = TuiTerminal::start(&run.binary, server.store(), words)?;
            start.push(duration);
        }
        measured.took.push((name("start, to the steps on the screen", "the same from a server"), start));
        let (mut screen, _) = TuiTerminal::start(&run.binary, server.store(), words)?;
        let keys =
            [("k", "a key, to the frame: one step back"), ("\x1b[5~", "page up"), ("\x1b[6~", "page down")];
        for (key, action) in keys {
            let duration = (0..run.options.runs).map(|_| screen.press(key)).collect::<Result<Vec<_>>>()?;
            if *source == "store" {
                measured.took.push((action, duration));
            } else if key == "k" {
                measured.took.push(("a key, from a server", duration));
            }
        }
        let mut jumps = Vec::new();
        for index in 0..run.options.runs.min(50) as u64 {
            let number = 1 + index * 7919 % steps;
            screen.type_in(&format!("g{number}"))?;
            jumps.push(screen.press_and_wait("\r")?);
        }
        measured.took.push((name("a jump to any step", "the same from a server"), jumps));
    }
    server.stop()?;
    Ok(measured)
}

/// The program at a terminal.
struct TuiTerminal {
    keys: File,
    child: Child,
}

impl TuiTerminal {
    /// Starts the TUI, and waits for the steps of the session.
    fn start(binary: &Path, store: &Path, words: &[&str]) -> Result<(Self, f64)> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let name = ptsname(&controller, Vec::new())?;
        let user = File::from(open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?);
        tcsetwinsize(&user, Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 })?;
        fcntl_setfl(&controller, OFlags::NONBLOCK)?;
        let started = Instant::now();
        let child = Command::new(binary)
            .args(words)
            .env("STEPBACK_HOME", store)
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .current_dir(store)
            .stdin(user.try_clone()?)
            .stdout(user.try_clone()?)
            .stderr(user)
            .spawn()?;
        let mut screen = Self { keys: File::from(controller), child };
        screen.wait_for(started, b"tool-end")?;
        let duration = ms(started.elapsed());
        // The details of the step arrive a little later, as do other documents that are requested at the start.
        screen.wait_until_idle()?;
        Ok((screen, duration))
    }

    /// Presses keys. Returns the milliseconds until the screen changed.
    fn press(&mut self, keys: &str) -> Result<f64> {
        let started = Instant::now();
        self.keys.write_all(keys.as_bytes())?;
        self.wait_for(started, b"")?;
        let duration = ms(started.elapsed());
        self.wait_until_idle()?;
        Ok(duration)
    }

    /// Types an answer to a question, at which the cursor is visible.
    fn type_in(&mut self, text: &str) -> Result<()> {
        self.keys.write_all(text.as_bytes())?;
        self.wait_until_idle().map(drop)
    }

    /// Presses a key. Returns the milliseconds until the screen stopped changing.
    fn press_and_wait(&mut self, key: &str) -> Result<f64> {
        let started = Instant::now();
        self.keys.write_all(key.as_bytes())?;
        self.wait_for(started, b"")?;
        let last = self.wait_until_idle()?;
        Ok(ms(last.saturating_duration_since(started)))
    }

    /// Waits for a frame that contains `shown`.
    fn wait_for(&mut self, started: Instant, shown: &[u8]) -> Result<()> {
        let mut received = Vec::new();
        loop {
            self.read(&mut received)?;
            let is_there = shown.is_empty() || received.windows(shown.len()).any(|part| part == shown);
            if !received.is_empty() && is_there && received.ends_with(FRAME_END) {
                return Ok(());
            }
            if started.elapsed() > WAIT_TIMEOUT {
                let last =
                    String::from_utf8_lossy(&received[received.len().saturating_sub(400)..]).into_owned();
                let shown = String::from_utf8_lossy(shown);
                bail!("it does not show {shown}; the last that came is {}", last.escape_debug());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Waits until the screen has not changed for a moment. Returns the time of the last change.
    fn wait_until_idle(&mut self) -> Result<Instant> {
        let mut last = Instant::now();
        while last.elapsed() < Duration::from_millis(30) {
            let mut received = Vec::new();
            self.read(&mut received)?;
            if !received.is_empty() {
                last = Instant::now();
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(last)
    }

    /// Reads the available output, without frames that change nothing.
    fn read(&mut self, received: &mut Vec<u8>) -> Result<()> {
        let mut piece = [0; 16 << 10];
        loop {
            match self.keys.read(&mut piece) {
                Ok(0) => bail!("the program has ended"),
                Ok(length) if piece[..length] == *UNCHANGED_FRAME => {}
                Ok(length) => received.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("the program has ended"),
            }
        }
    }
}

impl Drop for TuiTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl TuiResults {
    /// All numbers.
    pub fn to_json(&self) -> Value {
        let times: Vec<Value> = (self.took.iter())
            .map(|(action, took)| {
                json!({ "what": action, "count": took.len(), "p50_ms": percentile(took, 50.0), "p99_ms": percentile(took, 99.0) })
            })
            .collect();
        json!({ "steps": self.steps, "times": times })
    }

    /// The goals, judged.
    pub fn judge_goals(&self) -> Vec<Goal> {
        let percentile_of = |beginning: &str, percent: f64| {
            let row = self.took.iter().find(|(action, _)| action.starts_with(beginning));
            row.and_then(|(_, times)| percentile(times, percent)).filter(|_| self.steps >= STEPS)
        };
        vec![
            at_most(
                "start with 100,000 steps, p50: under 50 ms".into(),
                percentile_of("start", 50.0),
                50.0,
                "ms",
            ),
            at_most(
                "a key to its frame, p99: under 16 ms".into(),
                percentile_of("a key, to", 99.0),
                16.0,
                "ms",
            ),
        ]
    }

    /// The tables of the report.
    pub fn render_report(&self) -> String {
        let format_ms = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let mut times = MarkdownTable::new(["ms", "count", "p50", "p99"].into_iter());
        for (action, samples) in &self.took {
            let (p50, p99) = (percentile(samples, 50.0), percentile(samples, 99.0));
            times.rows.push(vec![
                (*action).to_owned(),
                samples.len().to_string(),
                format_ms(p50),
                format_ms(p99),
            ]);
        }
        let mut text = format!(
            "One session of {} steps, a terminal of 120x40.\n\n{}\n",
            self.steps,
            times.to_markdown()
        );
        goal_list(&mut text, &self.judge_goals());
        text
    }
}
