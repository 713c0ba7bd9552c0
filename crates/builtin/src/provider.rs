//! Who answers: a script, or a model behind an address.

mod chat;
mod http;
mod scripted;

use stepback_exchange::{Request, Response};
use stepback_model::event::ReportedError;

pub use http::{Dialect, Http, Post};
pub use scripted::{ScriptError, Scripted};

/// Answers requests in the form of the Messages API. A rerun brings one that answers from a recording.
pub trait Provider: Send {
    /// Asks. An answer that refuses is an answer; an error means that there is none.
    fn ask(&mut self, request: &Request) -> Result<Response, ReportedError>;
}
