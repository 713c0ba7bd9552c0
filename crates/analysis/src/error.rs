//! Why a question about sessions cannot be answered.

use stepback_api::failure::{FailureKind, classify_engine_error};
use stepback_engine::EngineError;
use stepback_model::object::ObjectError;
use stepback_store::StoreError;

/// An error of a question about the numbers of sessions.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The store or the work tree failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl AnalysisError {
    /// Returns its kind, and advice if there is any.
    pub fn classify(&self) -> (FailureKind, Option<&'static str>) {
        match self {
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
