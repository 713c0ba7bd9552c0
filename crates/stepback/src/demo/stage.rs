//! Runs the demo's commands: prints them as the user would type them, runs them for real, and prints their output.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::actor::{Actor, OutputWait};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// The widest line of narration, in columns, for readability.
const MAX_LINE_COLUMNS: usize = 78;
/// The width of suggested commands, in columns, if they fit.
const SUGGESTION_COLUMNS: usize = 30;
/// The path of the model's script, relative to the project.
pub const SCRIPT: &str = "../agent.json";
/// How often a waiting loop checks whether it can end.
pub const GLANCE: Duration = Duration::from_millis(50);
/// Variables that point git to another repository. The user's environment may have them set.
const GIT_VARIABLES: [&str; 4] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"];

/// A project, a store, and a terminal.
#[derive(Debug)]
pub struct DemoProject {
    /// The root of the project.
    pub root: PathBuf,
    /// The directory of the project's store.
    pub store: PathBuf,
    /// Whether there are pauses for reading.
    slow: bool,
    /// Whether the user asked to stop.
    stop: Arc<AtomicBool>,
    /// Whether the reader of the output has closed it.
    output_closed: Cell<bool>,
    paint: Paint,
}

impl DemoProject {
    /// Creates the project and its store below `place`. It pauses for reading unless it is `fast` or the output is not a terminal.
    pub fn new(place: &Path, fast: bool, stop: Arc<AtomicBool>) -> Self {
        Self {
            root: place.join("auth"),
            store: place.join("store"),
            slow: !fast && io::stdout().is_terminal(),
            stop,
            output_closed: Cell::new(false),
            paint: Paint::stdout(),
        }
    }

    /// Returns how long the model waits before it answers, in milliseconds.
    pub fn thinking(&self) -> u64 {
        if self.slow { 600 } else { 0 }
    }

    /// Starts an act: prints its title and what it is about.
    pub fn act(&self, title: &str, text: &str) -> Result<(), CommandFailure> {
        self.pause(1000)?;
        self.title(title)?;
        self.prose(text)?;
        self.line("")
    }

    /// Prints narration, and leaves time to read it.
    pub fn prose(&self, text: &str) -> Result<(), CommandFailure> {
        for line in output::wrapped(text, self.width()) {
            self.line(line)?;
        }
        self.pause(500 + 11 * text.len() as u64)
    }

    /// Prints a title.
    pub fn title(&self, title: &str) -> Result<(), CommandFailure> {
        let rule = "─".repeat(self.width().saturating_sub(title.width() + 4));
        let (rule, begin) = (self.paint.dim(rule), self.paint.dim("──"));
        self.line(format!("\n{begin} {} {rule}", self.paint.strong(title)))
    }

    /// Prints that something succeeded.
    pub fn cheer(&self, text: &str) -> Result<(), CommandFailure> {
        self.line(self.paint.good(text))
    }

    /// Prints a command that the user may type later, and what it is for.
    pub fn suggest(&self, command: &str, what: &str) -> Result<(), CommandFailure> {
        let pad = " ".repeat(SUGGESTION_COLUMNS.saturating_sub(command.width()));
        let what = if what.is_empty() { String::new() } else { format!("{pad}  {}", self.paint.dim(what)) };
        self.line(format!("  {}{what}", self.paint.name(command)))
    }

    /// Prints a line. Fails if the output is closed, which ends the demo.
    pub fn line(&self, text: impl std::fmt::Display) -> Result<(), CommandFailure> {
        writeln!(io::stdout(), "{text}").map_err(|error| {
            self.output_closed.set(true);
            error.into()
        })
    }

    /// Whether the reader of the output has closed it.
    pub fn is_output_closed(&self) -> bool {
        self.output_closed.get()
    }

    fn width(&self) -> usize {
        output::width().min(MAX_LINE_COLUMNS)
    }

    /// Prints a command as the user would type it, and pauses briefly.
    fn show(&self, command: &str) -> Result<(), CommandFailure> {
        self.line(format!("{} {}", self.paint.dim("$"), self.paint.name(command)))?;
        self.pause(500)
    }

    /// Runs a shell command, and returns whether it succeeded.
    pub fn shell(&self, command: &str) -> Result<bool, CommandFailure> {
        self.show(command)?;
        let status = self.command("sh").args(["-c", command]).status()?;
        self.pause(600)?;
        Ok(status.success())
    }

    /// Runs this program.
    pub fn stepback(&self, arguments: &[&str]) -> Result<(), CommandFailure> {
        let typed = typed(arguments);
        self.show(&typed)?;
        let status = self.this_program()?.args(arguments).status()?;
        self.went_well(&typed, status)?;
        self.pause(900)
    }

