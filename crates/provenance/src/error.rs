//! Why the origin of something cannot be found.

use stepback_api::failure::{FailureKind, classify_engine_error};
use stepback_engine::EngineError;
use stepback_model::object::ObjectError;
use stepback_model::path::RelPath;
use stepback_store::StoreError;

/// An error of a question about an origin.
#[derive(Debug, thiserror::Error)]
pub enum ProvenanceError {
    /// The path does not exist at that point.
    #[error("{path} does not exist {at}")]
    NoFile {
        /// The path.
        path: RelPath,
        /// The point: "now", or "at #12".
        at: String,
        /// The last step at which it existed, if it ever did.
        last: Option<u64>,
    },
    /// The path is a directory, a link or a special file.
    #[error("{path} is {what}, which has no lines")]
    NotAFile {
        /// The path.
        path: RelPath,
        /// What it is.
        what: &'static str,
    },
    /// The content is not text.
    #[error("{0} is not a text file, so it has no lines")]
    NotText(RelPath),
    /// The content is too large.
    #[error("{path} is too large: {reason}")]
    TooLarge {
        /// The path.
        path: RelPath,
        /// The size and the limit.
        reason: String,
    },
    /// The content was not stored.
    #[error("the content of {path} was not stored: {reason}")]
    NotStored {
        /// The path.
        path: RelPath,
        /// The rule by which it was left out.
        reason: &'static str,
    },
    /// A line number is not one of the file's.
    #[error("there is no line {line}: {path} has {count}")]
    NoLine {
        /// The path.
        path: RelPath,
        /// The line.
        line: usize,
        /// The number of lines.
        count: usize,
    },
    /// The board has no such item.
    #[error("there is no {item} on the board of {session}")]
    NoItem {
        /// The item.
        item: String,
        /// The session whose board was looked at.
        session: String,
    },
    /// A text names nothing that can be explained.
    #[error("\"{text}\" names no step, no lines of a file, no item of the board and no session: {reason}")]
    NoTarget {
        /// The text, shortened.
        text: String,
        /// Why it is no point.
        reason: String,
    },
    /// A source cannot be left out of a rerun.
    #[error("this source cannot be left out: {reason}")]
    NoOmission {
        /// Why.
        reason: String,
    },
    /// The store or the work tree failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ProvenanceError {
    /// Returns its kind, and advice if there is any.
    pub fn classify(&self) -> (FailureKind, Option<&'static str>) {
        match self {
            Self::NoFile { last: Some(_), .. } => (
                FailureKind::Point,
                Some(
                    "name a point at which it existed with --at; \"stepback changes\" lists what happened to it",
                ),
            ),
            Self::NoFile { last: None, .. } => (
                FailureKind::Point,
                Some(
                    "the path is relative to the current directory; \"stepback at @\" lists the recorded files",
                ),
            ),
            Self::NotAFile { .. } | Self::NotText(_) | Self::TooLarge { .. } => {
                (FailureKind::Usage, Some("\"stepback changes\" shows which calls changed it"))
            }
            Self::NotStored { .. } => {
                (FailureKind::Point, Some("\"stepback status --excluded\" lists what is not covered"))
            }
            Self::NoLine { .. } => (FailureKind::Usage, None),
            Self::NoItem { .. } => (
                FailureKind::Point,
                Some("\"stepback board show\" lists the items; --session names another session"),
            ),
            Self::NoTarget { .. } => (
                FailureKind::Point,
                Some(
                    "name a point (#12), FILE:LINE, an item (H2) or a session; \"stepback log\" lists the steps",
                ),
            ),
            Self::NoOmission { .. } => (FailureKind::Usage, None),
            Self::Engine(error) => classify_engine_error(error),
        }
    }
}

impl From<ObjectError> for ProvenanceError {
    fn from(error: ObjectError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<StoreError> for ProvenanceError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}
