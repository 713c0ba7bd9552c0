//! Decides which events become steps: those of the kinds that the user records, and one in so many of the frequent ones.
//!
//! Sampling is deterministic: of each kind, the first event of a session is recorded, and then each n-th. The start and the
//! end of a call are recorded together or not at all. What is skipped is counted, and the next step of the session says how
//! much it was; it still updates the session, so that every later state is complete.
//!
//! Never skipped: calls that can change something, failures, what stepback makes itself, and gaps.

use stepback_model::event::AgentEvent;
use stepback_model::record::{SkippedEvents, StepKind};

use super::RecorderSettings;
use crate::recorder::{CallStatus, ChangeScope, EventSource, ReportedEvent, ScanPolicy};

/// Most calls per session whose start was skipped and whose end is awaited.
const MAX_SKIPPED_CALLS: usize = 256;

/// Whether an event becomes a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::recorder) enum Admission {
    /// It does.
    Step,
    /// It does if files or git have changed.
    IfChanged,
    /// It is skipped.
    Skip,
}

/// Whether a rate can be set for a kind of step.
pub(super) fn can_be_sampled(kind: StepKind) -> bool {
    !is_always_recorded(kind) && !matches!(kind, StepKind::Decision | StepKind::UserInput)
}

/// Whether steps of this kind are recorded whatever the settings say.
fn is_always_recorded(kind: StepKind) -> bool {
    kind.is_own() || matches!(kind, StepKind::Gap | StepKind::BreakpointHit)
}

impl RecorderSettings {
    /// Decides about an event, and counts it.
    pub(in crate::recorder) fn admit(
        &self,
        skipped: &mut SkippedEvents,
        report: &ReportedEvent,
    ) -> Admission {
        let event = &report.event;
        if self.records_everything() || must_be_recorded(report) {
            return Admission::Step;
        }
        let is_enabled = self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind));
        match (is_enabled, report.scan_policy) {
            (true, ScanPolicy::None) if self.is_sampled_out(skipped, report) => Admission::Skip,
            (true, _) => Admission::Step,
            (false, ScanPolicy::None) => Admission::Skip,
            (false, _) => Admission::IfChanged,
        }
    }

    fn records_everything(&self) -> bool {
        self.kinds.is_none() && self.sample.is_empty() && self.sample_frequent <= 1
    }

    /// One in how many events like this one is recorded.
    fn rate(&self, kind: StepKind, report: &ReportedEvent) -> u64 {
        let is_frequent = match kind {
            StepKind::ToolStart | StepKind::ToolEnd | StepKind::AgentStep => true,
            // Without the bodies of its model calls, a session cannot be run again.
            StepKind::ModelStart | StepKind::ModelEnd => !report.is_exchange,
            _ => false,
        };
        let default = if is_frequent { self.sample_frequent } else { 1 };
        self.sample.get(&kind).copied().unwrap_or(default)
    }

    fn is_sampled_out(&self, skipped: &mut SkippedEvents, report: &ReportedEvent) -> bool {
        let event = &report.event;
        if report.update.milestone.is_some() {
            return false;
        }
        let start = match event.kind {
            StepKind::ToolStart | StepKind::ToolEnd => Some(StepKind::ToolStart),
            StepKind::ModelStart | StepKind::ModelEnd => Some(StepKind::ModelStart),
            _ => None,
        };
        let (Some(start), Some(call)) = (start, event.call.as_ref()) else {
            return !take_turn(skipped, event.kind, self.rate(event.kind, report));
        };
        let at = skipped.calls.iter().rposition(|known| known == call);
        if event.kind != start {
            return match at {
                // The end of a skipped call; a failure is worth a step.
                Some(at) => {
                    // The id of such a call is used again by the next call with the same input.
                    if AgentEvent::is_derived_call(Some(call)) {
                        skipped.calls.remove(at);
                    }
                    event.error.is_none()
                }
                None if event.error.is_some() || self.rate(start, report) > 1 => false,
                None => !take_turn(skipped, event.kind, self.rate(event.kind, report)),
            };
        }
        // Where hooks are installed twice, the start arrives twice.
        let is_skipped = at.is_some() || !take_turn(skipped, event.kind, self.rate(event.kind, report));
        if is_skipped && at.is_none() {
            skipped.calls.push(call.clone());
            let excess = skipped.calls.len().saturating_sub(MAX_SKIPPED_CALLS);
            skipped.calls.drain(..excess);
        }
        is_skipped
    }
}

/// Counts an event. Returns whether it is one of those that are recorded.
fn take_turn(skipped: &mut SkippedEvents, kind: StepKind, rate: u64) -> bool {
    if rate <= 1 {
        return true;
    }
    let seen = skipped.sampled.entry(kind).or_default();
    *seen += 1;
    (*seen - 1).is_multiple_of(rate)
}

/// Whether an event is recorded whatever the settings say.
fn must_be_recorded(report: &ReportedEvent) -> bool {
    let event = &report.event;
    is_always_recorded(event.kind)
        || matches!(
            report.scan_policy,
            ScanPolicy::Before | ScanPolicy::After | ScanPolicy::CheckpointIfChanged
        )
        || report.call.scope != ChangeScope::Nothing
        || report.call.status != CallStatus::Ran
        || matches!(report.source, EventSource::Assigned(_))
        // The user's answer at a breakpoint, which a rerun repeats.
        || (event.kind == StepKind::Decision
            && event.input.as_ref().is_some_and(|input| input.get("answer").is_some()))
}

/// Counts an event that is skipped.
pub(in crate::recorder) fn count_skipped(skipped: &mut SkippedEvents, kind: StepKind) {
    *skipped.pending.entry(kind).or_default() += 1;
    skipped.total += 1;
}
