//! The work tree: scans a directory into trees, and changes it according to a plan.
//!
//! This is the only crate that reads and writes the user's files. It never follows a symbolic link, never leaves the
//! workspace root, and never touches a git directory unless the plan names it.

pub mod anchored_path;
pub mod apply;
pub mod content;
pub mod dir_placement;
pub mod error;
mod git;
pub mod git_index;
pub mod open_files;
pub mod restore;
pub mod rules;
pub mod scan;
mod statcache;
pub mod vault;

pub use error::WorktreeError;
