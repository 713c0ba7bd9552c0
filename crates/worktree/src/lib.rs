//! The work tree: scans a directory into trees, and changes it according to a plan.
//!
//! This is the only crate that reads and writes the user's files. It never follows a symbolic link, never leaves the
//! workspace root, and never touches a git directory unless the plan names it. It does not know that there is a log: a
//! scan gets a place to write objects to, and a plan is a value.
//!
//! # Modules
//!
//! Reading:
//!
//! - [`scan`]: from a directory to trees. `walk` (threads), `node` and `listing` (directories and their entries),
//!   `entry` (one entry against the stat cache), `object` (one git object), `build` (trees), `update` (the next cache), `hints` and `watch_scope`
//!   (between a scan and a watcher), `offer_packs` (git packs to borrow from), `single` (one path without a scan).
//!   Start at [`scan::Scan`].
//! - `statcache`: what `stat` said about every file when it was last hashed. Never needed: lost or torn, it is rebuilt.
//! - [`cache_check`], [`rule_check`]: for reports: whether the stat cache is intact, and rules that exclude nothing.
//! - [`rules`], [`content`]: what is stored and what is only noted; from a file to a blob or a list of chunks.
//! - `git`, [`git_index`], [`vault`]: which files of a git directory are immutable or transient; what git has of each
//!   file, for warnings only; git's packs, kept as copies.
//!
//! Writing:
//!
//! - [`apply`]: applies a plan so that no byte is lost even if other processes write at the same time. Start at
//!   [`apply::Applier::apply`].
//! - [`anchored_path`], [`anchored_write`]: open and write a path below a root without following a link.
//! - [`materialize`]: stored trees as files in a new directory.
//! - [`restore`], [`dir_placement`]: stored content as bytes, and where a file system places many new files.
//! - [`open_files`], [`error`]: processes that have files open for writing, and what can go wrong, naming the path.
//!
//! A new rule about what is covered goes into [`rules`] and into `docs/guide/what-is-covered.md`.

pub mod anchored_path;
pub mod anchored_write;
pub mod apply;
pub mod cache_check;
pub mod content;
pub mod dir_placement;
pub mod error;
mod git;
pub mod git_index;
pub mod materialize;
pub mod open_files;
pub mod restore;
pub mod rule_check;
pub mod rules;
pub mod scan;
mod statcache;
pub mod vault;

pub use error::WorktreeError;
