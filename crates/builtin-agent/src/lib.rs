//! The built-in agent: a small agent loop that stepback records and controls in its own process.
//!
//! It is the agent to try stepback with when no other is installed, and the one whose every request and answer can be
//! replayed: it uses the form of the Messages API with every provider. It changes files like any agent, in the real
//! directory; it has no way around the recorder, and it knows nothing about rewinds.
//!
//! # Modules
//!
//! - `run`: the loop: ask the model, run its calls, return the results. Start here.
//! - `tool_call`: one call from start to end, with breakpoints, delegation and memory.
//! - `tools`: the tools themselves (files, search, shell), and the guard that keeps paths inside the workspace.
//! - `journal`: records events as steps, stops and messages of the session.
//! - `conversation`, `resume`: the conversation as messages and as recorded lines; continuing from an earlier step.
//! - `request`, [`provider`]: the request format, and where answers come from: a script, or a model server.
//! - `options`: the input of a run, and its result.

mod conversation;
mod journal;
mod options;
pub mod provider;
mod request;
mod resume;
mod run;
mod tool_call;
mod tools;

pub use conversation::{Dialogue, resumable, take_back_prompt};
pub use options::{
    ExitReason, MAX_TURNS, Price, RecordedResults, RunEvent, RunOptions, RunOutcome, ToolPolicy,
};
pub use provider::Provider;
pub use request::{ModelAnswer, RequestedCall, read as read_answer};
pub use resume::resume;
pub use run::run;
pub use tools::{ALL as TOOLS, ToolResult};

/// The agent's name in the record.
pub const NAME: &str = "stepback";
