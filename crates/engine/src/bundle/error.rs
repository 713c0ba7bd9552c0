//! Why a bundle is rejected.

use std::io;

/// What is wrong with a bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file is not a bundle.
    #[error("this is not a stepback bundle")]
    NotABundle,
    /// A later version of stepback made it.
    #[error("the bundle has format {found}, but this version of stepback supports formats up to {known}")]
    Newer {
        /// Format version of the file.
        found: u32,
        /// Newest format version that this program reads.
        known: u32,
    },
    /// The file was truncated or changed after it was written.
    #[error("the bundle is damaged: {0}")]
    Damaged(String),
    /// The file is intact, but stepback never writes such content.
    #[error("the bundle is inconsistent: {0}")]
    Senseless(String),
    /// It contradicts records that the store already has.
    #[error("the bundle contradicts the store: {0}")]
    Clash(String),
    /// The file cannot be read or written.
    #[error("cannot {what}: {error}")]
    Io {
        /// The action that failed, as a verb phrase.
        what: &'static str,
        /// The error of the system.
        error: io::Error,
    },
}

impl BundleError {
    /// Wraps an I/O error with the action that failed.
    pub fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { what, error }
    }

    /// An error for content that stepback never writes.
    pub fn senseless(what: impl Into<String>) -> Self {
        Self::Senseless(what.into())
    }
}
