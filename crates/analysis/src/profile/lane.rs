//! One agent while its steps are read: the calls that it has begun, and since when it is quiet.

use std::collections::HashMap;

use crate::facts::NameIndex;

/// An interval in microseconds since the epoch.
pub(super) type Interval = (i64, i64);

/// A call that has begun and not ended.
#[derive(Clone, Debug)]
pub(super) struct RunningCall {
    /// The step that began it, as an index.
    pub step: u32,
    /// When it began.
    pub start: i64,
    /// The agent's id of it.
    pub id: Option<NameIndex>,
    /// The tool or model.
    pub name: Option<NameIndex>,
    /// When it was stopped at breakpoints, in order.
    pub stops: Vec<Interval>,
    /// When a permission was asked for.
    pub permission_asked: Option<i64>,
    /// The model turn.
    pub iteration: u64,
}

/// An agent that waits at a breakpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingStop {
    /// The step that says so, as an index.
    pub step: u32,
    /// Since when.
    pub since: i64,
    /// The tool that was about to run.
    pub tool: Option<NameIndex>,
}

/// What an agent is doing.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    /// Calls of tools that have begun. The order is that of their starts.
    pub calls: RunningCalls,
    /// Calls that should have ended, because the agent went on.
    pub overtaken: OvertakenCalls,
    /// Model calls that have begun.
    pub model_calls: RunningCalls,
    /// The stops that were not answered yet.
    pub stops: Vec<PendingStop>,
    /// Stops that belong to no call that is running: at a prompt, or after a call.
    pub other_stops: Vec<Interval>,
    /// Since when the agent works without a running call; `None` if it does not work, or a call is running.
    pub quiet_since: Option<i64>,
    /// Since when the agent waits for a prompt.
    pub waiting_since: Option<i64>,
    /// Times in which the agent worked and no call ran, with the step at their end.
    pub gaps: Vec<(Interval, u32)>,
    /// When its model answered, if that is recorded.
    pub answers: Vec<Interval>,
    /// The time of its last step.
    pub last: Option<i64>,
}

/// Calls whose end is not recorded although the agent went on, with the time at which it did. An end may still come: of calls in the
/// background, and of those that were wrongly thought to be of an earlier turn.
#[derive(Clone, Debug, Default)]
pub(super) struct OvertakenCalls {
    calls: Vec<Option<(RunningCall, i64)>>,
    by_id: HashMap<NameIndex, usize>,
}

impl OvertakenCalls {
    /// Adds calls that should have ended by now.
    pub fn add(&mut self, calls: Vec<RunningCall>, at: i64) {
        for call in calls {
            if let Some(id) = call.id {
                self.by_id.insert(id, self.calls.len());
            }
            self.calls.push(Some((call, at)));
        }
    }

    /// Removes the call whose end is recorded after all.
    pub fn take(&mut self, id: Option<NameIndex>) -> Option<RunningCall> {
        let index = self.by_id.remove(&id?)?;
        self.calls[index].take().map(|(call, _)| call)
    }

    /// Removes all calls, each with the time at which its agent went on.
    pub fn take_all(&mut self) -> Vec<(RunningCall, i64)> {
        self.by_id.clear();
        std::mem::take(&mut self.calls).into_iter().flatten().collect()
    }
}

/// Calls that are running. They are found by their id, or by their tool, without looking at all of them.
#[derive(Clone, Debug, Default)]
pub(super) struct RunningCalls {
    /// Every call by a number that grows with each start.
    calls: std::collections::BTreeMap<u64, RunningCall>,
    by_id: HashMap<NameIndex, Vec<u64>>,
    by_name: HashMap<Option<NameIndex>, std::collections::BTreeSet<u64>>,
    next: u64,
}

impl RunningCalls {
    /// Whether none is running.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Adds a call that begins.
    pub fn begin(&mut self, call: RunningCall) {
        let number = self.next;
        self.next += 1;
        if let Some(id) = call.id {
            self.by_id.entry(id).or_default().push(number);
        }
        self.by_name.entry(call.name).or_default().insert(number);
        self.calls.insert(number, call);
    }

    /// Removes the call that ends: the one with this id, or, of calls without an id, the oldest of this tool.
    pub fn end(&mut self, id: Option<NameIndex>, name: Option<NameIndex>) -> Option<RunningCall> {
        let number = self.find(id, name)?;
        self.remove(number)
    }

