//! The reasoning state of an agent: what it believes, why, and what it does not know.
//!
//! A [`ReasoningBoard`] is plain data: hypotheses with evidence, beliefs that depend on each other, contradictions, gaps, checks,
//! notes. A [`BoardMutation`] is one change of it, and [`ReasoningBoard::apply`] the only way to make one: a total function that either
//! returns what happened or refuses and leaves everything as it was. Nothing here reads a clock or a file; the caller
//! states where a mutation comes from ([`ItemOrigin`]).
//!
//! Minds are values that share their common parts ([`paged_table`]), in memory and in the store ([`store`]), so that a
//! session can keep the mind of every step. On top of them: confidence in hypotheses ([`confidence`]), dependencies
//! ([`graph`]), detected contradictions ([`contradiction`]), what to do next ([`suggestions`]), differences ([`diff`]),
//! merging and reverting ([`merge`]), and views for readers ([`board`], [`graph_view`], [`recovery`]).

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
