//! Failures that lead nowhere: too many of them, retries that grow, and a check that keeps failing in the same ways.

use std::collections::{HashMap, VecDeque};

use super::finding::{CallFinding, DetectionRule, PlacedCall, build_finding};
use super::{AnomalyKind, ObservedCall};

/// How many calls of one incident are kept before it is one.
const KEPT: usize = 64;
/// How many failing commands are remembered; more are a sign of an import gone wrong, and forgetting them finds less.
const MAX_SERIES: usize = 4096;

/// Sums up failures: each adds to a score, and each success takes away from it (a CUSUM test of a failure rate of 70 % against
/// one of 20 %: the weights are the logarithms of how much more likely each outcome is).
#[derive(Clone, Debug)]
pub(super) struct ErrorBurstDetector {
    limit: u64,
    score: u64,
    failures: VecDeque<PlacedCall>,
    open: Option<usize>,
}

impl ErrorBurstDetector {
    const FAILURE: u64 = 5;
    const SUCCESS: u64 = 4;

    pub(super) fn new(limit: u64) -> Self {
        Self { limit, score: 0, failures: VecDeque::new(), open: None }
    }

    pub(super) fn observe(&mut self, placed: PlacedCall, findings: &mut Vec<CallFinding>) {
        let needed = self.limit.saturating_mul(Self::FAILURE);
        if !placed.call.failed {
            self.score = self.score.saturating_sub(Self::SUCCESS);
            if self.score == 0 {
                self.failures.clear();
                self.open = None;
            }
            return;
        }
        // The score is bounded, so that an incident ends soon after the last failures of it.
        self.score = (self.score + Self::FAILURE).min(needed.saturating_mul(2));
        if let Some(index) = self.open {
            let measured = findings[index].count + 1;
            findings[index].extend(placed.position, &placed.call, measured);
            return;
        }
        if self.failures.len() == KEPT {
            self.failures.pop_front();
        }
        self.failures.push_back(placed);
        if self.score < needed {
            return;
        }
        let measured = (self.failures.len() as u64, self.limit);
        let kind = AnomalyKind::ErrorBurst;
        if let Some(finding) = build_finding(kind, DetectionRule::FailureSum, measured, self.failures.iter())
        {
            self.open = Some(findings.len());
            findings.push(finding);
        }
    }
}

/// Finds attempts that fail and grow.
#[derive(Clone, Debug)]
pub(super) struct RetryDetector {
    limit: u64,
    series: HashMap<(u64, u64), RetrySeries>,
}

/// The failed attempts of one tool at one subject, since it last succeeded or files changed.
#[derive(Clone, Debug, Default)]
struct RetrySeries {
    attempts: VecDeque<PlacedCall>,
    /// For each quantity, the largest value so far, the first, and how many attempts were larger than all before.
    growth: [(u64, u64, u64); 3],
    open: Option<usize>,
}

impl RetryDetector {
    /// How many other calls may be between two attempts.
    const MAX_DISTANCE: u64 = 4;
    /// What an attempt must exceed all earlier ones by, in percent: its duration, its input, the pause before it.
    const GROWTH: [u64; 3] = [125, 108, 150];
    const RULES: [DetectionRule; 3] =
        [DetectionRule::GrowingDuration, DetectionRule::GrowingInput, DetectionRule::GrowingPause];
    /// How often as much the last attempt is than the first, in percent, and how much it is at least.
    const TOTAL: [(u64, u64); 3] = [(200, 1_000_000), (150, 64), (300, 5_000_000)];

    pub(super) fn new(limit: u64) -> Self {
        Self { limit, series: HashMap::new() }
    }

