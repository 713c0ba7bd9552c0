//! Spans in rows, so that those of one row follow each other: what viewers of profiles call threads.
//!
//! The first row of an agent has what happened one after the other; calls that ran in parallel get further rows.

use std::collections::BTreeMap;

use super::ProfileSpan;

/// A row of spans that do not overlap.
#[derive(Clone, PartialEq, Debug)]
pub struct SpanRow {
    /// The agent, as an index into the lanes of the profile.
    pub lane: usize,
    /// The number of the row of this agent, counted from 0.
    pub number: usize,
    /// The spans, by start, as indexes.
    pub spans: Vec<usize>,
}

/// Puts spans into rows; `spans` are sorted by their start. The rows of an agent follow each other.
pub fn arrange_in_rows(spans: &[ProfileSpan]) -> Vec<SpanRow> {
    let mut rows: BTreeMap<(usize, usize), SpanRow> = BTreeMap::new();
    // For each agent: the rows by the moment at which they are free again, and the free ones by number.
    let mut lanes: BTreeMap<usize, LaneRows> = BTreeMap::new();
    for (index, span) in spans.iter().enumerate() {
        let number = lanes.entry(span.lane).or_default().take_row(span.start, span.end);
        let row = rows.entry((span.lane, number)).or_insert_with(|| SpanRow {
            lane: span.lane,
            number,
            spans: Vec::new(),
        });
        row.spans.push(index);
    }
    rows.into_values().collect()
}

#[derive(Default)]
struct LaneRows {
    free: std::collections::BTreeSet<usize>,
    busy: std::collections::BTreeSet<(i64, usize)>,
    count: usize,
}

impl LaneRows {
    /// The first row that is free at `start`; it is taken until `end`.
    fn take_row(&mut self, start: i64, end: i64) -> usize {
        while let Some(&(until, row)) = self.busy.first()
            && until <= start
        {
            self.busy.pop_first();
            self.free.insert(row);
        }
        let row = self.free.pop_first().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        });
        self.busy.insert((end, row));
        row
    }
}
