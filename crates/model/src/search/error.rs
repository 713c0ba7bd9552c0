//! Errors in the text of a search.

use super::parse::{LONGEST, MOST};

/// Why a search cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatternError {
    /// The search is empty.
    #[error("the query is empty")]
    Empty,
    /// The search has only excluded words.
    #[error("the query only excludes words; add at least one to search for")]
    OnlyWithout,
    /// A quotation mark is not closed.
    #[error("a quotation mark is not closed")]
    Unclosed,
    /// A term consists of punctuation only.
    #[error("\"{term}\" has no letters or digits")]
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
