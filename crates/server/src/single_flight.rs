//! A value that is expensive to compute from the store, shared by all requests that ask for it at the same time.
//!
//! However many clients ask, one computation runs at a time. A request takes a value that was computed since it arrived, or
//! one that no commit has made outdated.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use stepback_store::port::CommitMark;

use crate::problem::Problem;

/// The last value, with the time at which its computation began and the last commit before that.
pub struct SingleFlight<T> {
    last: Mutex<Option<(Instant, CommitMark, T)>>,
}

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        Self { last: Mutex::new(None) }
    }
}

impl<T: Clone> SingleFlight<T> {
    /// Returns the value for a request that arrived at `arrival`; `mark` reads the last commit.
    pub fn get(
        &self,
        arrival: Instant,
        mark: impl FnOnce() -> Result<CommitMark, Problem>,
        compute: impl FnOnce() -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        // A panic while computing leaves the value before, which stays valid.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun, _, value)) = last.as_ref()
            && *begun >= arrival
        {
            return Ok(value.clone());
        }
        let (begun, mark) = (Instant::now(), mark()?);
        if let Some((_, at, value)) = last.as_ref()
            && *at == mark
        {
            return Ok(value.clone());
        }
        let value = compute()?;
        *last = Some((begun, mark, value.clone()));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn requests_at_the_same_time_share_one_computation_and_a_commit_outdates_it() {
        let (shared, computed, commits) = (SingleFlight::default(), AtomicU64::new(0), AtomicU64::new(1));
        let ask = |arrival| {
            let mark = || Ok(CommitMark(commits.load(Ordering::SeqCst)));
            shared.get(arrival, mark, || Ok(computed.fetch_add(1, Ordering::SeqCst))).unwrap()
        };
        let early = Instant::now();
        assert_eq!((ask(early), ask(Instant::now())), (0, 0), "nothing was committed");
        commits.fetch_add(1, Ordering::SeqCst);
        assert_eq!(ask(early), 0, "it was computed after that request arrived");
        assert_eq!(ask(Instant::now()), 1);
        let arrival = Instant::now();
        commits.fetch_add(1, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| ask(arrival));
            }
        });
        assert_eq!(computed.load(Ordering::SeqCst), 3);
    }
}
