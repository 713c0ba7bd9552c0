//! Errors in the text of a search.

use super::parse::{LONGEST, MOST};

/// Why a search cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatternError {
    /// The search is empty.
    #[error("there is nothing to look for")]
    Empty,
    /// The search has only excluded words.
    #[error("there are only words to leave out; name at least one to look for")]
    OnlyWithout,
    /// A quotation mark is not closed.
    #[error("a quotation mark is not closed")]
    Unclosed,
    /// A term consists of punctuation only.
    #[error("\"{term}\" has no letters or digits to look for")]
    NoWord {
        /// The term, shortened to fit a message.
        term: String,
    },
    /// The text has more than `LONGEST` bytes.
    #[error("this is longer than {LONGEST} bytes")]
    TooLong,
    /// The text has more than `MOST` words.
    #[error("these are more than {MOST} words")]
    TooMany,
}
