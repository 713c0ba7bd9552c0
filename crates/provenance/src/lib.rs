//! Where something came from: which tool call wrote a line, and why.
//!
//! Everything here reads the store through the engine and changes nothing in it. What an answer rests on is part of it: a
//! call that names the file is recorded, a call that was merely running is inferred.
//!
//! # Modules
//!
//! - [`blame`]: the origin of every line of a file. Start there.
//! - `call_origin`: the model turn and the prompt that led to a call.
//! - [`line_commits`], [`commit_walk`]: git's commits of the lines that are older than the recording.
//! - [`line_map`]: which line of an older text each line of a newer one was, through formatting and moved blocks.
//! - [`file_versions`]: the contents of one path along a line of checkpoints.
//! - `follow`: follows lines from version to version.
//! - `moved`: blocks that were cut somewhere else in the workspace.
//! - [`why`]: the chain from a change to the prompt, and what the model had seen that has its words.
//! - `documents`: the answers as documents.
//! - `error`: what can go wrong.

pub mod blame;
mod call_origin;
pub mod commit_walk;
mod documents;
mod error;
pub mod file_versions;
mod follow;
pub mod line_commits;
pub mod line_map;
mod moved;
pub mod why;

pub use blame::{Blame, BlameRequest, BlamedLine, LineOrigin, OriginKind};
pub use call_origin::{CallOrigin, trace_call};
pub use commit_walk::{WalkEnd, WalkLimits};
pub use documents::blame_document;
pub use error::ProvenanceError;
pub use file_versions::FileVersions;
pub use line_commits::{CommitRule, LineCommit, add_commits};
pub use why::{WhyTarget, explain};
