//! Sessions as files for people and for other programs: a page to read, and the formats in which agents' work is exchanged.
//!
//! Everything is read through the engine, and redacted again on its way out: files in checkpoints are stored as they are. Each
//! format says what was recorded and leaves out what is unknown; none of them can be imported as a whole again, which is what
//! bundles are for (`stepback_bundle`).
//!
//! # Modules
//!
//! - [`session_file`]: the formats, and writing one. Start there.
//! - [`recording`]: a session as a reader follows it, made of its steps and of the conversation that its agent keeps.
//! - `session_steps`, `file_changes`, `line_diff`, `redactor`: the steps with their details; changed files with their changed
//!   lines; redaction.
//! - [`html`]: a page that works without a network.
//! - [`atif`], [`agent_trace`], [`har`], [`otlp`]: a trajectory, the lines that a session wrote, its model calls as HTTP, and its
//!   spans.
//! - [`otlp_sender`]: sends spans to a receiver.
//! - `error`: what can go wrong.
//!
//! A new format is a module, a variant of [`SessionFileFormat`], and a section of `docs/guide/export.md`; its test reads it with a
//! program that others wrote, or with a schema of the published description.

pub mod agent_trace;
pub mod atif;
mod error;
mod file_changes;
pub mod har;
pub mod html;
mod line_diff;
pub mod otlp;
pub mod otlp_sender;
pub mod recording;
mod redactor;
pub mod session_file;
mod session_steps;

pub use error::ExportError;
pub use session_file::{ExportContext, SessionFileFormat, SessionFileReport, write_session};
pub use session_steps::SessionSteps;
