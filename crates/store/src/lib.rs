//! The store: where states and their history are kept.
//!
//! [`port`] defines what a store is; [`embedded`] keeps it in SQLite and pack files, shared by many processes; [`memory`]
//! keeps it in bounded memory; [`copy`] copies everything from one store to another. [`codec`], [`tree_cache`] and
//! [`search`] have parts that a store in another crate can use. This crate does not depend on watched directories, agents
//! or the terminal.

pub mod codec;
pub mod copy;
pub mod embedded;
pub mod error;
mod git_pack;
pub mod memory;
mod pack;
pub mod port;
mod query;
mod rank;
mod scan;
pub mod search;
pub mod tree_cache;

pub use error::StoreError;
pub use git_pack::{blob_oid as git_blob_id, verify_file as verify_git_file};
pub use port::{FinishedBatch, Mutation, ObjectBatch, Receipt, Store};
