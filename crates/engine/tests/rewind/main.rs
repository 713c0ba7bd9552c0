//! Rewind, undo and points, on real files, with what a person would check afterwards.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod databases;
mod excluded;
mod git;
mod git_damage;
mod git_states;
mod hostile;
mod merges;
mod moves;
mod paths;
mod points;
mod support;
mod three_way;
