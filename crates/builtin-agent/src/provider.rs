//! Providers, which answer the agent's model calls: a script, or a model server.

mod chat;
mod http;
mod scripted;

use stepback_llm_wire::{ModelRequest, Response};
use stepback_model::event::ReportedError;

pub use http::{Dialect, Http, Post};
pub use scripted::{ScriptError, Scripted};

/// Answers requests in the form of the Messages API. A rerun brings one that answers from a recording.
pub trait Provider: Send {
    /// Sends a request. A response with an error status is a response; an error means that there was none.
    fn ask(&mut self, request: &ModelRequest) -> Result<Response, ReportedError>;
}
