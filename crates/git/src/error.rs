//! Why a repository cannot be read or written.

use std::io;
use std::path::PathBuf;

use crate::object::GitOid;

/// A problem with a git repository.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is no repository there.
    #[error("{}: there is no git repository", .0.display())]
    NoRepository(PathBuf),
    /// The repository is stored in a way that is not supported.
    #[error("{}: a repository with {what} is not supported", .dir.display())]
    Unsupported {
        /// The git directory.
        dir: PathBuf,
        /// What is not supported.
        what: &'static str,
    },
    /// A name is not one that git accepts for a reference.
    #[error("\"{0}\" is not a valid name of a reference")]
    BadName(String),
    /// Another process holds git's lock of a reference. It may be one that died.
    #[error("{name} is locked by another process; remove {name}.lock in {} if none is running", .dir.display())]
    Locked {
        /// The reference.
        name: String,
        /// The git directory.
        dir: PathBuf,
    },
    /// A reference is not what it was when the work began.
    #[error("{0} was changed by another process; try again")]
    Moved(String),
    /// A reference cannot exist beside another one.
    #[error("{name} cannot be created, because {other} exists")]
    NameConflict {
        /// The reference.
        name: String,
        /// The one that is in the way.
        other: String,
    },
    /// A reference does not exist.
    #[error("the repository has no {0}")]
    NoReference(String),
    /// An object does not exist.
    #[error("the repository has no object {0}")]
    NoObject(GitOid),
    /// An object, or a file, is not what it should be.
    #[error("{what} cannot be read: {reason}")]
    Damaged {
        /// The object or file.
        what: String,
        /// Why.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("cannot access {}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

impl GitError {
    /// The error for a damaged object or file.
    pub(crate) fn damaged(what: impl ToString, reason: impl ToString) -> Self {
        Self::Damaged { what: what.to_string(), reason: reason.to_string() }
    }
}
