//! Why a session cannot be written as a file, or sent.

use std::io;

use stepback_api::failure::{FailureKind, classify_engine_error};
use stepback_engine::EngineError;
use stepback_model::json::JsonError;
use stepback_model::object::ObjectError;
use stepback_provenance::ProvenanceError;
use stepback_store::StoreError;

/// An error of an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The output cannot be written.
    #[error("cannot write the export: {0}")]
    Write(io::Error),
    /// The detail of a step cannot be decoded.
    #[error("#{step} cannot be read: {error}")]
    Detail {
        /// The number of the step.
        step: u64,
        /// What is wrong with it.
        error: JsonError,
    },
    /// The address is not one that spans can be sent to.
    #[error("\"{url}\" is not an address for spans: {reason}")]
    Address {
        /// The address, without a password.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The receiver cannot be reached, or did not answer.
    #[error("cannot send to {url}: {reason}")]
    Send {
        /// The address.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The receiver answered with an error.
    #[error("{url} answered {status}{reason}")]
    Refused {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What it said, after a colon; empty if it said nothing.
        reason: String,
    },
    /// The origin of lines cannot be found.
    #[error(transparent)]
    Provenance(#[from] ProvenanceError),
    /// The store failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ExportError {
    /// Returns its kind, and advice if there is any.
    pub fn classify(&self) -> (FailureKind, Option<&'static str>) {
        match self {
            Self::Write(error) => stepback_api::failure::classify_io_error(error),
            Self::Detail { .. } => (FailureKind::Store, Some("\"stepback fsck\" checks the whole store")),
            Self::Address { .. } => (
                FailureKind::Usage,
                Some("give http://HOST:PORT or https://HOST/PATH; /v1/traces is added if there is no path"),
            ),
            Self::Send { .. } => {
                (FailureKind::System, Some("is the receiver running? Without it, give the name of a file"))
            }
            Self::Refused { status: 401 | 403, .. } => (
                FailureKind::Refused,
                Some("set the headers that it needs in OTEL_EXPORTER_OTLP_HEADERS, as NAME=VALUE,…"),
            ),
            Self::Refused { status: 404, .. } => {
                (FailureKind::Refused, Some("is the path right? OTLP over HTTP usually ends in /v1/traces"))
            }
            Self::Refused { .. } => (FailureKind::Refused, None),
            Self::Provenance(error) => error.classify(),
            Self::Engine(error) => classify_engine_error(error),
        }
    }
}

impl From<StoreError> for ExportError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<ObjectError> for ExportError {
    fn from(error: ObjectError) -> Self {
        Self::Engine(error.into())
    }
}
