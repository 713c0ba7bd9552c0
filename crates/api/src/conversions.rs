//! Documents of the engine's values; only with the feature `engine`.
//!
//! A value of the model becomes a document where the document is defined. What comes from the engine or needs a store is
//! here, so that a program which only reads documents does not depend on either.

mod branches;
mod changes;
mod commands;
mod control;
mod maintenance;
mod plans;
mod reasoning;
mod search;
mod state;
mod timeline;

pub use self::reasoning::ItemDescriber;
pub use self::search::StepDescriber;
