//! The vocabulary of stepback: ids, hashes, objects, steps, states, points and plans.
//!
//! Everything here is plain data with canonical bytes. This crate performs no I/O, reads no clock and draws no random
//! numbers; code that needs time or ids receives an [`env::Env`]. Formats defined here are specified in `docs/spec/`; a
//! change of bytes is a change of that document.

pub mod change;
pub mod clip;
pub mod conversation;
pub mod env;
pub mod escape;
pub mod event;
pub mod from_text;
pub mod hash;
pub mod ids;
pub mod json;
pub mod list;
pub mod nearest;
pub mod object;
pub mod path;
pub mod plan;
pub mod point;
pub mod record;
pub mod search;
pub mod state;
pub mod time;
pub mod time_expr;
pub mod tree;

pub use hash::{Hash, ObjectKind};
