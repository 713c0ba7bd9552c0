//! Retries of commits that lost a race against another process: read again, and try again, with growing pauses.

use std::thread;
use std::time::Duration;

use stepback_store::StoreError;

use crate::error::EngineError;

/// Most attempts to commit while other processes commit at the same time.
pub(crate) const ATTEMPTS: usize = 50;
/// Attempts without a pause: most races are lost once.
const IMMEDIATE_ATTEMPTS: usize = 3;
/// The longest pause between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Whether another process committed between reading and writing, or freed objects that the commit relied on.
pub(crate) fn is_race(error: &StoreError) -> bool {
    matches!(error, StoreError::Collected | StoreError::Moved { .. } | StoreError::Grew)
}

/// Like [`is_race`], for records that a process on another machine, which does not share our locks, may have added.
pub(crate) fn is_race_or_exists(error: &StoreError) -> bool {
    is_race(error) || matches!(error, StoreError::Exists { .. })
}

/// Runs `attempt` until it does not lose a race. After the last attempt the error says `what` was tried, as a verb phrase
/// such as "create the checkpoint".
pub(crate) fn retry<T>(
    what: &'static str,
    is_race: fn(&StoreError) -> bool,
    mut attempt: impl FnMut() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    let mut attempts = 0;
    loop {
        let cause = match attempt() {
            Err(EngineError::Store(error)) if is_race(&error) => error,
            other => return other,
        };
        attempts += 1;
        if attempts == ATTEMPTS {
            return Err(EngineError::RetriesExhausted { what, attempts, cause });
        }
        thread::sleep(retry_delay(attempts));
    }
}

fn retry_delay(attempts: usize) -> Duration {
    match attempts.checked_sub(IMMEDIATE_ATTEMPTS) {
        None | Some(0) => Duration::ZERO,
        Some(paused) => Duration::from_millis(1 << paused.min(6)).min(MAX_RETRY_DELAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lost_race_is_repeated_and_the_last_error_says_what_was_tried() {
        let mut left = 2;
        let raced = retry("count", is_race, || match left {
            0 => Ok("done"),
            _ => {
                left -= 1;
                Err(StoreError::Collected.into())
            }
        });
        assert_eq!(raced.unwrap(), "done");
        let mut calls = 0;
        let endless = retry("count", is_race, || -> Result<(), _> {
            calls += 1;
            Err(StoreError::Grew.into())
        });
        let said = endless.unwrap_err().to_string();
        assert_eq!(calls, ATTEMPTS);
        assert!(said.contains("count") && said.contains("50"), "{said}");
        let exists = || -> Result<(), _> { Err(StoreError::Exists { what: "it" }.into()) };
        assert!(matches!(retry("add", is_race, exists), Err(EngineError::Store(StoreError::Exists { .. }))));
        assert!(matches!(retry("add", is_race_or_exists, exists), Err(EngineError::RetriesExhausted { .. })));
    }

    #[test]
    fn pauses_grow_and_are_bounded() {
        assert_eq!(retry_delay(IMMEDIATE_ATTEMPTS), Duration::ZERO);
        assert!(retry_delay(IMMEDIATE_ATTEMPTS + 1) < retry_delay(IMMEDIATE_ATTEMPTS + 2));
        assert_eq!(retry_delay(ATTEMPTS), MAX_RETRY_DELAY);
    }
}
