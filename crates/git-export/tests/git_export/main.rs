//! Sessions as commits and authorship notes, read back by git itself.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod notes;
mod place;
mod session_commits;
