//! The coding agents stepback works with: how each is told about us, what it tells us, and how its conversation is kept.
//!
//! One module per concern, and inside it one per agent. Nothing outside this crate knows a payload, a transcript line or a
//! settings file of any agent.

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
