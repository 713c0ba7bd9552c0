//! Continues a conversation from an earlier point, in the agent itself.
//!
//! A fork is first a plan, a value that says which files are written and which command continues from there, and is then
//! carried out. The original conversation is never changed: a fork has a new id, and no existing file is overwritten.
//!
//! The lines come from the agent's own transcript as long as it still matches the recording, because it may have what the
//! chain does not (a line too long to keep, a secret that was redacted); otherwise they come from the chain.

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

pub use recorded::{ForkRequest, PlannedFork, plan_recorded};
pub use run::{ReadyFork, carry_out};

/// The conversation to continue.
#[derive(Clone, Copy, Debug)]
pub struct ForkSource<'a> {
    /// Where the agent keeps the conversation, or kept it.
    pub place: &'a TranscriptLocation,
    /// The directory the agent ran in.
    pub cwd: &'a Path,
    /// Where the agents keep their files.
    pub home: &'a Home,
    /// The chain as it was recorded, at least as long as the cut.
    pub lines: &'a [String],
}

/// How to continue.
#[derive(Clone, Copy, Debug)]
pub struct ForkOptions<'a> {
    /// How many lines of the chain to keep. Fewer are kept where a call would be left without its result.
    pub keep: usize,
    /// The directory to continue in.
    pub cwd: &'a Path,
    /// Random bytes, for the new id.
    pub id: [u8; 16],
    /// The current time, which some agents put into file names.
    pub now: Timestamp,
    /// Interactive, or with one prompt.
    pub mode: Mode<'a>,
}

/// How a conversation continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode<'a> {
    /// The user continues at a terminal.
    Interactive,
    /// The agent gets this prompt and ends after its answer.
    Prompt(&'a str),
}

/// A file to write, readable by its owner only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Path of the file, which must not exist.
    pub path: PathBuf,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// A command that must run after the files are written and before the conversation continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepare {
    /// The command, run in the directory to go on in.
    pub command: Vec<String>,
    /// The file that the command reads, which is removed afterwards.
    pub file: PathBuf,
    /// Where the new conversation is after that.
    pub place: TranscriptLocation,
}

/// The plan of a fork.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fork {
    /// The id of the new session.
    pub session: String,
    /// How many lines of the chain it begins with.
    pub kept: usize,
    /// Files to write.
    pub writes: Vec<Write>,
    /// A command to run after that, if the agent needs one.
    pub prepare: Option<Prepare>,
    /// The command that continues the conversation.
    pub command: Vec<String>,
    /// The directory to run it in.
    pub cwd: PathBuf,
    /// A note for the user.
    pub note: Option<String>,
}

impl From<stepback_model::object::ObjectError> for ForkError {
    fn from(error: stepback_model::object::ObjectError) -> Self {
        Self::Engine(error.into())
    }
}

/// Why a conversation cannot continue from a point.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The conversation was empty at that point.
    #[error("the conversation is empty at this point; start {0} as a new session instead")]
    Nothing(Agent),
    /// The chain is shorter than the cut.
    #[error("the conversation has {have} recorded lines, not {wanted}")]
    TooShort {
        /// How many lines there are.
        have: usize,
        /// How many were requested.
        wanted: usize,
    },
    /// The session id is not valid.
    #[error("{0:?} is not the id of a session")]
    BadSession(String),
    /// stepback does not know how this agent keeps its conversations.
    #[error("stepback cannot continue conversations of {0}")]
    Unsupported(String),
    /// The agent does not have this conversation.
    #[error("the conversation of {0} was not found")]
    Lost(String),
    /// The record cannot be read or written.
    #[error(transparent)]
    Engine(#[from] stepback_engine::EngineError),
    /// The agent's files cannot be read.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// The executable does not exist any more, and the agent was to be started.
    #[error("the session was recorded with {}, which no longer exists", .program.display())]
    NoProgram {
        /// The agent of the session.
        agent: Agent,
        /// The executable that the session was recorded with.
        program: PathBuf,
    },
    /// A file exists already, or cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The agent's own command failed.
    #[error("`{command}` did not create the new session: {why}")]
    Prepare {
        /// The command that failed.
        command: String,
        /// How it failed.
        why: String,
    },
}

/// The lines a fork begins with.
struct Start {
    lines: Vec<String>,
    /// Whether they are the same lines as in the agent's own transcript.
    own: bool,
}

/// Plans a fork. Reads the agent's files, and writes nothing.
pub fn plan(source: &ForkSource<'_>, wish: &ForkOptions<'_>) -> Result<Fork, ForkError> {
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
        (kept < wish.keep).then(|| {
            "an answer or a call was incomplete there, so the conversation continues from before it"
                .to_owned()
        }),
        (lost > 0)
            .then(|| format!("{lost} very long line(s) of the conversation were not stored and are missing")),
        fork.note.take(),
    ];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    fork.note = (!notes.is_empty()).then(|| notes.join("; "));
    Ok(fork)
}

/// Returns the lines of the agent's own file if it still matches the recording, otherwise those of the chain.
fn start(place: &TranscriptLocation, chain: &[String]) -> Start {
    let own = match place.agent {
        // The last message may have grown since; the recorded one counts.
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

/// Adds `text` as the last argument, after `--` if it looks like an option.
fn last_argument(command: &mut Vec<String>, text: &str) {
    if text.starts_with('-') {
        command.push("--".into());
    }
    command.push(text.into());
}

/// Returns a command from its words.
fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}
