//! Real coding agents, offline, with a model that follows a script.
//!
//! The agents come from `cargo xtask agents install`. Every run has a network namespace with loopback alone, a home and
//! a workspace of its own; see `stepback_testkit::agent`.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod again;
mod back;
mod live;
mod loops;
mod mcp;
mod plays;
mod support;
mod together;
mod why;

stepback_testkit::scripted_model!();
