//! Why a board cannot be chosen, merged or checked.

use std::path::PathBuf;

use stepback_engine::EngineError;
use stepback_reasoning::MindError;
use stepback_store::StoreError;

/// An error about a board.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// No session was named, and several agents are active.
    #[error("{} agents are running here ({}); choose a board with --session", agents.len(), agents.join(", "))]
    SeveralAgents {
        /// The name and short id of each.
        agents: Vec<String>,
    },
    /// A point was merged without the point to merge from.
    #[error("a point that is not a branch requires --base, the point to merge from")]
    NoBase,
    /// A branch was merged on which no experiment began.
    #[error(
        "no experiment started on branch {branch}, so its starting point is unknown: specify it with --base"
    )]
    UnknownStart {
        /// The branch.
        branch: String,
    },
    /// A check names a path that leads out of the workspace.
    #[error("{path} is outside the workspace: use a path inside it, relative to {}", root.display())]
    OutsideWorkspace {
        /// The path.
        path: String,
        /// Root of the workspace.
        root: PathBuf,
    },
    /// An input of a check is not a valid pattern.
    #[error("\"{pattern}\" is not a valid file pattern: {error}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        error: globset::Error,
    },
    /// The inputs of a check cannot be matched together.
    #[error(transparent)]
    Patterns(globset::Error),
    /// The inputs of a check match too many files.
    #[error("the check has more than {most} input files; use fewer")]
    TooManyInputs {
        /// The maximum number of files.
        most: usize,
    },
    /// The engine failed, or the board refused the change.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<MindError> for BoardError {
    fn from(error: MindError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<StoreError> for BoardError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}
