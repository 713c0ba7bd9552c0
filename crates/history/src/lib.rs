//! Looking at what was recorded: stepping through a session, two runs side by side, and the checkpoint that broke something.
//!
//! Everything here reads the store through the engine and changes nothing in it; the results are plain data, and surfaces decide
//! how to show them.
//!
//! # Modules
//!
//! - [`timeline`]: a session as a list to navigate.
//! - [`checkpoint_graph`]: the checkpoints of a workspace with their branches.
//! - [`compare`]: two sessions, branches or points, aligned step by step, and how they end.
//! - [`bisect`]: a search among checkpoints, each of which is brought into a directory of its own for a command.
//! - `error`: what can go wrong.

pub mod bisect;
pub mod checkpoint_graph;
pub mod compare;
mod error;
pub mod timeline;

pub use error::HistoryError;
