//! OpenTelemetry's protocol, and what spans and log records of agents mean.
//!
//! Pure: bytes in, events out. [`read`] takes a request apart, in protobuf or JSON, into [spans and log records](telemetry);
//! [`Assembler`] turns these into events of sessions, with the help of one module for each [convention](conventions);
//! [`reply`] has the bytes that the protocol wants as an answer. Nothing here knows a store, a workspace or a socket.
//!
//! The protobuf reader is our own. The messages are few and have not changed in years, and a reader of ours can do what a
//! generated one cannot: leave out one span that makes no sense and keep its neighbours, and stop at a limit before it
//! has taken memory for a million attributes.

pub mod assemble;
mod attributes;
pub mod conventions;
mod events;
mod json;
mod langchain;
mod logs;
mod message_events;
mod messages;
mod protobuf;
pub mod read;
pub mod reply;
mod summaries;
pub mod telemetry;
mod trace_state;

pub use assemble::{Assembler, Service, Taken};
pub use attributes::Attributes;
pub use read::{Encoding, Unreadable, logs, traces};
