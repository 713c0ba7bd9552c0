//! What fills the context without use: results that were already in it, and large results to which nothing comes back.

use std::collections::{HashMap, HashSet, VecDeque};

use stepback_model::anomaly::{AnomalyKind, AnomalyLimits, CallFinding, ObservedCall};

use super::calls::{WorkerCalls, WorkerEvent, to_index};
use super::{Anomaly, Incident, evidence};
use crate::facts::SessionFacts;

/// A smaller result is too small to count as repeated.
const MIN_REPEATED_BYTES: u64 = 8 * 1024;
/// What repeated results add to a sum and others take away, for each byte: it stays above zero as long as two fifths of all that
/// the tools return are repeated.
const REPEATED_WEIGHT: u64 = 3;
const OTHER_WEIGHT: u64 = 2;
/// With how many later requests a large result is sent before it counts as unused.
const MIN_REQUESTS: u64 = 20;
/// How many steps of an incident are listed.
const LISTED: usize = 8;
/// How much of an incident must be within a loop to be part of it, in percent.
const IN_LOOP_PERCENT: u64 = 60;

/// Results that were in the context before.
#[derive(Default)]
struct RepeatedResults {
    seen: HashSet<(u64, u64, u64)>,
    open: RepeatedStretch,
}

/// A stretch of a context in which much is repeated.
#[derive(Default)]
struct RepeatedStretch {
    sum: u64,
    bytes: u64,
    repeated: u64,
    /// What the tools had returned at the last repeated result.
    until: u64,
    steps: Vec<usize>,
    last: usize,
    count: u64,
    /// How many of them are part of a loop.
    in_loops: u64,
}

/// A large result that was not used yet.
struct LargeResult {
    step: usize,
    subject: u64,
    bytes: u64,
    iteration: u64,
}

/// Large results to which nothing comes back.
#[derive(Default)]
struct UnusedResults {
    pending: VecDeque<LargeResult>,
    /// How many results of each subject wait.
    subjects: HashMap<u64, u64>,
    found: Vec<usize>,
    last: usize,
    count: u64,
    bytes: u64,
    requests: u64,
}

/// Finds growth without use in the contexts of one worker. What is part of a loop is not said twice.
pub(super) fn find_growth(
    facts: &SessionFacts,
    calls: &WorkerCalls,
    limits: &AnomalyLimits,
    findings: &[CallFinding],
) -> Vec<Anomaly> {
    let Some(limit) = limits.get(AnomalyKind::ContextGrowth) else { return Vec::new() };
    let mut loops = LoopSpans::of(findings);
    let mut search = GrowthSearch { facts, calls, limit, done: Vec::new() };
    let (mut repeated, mut unused) = (RepeatedResults::default(), UnusedResults::default());
    let (mut position, mut prompt) = (0, None);
    for event in &calls.events {
        match event {
            WorkerEvent::Call(call) => {
                let step = to_index(call.step);
                let Some(fact) = facts.steps.get(step) else { continue };
                if fact.prompt != prompt {
                    prompt = fact.prompt;
                    search.finish_unused(std::mem::take(&mut unused));
                }
                let in_loop = loops.contains(position);
                position += 1;
                if let Some(stretch) = repeated.observe(call, step, fact.output_bytes, in_loop) {
                    search.finish_repeated(stretch);
                }
                if unused.observe(call, step, (fact.output_bytes, fact.iteration), limit.saturating_mul(1024))
                {
                    search.finish_unused(std::mem::take(&mut unused));
                }
            }
            // A rewind ends no context.
            WorkerEvent::Restored => {}
            WorkerEvent::Compacted => {
                search.finish_repeated(std::mem::take(&mut repeated).open);
                search.finish_unused(std::mem::take(&mut unused));
            }
        }
    }
    search.finish_repeated(repeated.open);
    search.finish_unused(unused);
    search.done
}

