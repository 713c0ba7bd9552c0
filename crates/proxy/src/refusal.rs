//! Errors of the proxy itself, in the format that the agents of each wire can show.

use std::error::Error;
use std::io;

use serde_json::json;
use stepback_llm_wire::Wire;

/// Returns an error document of a wire.
pub(crate) fn error_document(wire: Option<Wire>, status: u16, message: &str) -> String {
    let is_client_error = status < 500;
    match wire {
        Some(Wire::Messages) => {
            let kind = if is_client_error { "invalid_request_error" } else { "api_error" };
            json!({ "type": "error", "error": { "type": kind, "message": message } })
        }
        Some(Wire::Gemini) => {
            let kind = if is_client_error { "FAILED_PRECONDITION" } else { "UNAVAILABLE" };
            json!({ "error": { "code": status, "message": message, "status": kind } })
        }
        Some(Wire::Chat | Wire::Responses) | None => {
            let kind = if is_client_error { "invalid_request_error" } else { "server_error" };
            json!({ "error": { "message": message, "type": kind, "param": null, "code": "stepback_proxy" } })
        }
    }
    .to_string()
}

/// Why no answer arrived.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) status: u16,
    /// What went wrong.
    pub(crate) reason: String,
    /// What the user can do about it.
    pub(crate) advice: &'static str,
}

impl Failure {
    /// Returns the message for the agent.
    pub(crate) fn message(&self) -> String {
        format!("stepback proxy: {}. {}", self.reason, self.advice)
    }

    /// Creates a failure from the error of a request to `upstream`.
    pub(crate) fn from_error(upstream: &str, error: &(dyn Error + 'static)) -> Self {
        let text = error_chain(error);
        let kind = find::<io::Error>(error).map(io::Error::kind);
        let (status, problem, advice) = if find::<rustls::Error>(error).is_some() {
            (502, "no secure connection could be made", TLS_ADVICE)
        } else if text.contains("dns error") {
            (502, "its name could not be resolved", NAME)
        } else if kind == Some(io::ErrorKind::TimedOut) {
            (504, "it could not be reached in time", REACH_ADVICE)
        } else if kind == Some(io::ErrorKind::ConnectionRefused) {
            (502, "it refused the connection", REACH_ADVICE)
        } else if find::<hyper::Error>(error).is_some_and(hyper::Error::is_parse) {
            (502, "it answered with something that is not HTTP", HTTP)
        } else if find::<hyper::Error>(error).is_some_and(hyper::Error::is_incomplete_message) {
            (502, "it closed the connection without an answer", RETRY_ADVICE)
        } else {
            (502, "the request could not be forwarded", RETRY_ADVICE)
        };
        Self { status, reason: format!("{upstream}: {problem} ({text})"), advice }
    }

    /// Creates a failure for a model that was silent for too long.
    pub(crate) fn idle_timeout(upstream: &str, seconds: u64) -> Self {
        Self { status: 504, reason: format!("{upstream}: no data for {seconds} s"), advice: RETRY_ADVICE }
    }
}

const TLS_ADVICE: &str =
    "Check the address; if a corporate proxy is in between, its certificate must be trusted.";
const NAME: &str = "Check the address of the model and the network.";
const REACH_ADVICE: &str = "Check the address of the model, and that something answers there.";
const HTTP: &str = "Check that the address of the model is right, and http:// or https:// fits it.";
const RETRY_ADVICE: &str = "Try again; if this persists, call the model server without the proxy.";

/// Returns an error and its causes, on one line. None of them contain addresses with queries.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
        next = error.source();
    }
    parts.join(": ")
}

/// Returns the first error of a type in a chain. The `source` of an `io::Error` skips the error it was made from, so that
/// one is checked as well.
pub(crate) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let made_from = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error
        .downcast_ref()
        .or_else(|| made_from.and_then(|inner| find(inner)))
        .or_else(|| error.source().and_then(|source| find(source)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wire_finds_the_message_where_it_looks() {
        for wire in Wire::ALL.map(Some).into_iter().chain([None]) {
            let document: serde_json::Value =
                serde_json::from_str(&error_document(wire, 502, "why")).unwrap();
            assert_eq!(document["error"]["message"], "why");
        }
        let document: serde_json::Value =
            serde_json::from_str(&error_document(Some(Wire::Messages), 426, "x")).unwrap();
        assert_eq!(document["type"], "error");
    }

    #[test]
    fn a_failure_says_what_and_what_to_do() {
        let refused = Failure::from_error("http://h:1", &io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(refused.status, 502);
        assert!(refused.message().contains("http://h:1: it refused the connection"), "{}", refused.message());
        assert!(refused.message().contains("Check the address"));
        assert_eq!(Failure::from_error("h", &io::Error::from(io::ErrorKind::TimedOut)).status, 504);
    }
}
