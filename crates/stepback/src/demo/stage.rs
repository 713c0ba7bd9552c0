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

use super::actor::{AgentProcess, OutputWait};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// The widest line of narration, in columns, for readability.
const MAX_LINE_COLUMNS: usize = 78;
/// The width of suggested commands, in columns, if they fit.
const SUGGESTION_COLUMNS: usize = 30;
/// The path of the model's script, relative to the project.
pub const SCRIPT: &str = "../agent.json";
/// How often a waiting loop checks whether it can end.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);
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
    has_pauses: bool,
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
            has_pauses: !fast && io::stdout().is_terminal(),
            stop,
            output_closed: Cell::new(false),
            paint: Paint::stdout(),
        }
    }

    /// Returns how long the model waits before it answers, in milliseconds.
    pub fn think_delay_ms(&self) -> u64 {
        if self.has_pauses { 600 } else { 0 }
    }

    /// Starts an act: prints its title and what it is about.
    pub fn start_act(&self, title: &str, text: &str) -> Result<(), CommandFailure> {
        self.pause(1000)?;
        self.print_title(title)?;
        self.print_prose(text)?;
        self.print_line("")
    }

    /// Prints narration, and leaves time to read it.
    pub fn print_prose(&self, text: &str) -> Result<(), CommandFailure> {
        for line in output::wrap_text(text, self.line_width()) {
            self.print_line(line)?;
        }
        self.pause(500 + 11 * text.len() as u64)
    }

    /// Prints a title.
    pub fn print_title(&self, title: &str) -> Result<(), CommandFailure> {
        let rule = "─".repeat(self.line_width().saturating_sub(title.width() + 4));
        let (rule, begin) = (self.paint.dim(rule), self.paint.dim("──"));
        self.print_line(format!("\n{begin} {} {rule}", self.paint.strong(title)))
    }

    /// Prints that something succeeded.
    pub fn print_success(&self, text: &str) -> Result<(), CommandFailure> {
        self.print_line(self.paint.good(text))
    }

    /// Prints a command that the user may type later, and what it is for.
    pub fn print_suggestion(&self, command: &str, what: &str) -> Result<(), CommandFailure> {
        let pad = " ".repeat(SUGGESTION_COLUMNS.saturating_sub(command.width()));
        let what = if what.is_empty() { String::new() } else { format!("{pad}  {}", self.paint.dim(what)) };
        self.print_line(format!("  {}{what}", self.paint.name(command)))
    }

    /// Prints a line. Fails if the output is closed, which ends the demo.
    pub fn print_line(&self, text: impl std::fmt::Display) -> Result<(), CommandFailure> {
        writeln!(io::stdout(), "{text}").map_err(|error| {
            self.output_closed.set(true);
            error.into()
        })
    }

    /// Whether the reader of the output has closed it.
    pub fn is_output_closed(&self) -> bool {
        self.output_closed.get()
    }

    fn line_width(&self) -> usize {
        output::terminal_width().min(MAX_LINE_COLUMNS)
    }

    /// Prints a command as the user would type it, and pauses briefly.
    fn print_command(&self, command: &str) -> Result<(), CommandFailure> {
        self.print_line(format!("{} {}", self.paint.dim("$"), self.paint.name(command)))?;
        self.pause(500)
    }

    /// Runs a shell command, and returns whether it succeeded.
    pub fn run_shell(&self, command: &str) -> Result<bool, CommandFailure> {
        self.print_command(command)?;
        let status = self.build_command("sh").args(["-c", command]).status()?;
        self.pause(600)?;
        Ok(status.success())
    }

    /// Runs this program.
    pub fn run_stepback(&self, arguments: &[&str]) -> Result<(), CommandFailure> {
        let typed = format_command_line(arguments);
        self.print_command(&typed)?;
        let status = self.own_command()?.args(arguments).status()?;
        self.check_status(&typed, status)?;
        self.pause(900)
    }

    /// Runs this program for a value that the demo needs; nothing is shown.
    pub fn query_json(&self, arguments: &[&str]) -> Result<Value, CommandFailure> {
        let output = self.own_command()?.args(arguments).arg("--json").stderr(Stdio::null()).output()?;
        self.check_status(&format_command_line(arguments), output.status)?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            demo_failure(format!("{} printed invalid JSON: {error}", format_command_line(arguments)))
        })
    }

    /// Starts the agent and returns while it works.
    pub fn start_agent(&self, arguments: &[&str]) -> Result<AgentProcess, CommandFailure> {
        self.print_command(&format!("{} &", format_command_line(&agent_arguments(arguments))))?;
        self.spawn_agent(arguments)
    }

    /// Runs the agent to its end.
    pub fn run_agent(&self, arguments: &[&str]) -> Result<(), CommandFailure> {
        self.print_command(&format_command_line(&agent_arguments(arguments)))?;
        self.wait_for_agent(self.spawn_agent(arguments)?)
    }

    /// Waits until an agent has ended, and shows its output.
    pub fn wait_for_agent(&self, mut actor: AgentProcess) -> Result<(), CommandFailure> {
        self.show_output_until(&mut actor, || Ok(false))?;
        let status = actor.wait()?;
        self.pause(900)?;
        if status.success() { Ok(()) } else { Err(demo_failure(format!("the agent failed: {status}"))) }
    }

    fn spawn_agent(&self, arguments: &[&str]) -> Result<AgentProcess, CommandFailure> {
        let mut command = self.own_command()?;
        // The agent's lines are printed with a margin and keep their colours.
        command.args(agent_arguments(arguments)).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.paint.is_on() {
            command.env("CLICOLOR_FORCE", "1");
        }
        Ok(AgentProcess::start(command)?)
    }

    /// Shows the agent's output until `until` returns true, or until it ends. Returns whether it ended.
    pub fn show_output_until(
        &self,
        actor: &mut AgentProcess,
        mut until: impl FnMut() -> Result<bool, CommandFailure>,
    ) -> Result<bool, CommandFailure> {
        let patience = Instant::now() + Duration::from_secs(120);
        while Instant::now() < patience {
            self.check_interrupted()?;
            match actor.next_line(POLL_INTERVAL * 2) {
                OutputWait::Line(line) => self.print_line(format!("  {} {line}", self.paint.dim("│")))?,
                OutputWait::Nothing if until()? => return Ok(false),
                OutputWait::Nothing => {}
                OutputWait::Ended => return Ok(true),
            }
        }
        Err(demo_failure("the agent does not finish"))
    }

    /// Pauses, if pauses are on.
    pub fn pause(&self, millis: u64) -> Result<(), CommandFailure> {
        let until = Instant::now() + Duration::from_millis(if self.has_pauses { millis } else { 0 });
        loop {
            self.check_interrupted()?;
            match until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                Some(left) => std::thread::sleep(left.min(POLL_INTERVAL)),
                None => return Ok(()),
            }
        }
    }

    fn check_interrupted(&self) -> Result<(), CommandFailure> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(CommandFailure::new(FailureKind::Refused, "the demo was interrupted")),
            false => Ok(()),
        }
    }

    fn check_status(&self, typed: &str, status: ExitStatus) -> Result<(), CommandFailure> {
        self.check_interrupted()?;
        if status.success() { Ok(()) } else { Err(demo_failure(format!("\"{typed}\" failed: {status}"))) }
    }

    fn own_command(&self) -> Result<Command, CommandFailure> {
        Ok(self.build_command(std::env::current_exe()?))
    }

    /// Returns a command that runs in the project. Its output goes to stdout, so that the whole demo can be redirected to
    /// a file.
    pub fn build_command(&self, program: impl AsRef<OsStr>) -> Command {
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
pub fn demo_failure(what: impl Into<String>) -> CommandFailure {
    CommandFailure::new(FailureKind::Internal, what).with_hint("this should not happen; please report it")
}

/// Returns the arguments that start the agent.
fn agent_arguments<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["agent", "--script", SCRIPT], arguments].concat()
}

/// Returns a command of ours as the user would type it.
fn format_command_line(arguments: &[&str]) -> String {
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
