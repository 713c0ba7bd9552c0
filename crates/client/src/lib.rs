//! Reports what a program's agents do to a stepback server.
//!
//! A [`Recorder`] is started once; each run of an agent is an [`AgentSession`] of it. Every recorded step is shortened,
//! redacted and put into a bounded queue, and a thread sends it in batches. The program never waits for the server and
//! never fails because of it: what does not fit is dropped, counted, and shown as a gap in the session.
//!
//! ```no_run
//! use serde_json::json;
//! use stepback_client::{Recorder, RecorderConfig};
//!
//! let token = std::env::var("STEPBACK_TOKEN").unwrap_or_default();
//! let config = RecorderConfig::new("http://127.0.0.1:7171", &token).workspace("shop").agent("buyer");
//! let recorder = Recorder::start(config)?;
//! let session = recorder.session("order-17");
//! session.prompt("buy milk");
//! let call = session.tool("search", json!({ "query": "milk" }));
//! call.finish(json!({ "found": 3 }));
//! session.end();
//! # Ok::<(), stepback_client::ConfigError>(())
//! ```
//!
//! Programs in other languages can use the endpoint itself: `POST /api/v1/ingest`.
//!
//! The crate blocks, needs no asynchronous runtime, and knows the server only by that endpoint.
//!
//! # Modules
//!
//! - `recorder`, `session`, `step`: the API a program calls; sampling, shortening and redaction. Start at [`Recorder`].
//! - `queue`, `send`, `http`: a bounded queue, and the thread that sends until the server has everything.
//! - `trace`, `config`: W3C trace context; what is recorded, how much of it, and where it goes.

mod config;
mod http;
mod queue;
mod recorder;
mod send;
mod session;
mod step;
mod trace;

pub use config::{Capture, ConfigError, RecorderConfig};
pub use queue::QueueCounts;
pub use recorder::Recorder;
pub use session::{AgentSession, StartedCall};
pub use step::StepReport;
pub use stepback_model::record::StepKind;
pub use trace::TraceContext;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
