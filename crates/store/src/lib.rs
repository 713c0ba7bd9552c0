//! Where states and their history are kept.
//!
//! [`port`] says what a store is; [`embedded`] keeps it in SQLite and pack files, shared by many processes; [`memory`] keeps
//! it in memory, bounded. This crate knows nothing of directories being watched, of agents, or of the terminal.

mod codec;
pub mod embedded;
pub mod error;
mod lender;
pub mod memory;
mod pack;
pub mod port;
mod query;
mod search;

pub use error::StoreError;
pub use lender::{blob_oid as git_blob_id, verify_file as verify_git_file};
pub use port::{FinishedBatch, Mutation, ObjectBatch, Receipt, Store};
