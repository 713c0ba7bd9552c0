//! The turns of the model, in a form that is the same for every agent.
//!
//! A [`Script`] holds conversations; each is a list of [`ScriptedTurn`]s, and a turn is some text, some tool
//! [`ScriptedCall`]s, or both. The same script works with every agent: [`super::tools`] has the agent's name for each
//! tool.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything the model is to say in one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Script {
    /// The conversations; [`ScriptedConversation::when`] decides which one a request belongs to.
    pub conversations: Vec<ScriptedConversation>,
}

impl Script {
    /// A script of one conversation for any prompt: turn *n* answers a request with *n* turns in its history.
    pub fn new(turns: impl IntoIterator<Item = ScriptedTurn>) -> Self {
        Self { conversations: vec![ScriptedConversation { when: None, turns: turns.into_iter().collect() }] }
    }

    /// Adds a conversation for prompts that contain `marker`: its first turn answers the last such prompt.
    #[must_use]
    pub fn when(mut self, marker: &str, turns: impl IntoIterator<Item = ScriptedTurn>) -> Self {
        let turns = turns.into_iter().collect();
        self.conversations.push(ScriptedConversation { when: Some(marker.to_owned()), turns });
        self
    }
}

/// The turns for one kind of prompt.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScriptedConversation {
    /// What a prompt must contain. The latest prompt that matches a conversation decides; without a match, the
    /// conversation without a marker is used.
    pub when: Option<String>,
    /// What the model says, one after the other.
    pub turns: Vec<ScriptedTurn>,
}

/// One answer of the model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScriptedTurn {
    /// What it says.
    #[serde(default)]
    pub text: Option<String>,
    /// The tools it calls, all at once.
    #[serde(default)]
    pub calls: Vec<ScriptedCall>,
    /// How long it thinks first, in milliseconds.
    #[serde(default)]
    pub delay: u64,
    /// It answers only once this file exists.
    #[serde(default)]
    pub until: Option<PathBuf>,
    /// Status and number of the errors that are sent before the answer.
    #[serde(default)]
    pub fails: Option<(u16, u32)>,
}

impl ScriptedTurn {
    /// Text without calls, which ends the agent's work on a prompt.
    pub fn text(text: &str) -> Self {
        Self { text: Some(text.to_owned()), ..Self::default() }
    }

    /// Calls one tool.
    pub fn call(call: ScriptedCall) -> Self {
        Self::calls([call])
    }

    /// Calls several tools at once.
    pub fn calls(calls: impl IntoIterator<Item = ScriptedCall>) -> Self {
        Self { calls: calls.into_iter().collect(), ..Self::default() }
    }

    /// Runs a shell command.
    pub fn shell(command: &str) -> Self {
        Self::call(ScriptedCall::shell(command))
    }

    /// Writes a whole file.
    pub fn write(path: impl AsRef<Path>, content: &str) -> Self {
        Self::call(ScriptedCall::write(path, content))
    }

    /// Replaces whole lines of a file. Some agents require that it is read first.
    pub fn edit(path: impl AsRef<Path>, old: &str, new: &str) -> Self {
        Self::call(ScriptedCall::edit(path, old, new))
    }

    /// Reads a file.
    pub fn read(path: impl AsRef<Path>) -> Self {
        Self::call(ScriptedCall::read(path))
    }

    /// Says something along with its calls.
    #[must_use]
    pub fn saying(mut self, text: &str) -> Self {
        self.text = Some(text.to_owned());
        self
    }

    /// Thinks for some milliseconds first.
    #[must_use]
    pub fn after(mut self, milliseconds: u64) -> Self {
        self.delay = milliseconds;
        self
    }

    /// Says nothing before this file exists.
    #[must_use]
    pub fn once_exists(mut self, path: impl AsRef<Path>) -> Self {
        self.until = Some(path.as_ref().to_owned());
        self
    }

    /// Answers with an error `times` times before the turn; 529 is "overloaded".
    #[must_use]
    pub fn failing(mut self, status: u16, times: u32) -> Self {
        self.fails = Some((status, times));
        self
    }
}

/// One call of a tool. Paths are relative to the workspace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptedCall {
    /// Run a command in a shell.
    Shell {
        /// The command line.
        command: String,
    },
    /// Write a whole file.
    Write {
        /// Where.
        path: PathBuf,
        /// What.
        content: String,
    },
    /// Replace some whole lines of a file by others.
    Edit {
        /// Where.
        path: PathBuf,
        /// The lines that are there.
        old: String,
        /// The lines that will be there.
        new: String,
    },
    /// Read a file.
    Read {
        /// Where.
        path: PathBuf,
    },
    /// A tool that only this agent has, by its own name; `{workspace}` in its input is the agent's working directory.
    Named {
        /// What the agent calls it.
        name: String,
        /// Its input as the agent wants it.
        input: Value,
    },
}

impl ScriptedCall {
    /// Run a command in a shell.
    pub fn shell(command: &str) -> Self {
        Self::Shell { command: command.to_owned() }
    }

    /// Write a whole file.
    pub fn write(path: impl AsRef<Path>, content: &str) -> Self {
        Self::Write { path: path.as_ref().to_owned(), content: content.to_owned() }
    }

    /// Replace some whole lines of a file by others.
    pub fn edit(path: impl AsRef<Path>, old: &str, new: &str) -> Self {
        Self::Edit { path: path.as_ref().to_owned(), old: old.to_owned(), new: new.to_owned() }
    }

    /// Read a file.
    pub fn read(path: impl AsRef<Path>) -> Self {
        Self::Read { path: path.as_ref().to_owned() }
    }

    /// A tool that only one agent has.
    pub fn named(name: &str, input: Value) -> Self {
        Self::Named { name: name.to_owned(), input }
    }
}
