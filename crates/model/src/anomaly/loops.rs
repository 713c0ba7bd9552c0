//! Loops: the same calls with the same results again, alone, in a cycle, or among a few others.

use std::collections::VecDeque;

use super::AnomalyKind;
use super::finding::{CallFinding, DetectionRule, PlacedCall, build_finding};

/// The longest cycle that is found.
const MAX_PERIOD: usize = 8;
/// How many calls back a repetition is looked for among others.
const WINDOW: usize = 30;
/// How many calls are kept.
const KEPT: usize = 64;

/// The detector.
#[derive(Clone, Debug)]
pub(super) struct LoopDetector {
    limit: u64,
    recent: VecDeque<(Option<u64>, PlacedCall)>,
    /// For each period, how many calls in a row were the same as the one that many calls before.
    runs: [u64; MAX_PERIOD],
    open: Option<OpenLoop>,
}

/// A loop that may go on.
#[derive(Clone, Debug)]
struct OpenLoop {
    index: usize,
    signatures: Vec<u64>,
}

impl LoopDetector {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, recent: VecDeque::new(), runs: [0; MAX_PERIOD], open: None }
    }

    /// Forgets what came before, because the files were changed from outside.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.limit);
    }

    pub(super) fn observe(&mut self, placed: PlacedCall, findings: &mut Vec<CallFinding>) {
        let signature = placed.call.signature();
        for (index, run) in self.runs.iter_mut().enumerate() {
            let before = self.recent.len().checked_sub(index + 1).and_then(|at| self.recent[at].0);
            *run = if signature.is_some() && before == signature { run.saturating_add(1) } else { 0 };
        }
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back((signature, placed));
        let Some(signature) = signature else { return };
        if self.extend(signature, &placed, findings) {
            return;
        }
        let found = self.find_cycle().or_else(|| self.find_repetition(signature));
        if let Some((finding, signatures)) = found {
            self.open = Some(OpenLoop { index: findings.len(), signatures });
            findings.push(finding);
        }
    }

    /// Adds the call to the loop that is open, if it belongs to it; closes the loop when it is over.
    fn extend(&mut self, signature: u64, placed: &PlacedCall, findings: &mut [CallFinding]) -> bool {
        let Some(open) = &self.open else { return false };
        let finding = &mut findings[open.index];
        let distance = placed.position.saturating_sub(finding.span.1);
        if !open.signatures.contains(&signature) {
            if placed.call.changed_files() || distance > WINDOW as u64 {
                self.open = None;
            }
            return false;
        }
        if distance > WINDOW as u64 {
            self.open = None;
            return false;
        }
        let times = (finding.count + 1) / open.signatures.len().max(1) as u64;
        finding.extend(placed.position, &placed.call, times);
        true
    }

    fn find_cycle(&self) -> Option<(CallFinding, Vec<u64>)> {
        for (index, run) in self.runs.iter().enumerate() {
            let period = index as u64 + 1;
            let length = run.saturating_add(period);
            let newest = self.recent.iter().rev().take(index + 1);
            let patience = newest.clone().map(|(_, placed)| placed.call.patience()).max().unwrap_or(1);
            let limit = self.limit.saturating_sub(period.min(3) - 1).max(3);
            let needed = limit.saturating_mul(patience);
            if *run == 0 || length / period < needed {
                continue;
            }
            let signatures: Vec<u64> = newest.filter_map(|(signature, _)| *signature).collect();
            let calls = usize::try_from(length).unwrap_or(KEPT).min(self.recent.len());
            let calls = self.recent.iter().skip(self.recent.len() - calls).map(|(_, placed)| placed);
            let measured = (length / period, needed);
            let rule = DetectionRule::RepeatedCycle { period };
            return build_finding(AnomalyKind::Loop, rule, measured, calls).map(|found| (found, signatures));
        }
        None
    }

    /// Finds the last call many times among the last calls, if none of the others changed files.
    fn find_repetition(&self, signature: u64) -> Option<(CallFinding, Vec<u64>)> {
        let (mut patience, mut same) = (1, Vec::new());
        for (other, placed) in self.recent.iter().rev().take(WINDOW) {
            if *other == Some(signature) {
                same.push(placed);
            } else if placed.call.changed_files() {
                break;
            }
            patience = patience.max(placed.call.patience());
        }
        let needed = (self.limit + 1).saturating_mul(patience);
        let times = same.len() as u64;
        let calls = same.into_iter().rev();
        let found = || build_finding(AnomalyKind::Loop, DetectionRule::RepeatedCall, (times, needed), calls);
        (times >= needed).then(found).flatten().map(|found| (found, vec![signature]))
    }
}
