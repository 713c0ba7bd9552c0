//! The engine: checkpoint, diff, rewind, undo, prune, over any store and any workspace.
//!
//! It never prints, never reads the environment, and takes time and ids from an [`stepback_model::env::Env`]. Every change of
//! the user's files goes through one door, [`rewind`]: plan, save the present, journal, apply, verify, report.

pub mod advice;
pub mod authorship;
pub mod bisect;
pub mod branch;
pub mod bundle;
mod calls;
pub mod changes;
pub mod checkpoint;
pub mod collect;
pub mod compare;
pub mod control;
mod databases;
pub mod diff;
mod direct;
pub mod error;
mod git_lock;
pub mod hunks;
mod journal;
pub mod kept;
mod last_read;
pub mod lines;
pub mod materialize;
pub mod merge;
mod own;
pub mod path_filter;
pub mod prune;
mod reach;
pub mod reason;
pub mod recorder;
pub mod reruns;
pub mod resolve;
mod revert;
pub mod rewind;
pub mod roots;
mod scope;
pub mod search;
pub mod session;
mod session_state;
mod take_back;
pub mod timeline;
pub mod treeedit;
pub mod undo;
mod unified;
pub mod workspace;

pub use error::EngineError;
pub use workspace::{Engine, Workspace};
