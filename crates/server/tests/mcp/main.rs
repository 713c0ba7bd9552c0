//! MCP against real counterparts: the official conformance suite, for both revisions, over our protocol, our transport and our
//! guard; and the tools of stepback over HTTP.
//!
//! The suite comes from `cargo xtask mcp install`.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod conformance;
mod fixture;
