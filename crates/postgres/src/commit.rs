//! Commits: one transaction each, with a definite outcome even if the connection is lost.
//!
//! Commits hold a shared lock and a collection the exclusive one, so that no commit relies on an object that is being
//! freed. If the connection is lost before COMMIT was sent, nothing happened, and the commit is retried. If it is lost
//! after that, the store asks the server for the outcome of the transaction, by its number and by the rows it writes.

use std::time::{Duration, Instant};

use stepback_store::StoreError;
use stepback_store::port::{FinishedBatch, Mutation, Receipt};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::objects::EncodedBatch;
use crate::pool::{AttemptError, Connection};
use crate::{PostgresStore, commit_verification, error};

/// The first half of the key of the lock between commits and collections.
pub(crate) const COLLECTING: i32 = 0x5342_0002;

/// How long to query the outcome of a transaction, unless the caller that opened the store has less time than usual.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(20);
/// The delay between two such queries.
const OUTCOME_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A server backend that was idle in this many consecutive checks has no transaction of ours in progress.
const MIN_IDLE_CHECKS: u32 = 10;

/// Why an attempt to commit did not succeed.
pub(crate) enum CommitFailure {
    /// It was refused, and nothing happened.
    Refused(StoreError),
    /// The server failed before COMMIT was sent.
    Before(Error),
    /// The server failed after COMMIT was sent: the outcome is unknown.
    Unsure { which: TransactionRef, error: Error },
}

/// Identifies a transaction that may still be in progress.
#[derive(Clone)]
pub(crate) enum TransactionRef {
    /// Its transaction number.
    Transaction(String),
    /// The process id of its server backend. All its statements were sent at once, so its number is not known.
    Backend(i32),
}

impl From<StoreError> for CommitFailure {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<Error> for CommitFailure {
    fn from(error: Error) -> Self {
        Self::Before(error)
    }
}

/// The input of a commit's transaction.
pub(crate) struct CommitInput<'a> {
    pub epoch: Option<u64>,
    pub written: &'a EncodedBatch,
    pub mutations: &'a [Mutation],
}

impl PostgresStore {
    pub(crate) fn commit_all(
        &self,
        batch: Option<FinishedBatch>,
        mutations: &[Mutation],
    ) -> Result<Receipt, StoreError> {
        let epoch = batch.as_ref().map(|batch| batch.epoch);
        let written = batch.and_then(|batch| batch.payload.downcast::<EncodedBatch>().ok());
        let written = written.map(|written| *written).unwrap_or_default();
        if mutations.is_empty() && written.is_empty() {
            // Nothing to write, but objects that the batch found stored may have been freed.
            return match epoch {
                Some(epoch) if epoch != self.current_epoch()? => Err(StoreError::Collected),
                _ => Ok(Receipt::default()),
            };
        }
        self.commit_written(epoch, written, mutations)
    }

    fn commit_written(
        &self,
        epoch: Option<u64>,
        mut written: EncodedBatch,
        mutations: &[Mutation],
    ) -> Result<Receipt, StoreError> {
        match written.ahead.take() {
            // The batch's objects are on this connection alone, so there is no second attempt.
            Some(mut lease) => {
                let work = CommitInput { epoch, written: &written, mutations };
                let attempt = lease
                    .connection()
                    .map_err(AttemptError::from)
                    .and_then(|connection| self.try_once(connection, &work, true));
                lease.discard();
                attempt.map_err(|failed| match failed {
                    AttemptError::For(error) | AttemptError::Lost(error) => error,
                })
            }
            None => {
                let work = CommitInput { epoch, written: &written, mutations };
                let mut may_have_taken_effect = false;
                self.pool.run_with_retry(|lease| {
                    let attempt = self.try_once(lease.connection()?, &work, false);
                    if attempt.is_err() && !lease.connection().is_ok_and(|connection| connection.is_clean) {
                        // Discarding it also ends what the transaction left open.
                        lease.discard();
                    }
                    match attempt {
                        // An attempt that seemed lost took effect after all, and conflicts with its own retry.
                        Err(AttemptError::For(
                            error @ (StoreError::Exists { .. } | StoreError::Moved { .. }),
                        )) if may_have_taken_effect => {
                            self.find_receipt(mutations).ok_or(AttemptError::For(error))
                        }
                        attempt => {
                            may_have_taken_effect |= matches!(attempt, Err(AttemptError::Lost(_)));
                            attempt
                        }
                    }
                })
            }
        }
    }

