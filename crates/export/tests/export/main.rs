//! Exports of sessions, read by programs of others: a browser, schemas, the protocol's own packages.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod browser;
mod formats;
mod html;
mod sample;
