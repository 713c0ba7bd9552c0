//! The part of a session that is in memory: consecutive steps around the current one.
//!
//! A session of a hundred thousand steps is never loaded as a whole. Missing steps are requested before they are reached,
//! and distant ones are dropped.

use std::collections::VecDeque;
use stepback_api::steps::StepDocument;

/// Steps requested at a time.
pub const PAGE: usize = 200;
/// More steps are requested when the current one is this close to an end of the loaded ones.
const PREFETCH_DISTANCE: usize = 100;
/// The most steps that are kept.
const MOST: usize = 4000;

/// A side of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowSide {
    /// Before its first step.
    Before,
    /// After its last step.
    After,
}

/// Consecutive steps, and a position among them.
#[derive(Clone, Debug, Default)]
pub struct StepWindow {
    steps: VecDeque<StepDocument>,
    selected_index: usize,
    /// The index of the first step that is shown.
    top: usize,
    /// Whether the first step is the first of the session.
    pub has_first: bool,
    /// Whether the last step is the last of the session, as far as is known.
    pub has_last: bool,
    /// The side that was requested and has not arrived yet.
    requested: Option<WindowSide>,
}

impl StepWindow {
    /// Creates a window of steps, oldest first, positioned at the last one whose number is not greater than `number`.
    pub fn new(steps: Vec<StepDocument>, number: u64, has_first: bool, has_last: bool) -> Self {
        let index = steps.partition_point(|step| step.number <= number).saturating_sub(1);
        Self {
            steps: steps.into(),
            selected_index: index,
            top: index.saturating_sub(5),
            has_first,
            has_last,
            requested: None,
        }
    }

    /// Returns the current step.
    pub fn current(&self) -> Option<&StepDocument> {
        self.steps.get(self.selected_index)
    }

    /// Whether the current step is the last one loaded.
    pub fn is_last(&self) -> bool {
        self.selected_index + 1 >= self.steps.len()
    }

    /// Returns the numbers of the first and the last step that are loaded.
    pub fn number_range(&self) -> Option<(u64, u64)> {
        Some((self.steps.front()?.number, self.steps.back()?.number))
    }

    /// Returns the step after the current one.
    pub fn next(&self) -> Option<&StepDocument> {
        self.steps.get(self.selected_index + 1)
    }

    /// Moves by a number of steps, as far as steps are loaded. Returns whether it moved.
    pub fn move_by(&mut self, by: i64) -> bool {
        let last = self.steps.len().saturating_sub(1);
        let index = (self.selected_index as i64).saturating_add(by).clamp(0, last as i64) as usize;
        std::mem::replace(&mut self.selected_index, index) != index
    }

    /// Moves to the step shown in this row.
    pub fn move_to_row(&mut self, row: usize) -> bool {
        let index = self.top + row;
        index < self.steps.len() && std::mem::replace(&mut self.selected_index, index) != index
    }

    /// Moves to the step with this number, if it is loaded.
    pub fn move_to(&mut self, number: u64) -> bool {
        match self.steps.binary_search_by_key(&number, |step| step.number) {
            Ok(index) => {
                self.selected_index = index;
                true
            }
            Err(_) => false,
        }
    }

    /// Returns the number of the nearest error on a side, among the loaded steps.
    pub fn nearest_error(&self, side: WindowSide) -> Option<u64> {
        match side {
            WindowSide::After => self.steps.iter().skip(self.selected_index + 1).find(|step| step.is_error()),
            WindowSide::Before => {
                self.steps.iter().take(self.selected_index).rev().find(|step| step.is_error())
            }
        }
        .map(|step| step.number)
    }

    /// Returns what to request now: the side, and the number to start from.
    pub fn next_request(&mut self) -> Option<(WindowSide, u64)> {
        let (first, last) = self.number_range()?;
        let side = match self.requested {
            Some(_) => return None,
            None if !self.has_first && self.selected_index < PREFETCH_DISTANCE => WindowSide::Before,
            None if !self.has_last && self.selected_index + PREFETCH_DISTANCE >= self.steps.len() => {
                WindowSide::After
            }
            None => return None,
        };
        self.requested = Some(side);
        Some((side, if side == WindowSide::Before { first } else { last }))
    }

    /// Handles a request that failed.
    pub fn clear_request(&mut self) {
        self.requested = None;
    }

