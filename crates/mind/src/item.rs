//! What a mind holds: plain data, as it is stored and as documents show it.
//!
//! Nothing that can be computed is stored: how likely a hypothesis is follows from its evidence, how sure a belief is follows
//! from what it depends on. So the two can never disagree.

mod check;
mod words;

use serde::{Deserialize, Serialize};
use stepback_model::ids::StepId;
use stepback_model::time::Timestamp;

pub use self::check::{Check, Measured, OnOutcome, Outcome, Run, Verification};
pub use self::words::{
    BeliefKind, BeliefStatus, ContradictionStatus, Criticality, DependencyKind, EvidenceKind,
    ExperimentStatus, GapKind, GapStatus, HypothesisStatus, Severity,
};
use crate::ids::{BeliefId, GapId, HypothesisId, Item, VerificationId};

fn is_none<T>(value: &Option<T>) -> bool {
    value.is_none()
}

/// Where in a session something came from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// When.
    pub at: Timestamp,
    /// The step that recorded it.
    pub step: StepId,
    /// The call that was going on, by the step at which it began.
    #[serde(default, skip_serializing_if = "is_none")]
    pub during: Option<StepId>,
}

/// Something that may be true.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hypothesis {
    /// What may be true.
    pub statement: String,
    /// How far it got.
    pub status: HypothesisStatus,
    /// How likely it was before any evidence.
    pub prior: f64,
    /// The hypothesis it is a special case of.
    #[serde(default, skip_serializing_if = "is_none")]
    pub parent: Option<HypothesisId>,
    /// Hypotheses of which at most one can be true together with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excludes: Vec<HypothesisId>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Why it was concluded.
    #[serde(default, skip_serializing_if = "is_none")]
    pub reason: Option<String>,
    /// If it fell because an ancestor was rejected: which, and what it was before.
    #[serde(default, skip_serializing_if = "is_none")]
    pub fallen: Option<AutoRejected>,
    /// Who proposed it, when.
    pub origin: Origin,
    /// What last changed its status.
    #[serde(default, skip_serializing_if = "is_none")]
    pub changed: Option<Origin>,
}

/// Why a hypothesis is rejected without anybody having rejected it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AutoRejected {
    /// The ancestor that was rejected.
    pub with: HypothesisId,
    /// What it was before.
    pub was: HypothesisStatus,
}

/// Where evidence comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// What a tool said.
    Tool {
        /// The step of the call.
        #[serde(default, skip_serializing_if = "is_none")]
        step: Option<StepId>,
        /// The tool.
        #[serde(default, skip_serializing_if = "is_none")]
        tool: Option<String>,
    },
    /// A place in the code.
    Code {
        /// The file.
        file: String,
        /// The line.
        #[serde(default, skip_serializing_if = "is_none")]
        line: Option<u32>,
    },
    /// A document.
    Documentation(String),
    /// Thought alone.
    Reasoning,
    /// A check that was run.
    Verification(VerificationId),
}

impl Source {
    /// The kind of evidence that usually comes from it.
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
    /// Which hypothesis.
    pub hypothesis: HypothesisId,
    /// From -1 (speaks clearly against it) to 1 (clearly for it), exact to a thousandth.
    pub strength: f64,
    /// What it is.
    pub kind: EvidenceKind,
    /// What was found.
    pub text: String,
    /// Where it comes from.
    pub source: Source,
    /// Why it no longer counts, if it does not.
    #[serde(default, skip_serializing_if = "is_none")]
    pub withdrawn: Option<String>,
    /// Who added it, when.
    pub origin: Origin,
}

/// What an observation saw or an expectation expects.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// A number.
    Number(f64),
    /// A number from one to another, both included.
    Range(f64, f64),
    /// Yes or no.
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
    /// How sure it is by itself, from 0 to 1, whatever it depends on.
    pub confidence: f64,
    /// Whether it is still held.
    pub status: BeliefStatus,
    /// What is measured or expected, so that observations and expectations of the same thing can be compared.
    #[serde(default, skip_serializing_if = "is_none")]
    pub subject: Option<String>,
    /// What was seen or is expected of it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub value: Option<Measure>,
    /// The hypothesis it belongs to.
    #[serde(default, skip_serializing_if = "is_none")]
    pub hypothesis: Option<HypothesisId>,
    /// What it depends on, in order of names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<Dependency>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Why it is no longer held.
    #[serde(default, skip_serializing_if = "is_none")]
    pub reason: Option<String>,
    /// Who added it, when.
    pub origin: Origin,
    /// What last changed it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub changed: Option<Origin>,
}

/// One belief resting on another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Dependency {
    /// The belief it rests on.
    pub on: BeliefId,
    /// How.
    pub kind: DependencyKind,
    /// How much, from 0 to 1.
    pub strength: f64,
    /// Why.
    #[serde(default, skip_serializing_if = "is_none")]
    pub reason: Option<String>,
}

/// Two things that cannot both be true.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Contradiction {
    /// The one.
    pub left: Item,
    /// The other.
    pub right: Item,
    /// Why they exclude each other.
    pub reason: String,
    /// How bad it is.
    pub severity: Severity,
    /// Whether it still stands.
    pub status: ContradictionStatus,
    /// Whether it was found by a rule, and not declared by somebody.
    pub detected: bool,
    /// What could be done about it.
    pub suggestion: String,
    /// How it ended.
    #[serde(default, skip_serializing_if = "is_none")]
    pub resolution: Option<String>,
    /// When it came up.
    pub origin: Origin,
}

/// Something that is not known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Gap {
    /// The question.
    pub question: String,
    /// What kind of knowledge is missing.
    pub kind: GapKind,
    /// How much depends on it.
    pub criticality: Criticality,
    /// Whether it is filled.
    pub status: GapStatus,
    /// What cannot go on without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Item>,
    /// Gaps that must be filled first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<GapId>,
    /// How it could be filled.
    #[serde(default, skip_serializing_if = "is_none")]
    pub strategy: Option<String>,
    /// How long that would take, in minutes, as guessed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub minutes: Option<f64>,
    /// What was found out, or why it was given up.
    #[serde(default, skip_serializing_if = "is_none")]
    pub answer: Option<String>,
    /// Who added it, when.
    pub origin: Origin,
    /// What filled it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub changed: Option<Origin>,
}

/// A note.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// What it says.
    pub text: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<Item>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Who wrote it, when.
    pub origin: Origin,
}

/// A branch on which something is tried out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Experiment {
    /// The branch.
    pub branch: String,
    /// What is tried out.
    #[serde(default, skip_serializing_if = "is_none")]
    pub hypothesis: Option<HypothesisId>,
    /// What must be so for it to have succeeded.
    pub success: String,
    /// How it stands.
    pub status: ExperimentStatus,
    /// What came of it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub result: Option<String>,
    /// Who began it, when.
    pub origin: Origin,
    /// What ended it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub changed: Option<Origin>,
}
