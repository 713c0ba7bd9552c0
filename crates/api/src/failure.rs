//! Kinds of failure: the same exit codes and problem codes on every surface.

#[cfg(feature = "engine")]
mod advice;

#[cfg(feature = "engine")]
pub use advice::{
    classify_board_error, classify_bundle_error, classify_engine_error, classify_git_error,
    classify_history_error, classify_io_error,
};

/// Kinds of failure, each with its own exit code. Documented in `docs/guide/exit-codes.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FailureKind {
    /// A bug, or an unexpected failure.
    Internal = 1,
    /// Invalid arguments (clap uses the same code).
    Usage = 2,
    /// A point that was not found or is ambiguous.
    Point = 3,
    /// Nothing is recorded, or there is nothing to undo.
    Nothing = 4,
    /// Done, but some paths were skipped because their author is uncertain or a later change is in the way.
    Partial = 5,
    /// The store is damaged, newer than this program, or not a store.
    Store = 6,
    /// The system refused: permission, space, a missing file.
    System = 7,
    /// Another process holds a lock; retry.
    Busy = 8,
    /// Not done because it was not confirmed.
    Refused = 9,
}

impl FailureKind {
    /// Returns the stable name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::Usage => "usage",
            Self::Point => "point",
            Self::Nothing => "nothing",
            Self::Partial => "partial",
            Self::Store => "store",
            Self::System => "system",
            Self::Busy => "busy",
            Self::Refused => "refused",
        }
    }
}
