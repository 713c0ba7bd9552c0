//! Durations per tool and per model.
//!
//! A duration is the time that a call ran, without waiting at a breakpoint, for a permission or for hooks. Percentiles are exact: the
//! nearest rank, which is the smallest duration that at least so many percent of the calls did not exceed.

use std::collections::HashMap;

use super::critical_path::PathSegment;
use super::spans::read_spans;
use super::{ProfileSpan, TimeCategory};
use crate::facts::{NameIndex, SessionFacts, UsageSource};

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallResult {
    /// It ended, and did not fail.
    Succeeded,
    /// It failed.
    Failed,
    /// It was refused, and did not run.
    Refused,
    /// Its end is not recorded.
    Unfinished,
}

/// One call.
#[derive(Clone, PartialEq, Debug)]
pub struct MeasuredCall {
    /// Whether it is a call of a tool or of a model.
    pub category: TimeCategory,
    /// The tool or model.
    pub name: Option<NameIndex>,
    /// The step that it is known from, as an index.
    pub step: u32,
    /// How it ended.
    pub result: CallResult,
    /// How long it ran, in microseconds; `None` if that is not known.
    pub duration: Option<u64>,
    /// How long it waited: at a breakpoint, for a permission, or for the user's answer. In microseconds.
    pub waited: u64,
}

/// Returns the calls of a session, each with how long it ran.
pub fn measure_calls(facts: &SessionFacts) -> Vec<MeasuredCall> {
    read_spans(facts).outcomes
}

/// Durations in numbers, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DurationSummary {
    /// Number of durations.
    pub count: u64,
    /// Their sum.
    pub total: u64,
    /// Their mean.
    pub mean: u64,
    /// The median.
    pub p50: u64,
    /// What nine of ten calls did not exceed.
    pub p90: u64,
    /// What 95 % of the calls did not exceed.
    pub p95: u64,
    /// What 99 % of the calls did not exceed.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

impl DurationSummary {
    /// Summarises durations; `None` if there are none.
    pub fn of(durations: &mut [u64]) -> Option<Self> {
        durations.sort_unstable();
        let max = *durations.last()?;
        let count = durations.len() as u64;
        let sum: u128 = durations.iter().map(|duration| u128::from(*duration)).sum();
        let percentile = |percent: u64| {
            let rank = (count * percent).div_ceil(100).clamp(1, count);
            durations[usize::try_from(rank - 1).unwrap_or_default()]
        };
        Some(Self {
            count,
            total: u64::try_from(sum).unwrap_or(u64::MAX),
            mean: u64::try_from(sum / u128::from(count)).unwrap_or(u64::MAX),
            p50: percentile(50),
            p90: percentile(90),
            p95: percentile(95),
            p99: percentile(99),
            max,
        })
    }
}

/// The calls of one tool or model.
#[derive(Clone, PartialEq, Debug)]
pub struct CallStatistics {
    /// The tool or model; `None` if it is not recorded.
    pub name: Option<NameIndex>,
    /// Number of calls.
    pub calls: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were refused and did not run.
    pub refused: u64,
    /// How many have no recorded end.
    pub unfinished: u64,
    /// How many ran for a time that is not known.
    pub unknown: u64,
    /// How long they ran; `None` if that is known of none.
    pub durations: Option<DurationSummary>,
    /// How long they waited together, in microseconds.
    pub waited: u64,
    /// How much of the critical path they are, in microseconds.
    pub critical: u64,
    /// The step of the longest call, as an index.
    pub longest: Option<u32>,
}

/// Summarises the calls by tool and by model, those that took the most time together first.
pub fn summarize_calls(
    facts: &SessionFacts,
    spans: &[ProfileSpan],
    outcomes: &[MeasuredCall],
    critical_path: &[PathSegment],
) -> (Vec<CallStatistics>, Vec<CallStatistics>) {
    let mut critical: HashMap<(TimeCategory, Option<NameIndex>), u64> = HashMap::new();
    for segment in critical_path {
        let span = &spans[segment.span];
        let time = critical.entry((span.category, span.name)).or_default();
        *time = time.saturating_add(segment.end.abs_diff(segment.start));
    }
    // Answers that only the conversation has were made, however long they took.
    let unmeasured = facts
        .model_calls
        .iter()
        .filter(|call| call.source == UsageSource::Conversation && call.duration.is_none())
        .map(|call| MeasuredCall {
            category: TimeCategory::Model,
            name: call.model,
            step: call.step,
            result: CallResult::Succeeded,
            duration: None,
            waited: 0,
        });
    let outcomes: Vec<MeasuredCall> = outcomes.iter().cloned().chain(unmeasured).collect();
    let group = |category: TimeCategory| {
        let mut groups: HashMap<Option<NameIndex>, Vec<&MeasuredCall>> = HashMap::new();
        for outcome in outcomes.iter().filter(|outcome| outcome.category == category) {
            groups.entry(outcome.name).or_default().push(outcome);
        }
        let mut statistics: Vec<CallStatistics> = groups
            .into_iter()
            .map(|(name, calls)| {
                let critical = critical.get(&(category, name)).copied().unwrap_or_default();
                summarize_group(name, &calls, critical)
            })
            .collect();
        let total = |one: &CallStatistics| one.durations.map_or(0, |durations| durations.total);
        statistics.sort_by(|one, other| {
            (total(other), other.calls)
                .cmp(&(total(one), one.calls))
                .then_with(|| facts.name(one.name).cmp(facts.name(other.name)))
        });
        statistics
    };
    (group(TimeCategory::Tool), group(TimeCategory::Model))
}

fn summarize_group(name: Option<NameIndex>, calls: &[&MeasuredCall], critical: u64) -> CallStatistics {
    let count = |result: CallResult| calls.iter().filter(|call| call.result == result).count() as u64;
    let mut durations: Vec<u64> = calls.iter().filter_map(|call| call.duration).collect();
    let ended = count(CallResult::Succeeded) + count(CallResult::Failed);
    let longest = calls.iter().filter(|call| call.duration.is_some()).max_by_key(|call| call.duration);
    CallStatistics {
        name,
        calls: calls.len() as u64,
        failed: count(CallResult::Failed),
        refused: count(CallResult::Refused),
        unfinished: count(CallResult::Unfinished),
        unknown: ended.saturating_sub(durations.len() as u64),
        durations: DurationSummary::of(&mut durations),
        waited: calls.iter().fold(0, |sum, call| sum.saturating_add(call.waited)),
        critical,
        longest: longest.map(|call| call.step),
    }
}
