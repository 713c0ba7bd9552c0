//! What can be wrong with what somebody looks for.

use super::parse::{LONGEST, MOST};

/// Why a search cannot be understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatternError {
    /// Nothing is looked for.
    #[error("there is nothing to look for")]
    Empty,
    /// Only words that must not be there.
    #[error("there are only words to leave out; name at least one to look for")]
    OnlyWithout,
    /// A quotation mark without its partner.
    #[error("a quotation mark is not closed")]
    Unclosed,
    /// A term of signs.
    #[error("\"{term}\" has no letters or digits to look for")]
    NoWord {
        /// It, as far as it fits a message.
        term: String,
    },
    /// Too long to be meant.
    #[error("this is longer than {LONGEST} bytes")]
    TooLong,
    /// Too many terms to be meant.
    #[error("these are more than {MOST} words")]
    TooMany,
}
