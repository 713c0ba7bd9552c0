//! What an agent thinks, as part of a session: in time, across compactions, on branches.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod checks;
mod experiments;
mod merges;
mod own;
mod place;
mod stores;
mod time;
