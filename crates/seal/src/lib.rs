//! Seals: signed statements of what a workspace's record was at a time, kept where the store cannot be used to change them.
//!
//! The chains of a store ([`stepback_store::step_chain`]) show a change that does not recompute them. A program that can write
//! to the store can also recompute them. A seal has a short digest of every step and the head of every session, signed with
//! Ed25519; compared with the store later, it names the steps that were altered, removed or added before it was made.
//!
//! This crate reads stores and never changes them. It reads no clock and no environment variable.
//!
//! # Modules
//!
//! - [`document`]: what a seal says, and how it is made from a store. Start here.
//! - [`signature`]: keys, and the bytes that are signed.
//! - [`mod@compare`]: what changed since a seal was made.
//! - [`git_ref`]: keeps seals in a git repository, below `refs/stepback/seals/`.
//!
//! The format is specified in `docs/spec/seal.md`.

pub mod compare;
pub mod document;
pub mod git_ref;
pub mod signature;

pub use compare::{SealComparison, SealFinding, SealFindingKind, compare};
pub use document::{Seal, SealError, take_seal};
pub use signature::{PublicKey, SealKey, SignedSeal};
