//! Checks that can be run, the consequences of their outcome, and the results of runs.

use serde::{Deserialize, Serialize};

use super::{ItemOrigin, is_none};
use crate::ids::{GapId, HypothesisId, VerificationId};

/// A check that can be run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Verification {
    /// What a passed check proves, in one sentence.
    pub title: String,
    /// How it is checked.
    pub check: Check,
    /// The timeout in milliseconds.
    pub timeout_ms: u64,
    /// Files that its outcome depends on, as globs; while they are unchanged, an outcome is reused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// What to do when it passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_pass: Vec<OnOutcome>,
    /// What to do when it fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_fail: Vec<OnOutcome>,
    /// Where it was added.
    pub origin: ItemOrigin,
}

/// How something is checked. Paths are relative to the workspace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// A command, run by `sh`.
    Command {
        /// The shell command.
        run: String,
        /// The exit code it must have.
        exit: i32,
        /// Texts that must be in its output.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        contains: Vec<String>,
        /// Texts that must not be in its output.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lacks: Vec<String>,
    },
    /// Two files that must have the same bytes.
    SameFiles {
        /// The path of one file.
        left: String,
        /// The path of the other file.
        right: String,
    },
    /// A file that must contain a text, or must not.
    FileText {
        /// The path of the file.
        path: String,
        /// The text to search for.
        text: String,
        /// Whether the text must be absent.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        absent: bool,
    },
    /// A value in a JSON document.
    Json {
        /// The source of the document.
        from: Measured,
        /// The location of the value, as a JSON pointer.
        pointer: String,
        /// The expected value.
        equals: serde_json::Value,
    },
    /// Numbers that must be close to those of a reference.
    Reference {
        /// The source of the numbers.
        from: Measured,
        /// The file with the reference: numbers, in the same order.
        reference: String,
        /// The absolute tolerance of each number; the larger of this and `relative` applies.
        absolute: f64,
        /// The tolerance relative to the reference; see `absolute`.
        relative: f64,
    },
}

/// The source of data for a check.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// The content of a file, by path.
    File(String),
    /// The output of a command.
    Command(String),
}

/// A consequence of an outcome.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnOutcome {
    /// Add evidence.
    Evidence {
        /// The hypothesis it is about.
        hypothesis: HypothesisId,
        /// The strength of the evidence.
        strength: f64,
    },
    /// Fill a gap with the result.
    Fill(GapId),
    /// Stop: do not run the checks that follow.
    Halt,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckOutcome {
    /// The condition holds.
    Passed,
    /// The condition does not hold.
    Failed,
    /// It timed out, which says nothing about the condition.
    TimedOut,
    /// It could not be run.
    Error,
}

impl CheckOutcome {
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

/// The result of running a check.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CheckRun {
    /// The check that was run.
    pub verification: VerificationId,
    /// How it ended.
    pub outcome: CheckOutcome,
    /// The reason in one sentence.
    pub reason: String,
    /// The exit code, if a command ran to its end.
    #[serde(default, skip_serializing_if = "is_none")]
    pub exit: Option<i32>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// The output, or the part of it that is kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// A hash of what it depended on; the same check with the same inputs has the same key.
    #[serde(default, skip_serializing_if = "is_none")]
    pub key: Option<String>,
    /// Where it was recorded.
    pub origin: ItemOrigin,
}