    /// Runs this program for a value that the demo needs; nothing is shown.
    pub fn ask(&self, arguments: &[&str]) -> Result<Value, CommandFailure> {
        let output = self.this_program()?.args(arguments).arg("--json").stderr(Stdio::null()).output()?;
        self.went_well(&typed(arguments), output.status)?;
        serde_json::from_slice(&output.stdout)
            .map_err(|error| broken(format!("{} printed invalid JSON: {error}", typed(arguments))))
    }

    /// Starts the agent and returns while it works.
    pub fn start_agent(&self, arguments: &[&str]) -> Result<Actor, CommandFailure> {
        self.show(&format!("{} &", typed(&agent(arguments))))?;
        self.actor(arguments)
    }

    /// Runs the agent to its end.
    pub fn run_agent(&self, arguments: &[&str]) -> Result<(), CommandFailure> {
        self.show(&typed(&agent(arguments)))?;
        self.to_the_end(self.actor(arguments)?)
    }

    /// Waits until an agent has ended, and shows its output.
    pub fn to_the_end(&self, mut actor: Actor) -> Result<(), CommandFailure> {
        self.watch(&mut actor, || Ok(false))?;
        let status = actor.end()?;
        self.pause(900)?;
        if status.success() { Ok(()) } else { Err(broken(format!("the agent failed: {status}"))) }
    }

    fn actor(&self, arguments: &[&str]) -> Result<Actor, CommandFailure> {
        let mut command = self.this_program()?;
        // The agent's lines are printed with a margin and keep their colours.
        command.args(agent(arguments)).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.paint.is_on() {
            command.env("CLICOLOR_FORCE", "1");
        }
        Ok(Actor::start(command)?)
    }

    /// Shows the agent's output until `until` returns true, or until it ends. Returns whether it ended.
    pub fn watch(
        &self,
        actor: &mut Actor,
        mut until: impl FnMut() -> Result<bool, CommandFailure>,
    ) -> Result<bool, CommandFailure> {
        let patience = Instant::now() + Duration::from_secs(120);
        while Instant::now() < patience {
            self.go_on()?;
            match actor.next_line(GLANCE * 2) {
                OutputWait::Line(line) => self.line(format!("  {} {line}", self.paint.dim("│")))?,
                OutputWait::Nothing if until()? => return Ok(false),
                OutputWait::Nothing => {}
                OutputWait::Ended => return Ok(true),
            }
        }
        Err(broken("the agent does not finish"))
    }

    /// Pauses, if pauses are on.
    pub fn pause(&self, millis: u64) -> Result<(), CommandFailure> {
        let until = Instant::now() + Duration::from_millis(if self.slow { millis } else { 0 });
        loop {
            self.go_on()?;
            match until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                Some(left) => std::thread::sleep(left.min(GLANCE)),
                None => return Ok(()),
            }
        }
    }

    fn go_on(&self) -> Result<(), CommandFailure> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(CommandFailure::new(FailureKind::Refused, "the demo was interrupted")),
            false => Ok(()),
        }
    }

    fn went_well(&self, typed: &str, status: ExitStatus) -> Result<(), CommandFailure> {
        self.go_on()?;
        if status.success() { Ok(()) } else { Err(broken(format!("\"{typed}\" failed: {status}"))) }
    }

    fn this_program(&self) -> Result<Command, CommandFailure> {
        Ok(self.command(std::env::current_exe()?))
    }

    /// Returns a command that runs in the project. Its output goes to stdout, so that the whole demo can be redirected to
    /// a file.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("STEPBACK_HOME", &self.store).stdin(Stdio::null());
        command.stderr(io::stdout());
        GIT_VARIABLES.iter().for_each(|name| {
            command.env_remove(name);
        });
        command
    }
}

/// Returns the failure for a demo that did not go as scripted, which is always a bug of ours.
pub fn broken(what: impl Into<String>) -> CommandFailure {
    CommandFailure::new(FailureKind::Internal, what).hint("this should not happen; please report it")
}

/// Returns the arguments that start the agent.
fn agent<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["agent", "--script", SCRIPT], arguments].concat()
}

/// Returns a command of ours as the user would type it.
fn typed(arguments: &[&str]) -> String {
    let quoted = arguments.iter().map(|argument| {
        let special = |c: char| c.is_whitespace() || "#|$'".contains(c);
        match argument.contains(special) {
            true if argument.chars().all(|c| c.is_alphanumeric() || " .,".contains(c)) => {
                format!("\"{argument}\"")
            }
            true => format!("'{argument}'"),
            false => (*argument).to_string(),
        }
    });
    std::iter::once("stepback".to_string()).chain(quoted).collect::<Vec<_>>().join(" ")
}
