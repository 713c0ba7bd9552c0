//! The vocabulary of stepback: ids, hashes, objects, steps, states, points and plans.
//!
//! Everything here is plain data with canonical bytes. This crate performs no I/O, reads no clock and draws no random
//! numbers; code that needs time or ids receives an [`env::Env`]. It knows no other crate of the workspace. Formats
//! defined here are specified in `docs/spec/`; a change of bytes is a change of that document.
//!
//! Start at [`record`] for what the log holds and [`state`] for what a step points to; [`plan`] is what a rewind will
//! do.
//!
//! # Modules
//!
//! What is stored:
//!
//! - [`hash`], [`object`]: names of immutable objects, and the two traits by which pure code reads and writes them.
//! - [`state`], [`tree`], [`mod@path`]: a state, the listing of a directory (with what is not stored and why), and
//!   paths as bytes that never leave the workspace.
//! - [`json`], [`list`], [`conversation`]: structurally shared values, lists, and chains of messages.
//! - [`record`], [`ids`]: workspaces, sessions, steps and operations, with one id type for each.
//! - [`step_chain`]: the hash chain of a session's steps, by which changes of the record are noticed.
//!
//! What happens:
//!
//! - [`event`], [`message`]: what an agent reported, in a form common to all agents, and what agents say to each other.
//! - [`change`], [`plan`]: what happened to a path between two states, and what a rewind will do.
//! - [`anomaly`], [`fingerprint`]: what is unusual in the calls of an agent, and when two calls or results count as the same.
//!
//! What users write and read:
//!
//! - [`point`], [`time`], [`time_expr`]: expressions that name a moment, and times as users write them.
//! - [`search`]: how a text is split into words, what a search asks for, and where it matches.
//! - [`nearest`], [`clip`], [`escape`], [`from_text`]: suggestions for misspelt words, cutting long texts, making
//!   untrusted text safe for a terminal, and reading values without copying their text.
//! - [`mod@env`]: the trait that supplies time and ids, and a frozen implementation for tests.

pub mod anomaly;
pub mod change;
pub mod clip;
pub mod conversation;
pub mod env;
pub mod escape;
pub mod event;
pub mod fingerprint;
pub mod from_text;
pub mod hash;
pub mod hex;
pub mod ids;
pub mod json;
pub mod list;
pub mod message;
pub mod nearest;
pub mod object;
pub mod page_cursor;
pub mod path;
pub mod plan;
pub mod point;
pub mod quantity;
pub mod record;
pub mod search;
pub mod shell;
pub mod state;
pub mod step_chain;
pub mod time;
pub mod time_expr;
pub mod tree;

pub use hash::{Hash, ObjectKind};
