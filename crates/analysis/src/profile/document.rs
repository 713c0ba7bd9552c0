//! A profile as a document, with as many of its spans as a reader can use.

use std::collections::{HashMap, HashSet};

use stepback_api::profile::{
    AgentLaneDocument, CallStatisticsDocument, CategoryTimeDocument, ContextPartDocument,
    ContextSampleDocument, CriticalPathDocument, DurationSummaryDocument, PathSegmentDocument,
    ProfileDocument, ProfileSpanDocument, TimeRuleDocument,
};
use stepback_model::quantity::count;
use stepback_model::time::Timestamp;

use super::rows::arrange_in_rows;
use super::statistics::{CallStatistics, DurationSummary};
use super::{ContextSample, PathSegment, Profile, ProfileCaveats};
use crate::facts::{NameIndex, SessionFacts};

/// The most segments of the critical path in a document.
const MAX_SEGMENTS: usize = 100;
/// The most samples of the context in a document.
const MAX_SAMPLES: usize = 500;

/// Which spans a document has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanWindow {
    /// Only those that end after this time, from the start of the session, in microseconds.
    pub from: u64,
    /// Only those that begin before this time.
    pub until: u64,
    /// At most so many, the longest.
    pub limit: usize,
}

impl SpanWindow {
    /// The number of spans if no other is asked for.
    pub const DEFAULT_LIMIT: usize = 2000;
    /// The largest number of spans.
    pub const MAX_LIMIT: usize = 20_000;
}

impl Default for SpanWindow {
    fn default() -> Self {
        Self { from: 0, until: u64::MAX, limit: Self::DEFAULT_LIMIT }
    }
}

/// Makes the document of a profile.
pub fn profile_document(facts: &SessionFacts, profile: &Profile, window: SpanWindow) -> ProfileDocument {
    let writer = DocumentWriter { facts, profile };
    let (spans, spans_total) = writer.spans(window);
    let context = sample_context(&profile.context);
    ProfileDocument {
        session: facts.session.map(|session| session.to_string()).unwrap_or_default(),
        agent: facts.agent.clone(),
        started_at: Timestamp::from_micros(profile.start),
        ended_at: Timestamp::from_micros(profile.end),
        wall_us: profile.wall(),
        categories: (profile.categories.iter())
            .map(|time| CategoryTimeDocument {
                category: time.category.as_str().to_owned(),
                us: time.micros,
                inferred_us: time.inferred,
            })
            .collect(),
        rules: (profile.rules.iter())
            .filter_map(|(basis, us)| Some(TimeRuleDocument { rule: basis.rule()?.to_owned(), us: *us }))
            .collect(),
        tools: profile.tools.iter().map(|one| writer.statistics(one)).collect(),
        models: profile.models.iter().map(|one| writer.statistics(one)).collect(),
        critical_path: writer.critical_path(),
        parallel_saved_us: profile.saved_by_parallel_calls(),
        lanes: (profile.lanes.iter())
            .map(|lane| AgentLaneDocument {
                worker: writer.name(lane.worker),
                started_by: lane.started_by.map(|step| writer.number(step)),
            })
            .collect(),
        spans_left_out: spans_total - spans.len() as u64,
        spans,
        spans_total,
        context_left_out: (profile.context.len() - context.len()) as u64,
        context: context.into_iter().map(|sample| writer.context_sample(sample)).collect(),
        caveats: describe_caveats(&profile.caveats),
    }
}

struct DocumentWriter<'a> {
    facts: &'a SessionFacts,
    profile: &'a Profile,
}

