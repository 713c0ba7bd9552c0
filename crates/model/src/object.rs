//! The traits by which pure algorithms read and write immutable objects.
//!
//! The store implements these two traits; lists, JSON and chunked files are written against them, so they can be tested
//! with a map. An object is always read as the kind it was written as: asking for another kind is a missing object,
//! because the kind is part of the hash.

use crate::hash::{Hash, ObjectKind};

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Nothing is stored under this hash.
    #[error("{kind} {hash} is not in the store")]
    Missing {
        /// The requested kind.
        kind: ObjectKind,
        /// The requested hash.
        hash: Hash,
    },
    /// Stored bytes do not have the hash they are stored under, or do not decode.
    #[error("{kind} {hash} is corrupt: {reason}")]
    Corrupt {
        /// The requested kind.
        kind: ObjectKind,
        /// The requested hash.
        hash: Hash,
        /// What is wrong with the bytes.
        reason: String,
    },
    /// The storage below failed.
    #[error(transparent)]
    Backend(Box<dyn std::error::Error + Send + Sync>),
}

impl ObjectError {
    /// Creates the error for an object whose hash is right but which does not decode: written by another program, or in a
    /// newer format.
    pub fn corrupt(kind: ObjectKind, hash: Hash, reason: impl std::fmt::Display) -> Self {
        Self::Corrupt { kind, hash, reason: reason.to_string() }
    }
}

/// Reads immutable objects by hash.
pub trait ObjectSource {
    /// The verified bytes of an object.
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError>;

    /// Reads a chain of objects: `next` gets each one and returns the hash of the following one. It must not use the source
    /// itself, which may be busy until the end.
    fn read_chain(&self, kind: ObjectKind, first: Hash, next: &mut ChainStep<'_>) -> Result<(), ObjectError> {
        let mut current = Some(first);
        while let Some(hash) = current {
            current = next(hash, self.read(kind, hash)?)?;
        }
        Ok(())
    }
}

/// Receives an object of a chain and returns the hash of the next one; `None` ends the chain.
pub type ChainStep<'a> = dyn FnMut(Hash, Vec<u8>) -> Result<Option<Hash>, ObjectError> + 'a;

/// Writes immutable objects.
pub trait ObjectSink {
    /// Stores `bytes` (once, however often they are written) and returns their hash. `similar_to` may name an older object
    /// of the same kind that these bytes probably resemble; it only helps compression.
    fn write(&self, kind: ObjectKind, bytes: &[u8], similar_to: Option<Hash>) -> Result<Hash, ObjectError>;
}

impl<T: ObjectSource + ?Sized> ObjectSource for &T {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        (**self).read(kind, hash)
    }

    fn read_chain(&self, kind: ObjectKind, first: Hash, next: &mut ChainStep<'_>) -> Result<(), ObjectError> {
        (**self).read_chain(kind, first, next)
    }
}

impl<T: ObjectSink + ?Sized> ObjectSink for &T {
    fn write(&self, kind: ObjectKind, bytes: &[u8], similar_to: Option<Hash>) -> Result<Hash, ObjectError> {
        (**self).write(kind, bytes, similar_to)
    }
}
