//! Changes of a mind: what can be said, and what it led to.
//!
//! A mutation is plain data. The same document comes from the command line, from MCP and from the log, where it is the input of
//! the step that recorded it; applying those of a session in order leads to the same mind again.

use serde::{Deserialize, Serialize};
use stepback_model::ids::StepId;

use crate::ids::{
    BeliefId, ContradictionId, EvidenceId, ExperimentId, GapId, HypothesisId, Item, VerificationId,
};
use crate::item::{
    BeliefKind, Check, ContradictionStatus, Criticality, DependencyKind, EvidenceKind, ExperimentStatus,
    GapKind, HypothesisStatus, Measure, OnOutcome, Outcome, Severity, Source,
};

/// One change of a mind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Mutation {
    /// Something may be true.
    ProposeHypothesis {
        /// What.
        statement: String,
        /// How likely, before any evidence.
        #[serde(default = "half")]
        prior: f64,
        /// What it is a special case of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<HypothesisId>,
        /// What cannot be true together with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        excludes: Vec<HypothesisId>,
        /// Words to find it by.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    },
    /// A hypothesis is tested, confirmed, rejected, archived, or open again.
    SetHypothesis {
        /// Which.
        hypothesis: HypothesisId,
        /// What it is now.
        status: HypothesisStatus,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Something speaks for or against a hypothesis.
    AddEvidence {
        /// Which.
        hypothesis: HypothesisId,
        /// From -1 to 1.
        strength: f64,
        /// What was found.
        text: String,
        /// What it is.
        #[serde(default = "observation")]
        kind: EvidenceKind,
        /// Where it comes from.
        #[serde(default = "reasoning")]
        source: Source,
    },
    /// Evidence no longer counts.
    WithdrawEvidence {
        /// Which.
        evidence: EvidenceId,
        /// Why.
        reason: String,
    },
    /// Something is held to be true.
    AddBelief {
        /// What.
        statement: String,
        /// What kind of belief it is.
        kind: BeliefKind,
        /// How sure it is by itself.
        confidence: f64,
        /// What is measured or expected.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
        /// What was seen or is expected of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Measure>,
        /// The hypothesis it belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hypothesis: Option<HypothesisId>,
        /// Words to find it by.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    },
    /// A belief is more or less sure than it was.
    ReviseBelief {
        /// Which.
        belief: BeliefId,
        /// How sure it is now.
        confidence: f64,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A belief is no longer held.
    RetractBelief {
        /// Which.
        belief: BeliefId,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// One belief rests on another.
    Depend {
        /// The one.
        belief: BeliefId,
        /// The other.
        on: BeliefId,
        /// How.
        kind: DependencyKind,
        /// How much.
        strength: f64,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// One belief no longer rests on another.
    Undepend {
        /// The one.
        belief: BeliefId,
        /// The other.
        on: BeliefId,
    },
    /// Two things cannot both be true.
    Contradict {
        /// The one.
        left: Item,
        /// The other.
        right: Item,
        /// Why.
        reason: String,
        /// How bad it is.
        severity: Severity,
    },
    /// A contradiction is over.
    SettleContradiction {
        /// Which.
        contradiction: ContradictionId,
        /// Whether it was one.
        status: ContradictionStatus,
        /// How it ended.
        resolution: String,
    },
    /// Something is not known.
    AddGap {
        /// The question.
        question: String,
        /// What kind of knowledge is missing.
        kind: GapKind,
        /// How much depends on it.
        criticality: Criticality,
        /// What cannot go on without it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blocks: Vec<Item>,
        /// Gaps to be filled first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        after: Vec<GapId>,
        /// How it could be filled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strategy: Option<String>,
        /// How long that would take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        minutes: Option<f64>,
    },
    /// A gap waits for another one.
    GapAfter {
        /// Which.
        gap: GapId,
        /// The one to be filled first.
        after: GapId,
    },
    /// A gap is filled.
    FillGap {
        /// Which.
        gap: GapId,
        /// What was found out.
        answer: String,
    },
    /// Nobody needs to know any more.
    DropGap {
        /// Which.
        gap: GapId,
        /// Why.
        reason: String,
    },
    /// A gap that was filled or dropped is open again.
    ReopenGap {
        /// Which.
        gap: GapId,
    },
    /// Something can be checked.
    AddVerification {
        /// What it shows.
        title: String,
        /// How.
        check: Check,
        /// How long it may take.
        timeout_ms: u64,
        /// Files its outcome depends on.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        inputs: Vec<String>,
        /// What to do when it passes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        on_pass: Vec<OnOutcome>,
        /// What to do when it fails.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        on_fail: Vec<OnOutcome>,
    },
    /// A check was run. What it should lead to happens with it.
    RecordRun {
        /// Which.
        verification: VerificationId,
        /// How it ended.
        outcome: Outcome,
        /// Why.
        reason: String,
        /// The exit code of a command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<i32>,
        /// How long it took.
        took_ms: u64,
        /// What it printed.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        output: String,
        /// What it depended on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// A note.
    AddNote {
        /// What it says.
        text: String,
        /// What it is about.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        about: Vec<Item>,
        /// Words to find it by.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    },
    /// Something is tried out on a branch.
    StartExperiment {
        /// The branch.
        branch: String,
        /// What is tried out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hypothesis: Option<HypothesisId>,
        /// What must be so for it to have succeeded.
        success: String,
    },
    /// An experiment is over.
    EndExperiment {
        /// Which.
        experiment: ExperimentId,
        /// How it ended.
        status: ExperimentStatus,
        /// What came of it.
        result: String,
    },
}

fn half() -> f64 {
    0.5
}

fn observation() -> EvidenceKind {
    EvidenceKind::Observation
}

fn reasoning() -> Source {
    Source::Reasoning
}

/// Why a change is worth a checkpoint by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A hypothesis was concluded or opened again.
    HypothesisStatus,
    /// A contradiction came up.
    Contradiction,
    /// A check was run.
    Verification,
    /// A gap was filled.
    GapFilled,
    /// An experiment began or ended.
    Experiment,
}

impl Cause {
    /// The stable name, which a checkpoint made for it has as its tag.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HypothesisStatus => "hypothesis-status",
            Self::Contradiction => "contradiction",
            Self::Verification => "verification",
            Self::GapFilled => "gap-filled",
            Self::Experiment => "experiment",
        }
    }
}

/// What a change led to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Effect {
    /// The item it made or changed.
    pub item: Item,
    /// What happened, each in a sentence; the first is about the item.
    pub said: Vec<String>,
    /// Why this is worth a checkpoint.
    pub causes: Vec<Cause>,
    /// Whether whoever runs checks should stop.
    pub halt: bool,
}

impl Effect {
    pub(crate) fn of(item: impl Into<Item>, said: impl Into<String>) -> Self {
        Self { item: item.into(), said: vec![said.into()], causes: Vec::new(), halt: false }
    }

    pub(crate) fn because(mut self, cause: Cause) -> Self {
        self.causes.push(cause);
        self
    }
}

impl Mutation {
    /// Which noun of the command line it belongs to.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::ProposeHypothesis { .. } | Self::SetHypothesis { .. } => "hypothesis",
            Self::AddEvidence { .. } | Self::WithdrawEvidence { .. } => "evidence",
            Self::AddBelief { .. }
            | Self::ReviseBelief { .. }
            | Self::RetractBelief { .. }
            | Self::Depend { .. }
            | Self::Undepend { .. } => "belief",
            Self::Contradict { .. } | Self::SettleContradiction { .. } => "contradiction",
            Self::AddGap { .. }
            | Self::GapAfter { .. }
            | Self::FillGap { .. }
            | Self::DropGap { .. }
            | Self::ReopenGap { .. } => "gap",
            Self::AddVerification { .. } | Self::RecordRun { .. } => "verify",
            Self::AddNote { .. } => "note",
            Self::StartExperiment { .. } | Self::EndExperiment { .. } => "experiment",
        }
    }

    /// The step it says something comes from, if it does.
    pub fn source_step(&self) -> Option<StepId> {
        match self {
            Self::AddEvidence { source: Source::Tool { step, .. }, .. } => *step,
            _ => None,
        }
    }
}
