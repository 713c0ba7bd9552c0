//! The gRPC API of a server: the operations of the HTTP API, for clients that prefer gRPC.
//!
//! There is one implementation of each operation, behind HTTP. A gRPC call becomes a request to the same router, in the same
//! process, and its document becomes the message of the answer. So both APIs find the same, refuse the same and say the
//! same; this crate knows nothing about stores, workspaces or sessions. What differs is how it is sent: [`translate`] turns
//! refusals of the outer layers (token, limits, unknown paths) into gRPC statuses and keeps deadlines.
//!
//! # Modules
//!
//! - [`v1`]: messages, clients and services, generated from `proto/stepback/v1/*.proto`.
//! - `services`: the table of operations: each method, and the HTTP operation behind it. Start here.
//! - `operation`: one call: from a message to a request, and from a document to a message.
//! - `streams`, `events`: answers of many messages, and clients that stop reading; live events.
//! - `status`, `layer`, `deadline`: errors, and what applies to every call.
//! - `health`, `json_text`: the standard health service; values of any shape as JSON text.
//!
//! `tests/contract` keeps the `.proto` files equal to the description of the HTTP API, and the generated code equal to the
//! `.proto` files: `STEPBACK_UPDATE_PROTO=1 cargo nextest run -p stepback-grpc` updates both.

mod deadline;
mod events;
mod health;
mod json_text;
mod layer;
mod operation;
mod services;
mod status;
mod streams;

/// Messages, clients and services, generated from the `.proto` files.
pub mod v1 {
    #![expect(
        missing_docs,
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        clippy::large_enum_variant,
        reason = "generated"
    )]

    include!("../generated/stepback.v1.rs");
}

/// The compiled `.proto` files, which the reflection service sends to clients.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../generated/stepback.v1.binpb");

pub use layer::{http_status, translate};
pub use operation::RpcMethod;
pub use services::{PUBLIC_PATHS, operations, router};
pub use status::problem_of;