impl RepeatedResults {
    /// Reads a call; returns the stretch that it ends.
    fn observe(
        &mut self,
        call: &ObservedCall,
        step: usize,
        bytes: u64,
        in_loop: bool,
    ) -> Option<RepeatedStretch> {
        let is_large = bytes >= MIN_REPEATED_BYTES && call.output != 0 && call.input != 0;
        let is_repeated = is_large && !self.seen.insert((call.tool, call.input, call.output));
        let open = &mut self.open;
        if !is_repeated {
            open.sum = open.sum.saturating_sub(bytes.saturating_mul(OTHER_WEIGHT));
            open.bytes = open.bytes.saturating_add(bytes);
            return (open.sum == 0).then(|| std::mem::take(open));
        }
        open.sum = open.sum.saturating_add(bytes.saturating_mul(REPEATED_WEIGHT));
        open.bytes = open.bytes.saturating_add(bytes);
        open.repeated = open.repeated.saturating_add(bytes);
        open.until = open.bytes;
        open.count += 1;
        open.in_loops += u64::from(in_loop);
        open.last = step;
        if open.steps.len() < LISTED {
            open.steps.push(step);
        }
        None
    }
}

impl UnusedResults {
    /// Reads a call; returns whether it ends the stretch, because files changed.
    fn observe(
        &mut self,
        call: &ObservedCall,
        step: usize,
        (bytes, iteration): (u64, u64),
        limit: u64,
    ) -> bool {
        if call.changed_files() {
            return true;
        }
        if call.subject != 0 && self.subjects.contains_key(&call.subject) {
            // It comes back to what it read.
            self.subjects.remove(&call.subject);
            self.pending.retain(|result| result.subject != call.subject);
        }
        while let Some(first) = self.pending.front()
            && iteration.saturating_sub(first.iteration) >= MIN_REQUESTS
        {
            let Some(result) = self.pending.pop_front() else { break };
            self.subjects.remove(&result.subject);
            self.requests = self.requests.max(iteration - result.iteration);
            self.bytes = self.bytes.saturating_add(result.bytes);
            self.count += 1;
            self.last = result.step;
            if self.found.len() < LISTED {
                self.found.push(result.step);
            }
        }
        // Whether a result without a subject is used cannot be seen.
        if bytes >= limit && call.subject != 0 && !call.failed {
            self.pending.push_back(LargeResult { step, subject: call.subject, bytes, iteration });
            *self.subjects.entry(call.subject).or_default() += 1;
        }
        false
    }
}

struct GrowthSearch<'a> {
    facts: &'a SessionFacts,
    calls: &'a WorkerCalls,
    limit: u64,
    done: Vec<Anomaly>,
}

impl GrowthSearch<'_> {
    fn finish_repeated(&mut self, stretch: RepeatedStretch) {
        let RepeatedStretch { repeated, until, steps, last, count, in_loops, .. } = stretch;
        if repeated >= self.limit.saturating_mul(1024) && in_loops * 100 < count * IN_LOOP_PERCENT {
            let evidence = evidence::describe_repeated_results(count, repeated, until);
            self.add("repeated-results", &steps, (last, count), repeated, evidence);
        }
    }

    fn finish_unused(&mut self, results: UnusedResults) {
        let UnusedResults { found, last, count, bytes, requests, .. } = results;
        if count > 0 {
            let first = found.first().copied();
            let evidence = evidence::describe_unused_results(self.facts, first, count, bytes, requests);
            self.add("unused-result", &found, (last, count), bytes, evidence);
        }
    }

    fn add(
        &mut self,
        rule: &'static str,
        steps: &[usize],
        (last, count): (usize, u64),
        bytes: u64,
        evidence: String,
    ) {
        let incident = Incident {
            kind: AnomalyKind::ContextGrowth,
            rule,
            worker: self.calls.worker,
            steps,
            last,
            count,
            measured: (bytes / 1024) as f64,
            limit: self.limit as f64,
            evidence,
        };
        self.done.push(incident.into_anomaly(self.facts));
    }
}

/// The positions of calls that are part of loops, for a reader that goes forward.
struct LoopSpans {
    spans: VecDeque<(u64, u64)>,
}

impl LoopSpans {
    fn of(findings: &[CallFinding]) -> Self {
        let kinds = [AnomalyKind::Loop, AnomalyKind::NoProgress, AnomalyKind::AlternatingEdits];
        let loops = findings.iter().filter(|finding| kinds.contains(&finding.kind));
        let mut spans: Vec<_> = loops.map(|finding| finding.span).collect();
        spans.sort_unstable();
        Self { spans: spans.into() }
    }

    fn contains(&mut self, position: u64) -> bool {
        while self.spans.front().is_some_and(|(_, last)| *last < position) {
            self.spans.pop_front();
        }
        self.spans.front().is_some_and(|(first, _)| *first <= position)
    }
}
