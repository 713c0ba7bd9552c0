//! What can go wrong with a mirror, in sentences for users.

use std::path::PathBuf;

use stepback_engine::EngineError;
use stepback_store::StoreError;

/// Why an operation on a mirror failed.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The place of the mirror cannot be used: it is missing, cannot be reached, is full, or refuses access. Try again
    /// when that is solved; nothing is lost meanwhile.
    #[error("cannot {what} {place}: {why}")]
    Storage {
        /// What was tried, as a verb phrase such as "write to".
        what: &'static str,
        /// The place, with the name of the file where one is concerned.
        place: String,
        /// The error of the system or of the server.
        why: String,
    },
    /// A file of that name exists already, which another process wrote. The caller reads the mirror again and retries.
    #[error("another process is writing to the mirror at {place}; try again")]
    Conflict {
        /// The place of the mirror.
        place: String,
    },
    /// There is no mirror at the place, although one is expected there.
    #[error("there is no mirror at {place}: {reason}")]
    NotAMirror {
        /// The place.
        place: String,
        /// What was found instead.
        reason: String,
    },
    /// The mirror was written by a newer program.
    #[error(
        "the mirror at {place} has format {found}, but this version of stepback supports formats up to {known}"
    )]
    Newer {
        /// The place of the mirror.
        place: String,
        /// The format found.
        found: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// The mirror has the history of another store. Choose another place, or restore from it.
    #[error("the mirror at {place} belongs to another store: {reason}")]
    OtherStore {
        /// The place of the mirror.
        place: String,
        /// How that is known.
        reason: String,
    },
    /// What was written does not read back the same. It counts as not mirrored.
    #[error("{name} in {place} does not read back as it was written")]
    Unverified {
        /// The place of the mirror.
        place: String,
        /// The file.
        name: String,
    },
    /// What the mirror contains cannot be used. Other parts of it may still be.
    #[error("the mirror is damaged: {what}")]
    Damaged {
        /// What is damaged, and how.
        what: String,
    },
    /// The mirror has histories that contradict each other, and the caller has to choose one.
    #[error("the mirror has {count} histories that contradict each other")]
    Contradiction {
        /// How many there are.
        count: usize,
        /// Each of them, in one line.
        generations: Vec<String>,
    },
    /// The mirror has no such generation.
    #[error("the mirror has no generation {number} that can be restored")]
    NoGeneration {
        /// The number that was asked for.
        number: u64,
    },
    /// The target of a restore is not empty.
    #[error("{path} is not empty")]
    NotEmpty {
        /// The target.
        path: PathBuf,
    },
    /// The address is neither a directory nor one of a supported service.
    #[error("\"{address}\" is not the address of a mirror: {reason}")]
    Address {
        /// The address as it was given; never with a password.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The list of mirrors in the store's directory cannot be read.
    #[error("{path} cannot be read: {reason}")]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl MirrorError {
    /// Wraps an error of the system.
    pub(crate) fn io(
        what: &'static str,
        place: impl std::fmt::Display,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let place = place.to_string();
        move |error| Self::Storage { what, place, why: error.to_string() }
    }
}
