//! Why a question about sessions cannot be answered.

use std::path::PathBuf;

use stepback_api::failure::{FailureKind, classify_engine_error};
use stepback_engine::EngineError;
use stepback_model::object::ObjectError;
use stepback_store::StoreError;

/// What a price table must be.
const PRICES_HINT: &str =
    "it must contain {\"MODEL\": {\"input\": 3.0, \"output\": 15.0}, …}, in dollars per million tokens";

/// An error of a question about the numbers of sessions.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The user's price table cannot be used.
    #[error("{}: {reason}", .path.display())]
    Prices {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The store or the work tree failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl AnalysisError {
    /// Returns its kind, and advice if there is any.
    pub fn classify(&self) -> (FailureKind, Option<&'static str>) {
        match self {
            Self::Prices { .. } => (FailureKind::Usage, Some(PRICES_HINT)),
            Self::Engine(error) => classify_engine_error(error),
        }
    }
}

impl From<ObjectError> for AnalysisError {
    fn from(error: ObjectError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<StoreError> for AnalysisError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}
