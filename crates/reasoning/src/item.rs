//! The items of a mind: plain data, as it is stored and as documents show it.
//!
//! Nothing that can be computed is stored: the confidence in a hypothesis follows from its evidence, the confidence in a
//! belief from its dependencies. So stored and computed values can never disagree.

mod check;
mod words;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use stepback_model::ids::StepId;
use stepback_model::time::Timestamp;

pub use self::check::{Check, CheckOutcome, CheckRun, Measured, OnOutcome, Verification};
pub use self::words::{
    BeliefKind, BeliefStatus, ContradictionStatus, Criticality, DependencyKind, EvidenceKind,
    ExperimentStatus, GapKind, GapStatus, HypothesisStatus, Severity,
};
use crate::ids::{BeliefId, GapId, HypothesisId, ItemId, VerificationId};

/// Reads a list, or a single value in place of one.
pub(crate) fn one_or_many<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let read = |value| serde_json::from_value(value).map_err(D::Error::custom);
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(Vec::new()),
        Value::Array(values) => values.into_iter().map(read).collect(),
        value => Ok(vec![read(value)?]),
    }
}

fn is_none<T>(value: &Option<T>) -> bool {
    value.is_none()
}

/// Where in a session an item came from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ItemOrigin {
    /// When it was recorded.
    pub at: Timestamp,
    /// The step that recorded it.
    pub step: StepId,
    /// The call that was open, by the step at which it began; `None` if there was none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub during: Option<StepId>,
}

/// Something that may be true.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hypothesis {
    /// A statement that may be true, in one sentence.
    pub statement: String,
    /// Its present status.
    pub status: HypothesisStatus,
    /// Its probability before any evidence.
    pub prior: f64,
    /// The hypotheses it is a special case of; without duplicates. Earlier boards have at most one, as `parent`.
    #[serde(
        default,
        alias = "parent",
        deserialize_with = "one_or_many",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub parents: Vec<HypothesisId>,
    /// Its earlier wordings, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierWording>,
    /// Hypotheses that cannot be true together with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excludes: Vec<HypothesisId>,
    /// Tags by which it can be found; without duplicates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Why it was concluded.
    #[serde(default, skip_serializing_if = "is_none")]
    pub reason: Option<String>,
    /// The rejected ancestor and the status before, if it was rejected because of an ancestor.
    #[serde(default, skip_serializing_if = "is_none")]
    pub fallen: Option<AutoRejected>,
    /// Where it was proposed.
    pub origin: ItemOrigin,
    /// What last changed its status or its wording.
    #[serde(default, skip_serializing_if = "is_none")]
    pub changed: Option<ItemOrigin>,
}

/// How a hypothesis was worded before it was edited.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EarlierWording {
    /// The statement.
    pub statement: String,
    /// What replaced it.
    pub replaced: ItemOrigin,
}

/// The record of an automatic rejection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AutoRejected {
    /// The ancestor that was rejected.
    pub with: HypothesisId,
    /// The status before.
    pub was: HypothesisStatus,
}

/// Where evidence comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvidenceOrigin {
    /// The output of a tool.
    Tool {
        /// The step of the call.
        #[serde(default, skip_serializing_if = "is_none")]
        step: Option<StepId>,
        /// The name of the tool.
        #[serde(default, skip_serializing_if = "is_none")]
        tool: Option<String>,
    },
    /// A place in the code.
    Code {
        /// The path of the file.
        file: String,
        /// The line number.
        #[serde(default, skip_serializing_if = "is_none")]
        line: Option<u32>,
    },
    /// A document.
    Documentation(String),
    /// Reasoning alone.
    Reasoning,
    /// A check that was run.
    Verification(VerificationId),
}

impl EvidenceOrigin {
    /// The usual kind of evidence from this source.
    pub fn usual_kind(&self) -> EvidenceKind {
        match self {
            Self::Tool { .. } => EvidenceKind::Observation,
            Self::Code { .. } => EvidenceKind::Code,
            Self::Documentation(_) => EvidenceKind::Documentation,
            Self::Reasoning => EvidenceKind::Reasoning,
            Self::Verification(_) => EvidenceKind::Test,
        }
    }
}

/// Something that speaks for or against a hypothesis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Evidence {
    /// The hypothesis it is about.
    pub hypothesis: HypothesisId,
    /// From -1 (speaks clearly against it) to 1 (clearly for it), exact to a thousandth.
    pub strength: f64,
    /// The kind of evidence.
    pub kind: EvidenceKind,
    /// What was observed, in one sentence.
    pub text: String,
    /// Where it comes from.
    pub source: EvidenceOrigin,
    /// Why it no longer counts; `None` while it counts.
    #[serde(default, skip_serializing_if = "is_none")]
    pub withdrawn: Option<String>,
    /// Where it was added.
    pub origin: ItemOrigin,
}