    /// The call that something other than its end is about: the one with this id, or else the newest of this tool.
    pub fn about(&mut self, id: Option<NameIndex>, name: Option<NameIndex>) -> Option<&mut RunningCall> {
        let by_id = id.and_then(|id| self.by_id.get(&id)?.first().copied());
        let number = by_id.or_else(|| self.by_name.get(&name)?.last().copied())?;
        self.calls.get_mut(&number)
    }

    /// Removes all calls, oldest first.
    pub fn take_all(&mut self) -> Vec<RunningCall> {
        self.by_id.clear();
        self.by_name.clear();
        std::mem::take(&mut self.calls).into_values().collect()
    }

    /// Removes the calls of earlier model turns, oldest first.
    pub fn take_before_turn(&mut self, iteration: u64) -> Vec<RunningCall> {
        // Turns grow, so the calls of earlier turns come first.
        let mut earlier = Vec::new();
        while let Some((&number, call)) = self.calls.first_key_value() {
            if call.iteration >= iteration {
                break;
            }
            earlier.extend(self.remove(number));
        }
        earlier
    }

    fn find(&self, id: Option<NameIndex>, name: Option<NameIndex>) -> Option<u64> {
        match id {
            Some(id) => self.by_id.get(&id)?.first().copied(),
            None => {
                let of_name = self.by_name.get(&name)?;
                of_name
                    .iter()
                    .copied()
                    .find(|number| self.calls.get(number).is_some_and(|call| call.id.is_none()))
            }
        }
    }

    fn remove(&mut self, number: u64) -> Option<RunningCall> {
        let call = self.calls.remove(&number)?;
        if let Some(id) = call.id
            && let Some(numbers) = self.by_id.get_mut(&id)
        {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_id.remove(&id);
            }
        }
        if let Some(numbers) = self.by_name.get_mut(&call.name) {
            numbers.remove(&number);
        }
        Some(call)
    }
}

/// Returns the union of intervals, sorted.
pub(super) fn merge_intervals(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.retain(|(start, end)| start < end);
    intervals.sort_unstable();
    let mut merged: Vec<Interval> = Vec::new();
    for (start, end) in intervals {
        match merged.last_mut().filter(|last| start <= last.1) {
            Some(last) => last.1 = last.1.max(end),
            None => merged.push((start, end)),
        }
    }
    merged
}

/// Returns what is left of an interval without others, which are sorted and do not overlap.
pub(super) fn without_intervals(interval: Interval, others: &[Interval]) -> Vec<Interval> {
    let mut left = Vec::new();
    let mut from = interval.0;
    let first = others.partition_point(|(_, end)| *end <= interval.0);
    for &(start, end) in others[first..].iter().take_while(|(start, _)| *start < interval.1) {
        if start > from {
            left.push((from, start));
        }
        from = from.max(end);
    }
    if from < interval.1 {
        left.push((from, interval.1));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_merged_and_taken_away() {
        let merged = merge_intervals(vec![(5, 9), (1, 3), (2, 4), (7, 7), (8, 12)]);
        assert_eq!(merged, [(1, 4), (5, 12)]);
        assert_eq!(without_intervals((0, 20), &merged), [(0, 1), (4, 5), (12, 20)]);
        assert_eq!(without_intervals((2, 6), &merged), [(4, 5)]);
        assert_eq!(without_intervals((6, 8), &merged), []);
    }

    #[test]
    fn calls_are_found_by_id_and_by_tool() {
        let call = |step, id, name| RunningCall {
            step,
            start: 0,
            id,
            name,
            stops: Vec::new(),
            permission_asked: None,
            iteration: u64::from(step),
        };
        let mut calls = RunningCalls::default();
        calls.begin(call(1, Some(7), Some(1)));
        calls.begin(call(2, None, Some(1)));
        calls.begin(call(3, Some(8), Some(1)));
        assert_eq!(calls.about(None, Some(1)).map(|call| call.step), Some(3));
        assert_eq!(calls.end(None, Some(1)).map(|call| call.step), Some(2), "one with an id ends by its id");
        assert_eq!(calls.end(Some(9), Some(1)).map(|call| call.step), None);
        assert_eq!(calls.take_before_turn(3).len(), 1);
        assert_eq!(calls.end(Some(8), None).map(|call| call.step), Some(3));
        assert!(calls.is_empty());
    }
}
