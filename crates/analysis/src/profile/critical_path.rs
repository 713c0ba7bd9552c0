//! The critical path: what the end of a session depended on.
//!
//! The recording does not say which call waited for which other one, so the path is inferred: it is followed backwards from the last
//! thing that ended. What began at a moment waited for what had ended last before that moment. Of several calls that ran in
//! parallel, only the one that ended last is on the path: making another one faster would not have helped.
//!
//! A call in which sub-agents work is on the path only for the parts in which none of its sub-agents did anything.

use super::attribution::TimePart;
use super::{ProfileSpan, TimeCategory};

/// A part of the critical path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathSegment {
    /// The span, as an index into the spans of the profile.
    pub span: usize,
    /// When the path enters it, in microseconds since the epoch.
    pub start: i64,
    /// When the path leaves it.
    pub end: i64,
}

/// Follows the critical path. Its segments do not overlap, and are in time order. `parts` is to whom each moment belongs.
pub fn critical_path(spans: &[ProfileSpan], parts: &[TimePart]) -> Vec<PathSegment> {
    let own_parts = parts.iter().filter_map(|part| {
        let span = part.span.filter(|index| spans[*index].delegates)?;
        Some(PathSegment { span, start: part.start, end: part.end })
    });
    let mut segments: Vec<PathSegment> = spans
        .iter()
        .enumerate()
        .filter(|(_, span)| !span.delegates && span.category != TimeCategory::Idle && span.end > span.start)
        .map(|(index, span)| PathSegment { span: index, start: span.start, end: span.end })
        .chain(own_parts)
        .collect();
    segments.sort_unstable_by_key(|segment| (segment.end, segment.start));
    let mut path: Vec<PathSegment> = Vec::new();
    let mut reached = i64::MAX;
    for segment in segments.into_iter().rev() {
        if segment.end <= reached {
            reached = segment.start;
            path.push(segment);
        }
    }
    path.reverse();
    path
}
