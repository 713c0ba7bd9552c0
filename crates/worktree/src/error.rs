//! Errors of a work tree, each with the path.

use std::io;
use std::path::PathBuf;

use stepback_model::object::ObjectError;
use stepback_model::path::RelPath;
use stepback_store::StoreError;

/// Why a work tree could not be scanned or changed.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// The root cannot be opened.
    #[error("cannot open the workspace {root}: {error}")]
    Root {
        /// The path of the root.
        root: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A path could not be read or written.
    #[error("cannot {what} {path}: {error}")]
    Io {
        /// The action that failed, as a verb.
        what: &'static str,
        /// The path relative to the root.
        path: RelPath,
        /// The system's error.
        error: io::Error,
    },
    /// A file outside the workspace (a cache, a lock, the vault) could not be used.
    #[error("cannot {what} {path}: {error}")]
    Aside {
        /// The action that failed, as a verb.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An object could not be read or written.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl WorktreeError {
    /// Wraps an I/O error with the action and the path.
    pub fn io(what: &'static str, path: &RelPath) -> impl FnOnce(io::Error) -> Self {
        let path = path.clone();
        move |error| Self::Io { what, path, error }
    }

    /// Wraps an I/O error outside the workspace.
    pub fn aside(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Aside { what, path, error }
    }
}
