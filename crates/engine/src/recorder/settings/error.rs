//! Why a value of a recorder's setting cannot be used, and what to write instead.

use super::{MAX_LIMIT_BYTES, MIN_LIMIT_BYTES};

/// Why a value of a setting cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecorderSettingError {
    /// A word is not one of those that the setting knows.
    #[error("\"{word}\" is not {what}{}; known are {}", suggestion(nearest), known.join(", "))]
    UnknownWord {
        /// The word.
        word: String,
        /// What it should be, with its article.
        what: &'static str,
        /// The known word that it is most similar to.
        nearest: Option<&'static str>,
        /// The known words.
        known: Vec<&'static str>,
    },
    /// No word was given.
    #[error("the value is empty; write \"none\" or \"all\", or \"default\" to reset it")]
    Empty,
    /// A limit or rate is not a whole number.
    #[error("\"{word}\" is not {what}")]
    NotANumber {
        /// The word.
        word: String,
        /// What it should be, with its article and an example.
        what: &'static str,
    },
    /// A limit is too small or too large.
    #[error(
        "{number} bytes are not between {MIN_LIMIT_BYTES} and {MAX_LIMIT_BYTES}; write \"full\" to keep everything, \
         or leave the part out with record.capture"
    )]
    LimitOutOfRange {
        /// The limit.
        number: String,
    },
    /// A sample of nothing would record nothing.
    #[error(
        "a sample of 0 would record nothing; write 1 to record every event, 10 to record one in ten, or leave the kind \
         out with record.kinds"
    )]
    SampleOfZero,
    /// The events of a kind cannot be sampled.
    #[error("steps of kind {kind} are always recorded, because they are rare and others refer to them")]
    NotSampled {
        /// The kind.
        kind: &'static str,
    },
    /// A pattern is not a regular expression.
    #[error("the pattern \"{pattern}\" is not a valid regular expression: {reason}")]
    InvalidPattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A pattern matches the empty text, and so everywhere.
    #[error("the pattern \"{0}\" matches the empty text, so it would match everywhere; write + instead of *")]
    MatchesNothing(String),
    /// A value in a settings file has a form that no setting has.
    #[error("{value} is neither a text, nor a number, nor a list of these")]
    NotAValue {
        /// The value, as JSON.
        value: String,
    },
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean \"{nearest}\"?"))
}
