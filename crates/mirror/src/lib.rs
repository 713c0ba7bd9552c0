//! Mirrors: append-only copies of a store in a second place, from which everything can be restored.
//!
//! A mirror follows its store: right after each commit, a background process appends what the commit changed, and every
//! object that it stored, to a chain of segments. Nothing in a mirror is ever changed or deleted, so whatever is done to the
//! store later, by a prune or by an attacker, does not reach what is mirrored. `docs/design/0024-mirrors.md` has the
//! reasons, `docs/spec/mirror.md` the bytes.
//!
//! # Modules
//!
//! - [`item`], [`segment`]: the bytes: what a mirror consists of, and the files that it grows by.
//! - [`storage`], [`address`]: where these files are: a directory, or a bucket of an object store.
//! - [`archive`], [`join`]: a mirror as a whole: whose it is, where it ends, how it grows, and which store continues it.
//! - [`sync`], [`tally`], [`vault`]: bringing a mirror up to date with its store; comparing their steps; git's packs.
//! - [`replay`], [`survey`], [`restore`]: reading a mirror, what it has, and making a store of it.
//! - [`settings`], [`service`], [`launch`]: the mirrors of a store, the process that syncs them, and how it is started.

pub mod address;
pub mod archive;
pub mod error;
pub mod item;
pub mod join;
pub mod launch;
pub mod replay;
pub mod restore;
pub mod segment;
pub mod service;
pub mod settings;
pub mod storage;
pub mod survey;
pub mod sync;
pub mod tally;
pub mod vault;

pub use error::MirrorError;
