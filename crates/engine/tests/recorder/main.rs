//! The recorder without a process around it: who did what, what was said by then, and what a long session costs.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod calls;
mod kept;
mod lines;
mod long;
mod messages;
mod pages;
mod parts;
mod servers;
mod session;
