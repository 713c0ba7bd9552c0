//! What a server answers, over a real socket, a real store and a real workspace.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "this is test code: a failure is a failed test")]

mod answers;
mod basics;
mod description;
mod find;
mod following;
mod grpc;
mod ingest;
mod live;
mod mind;
mod otlp;
mod past;
mod plans;
mod running;
mod share;
mod store_endpoint;
mod support;
mod talking;
