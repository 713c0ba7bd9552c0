//! The input of the measurements: trees of files, and changes to them, the same in every run.

pub mod changes;
pub mod git;
pub mod text;
pub mod trees;