impl DocumentWriter<'_> {
    fn name(&self, name: Option<NameIndex>) -> Option<String> {
        Some(self.facts.name(name)).filter(|name| !name.is_empty()).map(str::to_owned)
    }

    fn number(&self, step: u32) -> u64 {
        self.facts.steps.get(step as usize).map_or(0, |step| step.number)
    }

    fn offset(&self, at: i64) -> u64 {
        at.max(self.profile.start).abs_diff(self.profile.start)
    }

    /// The spans of a window, by start, and how many there are in it.
    fn spans(&self, window: SpanWindow) -> (Vec<ProfileSpanDocument>, u64) {
        let profile = self.profile;
        let mut chosen: Vec<usize> = (0..profile.spans.len())
            .filter(|index| {
                let span = &profile.spans[*index];
                self.offset(span.end) >= window.from && self.offset(span.start) <= window.until
            })
            .collect();
        let total = chosen.len() as u64;
        if chosen.len() > window.limit {
            chosen.sort_by_key(|index| std::cmp::Reverse(profile.spans[*index].duration()));
            chosen.truncate(window.limit);
            chosen.sort_unstable();
        }
        let mut rows: HashMap<usize, usize> = HashMap::with_capacity(profile.spans.len());
        for row in arrange_in_rows(&profile.spans) {
            rows.extend(row.spans.iter().map(|span| (*span, row.number)));
        }
        let critical: HashSet<usize> = profile.critical_path.iter().map(|segment| segment.span).collect();
        let document = |index: usize| {
            let span = &profile.spans[index];
            ProfileSpanDocument {
                category: span.category.as_str().to_owned(),
                name: self.name(span.name),
                subject: self.name(span.subject),
                lane: span.lane as u64,
                row: rows.get(&index).copied().unwrap_or_default() as u64,
                start_us: self.offset(span.start),
                us: span.duration(),
                step: self.number(span.step),
                first_step: span.first_step.map(|step| self.number(step)),
                failed: span.failed,
                rule: span.basis.rule().map(str::to_owned),
                critical: critical.contains(&index),
            }
        };
        (chosen.into_iter().map(document).collect(), total)
    }

    fn statistics(&self, one: &CallStatistics) -> CallStatisticsDocument {
        CallStatisticsDocument {
            name: self.name(one.name),
            calls: one.calls,
            failed: one.failed,
            refused: one.refused,
            unfinished: one.unfinished,
            unknown: one.unknown,
            durations: one.durations.map(duration_document),
            waited_us: one.waited,
            critical_us: one.critical,
            longest: one.longest.map(|step| self.number(step)),
        }
    }

    fn critical_path(&self) -> CriticalPathDocument {
        let path = &self.profile.critical_path;
        let length = |segment: &PathSegment| segment.end.abs_diff(segment.start);
        let mut chosen: Vec<&PathSegment> = path.iter().collect();
        if chosen.len() > MAX_SEGMENTS {
            chosen.sort_by_key(|segment| std::cmp::Reverse(length(segment)));
            chosen.truncate(MAX_SEGMENTS);
            chosen.sort_by_key(|segment| segment.start);
        }
        let document = |segment: &PathSegment| {
            let span = &self.profile.spans[segment.span];
            PathSegmentDocument {
                category: span.category.as_str().to_owned(),
                name: self.name(span.name),
                subject: self.name(span.subject),
                start_us: self.offset(segment.start),
                us: length(segment),
                step: self.number(span.step),
            }
        };
        CriticalPathDocument {
            us: path.iter().fold(0, |sum, segment| sum.saturating_add(length(segment))),
            count: path.len() as u64,
            segments: chosen.into_iter().map(document).collect(),
        }
    }

    fn context_sample(&self, sample: &ContextSample) -> ContextSampleDocument {
        let part = |kind: &str, bytes: u64| ContextPartDocument { kind: kind.to_owned(), tool: None, bytes };
        let result = |(tool, bytes): &(NameIndex, u64)| ContextPartDocument {
            kind: "result".to_owned(),
            tool: self.name(Some(*tool)),
            bytes: *bytes,
        };
        let parts = match &sample.parts {
            Some(parts) => [
                part("system", parts.system),
                part("tools", parts.tools),
                part("user", parts.user),
                part("assistant", parts.assistant),
            ]
            .into_iter()
            .chain(parts.results.iter().map(result))
            .chain([part("other", parts.other)])
            .filter(|part| part.bytes > 0)
            .collect(),
            None => sample.results.iter().map(result).collect(),
        };
        let basis = if sample.parts.is_some() { "recorded" } else { "inferred" };
        ContextSampleDocument {
            at_us: self.offset(sample.at),
            lane: sample.lane as u64,
            step: self.number(sample.step),
            model: self.name(sample.model),
            tokens: sample.tokens,
            cached: sample.cached,
            basis: basis.to_owned(),
            parts,
            compacted: sample.compacted,
        }
    }
}

fn duration_document(summary: DurationSummary) -> DurationSummaryDocument {
    DurationSummaryDocument {
        count: summary.count,
        total_us: summary.total,
        mean_us: summary.mean,
        p50_us: summary.p50,
        p90_us: summary.p90,
        p95_us: summary.p95,
        p99_us: summary.p99,
        max_us: summary.max,
    }
}

/// At most so many samples: of each stretch of the session the largest request, and the first one after each compaction.
fn sample_context(samples: &[ContextSample]) -> Vec<&ContextSample> {
    if samples.len() <= MAX_SAMPLES {
        return samples.iter().collect();
    }
    let size = samples.len().div_ceil(MAX_SAMPLES);
    samples
        .chunks(size)
        .filter_map(|stretch| {
            let compacted = stretch.iter().find(|sample| sample.compacted);
            compacted.or_else(|| stretch.iter().max_by_key(|sample| sample.tokens))
        })
        .collect()
}

fn describe_caveats(caveats: &ProfileCaveats) -> Vec<String> {
    let notes = [
        (caveats.clock_went_back, "step", "older than the step before it: the clock of the agent went back"),
        (caveats.ends_before_start, "call", "ended before the time of its start; its duration is unknown"),
        (caveats.unfinished_calls, "call", "without a recorded end; it is in no percentile"),
        (caveats.starts_missing, "call", "without a recorded start or duration"),
        (caveats.absurd_durations, "duration", "of more than a day without a recorded start; left out"),
        (
            caveats.permissions_unmeasured,
            "call",
            "waited for a permission, for a time that its agent does not report: it counts as the tool's",
        ),
    ];
    let described = notes.iter().filter(|(number, ..)| *number > 0);
    described.map(|(number, unit, note)| format!("{}: {note}", count(*number, unit))).collect()
}
