//! The engine: checkpoint, diff, rewind, undo and prune, over any store and any workspace.
//!
//! It never prints, never reads the environment, and takes time and ids from an [`stepback_model::env::Env`]. Every change of
//! the user's files goes through [`rewind`]: plan, save the present state, journal, apply, verify, report.

mod agent_permissions;
pub mod authorship;
pub mod bisect;
pub mod branch;
pub mod branch_graph;
pub mod bundle;
mod calls;
pub mod changes;
pub mod checkpoint;
pub mod collect;
pub mod compare;
pub mod control;
mod databases;
pub mod diagnostics;
pub mod diff;
pub mod error;
mod git_lock;
pub mod hunks;
mod journal;
pub mod kept;
pub mod materialize;
pub mod merge;
pub mod path_filter;
pub mod prune;
mod reachability;
mod read_cache;
pub mod reason;
pub mod recorder;
pub mod reruns;
pub mod resolve;
mod restore_plan;
mod revert;
pub mod rewind;
mod rewind_scope;
pub mod search;
pub mod session;
mod session_state;
mod take_back;
pub mod timeline;
pub mod tree_edit;
pub mod undo;
mod unified;
pub mod workspace;
pub mod workspace_index;

pub use error::EngineError;
pub use workspace::{Engine, Workspace};
