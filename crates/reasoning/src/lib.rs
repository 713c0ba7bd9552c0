//! The reasoning state of an agent: what it believes, why, and what it does not know.
//!
//! A [`ReasoningBoard`] is plain data: hypotheses with evidence, beliefs that depend on each other, contradictions,
//! gaps, checks, notes. A [`BoardMutation`] is one change of it, and [`ReasoningBoard::apply`] the only way to make
//! one: a total function that either returns what happened or refuses and leaves everything as it was. Nothing here
//! reads a clock, a file or a session; the caller states where a mutation comes from ([`ItemOrigin`]), and
//! `engine::reason` makes it a step.
//!
//! Boards are values that share their common parts, in memory and in the store, so that a session can keep the board of
//! every step.
//!
//! # Modules
//!
//! - [`mind`], [`item`], [`ids`], [`paged_table`]: the board, its items, their names (`H2`), and the pages of items
//!   that versions of a board share. [`store`] reads and writes a board as objects.
//! - [`mutation`] and `apply`: the mutations, and the one function that applies them. Start reading there.
//! - [`confidence`], [`graph`], [`contradiction`]: how likely a hypothesis is, what depends on what (impact, roots,
//!   cycles), and items that cannot both be true, reported only where this is certain.
//! - [`diff`], [`merge`]: what changed, in sentences; merging from a branch and reverting a change.
//! - [`suggestions`], [`board`], [`graph_view`], [`recovery`] and `order`: what to do next, and what readers see.
//! - [`error`]: why a mutation is refused, and what to do instead.

mod apply;
pub mod board;
pub mod confidence;
pub mod contradiction;
pub mod diff;
pub mod error;
pub mod graph;
pub mod graph_view;
pub mod ids;
pub mod item;
pub mod merge;
pub mod mind;
pub mod mutation;
mod order;
pub mod paged_table;
pub mod recovery;
pub mod store;
pub mod suggestions;

pub use error::MindError;
pub use ids::{ItemId, ItemKind};
pub use item::ItemOrigin;
pub use mind::ReasoningBoard;
pub use mutation::{BoardMutation, CheckpointCause, MutationEffect};
