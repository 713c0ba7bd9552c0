//! Changes of a mind, and their effects.
//!
//! A mutation is plain data. The same document comes from the command line, from MCP and from the log, where it is the
//! input of the step that recorded it; replaying those of a session in order produces the same mind.

use serde::{Deserialize, Serialize};

use crate::ids::{
    BeliefId, ContradictionId, EvidenceId, ExperimentId, GapId, HypothesisId, ItemId, VerificationId,
};
use crate::item::{
    BeliefKind, Check, CheckOutcome, ContradictionStatus, Criticality, DependencyKind, EvidenceKind,
    EvidenceOrigin, ExperimentStatus, GapKind, HypothesisStatus, Measure, OnOutcome, Severity, one_or_many,
};

/// One change of a mind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum BoardMutation {
    /// Proposes a hypothesis.
    ProposeHypothesis {
        /// A statement that may be true, in one sentence.
        statement: String,
        /// Its probability before any evidence.
        #[serde(default = "half")]
        prior: f64,
        /// The hypotheses it is a special case of. Earlier logs have at most one, as `parent`.
        #[serde(
            default,
            alias = "parent",
            deserialize_with = "one_or_many",
            skip_serializing_if = "Vec::is_empty"
        )]
        parents: Vec<HypothesisId>,
        /// Hypotheses that cannot be true together with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        excludes: Vec<HypothesisId>,
        /// Tags by which it can be found; without duplicates.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    },
    /// Words a hypothesis in another way. Its old wording is kept.
    EditHypothesis {
        /// The hypothesis to change.
        hypothesis: HypothesisId,
        /// The new statement.
        statement: String,
    },
    /// Sets a hypothesis to testing, confirmed, rejected, archived, or open again.
    SetHypothesis {
        /// The hypothesis to change.
        hypothesis: HypothesisId,
        /// The new status.
        status: HypothesisStatus,
        /// The reason for the change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Adds evidence for or against a hypothesis.
    AddEvidence {
        /// The hypothesis it is about.
        hypothesis: HypothesisId,
        /// From -1 (against) to 1 (for).
        strength: f64,
        /// What was observed, in one sentence.
        text: String,
        /// The kind of evidence.
        #[serde(default = "observation")]
        kind: EvidenceKind,
        /// Where it comes from.
        #[serde(default = "reasoning")]
        source: EvidenceOrigin,
    },
    /// Withdraws evidence, which then no longer counts.
    WithdrawEvidence {
        /// The evidence to withdraw.
        evidence: EvidenceId,
        /// Why it no longer counts.
        reason: String,
    },
    /// Adds a belief.
    AddBelief {
        /// What is held to be true.
        statement: String,
        /// The kind of belief.
        kind: BeliefKind,
        /// Its own confidence, apart from its dependencies.
        confidence: f64,
        /// What is measured or expected.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
        /// The value of the subject that was seen or is expected.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Measure>,
        /// The hypothesis it belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hypothesis: Option<HypothesisId>,
        /// Tags by which it can be found; without duplicates.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    },
    /// Changes the confidence of a belief.
    ReviseBelief {
        /// The belief to change.
        belief: BeliefId,
        /// The new confidence of its own.
        confidence: f64,
        /// The reason for the change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Retracts a belief.
    RetractBelief {
        /// The belief to retract.
        belief: BeliefId,
        /// Why it is no longer held.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Makes one belief depend on another.
    Depend {
        /// The belief that depends.
        belief: BeliefId,
        /// The belief it depends on.
        on: BeliefId,
        /// The kind of dependency.
        kind: DependencyKind,
        /// How strongly it depends, from 0 to 1.
        strength: f64,
        /// The reason for the dependency.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Removes a dependency.
    Undepend {
        /// The belief that depends.
        belief: BeliefId,
        /// The belief it depends on.
        on: BeliefId,
    },
    /// Declares that two items cannot both be true.
    Contradict {
        /// One of the two items.
        left: ItemId,
        /// The other item.
        right: ItemId,
        /// Why they exclude each other.
        reason: String,
        /// How severe it is.
        severity: Severity,
    },
    /// Settles a contradiction.
    SettleContradiction {
        /// The contradiction to settle.
        contradiction: ContradictionId,
        /// Whether it is resolved, or was not a contradiction.
        status: ContradictionStatus,
        /// How it was settled.
        resolution: String,
    },
    /// Adds a gap.
    AddGap {
        /// The question to answer.
        question: String,
        /// What kind of knowledge is missing.
        kind: GapKind,
        /// How much depends on it.
        criticality: Criticality,
        /// Items that cannot be decided before it is filled.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blocks: Vec<ItemId>,
        /// Gaps that must be filled first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        after: Vec<GapId>,
        /// How it could be filled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strategy: Option<String>,
        /// The estimated time to fill it, in minutes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        minutes: Option<f64>,
    },
    /// Makes a gap wait for another one.
    GapAfter {
        /// The gap that waits.
        gap: GapId,
        /// The gap that must be filled first.
        after: GapId,
    },
    /// Fills a gap.
    FillGap {
        /// The gap to fill.
        gap: GapId,
        /// The answer to its question.
        answer: String,
    },
    /// Drops a gap whose answer is not needed any more.
    DropGap {
        /// The gap to drop.
        gap: GapId,
        /// Why it is not needed.
        reason: String,
    },
    /// Reopens a gap that was filled or dropped.
    ReopenGap {
        /// The gap to reopen.
        gap: GapId,
    },
    /// Adds a check.
    AddVerification {
        /// What a passed check proves, in one sentence.
        title: String,
        /// How it is checked.
        check: Check,
        /// The timeout in milliseconds.
        timeout_ms: u64,
        /// Files its outcome depends on, as globs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        inputs: Vec<String>,
        /// What to do when it passes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        on_pass: Vec<OnOutcome>,
        /// What to do when it fails.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        on_fail: Vec<OnOutcome>,
    },
    /// Records the run of a check and carries out its consequences.
    RecordRun {
        /// The check that was run.
        verification: VerificationId,
        /// How it ended.
        outcome: CheckOutcome,
        /// The reason in one sentence.
        reason: String,
        /// The exit code of a command that ran to its end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<i32>,
        /// How long it took, in milliseconds.
        took_ms: u64,
        /// The output.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        output: String,
        /// A hash of what it depended on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// Adds a note.
    AddNote {
        /// The text of the note.
        text: String,
        /// The items it is about.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        about: Vec<ItemId>,
        /// Tags by which it can be found; without duplicates.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    },
    /// Starts an experiment on a branch.
    StartExperiment {
        /// The name of the branch.
        branch: String,
        /// The hypothesis that is tested.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hypothesis: Option<HypothesisId>,
        /// The criterion for success.
        success: String,
    },
    /// Ends an experiment.
    EndExperiment {
        /// The experiment to end.
        experiment: ExperimentId,
        /// How it ended.
        status: ExperimentStatus,
        /// The result.
        result: String,
    },
}

fn half() -> f64 {
    0.5
}

fn observation() -> EvidenceKind {
    EvidenceKind::Observation
}

fn reasoning() -> EvidenceOrigin {
    EvidenceOrigin::Reasoning
}

/// Why a change deserves a checkpoint of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointCause {
    /// A hypothesis was concluded or reopened.
    HypothesisStatus,
    /// A contradiction was detected or declared.
    Contradiction,
    /// A check was run.
    Verification,
    /// A gap was filled.
    GapFilled,
    /// An experiment began or ended.
    Experiment,
}

impl CheckpointCause {
    /// The stable name, which is the tag of the checkpoint made for it.
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

/// The effect of a change.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MutationEffect {
    /// The item it created or changed.
    pub item: ItemId,
    /// What happened, each in a sentence; the first is about the item.
    #[serde(rename = "said")]
    pub messages: Vec<String>,
    /// Why this deserves a checkpoint; empty if it does not.
    pub causes: Vec<CheckpointCause>,
    /// Whether the caller should stop running checks.
    pub halt: bool,
}

impl MutationEffect {
    pub(crate) fn new(item: impl Into<ItemId>, message: impl Into<String>) -> Self {
        Self { item: item.into(), messages: vec![message.into()], causes: Vec::new(), halt: false }
    }

    pub(crate) fn with_cause(mut self, cause: CheckpointCause) -> Self {
        self.causes.push(cause);
        self
    }
}

impl BoardMutation {
    /// The noun of the command line it belongs to.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::ProposeHypothesis { .. } | Self::EditHypothesis { .. } | Self::SetHypothesis { .. } => {
                "hypothesis"
            }
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
}
