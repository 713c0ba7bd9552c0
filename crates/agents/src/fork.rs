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
use crate::transcript::{
    AgentDirs, TranscriptError, TranscriptLocation, align_cut, is_omitted_line, parse_messages,
};

pub use recorded::{ForkRequest, PlannedFork, plan_recorded_fork};
pub use run::{ReadyFork, execute_fork};

/// The conversation to continue.
#[derive(Clone, Copy, Debug)]
pub struct ForkSource<'a> {
    /// Where the agent keeps the conversation, or kept it.
    pub location: &'a TranscriptLocation,
    /// The directory the agent ran in.
    pub cwd: &'a Path,
    /// Where the agents keep their files.
    pub home: &'a AgentDirs,
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
    pub mode: ForkMode<'a>,
}

/// How a conversation continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForkMode<'a> {
    /// The user continues at a terminal.
    Interactive,
    /// The agent gets this prompt and ends after its answer.
    Prompt(&'a str),
}

/// A file to write, readable by its owner only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileWrite {
    /// Path of the file, which must not exist.
    pub path: PathBuf,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// A command that must run after the files are written and before the conversation continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrepareCommand {
    /// The command, run in the directory to go on in.
    pub command: Vec<String>,
    /// The file that the command reads, which is removed afterwards.
    pub file: PathBuf,
    /// Where the new conversation is after that.
    pub location: TranscriptLocation,
}

/// The plan of a fork.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fork {
    /// The id of the new session.
    pub session: String,
    /// How many lines of the chain it begins with.
    pub kept_lines: usize,
    /// Files to write.
    pub writes: Vec<FileWrite>,
    /// A command to run after that, if the agent needs one.
    pub prepare: Option<PrepareCommand>,
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
    EmptyConversation(Agent),
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
    InvalidSessionId(String),
    /// stepback does not know how this agent keeps its conversations.
    #[error("stepback cannot continue conversations of {0}")]
    Unsupported(String),
    /// The agent does not have this conversation.
    #[error("the conversation of {0} was not found")]
    NotFound(String),
    /// The record cannot be read or written.
    #[error(transparent)]
    Engine(#[from] stepback_engine::EngineError),
    /// The agent's files cannot be read.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// The executable does not exist any more, and the agent was to be started.
    #[error("the session was recorded with {}, which no longer exists", .program.display())]
    MissingProgram {
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
struct StartLines {
    lines: Vec<String>,
    /// Whether they are the same lines as in the agent's own transcript.
    is_own_transcript: bool,
}

/// Plans a fork. Reads the agent's files, and writes nothing.
pub fn plan(source: &ForkSource<'_>, options: &ForkOptions<'_>) -> Result<Fork, ForkError> {
    let agent = source.location.agent;
    if source.lines.len() < options.keep {
        return Err(ForkError::TooShort { have: source.lines.len(), wanted: options.keep });
    }
    let session = source.location.session.as_str();
    if session.is_empty()
        || !session.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    {
        return Err(ForkError::InvalidSessionId(session.into()));
    }
    let mut start = choose_start_lines(source.location, &source.lines[..options.keep]);
    let kept = align_cut(agent, &start.lines, options.keep);
    start.lines.truncate(kept);
    if !parse_messages(agent, &start.lines).iter().any(|message| message.is_prompt()) {
        return Err(ForkError::EmptyConversation(agent));
    }
    let mut fork = match agent {
        Agent::Claude => claude::plan(source, options, &start),
        Agent::Codex => codex::plan(source, options, &start),
        Agent::Gemini => gemini::plan(source, options, &start),
        Agent::Opencode => opencode::plan(source, options, &start)?,
    };
    fork.kept_lines = kept;
    let lost = start.lines.iter().filter(|line| is_omitted_line(line)).count();
    let notes = [
        (kept < options.keep).then(|| {
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
fn choose_start_lines(location: &TranscriptLocation, chain: &[String]) -> StartLines {
    let own = match location.agent {
        // The last message may have grown since; the recorded one counts.
        Agent::Opencode => None,
        Agent::Claude | Agent::Codex | Agent::Gemini => fs::read(&location.path).ok(),
    };
    if let Some(bytes) = own {
        let lines =
            bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).take(chain.len());
        let lines: Vec<String> = lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        if lines.len() == chain.len() && lines.iter().zip(chain).all(|(a, b)| rewrite::is_same_line(a, b)) {
            return StartLines { lines, is_own_transcript: true };
        }
    }
    StartLines { lines: chain.to_vec(), is_own_transcript: false }
}

/// Adds `text` as the last argument, after `--` if it looks like an option.
fn push_last_argument(command: &mut Vec<String>, text: &str) {
    if text.starts_with('-') {
        command.push("--".into());
    }
    command.push(text.into());
}

/// Returns a command from its words.
fn command_words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}
