//! Why a file is not taken in.

use std::io;

/// What is wrong with a bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It is something else.
    #[error("this is not a bundle of stepback")]
    NotABundle,
    /// It was made by a later stepback.
    #[error("the bundle has format {found}, and this stepback knows formats up to {known}")]
    Newer {
        /// The format found.
        found: u32,
        /// The newest format this program knows.
        known: u32,
    },
    /// It is not as it was written: cut short, or changed on the way.
    #[error("the bundle is damaged: {0}")]
    Damaged(String),
    /// It is whole, but no stepback writes such a thing.
    #[error("the bundle makes no sense: {0}")]
    Senseless(String),
    /// It says something else about what the store has already.
    #[error("the bundle contradicts the store: {0}")]
    Clash(String),
    /// It cannot be read or written.
    #[error("cannot {what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl BundleError {
    /// Wraps an I/O error with what was tried.
    pub fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { what, error }
    }

    /// Something that no stepback writes.
    pub fn senseless(what: impl Into<String>) -> Self {
        Self::Senseless(what.into())
    }
}
