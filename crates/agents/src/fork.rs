//! A conversation that goes on from an earlier point, in the real agent.
//!
//! A fork is first a plan, a value that says which files will be written and which command goes on from there, and then
//! carried out. The conversation it came from is never touched: a fork has a new id, and no file that exists is
//! overwritten.
//!
//! The lines come from the agent's own transcript as long as that still says what was recorded, because it may hold what
//! the chain does not (a line too long to keep, a secret that was taken out); otherwise from the chain.

mod claude;
mod codex;
mod gemini;
mod opencode;
mod program;
mod recorded;
mod rewrite;
mod run;
mod tasks;

use std::fs;
use std::path::{Path, PathBuf};

use stepback_model::time::Timestamp;

use crate::agent::Agent;
use crate::transcript::{Home, TranscriptError, TranscriptLocation, left_out, messages, settled};

pub use recorded::{ForkRequest, Planned, plan_recorded};
pub use run::{Ready, carry_out};

/// The conversation to go on from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Where the agent keeps it, or kept it.
    pub place: &'a TranscriptLocation,
    /// The directory it ran in.
    pub cwd: &'a Path,
    /// Where the agents keep their things.
    pub home: &'a Home,
    /// The chain as it was recorded, at least as long as the cut.
    pub lines: &'a [String],
}

/// How it shall go on.
#[derive(Clone, Copy, Debug)]
pub struct ForkOptions<'a> {
    /// How many lines of the chain to keep. Fewer are kept where a call would be left without its result.
    pub keep: usize,
    /// The directory to go on in.
    pub cwd: &'a Path,
    /// Random bytes, for the new id.
    pub id: [u8; 16],
    /// The present moment, which some agents put into names.
    pub now: Timestamp,
    /// In which way.
    pub mode: Mode<'a>,
}

/// In which way a conversation goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode<'a> {
    /// A person goes on, at a terminal.
    Interactive,
    /// This is said next, and the agent ends when it has answered.
    Prompt(&'a str),
}

/// A file to be written, readable for its owner only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Where; nothing may be there.
    pub path: PathBuf,
    /// What.
    pub bytes: Vec<u8>,
}

/// A command that must run, between writing the files and going on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepare {
    /// The command, run in the directory to go on in.
    pub command: Vec<String>,
    /// The file it reads, which is removed afterwards.
    pub file: PathBuf,
    /// Where the new conversation then is.
    pub place: TranscriptLocation,
}

/// How a conversation will go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fork {
    /// The id of the new session.
    pub session: String,
    /// How many lines of the chain it begins with.
    pub kept: usize,
    /// What is written.
    pub writes: Vec<Write>,
    /// What runs after that.
    pub prepare: Option<Prepare>,
    /// What goes on.
    pub command: Vec<String>,
    /// Where it goes on.
    pub cwd: PathBuf,
    /// What the user should know.
    pub note: Option<String>,
}

impl From<stepback_model::object::ObjectError> for ForkError {
    fn from(error: stepback_model::object::ObjectError) -> Self {
        Self::Engine(error.into())
    }
}

/// Why a conversation cannot go on from there.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// Nothing had been said at that point.
    #[error("nothing had been said at this point; start {0} anew instead")]
    Nothing(Agent),
    /// The chain is shorter than the cut.
    #[error("the conversation has {have} recorded lines, not {wanted}")]
    TooShort {
        /// How many there are.
        have: usize,
        /// How many were asked for.
        wanted: usize,
    },
    /// The id of the session is not one.
    #[error("{0:?} is not the id of a session")]
    BadSession(String),
    /// Nobody knows how this agent keeps its conversations.
    #[error("{0} has no conversation that stepback can go on with")]
    Unsupported(String),
    /// The agent keeps no such conversation.
    #[error("the conversation of {0} cannot be found")]
    Lost(String),
    /// The record cannot be read or written.
    #[error(transparent)]
    Engine(#[from] stepback_engine::EngineError),
    /// The agent's things cannot be read.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// The executable is gone, and the agent was to be started.
    #[error("the session was recorded with {}, which is not there any more", .program.display())]
    NoProgram {
        /// The agent.
        agent: Agent,
        /// The executable.
        program: PathBuf,
    },
    /// A file is in the way, or cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The agent's own command did not do what it should.
    #[error("`{command}` did not make the new session: {why}")]
    Prepare {
        /// The command.
        command: String,
        /// What happened.
        why: String,
    },
}

/// The lines a fork begins with.
struct Start {
    lines: Vec<String>,
    /// Whether they stand like this in the agent's own transcript.
    own: bool,
}

/// Plans a fork. Reads the agent's files, and writes nothing.
pub fn plan(source: &Source<'_>, wish: &ForkOptions<'_>) -> Result<Fork, ForkError> {
    let agent = source.place.agent;
    if source.lines.len() < wish.keep {
        return Err(ForkError::TooShort { have: source.lines.len(), wanted: wish.keep });
    }
    let session = source.place.session.as_str();
    if session.is_empty()
        || !session.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    {
        return Err(ForkError::BadSession(session.into()));
    }
    let mut start = start(source.place, &source.lines[..wish.keep]);
    let kept = settled(agent, &start.lines, wish.keep);
    start.lines.truncate(kept);
    if !messages(agent, &start.lines).iter().any(|message| message.is_prompt()) {
        return Err(ForkError::Nothing(agent));
    }
    let mut fork = match agent {
        Agent::Claude => claude::plan(source, wish, &start),
        Agent::Codex => codex::plan(source, wish, &start),
        Agent::Gemini => gemini::plan(source, wish, &start),
        Agent::Opencode => opencode::plan(source, wish, &start)?,
    };
    fork.kept = kept;
    let lost = start.lines.iter().filter(|line| left_out(line)).count();
    let notes = [
        (kept < wish.keep)
            .then(|| "an answer or a call was not complete there, so it goes on from before it".to_owned()),
        (lost > 0)
            .then(|| format!("{lost} very long line(s) of the conversation were not kept and are missing")),
        fork.note.take(),
    ];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    fork.note = (!notes.is_empty()).then(|| notes.join("; "));
    Ok(fork)
}

/// Takes the lines from the agent's own file if it still says what was recorded.
fn start(place: &TranscriptLocation, chain: &[String]) -> Start {
    let own = match place.agent {
        // The last message may have grown since; what was recorded is what counts.
        Agent::Opencode => None,
        Agent::Claude | Agent::Codex | Agent::Gemini => fs::read(&place.path).ok(),
    };
    if let Some(bytes) = own {
        let lines =
            bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).take(chain.len());
        let lines: Vec<String> = lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        if lines.len() == chain.len() && lines.iter().zip(chain).all(|(a, b)| rewrite::same_line(a, b)) {
            return Start { lines, own: true };
        }
    }
    Start { lines: chain.to_vec(), own: false }
}

/// `text` as the last argument, kept apart from options if it looks like one.
fn last_argument(command: &mut Vec<String>, text: &str) {
    if text.starts_with('-') {
        command.push("--".into());
    }
    command.push(text.into());
}

/// A command in words.
fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}
