//! Errors of tools, worded so that a model can act on them.

use stepback_analysis::AnalysisError;
use stepback_api::failure;
use stepback_board::BoardError;
use stepback_engine::EngineError;
use stepback_history::HistoryError;
use stepback_provenance::ProvenanceError;
use stepback_reasoning::MindError;
use stepback_store::StoreError;

/// Why a tool failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// What went wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl ToolError {
    /// An error without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Message and hint in one text.
    pub fn to_text(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}. Hint: {hint}.", self.message),
            None => format!("{}.", self.message),
        }
    }
}

impl From<EngineError> for ToolError {
    fn from(error: EngineError) -> Self {
        let hint = failure::classify_engine_error(&error).1.map(str::to_owned);
        Self { message: error.to_string(), hint }
    }
}

impl From<AnalysisError> for ToolError {
    fn from(error: AnalysisError) -> Self {
        let hint = error.classify().1.map(str::to_owned);
        Self { message: error.to_string(), hint }
    }
}

impl From<BoardError> for ToolError {
    fn from(error: BoardError) -> Self {
        let hint = failure::classify_board_error(&error).1.map(str::to_owned);
        Self { message: error.to_string(), hint }
    }
}

impl From<HistoryError> for ToolError {
    fn from(error: HistoryError) -> Self {
        let hint = failure::classify_history_error(&error).1.map(str::to_owned);
        Self { message: error.to_string(), hint }
    }
}

impl From<ProvenanceError> for ToolError {
    fn from(error: ProvenanceError) -> Self {
        let hint = error.classify().1.map(str::to_owned);
        Self { message: error.to_string(), hint }
    }
}

impl From<StoreError> for ToolError {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<MindError> for ToolError {
    fn from(error: MindError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<stepback_model::object::ObjectError> for ToolError {
    fn from(error: stepback_model::object::ObjectError) -> Self {
        EngineError::from(error).into()
    }
}