    pub(super) fn observe(&mut self, placed: PlacedCall, findings: &mut Vec<CallFinding>) {
        let call = &placed.call;
        let key = (call.tool, call.subject);
        if !call.failed || call.subject == 0 {
            self.series.remove(&key);
            // Whatever was changed, the next attempt is one at something else.
            if call.changed_files() {
                self.series.clear();
            }
            return;
        }
        if self.series.len() >= MAX_SERIES {
            self.series.clear();
        }
        let series = self.series.entry(key).or_default();
        if let Some(last) = series.attempts.back()
            && placed.position - last.position > Self::MAX_DISTANCE + 1
        {
            *series = RetrySeries::default();
        }
        // A pause before something else is no retry.
        let last = series.attempts.back().filter(|last| last.call.input == call.input);
        let pause = last.map_or(0, |last| pause_between(&last.call, call));
        let values = [call.duration.unwrap_or(0), call.input_bytes, pause];
        if series.attempts.len() == KEPT {
            series.attempts.pop_front();
        }
        series.attempts.push_back(placed);
        for ((largest, first, count), (value, growth)) in
            series.growth.iter_mut().zip(values.into_iter().zip(Self::GROWTH))
        {
            if value == 0 {
                continue;
            }
            if *largest == 0 {
                (*largest, *first, *count) = (value, value, 1);
            } else if value >= largest.saturating_mul(growth) / 100 && value > *largest {
                (*largest, *count) = (value, count.saturating_add(1));
            }
        }
        if let Some(index) = series.open {
            let measured = findings[index].count + 1;
            findings[index].extend(placed.position, call, measured);
            return;
        }
        let total = series.attempts.len() as u64;
        // The first pause is the one before the second attempt.
        let needed = [self.limit, self.limit, self.limit - 1];
        let is_growing = |quantity: &usize| {
            let (largest, first, count) = series.growth[*quantity];
            let (ratio, least) = Self::TOTAL[*quantity];
            // One attempt in four may be no larger than those before.
            count >= needed[*quantity]
                && (count + self.limit - needed[*quantity]) * 4 >= total * 3
                && largest >= first.saturating_mul(ratio) / 100
                && largest >= least
        };
        let found = (0..needed.len()).find(is_growing);
        let Some(quantity) = found else { return };
        let (kind, rule) = (AnomalyKind::GrowingRetries, Self::RULES[quantity]);
        let measured = (total, self.limit);
        if let Some(finding) = build_finding(kind, rule, measured, series.attempts.iter()) {
            series.open = Some(findings.len());
            findings.push(finding);
        }
    }
}

/// The time between the end of a call and the start of the next, in microseconds.
fn pause_between(earlier: &ObservedCall, later: &ObservedCall) -> u64 {
    let started = later.at.saturating_sub_unsigned(later.duration.unwrap_or(0));
    u64::try_from(started.saturating_sub(earlier.at)).unwrap_or(0)
}

/// Finds a check that keeps failing in the same ways.
#[derive(Clone, Debug)]
pub(super) struct ProgressDetector {
    limit: u64,
    series: HashMap<(u64, u64), FailureSeries>,
    /// How many calls changed files so far: by a tool that edits one, and in other ways.
    changes: (u64, u64),
}

/// The failures of one command since it last succeeded.
#[derive(Clone, Debug, Default)]
struct FailureSeries {
    /// The results, with the newest first.
    seen: VecDeque<u64>,
    /// The runs since the last new result.
    runs: VecDeque<PlacedCall>,
    count: u64,
    /// The changes at the last run.
    changes: (u64, u64),
    /// Whether files changed between two runs, and not by an edit: perhaps the agent tries other versions.
    tries_versions: bool,
    open: Option<usize>,
}

impl ProgressDetector {
    /// How many different results of a command are remembered.
    const RESULTS: usize = 32;

    pub(super) fn new(limit: u64) -> Self {
        Self { limit, series: HashMap::new(), changes: (0, 0) }
    }

    pub(super) fn observe(&mut self, placed: PlacedCall, findings: &mut Vec<CallFinding>) {
        let call = &placed.call;
        let key = (call.tool, call.input);
        let before = self.changes;
        match call.changed_files() {
            true if call.edits => self.changes.0 += 1,
            true => self.changes.1 += 1,
            false => {}
        }
        if !call.failed || call.input == 0 {
            self.series.remove(&key);
            return;
        }
        if self.series.len() >= MAX_SERIES {
            self.series.clear();
        }
        let series = self.series.entry(key).or_default();
        if !series.seen.contains(&call.output) {
            series.seen.push_front(call.output);
            series.seen.truncate(Self::RESULTS);
            // The first run with a result belongs to the ones that repeat it.
            series.runs.clear();
            series.count = 0;
            series.tries_versions = false;
            series.open = None;
        } else if before.0 == series.changes.0 && before.1 != series.changes.1 {
            series.tries_versions = true;
        }
        series.changes = self.changes;
        series.count = series.count.saturating_add(1);
        if let Some(index) = series.open {
            findings[index].extend(placed.position, call, series.count);
            return;
        }
        if series.runs.len() < KEPT {
            series.runs.push_back(placed);
        }
        let patience = if call.output == 0 || series.tries_versions { 2 } else { 1 };
        let needed = self.limit.saturating_mul(patience);
        if series.count < needed {
            return;
        }
        let (kind, rule) = (AnomalyKind::NoProgress, DetectionRule::RepeatedFailure);
        if let Some(finding) = build_finding(kind, rule, (series.count, needed), series.runs.iter()) {
            series.open = Some(findings.len());
            findings.push(finding);
        }
    }
}
