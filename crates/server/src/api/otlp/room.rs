//! Limits how much telemetry is in memory at a time.
//!
//! A request reserves memory for its first bytes when its turn comes, and for more as they arrive or are decompressed: its
//! size is not known before, and what its headers say need not be true.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;

/// Most mebibytes of bodies, compressed and decompressed, held at a time.
const MOST: usize = 192;
/// How long a request waits for its turn.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);

/// The memory budget for the bodies of requests.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    mebibytes: Arc<Semaphore>,
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self { mebibytes: Arc::new(Semaphore::new(MOST)) }
    }
}

/// The memory that a request has reserved; released when dropped.
#[derive(Debug)]
pub struct ReservedMemory {
    budget: MemoryBudget,
    permit: OwnedSemaphorePermit,
}

impl MemoryBudget {
    /// Waits until there is room for one more request. Fails if that times out.
    pub async fn reserve(&self) -> Result<ReservedMemory, Problem> {
        match tokio::time::timeout(QUEUE_TIMEOUT, self.mebibytes.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(ReservedMemory { budget: self.clone(), permit }),
            _ => Err(busy_problem()),
        }
    }
}

impl ReservedMemory {
    /// Grows the reservation to so many bytes in total.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        let wanted = (bytes >> 20) + 1;
        let more = wanted.saturating_sub(self.permit.num_permits());
        if more > 0 {
            let more = u32::try_from(more).map_err(|_| busy_problem())?;
            let more =
                self.budget.mebibytes.clone().try_acquire_many_owned(more).map_err(|_| busy_problem())?;
            self.permit.merge(more);
        }
        Ok(())
    }
}

fn busy_problem() -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", "too many concurrent requests")
        .with_hint("retry later")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_takes_as_much_room_as_it_grows_to_and_gives_it_back() {
        let room = MemoryBudget::default();
        let mut first = room.reserve().await.unwrap();
        first.grow(100 << 20).unwrap();
        first.grow(1).unwrap();
        assert_eq!(room.mebibytes.available_permits(), MOST - 101);
        let mut second = room.reserve().await.unwrap();
        assert_eq!(second.grow(100 << 20).unwrap_err().status, 429);
        drop(first);
        second.grow(100 << 20).unwrap();
    }
}
