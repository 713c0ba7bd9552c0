//! The engine: everything stepback does, over any store and any workspace.
//!
//! ```
//! use stepback_engine::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let (store, project) = (dir.path().join("store"), dir.path().join("project"));
//! # std::fs::create_dir(&project)?;
//! std::fs::write(project.join("main.py"), "print(1)\n")?;
//! let workspace = Engine::open(&store)?.open_workspace(&project)?;
//! let good = workspace.create_checkpoint(Annotation::labelled("it works"), Trigger::Manual)?;
//! std::fs::write(project.join("main.py"), "print(2)\n")?;
//!
//! let plan = workspace.plan_move(&MoveRequest::restore(&good.stored))?;
//! assert_eq!(plan.summary, "rewind to #1 \"it works\"");
//! workspace.apply_move(plan)?;
//! assert_eq!(std::fs::read_to_string(project.join("main.py"))?, "print(1)\n");
//! # Ok(())
//! # }
//! ```
//!
//! It never prints, never reads the environment, and takes time and ids from an [`stepback_model::env::Env`]. It knows
//! no agent by name and no protocol: agents report events, surfaces show plans. Every change of the user's files is
//! planned, shown, journalled, applied and verified ([`rewind`]).
//!
//! Start at [`Workspace`], an open workspace with its locks and scans; then follow one of the flows in
//! `ARCHITECTURE.md`.
//!
//! # Modules
//!
//! Recording:
//!
//! - [`workspace`], [`workspace_index`]: workspaces, and which directories are one, without opening the database.
//! - [`checkpoint`], [`recorder`]: checkpoints by request, and from an agent's report to a step.
//! - `calls`, [`authorship`]: the open calls of a session, and which of them changed a path.
//! - [`session`], `session_state`: sessions by id, and which one was active at a step, with its conversation.
//! - [`control`]: stopping a live agent through files: breakpoints, stops, answers.
//! - [`board`]: an agent's reasoning board as part of its session.
//!
//! Going back and forth:
//!
//! - [`resolve`], [`branch`], [`branch_graph`], [`branch_merge`], `branch_status`, `branch_directory`: from a point to a step; branches; which steps are on
//!   which line, and the lanes of a timeline; merging.
//! - [`diff`], [`changes`], [`hunks`], `unified`: what differs, the numbered list of changes with their authors, and
//!   parts of one.
//! - [`rewind`], `rewind_scope`, `take_back`, `restore_plan`, `revert`, [`merge`], [`kept`], `databases`,
//!   `git_restore`, [`git_warnings`], `git_status`, [`path_filter`]: planning: whose changes go back, how, and what stays.
//! - `journal`, `git_lock`, [`tree_edit`]: applying a plan, closing it, rolling it back, recovering it.
//! - [`undo`], `agent_permissions`: undo and redo, and what an agent may do by itself.
//!
//! Looking:
//!
//! - [`search`], [`read_cache`]: finding steps, and reading the details of many.
//! - [`materialize`], [`reruns`]: a past state in a directory of its own, records of reruns.
//!
//! Upkeep:
//!
//! - [`workspace_admin`]: moving, forgetting and bringing back workspaces.
//! - [`prune`], [`budget`], [`collect`], [`reachability`]: which checkpoints go, by rules and by size, and freeing what
//!   nothing needs.
//! - [`error`]: what can go wrong. What a user can do about it is said by `stepback_api::failure`.
//!
//! A new operation is a module with a plan and an outcome, and an `OperationAction` in `stepback_model::record` that
//! says how to undo it.

mod agent_permissions;
pub mod authorship;
pub mod board;
pub mod branch;
mod branch_directory;
pub mod branch_graph;
pub mod branch_merge;
mod branch_status;
pub mod budget;
mod calls;
pub mod changes;
pub mod checkpoint;
pub mod collect;
pub mod control;
mod databases;
pub mod diff;
pub mod engine;
pub mod error;
mod git_lock;
mod git_restore;
mod git_status;
pub mod git_warnings;
pub mod hunks;
mod journal;
pub mod kept;
pub mod materialize;
pub mod merge;
pub mod moves;
pub mod path_filter;
pub mod prelude;
pub mod prune;
pub mod reachability;
pub mod read_cache;
pub mod recorder;
pub mod reruns;
pub mod resolve;
mod restore_plan;
mod retry;
mod revert;
pub mod rewind;
mod rewind_scope;
pub mod search;
pub mod session;
mod session_state;
mod switch_reversal;
pub mod system_env;
mod take_back;
pub mod tree_edit;
pub mod undo;
mod unified;
pub mod workspace;
pub mod workspace_admin;
pub mod workspace_index;

pub use engine::Engine;
pub use error::EngineError;
pub use git_status::RepositoryStatus;
pub use system_env::SystemEnv;
pub use workspace::Workspace;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
