//! The queue of steps that wait to be sent, bounded in number and bytes so that a slow server never blocks the program.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many steps were sent, dropped and so on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Steps that the server has stored.
    pub stored: u64,
    /// Steps that wait to be sent.
    pub waiting: u64,
    /// Steps that were dropped because too many waited, or because the program ended before they could be sent.
    pub dropped: u64,
    /// Steps that the server rejected.
    pub rejected: u64,
    /// Steps that were not recorded because of the sample rate or their kind.
    pub skipped: u64,
    /// Bytes of long texts that were left out.
    pub left_out_bytes: u64,
    /// Number of retries.
    pub retries: u64,
}

/// One step to be sent.
pub struct Waiting {
    /// The id of its session.
    pub session: String,
    /// The step as JSON.
    pub json: String,
    /// Whether it is only a placeholder for dropped steps, which are counted already.
    pub is_gap: bool,
}

/// Counts the items that are recorded steps and not placeholders.
pub fn steps<'a>(items: impl IntoIterator<Item = &'a Waiting>) -> u64 {
    items.into_iter().filter(|item| !item.is_gap).count() as u64
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// How many items are being sent right now, and how many of those are steps.
    sending: (usize, u64),
    counts: QueueCounts,
    /// Per session, the steps that were dropped since the last one that was queued.
    gaps: HashMap<String, u64>,
    /// Whether the queue is closed: no more steps are accepted.
    closed: bool,
    /// Whether a caller waits in `flush`, so that batches are sent without delay.
    hurry: bool,
}

/// The queue between the program and the thread that sends.
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
    most_bytes: usize,
}

impl Queue {
    /// Creates a queue that holds at most so many steps and bytes.
    pub fn new(most: usize, most_bytes: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), most, most_bytes }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of another thread must not become one of the program's.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item; drops it if the queue is full or closed. `gap` creates the placeholder for dropped steps.
    pub fn push(&self, item: Waiting, gap: impl FnOnce(&str, u64) -> Waiting) {
        let mut state = self.state();
        let full = state.waiting.len() >= self.most || state.bytes + item.json.len() > self.most_bytes;
        if full || state.closed {
            state.counts.dropped += 1;
            // The map is bounded: with too many sessions at once, gaps of further ones are not tracked.
            if state.gaps.len() < self.most || state.gaps.contains_key(&item.session) {
                *state.gaps.entry(item.session).or_default() += 1;
            }
            return;
        }
        if let Some(missing) = state.gaps.remove(&item.session) {
            let gap = gap(&item.session, missing);
            state.bytes += gap.json.len();
            state.waiting.push_back(gap);
        }
        state.bytes += item.json.len();
        state.waiting.push_back(item);
        self.changed.notify_all();
    }

    /// Waits for a batch: until there are `most` items, or for `linger` after the first. Returns an empty batch once the
    /// queue is closed.
    pub fn take(&self, most: usize, most_bytes: usize, linger: Duration) -> Vec<Waiting> {
        let mut state = self.state();
        while state.waiting.is_empty() {
            if state.closed {
                return Vec::new();
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let until = Instant::now() + linger;
        while state.waiting.len() < most && !state.closed && !state.hurry {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut some = Vec::new();
        let mut bytes = 0;
        while let Some(first) = state.waiting.front() {
            if some.len() >= most || (!some.is_empty() && bytes + first.json.len() > most_bytes) {
                break;
            }
            bytes += first.json.len();
            some.extend(state.waiting.pop_front());
        }
        state.bytes -= bytes;
        state.sending = (some.len(), steps(&some));
        some
    }

    /// Updates the counts once the last batch is done.
    pub fn done(&self, count: impl FnOnce(&mut QueueCounts)) {
        let mut state = self.state();
        state.sending = (0, 0);
        count(&mut state.counts);
        self.changed.notify_all();
    }

    /// Updates the counts.
    pub fn count(&self, count: impl FnOnce(&mut QueueCounts)) {
        count(&mut self.state().counts);
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> QueueCounts {
        let state = self.state();
        QueueCounts { waiting: steps(&state.waiting) + state.sending.1, ..state.counts }
    }

    /// Waits until everything is sent, for at most `patience`. Returns whether everything is.
    pub fn flush(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut state = self.state();
        state.hurry = true;
        self.changed.notify_all();
        while !state.waiting.is_empty() || state.sending.0 > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.hurry = false;
        state.waiting.is_empty() && state.sending.0 == 0
    }

    /// Closes the queue and drops what still waits.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let lost = steps(&state.waiting);
        state.counts.dropped += lost;
        state.waiting.clear();
        state.bytes = 0;
        self.changed.notify_all();
    }

    /// Whether the queue is closed.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Sleeps for `time`, or until the queue is closed.
    pub fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state();
        while !state.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
