//! What a detector found, and the list that it is written into.

use super::{AnomalyKind, AnomalySeverity, ObservedCall};

/// How many steps of a finding are listed: the first ones. The last one and the number of all are kept beside them.
const LISTED_STEPS: usize = 8;

/// The rule by which something was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DetectionRule {
    /// The same sequence of calls, with the same results, several times in a row.
    RepeatedCycle {
        /// How many calls the sequence has.
        period: u64,
    },
    /// The same call with the same result many times among few others, none of which changed files.
    RepeatedCall,
    /// The files return to the versions of two or three edits ago, several times.
    AlternatingStates,
    /// Two edits of one path take turns.
    AlternatingInputs,
    /// The files are as they were some edits before.
    ReturnedState,
    /// Edits that exchange the same two texts in opposite directions.
    InverseEdits,
    /// Attempts that fail and grow: longer.
    GrowingDuration,
    /// Attempts that fail and grow: with a larger input.
    GrowingInput,
    /// Attempts that fail and grow: with longer pauses between them.
    GrowingPause,
    /// Failures add up faster than successes take them away.
    FailureSum,
    /// A command that fails with results that were seen before.
    RepeatedFailure,
}

impl DetectionRule {
    /// The name of the rule, in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::RepeatedCycle { .. } => "repeated-cycle",
            Self::RepeatedCall => "repeated-call",
            Self::AlternatingStates => "alternating-states",
            Self::AlternatingInputs => "alternating-inputs",
            Self::ReturnedState => "returned-state",
            Self::InverseEdits => "inverse-edits",
            Self::GrowingDuration => "growing-duration",
            Self::GrowingInput => "growing-input",
            Self::GrowingPause => "growing-pause",
            Self::FailureSum => "failure-sum",
            Self::RepeatedFailure => "repeated-failure",
        }
    }
}

/// One incident.
#[derive(Clone, PartialEq, Debug)]
pub struct CallFinding {
    /// What it is.
    pub kind: AnomalyKind,
    /// The rule that says so.
    pub rule: DetectionRule,
    /// The first steps that belong to it, oldest first.
    pub steps: Vec<u64>,
    /// The last step that belongs to it.
    pub last: u64,
    /// How many calls belong to it.
    pub count: u64,
    /// What was measured, in the unit of the kind.
    pub measured: u64,
    /// From where on that is an anomaly.
    pub limit: u64,
    /// The tool of the first call.
    pub tool: u64,
    /// The path or program of the first call.
    pub subject: u64,
    /// When its last call ended.
    pub at: i64,
    /// The positions of its first and last call, counted from 0.
    pub span: (u64, u64),
    /// The position of the call at which it was found, or at which what was measured has doubled since.
    pub reported: u64,
    /// What was measured then.
    reported_at: u64,
}

impl CallFinding {
    /// How far it is over its limit.
    pub fn severity(&self) -> AnomalySeverity {
        AnomalySeverity::of(self.measured as f64, self.limit as f64)
    }

    /// Adds a call that belongs to it as well.
    pub(super) fn extend(&mut self, position: u64, call: &ObservedCall, measured: u64) {
        self.count = self.count.saturating_add(1);
        if self.steps.len() < LISTED_STEPS {
            self.steps.push(call.step);
        }
        self.last = call.step;
        self.at = call.at;
        self.span.1 = position;
        self.measured = self.measured.max(measured);
        if self.measured >= self.reported_at.saturating_mul(2) {
            self.reported = position;
            self.reported_at = self.measured;
        }
    }
}

/// A call of a new finding, with its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedCall {
    /// The position, counted from 0.
    pub position: u64,
    /// The call.
    pub call: ObservedCall,
}

/// A new finding, of the calls that belong to it.
pub(super) fn build_finding<'a>(
    kind: AnomalyKind,
    rule: DetectionRule,
    (measured, limit): (u64, u64),
    calls: impl Iterator<Item = &'a PlacedCall>,
) -> Option<CallFinding> {
    let mut finding: Option<CallFinding> = None;
    for PlacedCall { position, call } in calls {
        match &mut finding {
            Some(finding) => finding.extend(*position, call, 0),
            None => {
                finding = Some(CallFinding {
                    kind,
                    rule,
                    steps: vec![call.step],
                    last: call.step,
                    count: 1,
                    measured,
                    limit,
                    tool: call.tool,
                    subject: call.subject,
                    at: call.at,
                    span: (*position, *position),
                    reported: *position,
                    reported_at: measured,
                });
            }
        }
    }
    let mut finding = finding?;
    finding.reported = finding.span.1;
    Some(finding)
}
