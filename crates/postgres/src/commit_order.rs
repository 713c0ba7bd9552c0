//! The order of commits across workspaces, and how a reader knows that it has seen all commits up to some position.
//!
//! A step takes its position from a sequence before its commit becomes visible. So a position that is missing now may
//! appear later, and a reader that continued from the newest position it saw would miss it. Making all commits wait for
//! each other would prevent that, but each would then wait for the disk sync of another. Here only readers wait: a commit
//! holds a shared lock from before it takes its positions until it is visible. A reader reads the sequence, then the
//! holders of the lock, and waits until none of these holders is left. All positions up to the one it read are final then.

use std::time::{Duration, Instant};

use futures_util::future::join;
use stepback_store::StoreError;
use stepback_store::port::CommitMark;
use tokio_postgres::Error;

use crate::PostgresStore;
use crate::pool::Connection;

/// The first half of the key of the lock that commits hold while they take positions.
pub(crate) const ORDERING: i32 = 0x5342_0003;

/// The delay between two checks whether a commit has ended; most take a few milliseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Reads the current values of the sequences.
const SELECT_SEQUENCES: &str =
    "SELECT c.last_value - (NOT c.is_called)::integer, p.last_value - (NOT p.is_called)::integer
    FROM stepback_commits c, stepback_positions p";

/// The point up to which all commits are final.
#[derive(Clone, Copy)]
pub(crate) struct Horizon {
    /// The number of commits.
    pub commits: i64,
    /// The last position.
    pub position: i64,
}

/// The statement that takes the lock for the rest of a transaction.
pub(crate) fn lock_sql(key: i32) -> String {
    format!("SELECT pg_advisory_xact_lock_shared({ORDERING}, {key})")
}

impl PostgresStore {
    /// The current position in the sequence of commits.
    pub(crate) fn current_mark(&self) -> Result<CommitMark, StoreError> {
        Ok(CommitMark(self.settled_horizon()?.commits as u64))
    }

    /// Waits until all commits in progress have ended, and returns the point up to which all are final.
    pub(crate) fn settled_horizon(&self) -> Result<Horizon, StoreError> {
        let deadline = Instant::now() + self.pool.patience();
        let settled = self
            .pool
            .ask(async |connection| wait_for_horizon(connection, &self.under_way_sql(), deadline).await)?;
        settled.ok_or(StoreError::Locked)
    }

    fn under_way_sql(&self) -> String {
        // `pg_locks` shows the halves of a key as unsigned numbers.
        let (class, object) = (ORDERING as u32, self.key as u32);
        format!(
            "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
               AND classid = {class}::oid AND objid = {object}::oid
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    }
}

async fn wait_for_horizon(
    connection: &mut Connection,
    under_way: &str,
    deadline: Instant,
) -> Result<Option<Horizon>, Error> {
    let last = connection.prepared(SELECT_SEQUENCES).await?;
    let under_way = connection.prepared(under_way).await?;
    let client = &connection.client;
    // Read the sequences first: a commit that begins in between is then above the value read.
    let (row, holders) = join(client.query_one(&last, &[]), client.query(&under_way, &[])).await;
    let row = row?;
    let settled = Horizon { commits: row.try_get(0)?, position: row.try_get(1)? };
    let names = |rows: Vec<tokio_postgres::Row>| -> Result<Vec<String>, Error> {
        rows.iter().map(|row| row.try_get(0)).collect()
    };
    let mut waited_for = names(holders?)?;
    while !waited_for.is_empty() {
        if Instant::now() > deadline {
            return Ok(None);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        let now = names(connection.client.query(&under_way, &[]).await?)?;
        waited_for.retain(|name| now.contains(name));
    }
    Ok(Some(settled))
}
