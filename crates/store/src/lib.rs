//! The store: where states and their history are kept.
//!
//! [`port`] defines what a store is: immutable objects, an append-only log, and a few references moved by
//! compare-and-swap. [`embedded`] keeps it in SQLite and pack files, shared by many processes; [`memory`] keeps it in
//! bounded memory; `stepback-postgres` keeps it in a database. What every store guarantees is written as tests, in
//! `testkit::contract`.
//!
//! This crate does not know watched directories, agents or the terminal.
//!
//! # Modules
//!
//! - [`port`]: the interface, one small trait for each subject; [`Store`] is their sum. `query`, [`search`]: queries for
//!   steps by their fields, and full-text search. Start here.
//! - [`embedded`]: the store in a directory. `schema` (tables, format gate), `log` and `apply` (rows), `objects`,
//!   `batch` and `chain_reader` (reading and writing objects), `readers` (connections for queries), `find`, `index` and
//!   `ranked_hits` (queries and search), `sweep` (freeing and checking), `store` (the port). A commit is
//!   `CommitLog::commit` in `store`.
//! - `pack`, [`codec`], [`git_objects`], `git_pack`, `git_check`: append-only pack files, compression of single objects, blobs that a git
//!   pack in the vault already holds, and whether a git file is intact.
//! - [`memory`], `scan`, `rank`: the store in memory, queries that check every step, and ranking of matches.
//! - [`tree_cache`], [`copy`], [`error`]: recently read trees, copying one store to another, and what can go wrong.
//! - [`mod@step_chain`]: verifies the hash chains of sessions, whatever store they are in.
//! - [`new_file`]: replaces files atomically, here and in other crates. [`private_files`]: who can access a store's files.
//!
//! A new query is a method of the trait of its subject, an implementation in all three stores, and a clause of the contract. Every
//! write, sync and rename passes `faults::point`. The bytes are specified in `docs/spec/store.md`.

pub mod codec;
pub mod copy;
pub mod embedded;
pub mod error;
mod git_check;
pub mod git_objects;
mod git_pack;
pub mod memory;
pub mod new_file;
mod pack;
pub mod port;
pub mod private_files;
mod query;
mod rank;
mod scan;
pub mod search;
pub mod step_chain;
pub mod tree_cache;

pub use error::StoreError;
pub use git_check::{GitFileCheck, check_reader as check_git_file, verify_file as verify_git_file};
pub use git_pack::blob_oid as git_blob_id;
pub use port::{FinishedBatch, Mutation, ObjectBatch, Receipt, Store};

/// The traits of a store, for callers that hold a concrete one. On a `&dyn Store`, all methods work without imports.
pub mod prelude {
    pub use crate::port::{
        BatchLookup, CommitLog, MaintenanceStore, ObjectStore, OperationStore, PlanStore, RefStore,
        SearchStore, SessionStore, StepChainStore, StepStore, Store,
    };
}
