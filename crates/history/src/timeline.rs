//! A recorded session as a list to navigate: forward, back, to the next error, to a number.
//!
//! Nothing here reads a store or a clock. The caller that shows a session (a terminal, a browser, an API response) passes its
//! steps and asks the [`TimelineCursor`] where to go, so all of them navigate in the same way.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;
use stepback_model::record::StepRow;
use stepback_model::record::{Step, StepKind};
use stepback_model::time::Timestamp;

/// Steps in order, and a position among them. If there are any steps, the position is always that of a step.
#[derive(Clone, Debug, Default)]
pub struct TimelineCursor {
    steps: Vec<StepRow>,
    index: usize,
}

/// A summary of a list of steps.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Summary {
    /// How many steps there are.
    pub steps: u64,
    /// The numbers of the first and the last step; `None` if there are no steps.
    pub numbers: Option<(u64, u64)>,
    /// The times of the first and the last step; `None` if there are no steps.
    pub times: Option<(Timestamp, Timestamp)>,
    /// The time between them, in microseconds.
    pub duration_us: u64,
    /// The number of the highest model turn.
    pub iterations: u64,
    /// How many steps failed.
    pub errors: u64,
    /// How many steps there are of each kind.
    pub kinds: BTreeMap<StepKind, u64>,
    /// How often each tool was called.
    pub tools: BTreeMap<String, u64>,
}

impl TimelineCursor {
    /// Creates a cursor at the first of these steps, which may come in any order.
    pub fn new(mut steps: Vec<StepRow>) -> Self {
        steps.sort_by_key(|stored| stored.step.number);
        Self { steps, index: 0 }
    }

    /// All steps, oldest first.
    pub fn steps(&self) -> &[StepRow] {
        &self.steps
    }

    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many steps come before the present one.
    pub fn position(&self) -> usize {
        self.index
    }

    /// The present step; `None` if there are no steps.
    pub fn current(&self) -> Option<&StepRow> {
        self.steps.get(self.index)
    }

    /// Whether the present step is the last one, or there are no steps.
    pub fn is_at_end(&self) -> bool {
        self.index + 1 >= self.steps.len()
    }

    /// Goes to the next step. At the end it stays and returns `None`.
    pub fn forward(&mut self) -> Option<&StepRow> {
        self.move_to(self.index.checked_add(1))
    }

    /// Goes to the previous step. At the beginning it stays and returns `None`.
    pub fn backward(&mut self) -> Option<&StepRow> {
        self.move_to(self.index.checked_sub(1))
    }

    /// Goes to the first step.
    pub fn seek_first(&mut self) -> Option<&StepRow> {
        self.move_to(Some(0))
    }

    /// Goes to the last step.
    pub fn last(&mut self) -> Option<&StepRow> {
        self.move_to(self.steps.len().checked_sub(1))
    }

    /// Goes to the step with this number, or to the first one after it. Beyond the last it stays and returns `None`.
    pub fn jump(&mut self, number: u64) -> Option<&StepRow> {
        self.move_to(Some(self.steps.partition_point(|stored| stored.step.number < number)))
    }

    /// Goes to the next step that matches. If there is none it stays and returns `None`.
    pub fn next_where(&mut self, matches: impl Fn(&Step) -> bool) -> Option<&StepRow> {
        let later = self.steps.iter().enumerate().skip(self.index + 1);
        let position = later.into_iter().find(|(_, stored)| matches(&stored.step));
        self.move_to(position.map(|(index, _)| index))
    }

    /// Goes back to the nearest step that matches. If there is none it stays and returns `None`.
    pub fn previous_where(&mut self, matches: impl Fn(&Step) -> bool) -> Option<&StepRow> {
        let earlier = self.steps.iter().take(self.index);
        let index = earlier.into_iter().rposition(|stored| matches(&stored.step));
        self.move_to(index)
    }

    /// Goes to the next step of a kind.
    pub fn next_of_kind(&mut self, kind: StepKind) -> Option<&StepRow> {
        self.next_where(|step| step.kind == kind)
    }

    /// Goes back to the nearest step of a kind.
    pub fn previous_of_kind(&mut self, kind: StepKind) -> Option<&StepRow> {
        self.previous_where(|step| step.kind == kind)
    }

    /// Goes to the next step that failed.
    pub fn next_error(&mut self) -> Option<&StepRow> {
        self.next_where(Step::is_error)
    }

    /// Goes back to the nearest step that failed.
    pub fn previous_error(&mut self) -> Option<&StepRow> {
        self.previous_where(Step::is_error)
    }

    fn move_to(&mut self, target: Option<usize>) -> Option<&StepRow> {
        let target = target.filter(|target| *target < self.steps.len())?;
        self.index = target;
        self.steps.get(target)
    }

    /// Returns the steps whose numbers are in a range.
    pub fn range(&self, numbers: RangeInclusive<u64>) -> &[StepRow] {
        let number = |stored: &StepRow| stored.step.number;
        let first = self.steps.partition_point(|stored| number(stored) < *numbers.start());
        let end = self.steps.partition_point(|stored| number(stored) <= *numbers.end());
        self.steps.get(first..end).unwrap_or_default()
    }

    /// Returns the steps of a kind.
    pub fn steps_of_kind(&self, kind: StepKind) -> impl DoubleEndedIterator<Item = &StepRow> {
        self.steps.iter().filter(move |stored| stored.step.kind == kind)
    }

    /// Returns the steps that failed.
    pub fn errors(&self) -> impl DoubleEndedIterator<Item = &StepRow> {
        self.steps.iter().filter(|stored| stored.step.is_error())
    }

    /// The time from the first step to the last.
    pub fn duration(&self) -> Duration {
        self.steps.last().map_or(Duration::ZERO, |last| self.elapsed_at(last))
    }

    /// The time from the first step to this one.
    pub fn elapsed_at(&self, stored: &StepRow) -> Duration {
        self.steps.first().map_or(Duration::ZERO, |first| time_between(first, stored))
    }

    /// The time from the present step to the next; `None` if it is the last.
    pub fn time_to_next(&self) -> Option<Duration> {
        Some(time_between(self.current()?, self.steps.get(self.index + 1)?))
    }

    /// Returns a summary of the steps.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            steps: self.steps.len() as u64,
            duration_us: u64::try_from(self.duration().as_micros()).unwrap_or(u64::MAX),
            errors: self.errors().count() as u64,
            ..Summary::default()
        };
        if let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) {
            let (first, last) = (&first.step, &last.step);
            summary.numbers = Some((first.number, last.number));
            summary.times = Some((first.at, last.at));
        }
        for stored in &self.steps {
            let step = &stored.step;
            summary.iterations = summary.iterations.max(step.meta.iteration);
            *summary.kinds.entry(step.kind).or_default() += 1;
            if let (StepKind::ToolStart, Some(tool)) = (step.kind, &step.meta.tool) {
                *summary.tools.entry(tool.clone()).or_default() += 1;
            }
        }
        summary
    }
}

/// Returns the time between two steps; zero if the clock says that the second came first.
fn time_between(first: &StepRow, second: &StepRow) -> Duration {
    let [first, second] = [first, second].map(|stored| stored.step.at.as_micros());
    Duration::from_micros(u64::try_from(second.saturating_sub(first)).unwrap_or(0))
}