    /// Adds steps before the first one, oldest first.
    pub fn prepend(&mut self, steps: Vec<StepDocument>, has_first: bool) {
        let first = self.steps.front().map_or(u64::MAX, |step| step.number);
        for step in steps.into_iter().rev().filter(|step| step.number < first) {
            self.steps.push_front(step);
            self.selected_index += 1;
            self.top += 1;
        }
        self.has_first = has_first;
        self.requested = None;
        while self.steps.len() > MOST {
            self.steps.pop_back();
            self.has_last = false;
        }
    }

    /// Adds steps after the last one. If the current step was the last of the session, the position follows.
    pub fn append(&mut self, steps: Vec<StepDocument>, has_last: bool) {
        let follows = self.has_last && self.is_last();
        let last = self.steps.back().map_or(0, |step| step.number);
        self.steps.extend(steps.into_iter().filter(|step| step.number > last));
        self.has_last = has_last;
        self.requested = None;
        if follows {
            self.selected_index = self.steps.len().saturating_sub(1);
        }
        while self.steps.len() > MOST {
            self.steps.pop_front();
            self.has_first = false;
            self.selected_index = self.selected_index.saturating_sub(1);
            self.top = self.top.saturating_sub(1);
        }
    }

    /// Scrolls so that the current step is within `rows` rows.
    pub fn scroll_into_view(&mut self, rows: usize) {
        let rows = rows.max(1);
        if self.selected_index < self.top {
            self.top = self.selected_index;
        } else if self.selected_index >= self.top + rows {
            self.top = self.selected_index + 1 - rows;
        }
        self.top = self.top.min(self.steps.len().saturating_sub(rows));
    }

    /// Returns the steps in `rows` rows, each with whether it is the current one.
    pub fn visible_rows(&self, rows: usize) -> impl Iterator<Item = (&StepDocument, bool)> {
        self.steps
            .iter()
            .enumerate()
            .skip(self.top)
            .take(rows)
            .map(|(index, step)| (step, index == self.selected_index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(numbers: std::ops::RangeInclusive<u64>) -> Vec<StepDocument> {
        numbers
            .map(|number| StepDocument {
                number,
                failed: number.is_multiple_of(100),
                ..StepDocument::default()
            })
            .collect()
    }

    #[test]
    fn more_is_asked_for_before_an_end_is_reached_and_once() {
        let mut window = StepWindow::new(steps(1001..=1400), 1200, false, false);
        assert_eq!(window.current().map(|step| step.number), Some(1200));
        assert_eq!(window.next_request(), None);
        window.move_by(120);
        assert_eq!(window.next_request(), Some((WindowSide::After, 1400)));
        assert_eq!(window.next_request(), None, "it was asked for");
        window.append(steps(1401..=1600), true);
        assert_eq!(window.current().map(|step| step.number), Some(1320));
        window.move_by(-300);
        assert_eq!(window.next_request(), Some((WindowSide::Before, 1001)));
        window.prepend(steps(801..=1000), false);
        assert_eq!(window.current().map(|step| step.number), Some(1020));
        assert_eq!(window.number_range(), Some((801, 1600)));
    }

    #[test]
    fn what_is_far_away_is_forgotten() {
        let mut window = StepWindow::new(steps(1..=200), 200, true, false);
        for page in 1..=30 {
            window.append(steps(page * 200 + 1..=(page + 1) * 200), page == 30);
            window.move_by(200);
        }
        assert_eq!(window.number_range(), Some((2201, 6200)));
        assert!(!window.has_first && window.has_last);
        assert_eq!(window.current().map(|step| step.number), Some(6200));
        window.prepend(steps(2001..=2200), false);
        assert!(!window.has_last, "the end was forgotten");
    }

    #[test]
    fn who_stands_at_the_end_goes_along_and_others_stay() {
        let mut window = StepWindow::new(steps(1..=3), 3, true, true);
        window.append(steps(4..=5), true);
        assert_eq!(window.current().map(|step| step.number), Some(5));
        window.move_by(-1);
        window.append(steps(5..=6), true);
        assert_eq!(
            (window.current().map(|step| step.number), window.number_range()),
            (Some(4), Some((1, 6)))
        );
    }

    #[test]
    fn errors_are_found_in_both_directions() {
        let window = StepWindow::new(steps(1..=400), 200, true, true);
        assert_eq!(window.nearest_error(WindowSide::After), Some(300));
        assert_eq!(window.nearest_error(WindowSide::Before), Some(100));
        assert_eq!(StepWindow::default().nearest_error(WindowSide::Before), None);
    }
}
