//! Why something cannot be written into a repository.

use stepback_api::failure::{FailureKind, classify_engine_error, classify_git_error};
use stepback_engine::EngineError;
use stepback_git::GitError;
use stepback_model::object::ObjectError;
use stepback_provenance::ProvenanceError;
use stepback_store::StoreError;

/// An error of an export into git.
#[derive(Debug, thiserror::Error)]
pub enum GitExportError {
    /// The session changed no files, or their states were freed.
    #[error("session {session} has no checkpoint to export{reason}")]
    NothingToExport {
        /// The session.
        session: String,
        /// Why, if it is known.
        reason: String,
    },
    /// The name is not one of a branch, or of a reference of our own.
    #[error("{0} is not a branch, and not below refs/stepback/")]
    ForeignReference(String),
    /// A work tree has the branch checked out, or a rebase or bisect will return to it.
    #[error("{0} is checked out, or a rebase or bisect will return to it")]
    ReferenceInUse(String),
    /// The reference exists.
    #[error("{0} exists already")]
    ReferenceExists(String),
    /// The reference exists and does not end in a commit of ours.
    #[error("{0} exists, and its last commit was not written by stepback")]
    ReferenceNotOurs(String),
    /// No commit has that name.
    #[error("the repository has no commit {0}")]
    NoCommit(String),
    /// Too many commits are in a range.
    #[error("{range} has more than {limit} commits")]
    TooManyCommits {
        /// The range.
        range: String,
        /// The limit.
        limit: usize,
    },
    /// The repository failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The store failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The origin of lines could not be found.
    #[error(transparent)]
    Provenance(#[from] ProvenanceError),
}

impl GitExportError {
    /// Returns its kind, and advice if there is any.
    pub fn classify(&self) -> (FailureKind, Option<&'static str>) {
        match self {
            Self::NothingToExport { .. } => {
                (FailureKind::Nothing, Some("\"stepback sessions\" lists sessions with their checkpoints"))
            }
            Self::ForeignReference(_) => {
                (FailureKind::Usage, Some("name a branch, or a reference such as refs/stepback/review"))
            }
            Self::ReferenceInUse(_) => (FailureKind::Usage, Some("choose another name")),
            Self::ReferenceExists(_) => (
                FailureKind::Usage,
                Some("choose another name; --force replaces a branch that an earlier export wrote"),
            ),
            Self::ReferenceNotOurs(_) => (
                FailureKind::Usage,
                Some("choose another name; only branches of an earlier export are replaced"),
            ),
            Self::NoCommit(_) => (FailureKind::Point, Some("\"git log\" lists the commits")),
            Self::TooManyCommits { .. } => (FailureKind::Usage, Some("name a smaller range: A..B")),
            Self::Git(error) => classify_git_error(error),
            Self::Engine(error) => classify_engine_error(error),
            Self::Provenance(error) => error.classify(),
        }
    }
}

impl From<StoreError> for GitExportError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<ObjectError> for GitExportError {
    fn from(error: ObjectError) -> Self {
        Self::Engine(error.into())
    }
}
