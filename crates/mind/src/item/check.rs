//! Checks that can be run, what to do with their outcome, and what came of each run.

use serde::{Deserialize, Serialize};

use super::{Origin, is_none};
use crate::ids::{GapId, HypothesisId, VerificationId};

/// A check that can be run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Verification {
    /// What it shows.
    pub title: String,
    /// How it is checked.
    pub check: Check,
    /// After so many milliseconds it is ended.
    pub timeout_ms: u64,
    /// Files that its outcome depends on, as globs; while they are the same, an outcome is used again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// What to do when it passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_pass: Vec<OnOutcome>,
    /// What to do when it fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_fail: Vec<OnOutcome>,
    /// Who added it, when.
    pub origin: Origin,
}

/// How something is checked. Paths are relative to the workspace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// A command, run by `sh`.
    Command {
        /// The command.
        run: String,
        /// The exit code it must have.
        exit: i32,
        /// Texts that must be in what it prints.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        contains: Vec<String>,
        /// Texts that must not be.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lacks: Vec<String>,
    },
    /// Two files that must have the same bytes.
    SameFiles {
        /// The one.
        left: String,
        /// The other.
        right: String,
    },
    /// A file that must have a text in it, or must not.
    FileText {
        /// The file.
        path: String,
        /// The text.
        text: String,
        /// It must not be there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        absent: bool,
    },
    /// A place in a JSON document that must have a value.
    Json {
        /// Where the document comes from.
        from: Measured,
        /// The place, as a JSON pointer.
        pointer: String,
        /// The value.
        equals: serde_json::Value,
    },
    /// Numbers that must be close to those of a reference.
    Reference {
        /// Where the numbers come from.
        from: Measured,
        /// The file with the reference: numbers, in the same order.
        reference: String,
        /// How far each may be from its reference: absolute, or relative to it, whichever allows more.
        absolute: f64,
        /// See `absolute`.
        relative: f64,
    },
}

/// Where something to look at comes from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// A file.
    File(String),
    /// What a command prints.
    Command(String),
}

/// What to do with an outcome.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnOutcome {
    /// Add evidence.
    Evidence {
        /// For or against this hypothesis.
        hypothesis: HypothesisId,
        /// How strong.
        strength: f64,
    },
    /// Fill a gap with what was found.
    Fill(GapId),
    /// Stop: whoever runs several checks goes no further.
    Halt,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// What should be is.
    Passed,
    /// It is not.
    Failed,
    /// It took too long and was ended; that says nothing about what was checked.
    TimedOut,
    /// It could not be checked.
    Error,
}

impl Outcome {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::TimedOut => "timed-out",
            Self::Error => "error",
        }
    }
}

/// What a check showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Which check.
    pub verification: VerificationId,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, in a sentence.
    pub reason: String,
    /// The exit code, if a command ran to its end.
    #[serde(default, skip_serializing_if = "is_none")]
    pub exit: Option<i32>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What was printed, or the part of it that is kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// What it depended on, as a hash; the same check of the same inputs has the same one.
    #[serde(default, skip_serializing_if = "is_none")]
    pub key: Option<String>,
    /// When.
    pub origin: Origin,
}
