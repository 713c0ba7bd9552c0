//! To which category each moment of a session belongs.
//!
//! If several things happen at once, work counts before waiting, and the thing that began last counts: what a sub-agent does is inside
//! the call that started it. A call in which sub-agents work counts only while none of them does anything, not even wait.

use std::collections::{BTreeMap, BTreeSet};

use super::{ProfileSpan, SpanBasis, TimeCategory};

/// The time that belongs to a category.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CategoryTime {
    /// The category.
    pub category: TimeCategory,
    /// How much time, in microseconds.
    pub micros: u64,
    /// How much of it is inferred by a rule, in microseconds.
    pub inferred: u64,
}

/// A part of a session that belongs to one span, or to none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimePart {
    /// The span, as an index; `None` if nothing is known to have happened.
    pub span: Option<usize>,
    /// When it begins, in microseconds since the epoch.
    pub start: i64,
    /// When it ends.
    pub end: i64,
}

/// How a span takes precedence over others of the same moment: the larger first.
fn precedence(span: &ProfileSpan) -> u8 {
    match span.category {
        TimeCategory::Idle => 0,
        _ if span.delegates => 1,
        TimeCategory::Breakpoint | TimeCategory::User => 2,
        TimeCategory::Model | TimeCategory::Tool | TimeCategory::Hook => 3,
    }
}

/// Divides the time from `start` to `end` among the spans: the parts follow each other without a gap.
pub fn divide_time(spans: &[ProfileSpan], start: i64, end: i64) -> Vec<TimePart> {
    let mut edges: Vec<(i64, bool, usize)> = Vec::with_capacity(spans.len() * 2);
    for (index, span) in spans.iter().enumerate().filter(|(_, span)| span.end > span.start) {
        edges.push((span.start, true, index));
        edges.push((span.end, false, index));
    }
    edges.sort_unstable();
    let mut active: BTreeSet<(u8, i64, usize)> = BTreeSet::new();
    let mut parts: Vec<TimePart> = Vec::new();
    let mut extend = |active: &BTreeSet<(u8, i64, usize)>, start: i64, end: i64| {
        let span = active.last().map(|(_, _, index)| *index);
        match parts.last_mut().filter(|last| last.span == span) {
            Some(last) => last.end = end,
            None => parts.push(TimePart { span, start, end }),
        }
    };
    let mut reached = start;
    for (at, begins, index) in edges {
        let at = at.clamp(start, end);
        if at > reached {
            extend(&active, reached, at);
            reached = at;
        }
        let span = &spans[index];
        let key = (precedence(span), span.start, index);
        if begins {
            active.insert(key);
        } else {
            active.remove(&key);
        }
    }
    if end > reached {
        extend(&active, reached, end);
    }
    parts
}

/// Adds up the time of each category. The sum is the whole time.
pub fn add_up_categories(spans: &[ProfileSpan], parts: &[TimePart]) -> Vec<CategoryTime> {
    let mut times = TimeCategory::ALL.map(|category| CategoryTime { category, micros: 0, inferred: 0 });
    for part in parts {
        let span = part.span.map(|index| &spans[index]);
        let category = span.map_or(TimeCategory::Idle, |span| span.category);
        let micros = part.end.abs_diff(part.start);
        // Every category is in the list.
        if let Some(time) = times.iter_mut().find(|time| time.category == category) {
            time.micros = time.micros.saturating_add(micros);
            if span.is_none_or(|span| span.basis != SpanBasis::Recorded) {
                time.inferred = time.inferred.saturating_add(micros);
            }
        }
    }
    times.to_vec()
}

/// Adds up the time that is known by each rule, the rule of the longest time first. What was recorded is not among it.
pub fn add_up_rules(spans: &[ProfileSpan], parts: &[TimePart]) -> Vec<(SpanBasis, u64)> {
    let mut rules: BTreeMap<SpanBasis, u64> = BTreeMap::new();
    for part in parts {
        let basis = part.span.map(|index| spans[index].basis).filter(|basis| basis.rule().is_some());
        if let Some(basis) = basis {
            let time = rules.entry(basis).or_default();
            *time = time.saturating_add(part.end.abs_diff(part.start));
        }
    }
    let mut rules: Vec<(SpanBasis, u64)> = rules.into_iter().collect();
    rules.sort_by_key(|(basis, micros)| (std::cmp::Reverse(*micros), *basis));
    rules
}
