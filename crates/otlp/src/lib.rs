//! OpenTelemetry's protocol, and the meaning of agents' spans and log records.
//!
//! Pure: bytes in, events out. [`read`] parses a request, in protobuf or JSON, into [spans and log records](telemetry);
//! [`Assembler`] turns these into events of sessions, with one module for each [convention](conventions); [`reply`]
//! encodes the protocol's answers. Nothing here uses a store, a workspace or a socket.
//!
//! The protobuf reader is our own. The messages are few and have not changed in years, and our reader can do what a
//! generated one cannot: reject one invalid span and keep its neighbours, and stop at a limit before it has allocated
//! memory for a million attributes.

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

pub use assemble::{AssembledRequest, Assembler, TelemetrySource};
pub use attributes::Attributes;
pub use read::{Encoding, Unreadable, logs, traces};
