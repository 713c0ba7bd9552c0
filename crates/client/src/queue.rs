//! What waits to be sent, bounded in number and bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What became of what was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Steps that the server has stored.
    pub stored: u64,
    /// Steps that wait to be sent.
    pub waiting: u64,
    /// Steps that were dropped because too many waited, or because the program ended before they could be sent.
    pub dropped: u64,
    /// Steps that the server did not want.
    pub rejected: u64,
    /// Steps that were not recorded because of the sample rate or their kind.
    pub skipped: u64,
    /// Bytes of long texts that were left out.
    pub left_out_bytes: u64,
    /// How often sending had to be tried again.
    pub retries: u64,
}

/// Something to be sent.
pub struct Waiting {
    /// Its session.
    pub session: String,
    /// It, as JSON.
    pub json: String,
    /// Whether it only stands for steps that were dropped, which are counted already.
    pub is_gap: bool,
}

/// How many of them are steps that somebody recorded.
pub fn steps<'a>(items: impl IntoIterator<Item = &'a Waiting>) -> u64 {
    items.into_iter().filter(|item| !item.is_gap).count() as u64
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// How many are being sent right now, and how many of those are steps.
    sending: (usize, u64),
    counts: Counts,
    /// Steps that were dropped since a session's last one that was not.
    gaps: HashMap<String, u64>,
    /// No more will come.
    closed: bool,
    /// Somebody waits until everything is sent.
    hurry: bool,
}

/// The queue between a program and the thread that sends.
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
    most_bytes: usize,
}

impl Queue {
    /// Holds so many steps and bytes.
    pub fn new(most: usize, most_bytes: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), most, most_bytes }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of somebody else must not become one of the program's.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds something; drops it if there is no room. `gap` makes what stands for dropped ones.
    pub fn push(&self, item: Waiting, gap: impl FnOnce(&str, u64) -> Waiting) {
        let mut state = self.state();
        let full = state.waiting.len() >= self.most || state.bytes + item.json.len() > self.most_bytes;
        if full || state.closed {
            state.counts.dropped += 1;
            // So many sessions at once are not told apart any more.
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

    /// Waits for something to send: until there are `most`, or until the first has waited for `linger`. Empty at the end.
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

    /// Changes the counts, after what was sent last is done with.
    pub fn done(&self, count: impl FnOnce(&mut Counts)) {
        let mut state = self.state();
        state.sending = (0, 0);
        count(&mut state.counts);
        self.changed.notify_all();
    }

    /// Changes the counts.
    pub fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.state().counts);
    }

    /// What became of everything so far.
    pub fn counts(&self) -> Counts {
        let state = self.state();
        Counts { waiting: steps(&state.waiting) + state.sending.1, ..state.counts }
    }

    /// Waits until everything is sent, or time is over. Says whether it is.
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

    /// Takes nothing more, and gives up what still waits.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let lost = steps(&state.waiting);
        state.counts.dropped += lost;
        state.waiting.clear();
        state.bytes = 0;
        self.changed.notify_all();
    }

    /// Whether nothing more is taken.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Waits for so long, or until the queue is closed.
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
