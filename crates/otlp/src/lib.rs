//! OpenTelemetry's protocol, and the meaning of agents' spans and log records.
//!
//! Pure: bytes in, events out. [`read`] parses a request, in protobuf or JSON, into [spans and log records](telemetry);
//! [`Assembler`] turns these into events of sessions, with one module for each [convention](conventions); [`reply`]
//! encodes the protocol's answers. Nothing here uses a store, a workspace or a socket.
//!
//! The protobuf reader is our own. The messages are few and have not changed in years, and our reader can do what a
//! generated one cannot: reject one invalid span and keep its neighbours, and stop at a limit before it has allocated
//! memory for a million attributes.
//!
//! # Modules
//!
//! - [`telemetry`], [`read`], `protobuf`, `json`, `attributes`: spans and log records, the same for every encoding;
//!   invalid parts are skipped and counted.
//! - [`conventions`], `langchain`, `messages`: the meaning of a span in one form (GenAI in several revisions,
//!   OpenInference, OpenLLMetry), and messages between an agent and a model.
//! - [`assemble`], `logs`, `events`, `message_events`, `trace_state`: from spans and log records to events of sessions,
//!   and what is kept about traces between requests. Start at [`Assembler`].
//! - [`reply`], `summaries`: the bytes of an answer, and short texts for display.
//!
//! A new convention, or another name in one, is a module or a line in [`conventions`], with a request as a real SDK
//! sends it in `tests/captures`, and the table in `docs/guide/opentelemetry.md`.

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
