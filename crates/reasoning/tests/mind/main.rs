//! What a mind does, without a session around it.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod properties;
mod rules;
mod support;
