//! The store over a socket: the store contract, what each role may do, hostile bytes, and servers that come and go.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod contract;
mod hostile;
mod roles;
mod support;
