//! Support for the coding agents that stepback records: installing hooks, reading their events, and reading their
//! conversations.
//!
//! There is one module per concern, and inside it one per agent. Nothing outside this crate knows the payload,
//! transcript or settings format of any agent. This crate does not print and reads no environment; `stepback::hook` is
//! the process.
//!
//! # Modules
//!
//! Live:
//!
//! - [`hook`], `turn_counter`: from an agent's event to its answer; how long a hook need not open the store. Start here, at
//!   [`hook::Hook::handle`].
//! - [`payload`], [`tools`], [`tasks`], [`messages`], `workspace_paths`, [`outside_paths`], [`rewind_warnings`] and `gemini`: a hook's input as
//!   our types; which tools only read, and which paths a call names, in the workspace and outside; the task it is about;
//!   what agents say to each other; what Gemini CLI's hooks do not report.
//! - [`inbox`], [`model_call_sink`], [`model_call_inbox`], [`record`]: what need not be recorded at once, model calls
//!   that a proxy forwards, and passing both to the engine's recorder.
//! - [`breakpoints`], `context_size`, `call_window`, [`answer`]: stopping a call, how many tokens the context has, the last calls
//!   of an agent, and a hook's answer in each agent's format, which cannot express "allow".
//! - [`call_subject`]: what a call is about.
//!
//! Conversations:
//!
//! - [`transcript`]: the conversation as the agent keeps it, and where it can be cut.
//! - [`session_states`]: what the sessions at work had at a step: position, summary, working set, tools, tokens.
//! - [`import`]: from a conversation to events.
//! - [`fork`]: a conversation that continues from an earlier point under a new id; `fork::recorded` starts it from a
//!   step of a session.
//!
//! Settings:
//!
//! - [`install`]: our hooks and our MCP server in an agent's settings, for good or for one run, without changing any
//!   other byte; `install::route` sends model calls to our proxy.
//!
//! Reruns:
//!
//! - [`rerun_command`], [`sandbox_home`]: the command that runs an agent again, and a home directory for it.
//! - [`decisions`], [`policy`]: what the user decided about recorded calls, and what calls may do this time.
//!
//! A new agent is a variant of [`Agent`], a module in `install`, `transcript` and `fork`, its events in [`payload`] and
//! its answers in [`answer`], with payloads and a transcript as the agent really writes them in `tests/sample`.

pub mod agent;
pub mod answer;
pub mod breakpoints;
pub mod call_subject;
mod call_window;
mod context_size;
pub mod decisions;
pub mod fork;
mod gemini;
pub mod hook;
pub mod import;
pub mod inbox;
pub mod install;
pub mod messages;
pub mod model_call_inbox;
pub mod model_call_sink;
pub mod outside_paths;
pub mod payload;
pub mod policy;
pub mod record;
pub mod rerun_command;
pub mod rewind_warnings;
pub mod sandbox_home;
pub mod session_states;
pub mod tasks;
pub mod tools;
pub mod transcript;
mod turn_counter;
mod workspace_paths;

pub use agent::Agent;
