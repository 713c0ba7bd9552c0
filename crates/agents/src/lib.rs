//! Support for the coding agents that stepback records: installing hooks, reading their events, and reading their
//! conversations.
//!
//! There is one module per concern, and inside it one per agent. Nothing outside this crate knows the payload, transcript or
//! settings format of any agent.

pub mod agent;
pub mod answer;
pub mod breakpoints;
pub mod decisions;
pub mod fork;
mod gemini;
pub mod hook;
pub mod import;
pub mod inbox;
pub mod install;
pub mod model_call_inbox;
pub mod payload;
pub mod policy;
pub mod record;
pub mod rerun_command;
pub mod sandbox_home;
pub mod tools;
pub mod transcript;
mod workspace_paths;

pub use agent::Agent;
