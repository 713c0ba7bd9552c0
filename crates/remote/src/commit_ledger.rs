//! The outcomes of recent commits, for clients whose connection was lost before the answer arrived.
//!
//! A client that does not know whether its commit took effect sends it again, with the same number. The commit must not be
//! carried out twice, and must not be refused because its own first attempt took effect.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use stepback_store::StoreError;
use stepback_store::port::Receipt;

use crate::wire_error::WireError;

/// How many outcomes are kept. A client asks again within seconds.
const MAX_OUTCOMES: usize = 4096;
/// Longest number that a client may choose.
const MAX_NONCE_BYTES: usize = 64;

#[derive(Clone)]
enum CommitOutcome {
    InProgress,
    Ended(Result<Receipt, WireError>),
}

/// The outcomes of recent commits by their numbers.
#[derive(Default)]
pub(crate) struct CommitLedger {
    outcomes: Mutex<LedgerEntries>,
    ended: Condvar,
}

#[derive(Default)]
struct LedgerEntries {
    by_nonce: HashMap<String, CommitOutcome>,
    order: VecDeque<String>,
}

impl CommitLedger {
    /// Carries out a commit, or returns the outcome of the one with the same number.
    pub fn run_once(
        &self,
        nonce: &str,
        commit: impl FnOnce() -> Result<Receipt, StoreError>,
    ) -> Result<Receipt, WireError> {
        if nonce.is_empty() || nonce.len() > MAX_NONCE_BYTES {
            return Err(WireError::Other {
                message: "the number of the commit is missing or too long".into(),
            });
        }
        let mut entries = self.lock_entries();
        loop {
            match entries.by_nonce.get(nonce) {
                None => break,
                Some(CommitOutcome::Ended(outcome)) => return outcome.clone(),
                Some(CommitOutcome::InProgress) => {
                    entries = self.ended.wait(entries).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        entries.by_nonce.insert(nonce.to_owned(), CommitOutcome::InProgress);
        drop(entries);
        // A commit that panics must not keep its number forever.
        let mut entry = InProgressEntry { ledger: self, nonce, outcome: None };
        let outcome = commit().map_err(WireError::from);
        entry.outcome = Some(outcome.clone());
        drop(entry);
        outcome
    }

    fn lock_entries(&self) -> MutexGuard<'_, LedgerEntries> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct InProgressEntry<'a> {
    ledger: &'a CommitLedger,
    nonce: &'a str,
    outcome: Option<Result<Receipt, WireError>>,
}

impl Drop for InProgressEntry<'_> {
    fn drop(&mut self) {
        let mut entries = self.ledger.lock_entries();
        match self.outcome.take() {
            Some(outcome) => {
                entries.by_nonce.insert(self.nonce.to_owned(), CommitOutcome::Ended(outcome));
                entries.order.push_back(self.nonce.to_owned());
                if entries.order.len() > MAX_OUTCOMES
                    && let Some(oldest) = entries.order.pop_front()
                {
                    entries.by_nonce.remove(&oldest);
                }
            }
            None => {
                entries.by_nonce.remove(self.nonce);
            }
        }
        drop(entries);
        self.ledger.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_commit_with_the_same_number_is_carried_out_once() {
        let (ledger, runs) = (CommitLedger::default(), AtomicU32::new(0));
        let receipt = Receipt { steps: vec![7], ops: Vec::new() };
        let commit = || {
            runs.fetch_add(1, Ordering::SeqCst);
            Ok(receipt.clone())
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(ledger.run_once("a", commit).unwrap(), receipt));
            }
        });
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        let failed = ledger.run_once("b", || Err(StoreError::Grew));
        assert!(matches!(failed, Err(WireError::Grew)));
        assert!(matches!(ledger.run_once("b", || Ok(receipt.clone())), Err(WireError::Grew)));
        assert!(ledger.run_once(&"x".repeat(65), commit).is_err());
    }

    #[test]
    fn a_commit_that_panics_can_be_sent_again() {
        let ledger = CommitLedger::default();
        let run = std::panic::AssertUnwindSafe(|| ledger.run_once("a", || panic!("as intended")));
        assert!(std::panic::catch_unwind(run).is_err());
        assert!(ledger.run_once("a", || Ok(Receipt::default())).is_ok());
    }
}
