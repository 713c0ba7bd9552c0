//! Failures as the command line reports them: what went wrong, what to do, and the exit code.

use std::io::Write;
use std::process::ExitCode;

use serde_json::json;
use stepback_analysis::AnalysisError;
use stepback_api::failure;
use stepback_board::BoardError;
use stepback_bundle::BundleError;
use stepback_engine::EngineError;
use stepback_export::ExportError;
use stepback_git::GitError;
use stepback_history::HistoryError;
use stepback_model::object::ObjectError;
use stepback_provenance::ProvenanceError;
use stepback_store::StoreError;

pub use stepback_api::failure::FailureKind;

/// A failure with everything the user needs to know.
#[derive(Debug)]
pub struct CommandFailure {
    kind: FailureKind,
    message: String,
    hint: Option<String>,
}

impl CommandFailure {
    /// Creates a failure of a kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Creates a failure for an error of a kind, with its advice.
    fn from_advice((kind, hint): (FailureKind, Option<&str>), error: &dyn std::error::Error) -> Self {
        Self { kind, message: error.to_string(), hint: hint.map(str::to_string) }
    }

    /// Adds a hint about what to do.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts the subject of the failure in front of the message.
    pub fn with_subject(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Returns what went wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns what to do, if a hint was given.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Prints the failure as the single JSON document. The exit code is valid even if the output is closed.
    pub fn print_document(&self) {
        let error = json!({
            "error": { "code": self.kind.name(), "message": self.message, "hint": self.hint }
        });
        let _ = writeln!(std::io::stdout(), "{error}");
    }

    /// Prints the failure and returns its exit code.
    pub fn report(&self, json: bool) -> ExitCode {
        if json {
            self.print_document();
        }
        let paint = crate::output::Paint::stderr();
        crate::output::print_status(format!("{} {}", paint.bad("Error:"), self.message));
        if let Some(hint) = &self.hint {
            crate::output::print_status(format!("{} {hint}", paint.note("Hint:")));
        }
        ExitCode::from(self.kind as u8)
    }
}

impl From<EngineError> for CommandFailure {
    fn from(error: EngineError) -> Self {
        Self::from_advice(failure::classify_engine_error(&error), &error)
    }
}

impl From<GitError> for CommandFailure {
    fn from(error: GitError) -> Self {
        Self::from_advice(failure::classify_git_error(&error), &error)
    }
}

impl From<BoardError> for CommandFailure {
    fn from(error: BoardError) -> Self {
        Self::from_advice(failure::classify_board_error(&error), &error)
    }
}

impl From<BundleError> for CommandFailure {
    fn from(error: BundleError) -> Self {
        Self::from_advice(failure::classify_bundle_error(&error), &error)
    }
}

impl From<ExportError> for CommandFailure {
    fn from(error: ExportError) -> Self {
        Self::from_advice(error.classify(), &error)
    }
}

impl From<HistoryError> for CommandFailure {
    fn from(error: HistoryError) -> Self {
        Self::from_advice(failure::classify_history_error(&error), &error)
    }
}

impl From<AnalysisError> for CommandFailure {
    fn from(error: AnalysisError) -> Self {
        Self::from_advice(error.classify(), &error)
    }
}

impl From<ProvenanceError> for CommandFailure {
    fn from(error: ProvenanceError) -> Self {
        Self::from_advice(error.classify(), &error)
    }
}

impl From<StoreError> for CommandFailure {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<std::io::Error> for CommandFailure {
    fn from(error: std::io::Error) -> Self {
        Self::from_advice(failure::classify_io_error(&error), &error)
    }
}

impl From<ObjectError> for CommandFailure {
    fn from(error: ObjectError) -> Self {
        EngineError::from(error).into()
    }
}