    fn try_once(
        &self,
        connection: &mut Connection,
        work: &CommitInput<'_>,
        ahead: bool,
    ) -> Result<Receipt, AttemptError> {
        let failed = |error: &Error| self.pool.failed("commit to", error);
        match self.pool.wait(self.try_commit(connection, work, ahead)) {
            Ok(receipt) => Ok(receipt),
            Err(CommitFailure::Refused(error)) => Err(AttemptError::For(error)),
            Err(CommitFailure::Before(error)) if error::is_lost(&error) => {
                Err(AttemptError::Lost(failed(&error)))
            }
            // A deadlock or conflict of two commits: the server has let the other one proceed.
            Err(CommitFailure::Before(error)) if error::is_conflict(&error) => {
                Err(AttemptError::Lost(StoreError::Locked))
            }
            Err(CommitFailure::Before(error)) => Err(AttemptError::For(failed(&error))),
            Err(CommitFailure::Unsure { which, error }) => {
                match self.resolve_outcome(&which, &error, work.mutations)? {
                    Some(receipt) => Ok(receipt),
                    None if error::is_lost(&error) => Err(AttemptError::Lost(failed(&error))),
                    None => Err(AttemptError::For(failed(&error))),
                }
            }
        }
    }

    /// The receipt of a commit, if it took effect. Uses a separate connection: the caller may hold one of the pooled ones,
    /// as may others that wait for the same.
    fn find_receipt(&self, mutations: &[Mutation]) -> Option<Receipt> {
        self.pool.wait(async {
            let connection = self.pool.connect().await.ok()?;
            commit_verification::find_receipt(&connection.client, mutations).await.ok()?
        })
    }

    /// The receipt of a transaction, if it took effect. Returns only when the outcome is certain, or when the server stays
    /// unreachable.
    fn resolve_outcome(
        &self,
        which: &TransactionRef,
        error: &Error,
        mutations: &[Mutation],
    ) -> Result<Option<Receipt>, StoreError> {
        // An agent waits for its hook: past this time the outcome is reported as uncertain, and a repeated event is not
        // recorded twice.
        let patience = self.patience.unwrap_or(OUTCOME_TIMEOUT.max(self.pool.patience()));
        let deadline = Instant::now() + patience;
        let mut idle = 0;
        loop {
            let outcome = self.pool.wait(async {
                let connection = self.pool.connect().await.ok()?;
                match which {
                    TransactionRef::Transaction(number) => {
                        transaction_outcome(&connection, number, mutations).await
                    }
                    TransactionRef::Backend(backend) => {
                        backend_outcome(&connection, *backend, &mut idle, mutations).await
                    }
                }
            });
            match outcome {
                Some(happened) => return Ok(happened),
                _ if Instant::now() > deadline => {
                    return Err(error::server_error(
                        &self.pool.display_address,
                        "learn from",
                        format!(
                            "whether a commit took effect; the connection was lost while it was under way ({})",
                            error::full_message(error)
                        ),
                        "when the server is available again, \"stepback log\" shows whether it was recorded",
                    ));
                }
                _ => std::thread::sleep(OUTCOME_POLL_INTERVAL),
            }
        }
    }
}

/// What a server backend left behind, if that is certain: when it is gone, or was idle for a while. A backend that lost its
/// client exits as soon as it notices; one behind a pooler stays.
async fn backend_outcome(
    connection: &Connection,
    backend: i32,
    idle: &mut u32,
    mutations: &[Mutation],
) -> Option<Option<Receipt>> {
    let sql = "SELECT state IS DISTINCT FROM 'idle' FROM pg_stat_activity WHERE pid = $1";
    // Check first whether it is active: if it is not, everything it did is visible to the query that follows.
    let at_work = connection.client.query_opt(sql, &[&backend]).await.ok()?;
    let at_work = at_work.map(|row| row.try_get::<_, bool>(0)).transpose().ok()?;
    let receipt = commit_verification::find_receipt(&connection.client, mutations).await.ok()?;
    match at_work {
        None => return Some(receipt),
        Some(true) => *idle = 0,
        Some(false) => *idle += 1,
    }
    (receipt.is_some() || *idle >= MIN_IDLE_CHECKS).then_some(receipt)
}

/// The outcome of a transaction, if it is certain.
async fn transaction_outcome(
    connection: &Connection,
    transaction: &str,
    mutations: &[Mutation],
) -> Option<Option<Receipt>> {
    let sql = "SELECT pg_xact_status($1::text::xid8)";
    let status = match connection.client.query_one(sql, &[&transaction]).await {
        Ok(row) => row.try_get::<_, Option<String>>(0).ok()??,
        // "in the future": after a crash or a failover the server does not know the transaction.
        Err(error) if error.code() == Some(&SqlState::INVALID_PARAMETER_VALUE) => return Some(None),
        Err(_) => return None,
    };
    match status.as_str() {
        "aborted" => Some(None),
        // A server that crashed reuses the number of a lost transaction, so check the rows too.
        "committed" => commit_verification::find_receipt(&connection.client, mutations).await.ok(),
        _ => None,
    }
}
