//! Why runs cannot be compared, or a search for a bad checkpoint fails.

use std::io;

use stepback_engine::EngineError;
use stepback_model::json::JsonError;
use stepback_model::object::ObjectError;
use stepback_reasoning::MindError;
use stepback_store::StoreError;

/// An error of a comparison or a search.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The good point is not an ancestor of the bad one.
    #[error("{good} does not lead to {bad}")]
    Unrelated {
        /// Description of the good checkpoint.
        good: String,
        /// Description of the bad checkpoint.
        bad: String,
    },
    /// The good and the bad point are the same checkpoint.
    #[error("no step lies between the good and the bad point")]
    NothingBetween,
    /// The command fails at the good point.
    #[error("{what} is not good, so there is nothing to search")]
    NotGood {
        /// Description of the checkpoint.
        what: String,
    },
    /// The command succeeds at the bad point.
    #[error("{what} is not bad, so there is nothing to search")]
    NotBad {
        /// Description of the checkpoint.
        what: String,
    },
    /// The command was killed, so it says nothing about the files.
    #[error("{command} was killed by a signal")]
    Killed {
        /// The command line.
        command: String,
    },
    /// The shell cannot run the command.
    #[error("{command} cannot be run (exit code {code})")]
    CannotRun {
        /// The command line.
        command: String,
        /// The exit code of the shell.
        code: i32,
    },
    /// The thread of a probe panicked: a bug.
    #[error("a probe failed")]
    ProbePanicked,
    /// The command cannot be started.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A recorded value cannot be decoded.
    #[error(transparent)]
    Value(JsonError),
    /// The store or the work tree failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<JsonError> for HistoryError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Object(error) => error.into(),
            other => Self::Value(other),
        }
    }
}

impl From<ObjectError> for HistoryError {
    fn from(error: ObjectError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<StoreError> for HistoryError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<MindError> for HistoryError {
    fn from(error: MindError) -> Self {
        Self::Engine(error.into())
    }
}