/// The value that an observation saw or an expectation expects.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// A number.
    Number(f64),
    /// A range of numbers, both ends included.
    Range(f64, f64),
    /// A boolean.
    Flag(bool),
    /// A word.
    Word(String),
}

/// Something held to be true.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Belief {
    /// What is held to be true.
    pub statement: String,
    /// What kind of belief it is.
    pub kind: BeliefKind,
    /// Its own confidence from 0 to 1, apart from its dependencies.
    pub confidence: f64,
    /// Whether it is still held.
    pub status: BeliefStatus,
    /// What is measured or expected, so that observations and expectations of the same subject can be compared.
    #[serde(default, skip_serializing_if = "is_none")]
    pub subject: Option<String>,
    /// The value of the subject that was seen or is expected.
    #[serde(default, skip_serializing_if = "is_none")]
    pub value: Option<Measure>,
    /// The hypothesis it belongs to.
    #[serde(default, skip_serializing_if = "is_none")]
    pub hypothesis: Option<HypothesisId>,
    /// Its dependencies, in order of names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<Dependency>,
    /// Tags by which it can be found; without duplicates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Why it is no longer held.
    #[serde(default, skip_serializing_if = "is_none")]
    pub reason: Option<String>,
    /// Where it was added.
    pub origin: ItemOrigin,
    /// What last changed it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub changed: Option<ItemOrigin>,
}

/// The dependency of one belief on another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Dependency {
    /// The belief it depends on.
    pub on: BeliefId,
    /// The kind of dependency.
    pub kind: DependencyKind,
    /// How strongly it depends, from 0 to 1.
    pub strength: f64,
    /// The reason that was given.
    #[serde(default, skip_serializing_if = "is_none")]
    pub reason: Option<String>,
}

/// Two items that cannot both be true.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Contradiction {
    /// One of the two items.
    pub left: ItemId,
    /// The other item.
    pub right: ItemId,
    /// Why they exclude each other.
    pub reason: String,
    /// How severe it is.
    pub severity: Severity,
    /// Whether it is open.
    pub status: ContradictionStatus,
    /// Whether a rule detected it; otherwise it was declared.
    pub detected: bool,
    /// A suggestion for resolving it.
    pub suggestion: String,
    /// How it was settled; `None` while it is open.
    #[serde(default, skip_serializing_if = "is_none")]
    pub resolution: Option<String>,
    /// Where it was detected or declared.
    pub origin: ItemOrigin,
}

/// Something that is not known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Gap {
    /// The question to answer.
    pub question: String,
    /// What kind of knowledge is missing.
    pub kind: GapKind,
    /// How much depends on it.
    pub criticality: Criticality,
    /// Whether it is filled.
    pub status: GapStatus,
    /// Items that cannot be decided before it is filled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<ItemId>,
    /// Gaps that must be filled first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<GapId>,
    /// How it could be filled.
    #[serde(default, skip_serializing_if = "is_none")]
    pub strategy: Option<String>,
    /// The estimated time to fill it, in minutes.
    #[serde(default, skip_serializing_if = "is_none")]
    pub minutes: Option<f64>,
    /// The answer, or why it was dropped.
    #[serde(default, skip_serializing_if = "is_none")]
    pub answer: Option<String>,
    /// Where it was added.
    pub origin: ItemOrigin,
    /// What last changed its status.
    #[serde(default, skip_serializing_if = "is_none")]
    pub changed: Option<ItemOrigin>,
}

/// A note.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// The text of the note.
    pub text: String,
    /// The items it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<ItemId>,
    /// Tags by which it can be found; without duplicates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Where it was written.
    pub origin: ItemOrigin,
}

/// A branch on which something is tested.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Experiment {
    /// The name of the branch.
    pub branch: String,
    /// The hypothesis that is tested.
    #[serde(default, skip_serializing_if = "is_none")]
    pub hypothesis: Option<HypothesisId>,
    /// The criterion for success.
    pub success: String,
    /// Its present status.
    pub status: ExperimentStatus,
    /// The result; `None` while it is running.
    #[serde(default, skip_serializing_if = "is_none")]
    pub result: Option<String>,
    /// Where it was started.
    pub origin: ItemOrigin,
    /// What ended it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub changed: Option<ItemOrigin>,
}
