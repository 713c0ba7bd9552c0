//! Profiles of sessions.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod exports;
mod recording;
mod schema;
mod summaries;
mod times;
