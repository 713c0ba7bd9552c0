//! All detectors that read calls one by one, and which of their findings are the same incident.

use super::edits::{AlternationDetector, UndoneEditDetector};
use super::failures::{ErrorBurstDetector, ProgressDetector, RetryDetector};
use super::finding::PlacedCall;
use super::loops::LoopDetector;
use super::{AnomalyKind, AnomalyLimits, CallFinding, ObservedCall};

/// Which kind says more about an incident, the first one most: a finding is left out if it is mostly within those of kinds
/// before its own.
const PRECEDENCE: [AnomalyKind; 6] = [
    AnomalyKind::AlternatingEdits,
    AnomalyKind::Loop,
    AnomalyKind::GrowingRetries,
    AnomalyKind::NoProgress,
    AnomalyKind::UndoneEdits,
    AnomalyKind::ErrorBurst,
];
/// How much of a finding must be within others so that it is left out, in percent.
const SAME_INCIDENT: u64 = 60;

/// The detectors of one sequence of calls: those of one agent or sub-agent.
#[derive(Clone, Debug)]
pub struct CallMonitor {
    position: u64,
    findings: Vec<CallFinding>,
    loops: Option<LoopDetector>,
    alternation: Option<AlternationDetector>,
    retries: Option<RetryDetector>,
    progress: Option<ProgressDetector>,
    undone: Option<UndoneEditDetector>,
    errors: Option<ErrorBurstDetector>,
}

impl CallMonitor {
    /// Detectors with these limits; a kind that is off has none.
    pub fn new(limits: &AnomalyLimits) -> Self {
        Self {
            position: 0,
            findings: Vec::new(),
            loops: limits.get(AnomalyKind::Loop).map(LoopDetector::new),
            alternation: limits.get(AnomalyKind::AlternatingEdits).map(AlternationDetector::new),
            retries: limits.get(AnomalyKind::GrowingRetries).map(RetryDetector::new),
            progress: limits.get(AnomalyKind::NoProgress).map(ProgressDetector::new),
            undone: limits.get(AnomalyKind::UndoneEdits).map(UndoneEditDetector::new),
            errors: limits.get(AnomalyKind::ErrorBurst).map(ErrorBurstDetector::new),
        }
    }

    /// Reads the next call.
    pub fn observe(&mut self, call: &ObservedCall) {
        let placed = PlacedCall { position: self.position, call: *call };
        self.position += 1;
        let findings = &mut self.findings;
        if let Some(detector) = &mut self.loops {
            detector.observe(placed, findings);
        }
        if let Some(detector) = &mut self.alternation {
            detector.observe(placed, findings);
        }
        if let Some(detector) = &mut self.retries {
            detector.observe(placed, findings);
        }
        if let Some(detector) = &mut self.progress {
            detector.observe(placed, findings);
        }
        if let Some(detector) = &mut self.undone {
            detector.observe(placed, findings);
        }
        if let Some(detector) = &mut self.errors {
            detector.observe(placed, findings);
        }
    }

    /// Notes that the files went to another state without the agent's doing: a rewind, a switch to another branch.
    pub fn note_restored_files(&mut self) {
        if let Some(detector) = &mut self.loops {
            detector.reset();
        }
        if let Some(detector) = &mut self.undone {
            detector.reset();
        }
    }

    /// Returns what was found so far, oldest first, each incident once.
    pub fn findings(&self) -> Vec<CallFinding> {
        let mut kept: Vec<&CallFinding> = Vec::new();
        let mut covered = CoveredSpans::default();
        for kind in PRECEDENCE {
            let of_kind = self.findings.iter().filter(|finding| finding.kind == kind);
            let new: Vec<_> = of_kind.filter(|finding| !covered.covers(finding.span)).collect();
            covered.add(new.iter().map(|finding| finding.span));
            kept.extend(new);
        }
        kept.sort_by_key(|finding| (finding.span, finding.kind));
        kept.into_iter().cloned().collect()
    }

    /// Returns what was found by the last call that was read: new incidents, and those that have doubled since they were found.
    pub fn found_by_last_call(&self) -> Vec<CallFinding> {
        let Some(last) = self.position.checked_sub(1) else { return Vec::new() };
        let mut found = self.findings();
        found.retain(|finding| finding.reported == last);
        found
    }
}

/// Spans of positions, each once.
#[derive(Default)]
struct CoveredSpans {
    /// First and last positions, sorted, without overlaps; and how many positions are in those before.
    spans: Vec<(u64, u64, u64)>,
}

impl CoveredSpans {
    fn add(&mut self, more: impl Iterator<Item = (u64, u64)>) {
        let mut all: Vec<_> = self.spans.iter().map(|(first, last, _)| (*first, *last)).chain(more).collect();
        all.sort_unstable();
        self.spans.clear();
        for (first, last) in all {
            match self.spans.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                Some((from, to, sum)) => {
                    let sum = *sum + (*to - *from + 1);
                    self.spans.push((first, last, sum));
                }
                None => self.spans.push((first, last, 0)),
            }
        }
    }

    /// Whether most of a span is covered.
    fn covers(&self, (first, last): (u64, u64)) -> bool {
        let inside = self.count_until(last + 1) - self.count_until(first);
        inside * 100 >= (last - first + 1) * SAME_INCIDENT
    }

    /// How many covered positions are before one.
    fn count_until(&self, end: u64) -> u64 {
        let index = self.spans.partition_point(|(first, ..)| *first < end);
        let Some((first, last, sum)) = index.checked_sub(1).map(|index| self.spans[index]) else { return 0 };
        sum + (last.min(end - 1) - first + 1)
    }
}
