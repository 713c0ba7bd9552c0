//! The gRPC API with a real client: every service, the errors, and clients that misbehave.

mod calls;
mod connection;
mod encrypted;
mod hostile;
mod python;
mod raw;
mod refusals;
