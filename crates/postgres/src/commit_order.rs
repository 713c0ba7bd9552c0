//! The order of commits across workspaces, and how a reader knows that it has all of it up to some point.
//!
//! A step takes its position from a sequence, before its commit can be seen. So a position that is missing now may be there
//! in a moment, and whoever goes on from the newest one it saw would never see it. Making all commits wait for each other
//! would prevent that, and cost every one of them the time of another's sync to disk. Here only readers wait: a commit holds a
//! lock, shared with all others, from before it takes its positions until it can be seen; a reader notes how far the sequence
//! is, then who holds the lock, and waits until none of these does. What has positions up to there is decided then.

use std::time::{Duration, Instant};

use futures_util::future::join;
use stepback_store::StoreError;
use stepback_store::port::CommitMark;
use tokio_postgres::Error;

use crate::PostgresStore;
use crate::mutations::Planned;
use crate::pool::Connection;

/// The first half of the key of the lock that commits hold while they take positions.
pub(crate) const ORDERING: i32 = 0x5342_0003;

/// How long to wait before looking again whether a commit has ended; most take a few milliseconds.
const AGAIN: Duration = Duration::from_millis(2);

/// How far the sequences are.
const LAST: &str =
    "SELECT c.last_value - (NOT c.is_called)::integer, p.last_value - (NOT p.is_called)::integer
    FROM stepback_commits c, stepback_positions p";

/// How far everything is decided.
#[derive(Clone, Copy)]
pub(crate) struct Horizon {
    /// How many commits there were.
    pub commits: i64,
    /// The last position.
    pub position: i64,
}

/// Takes the lock for the rest of a transaction.
pub(crate) fn taking(key: i32) -> String {
    format!("SELECT pg_advisory_xact_lock_shared({ORDERING}, {key})")
}

/// The same, as the first of several statements.
pub(crate) fn taking_first(key: i32) -> Planned {
    Planned::new("SELECT pg_advisory_xact_lock_shared($1, $2)", vec![Box::new(ORDERING), Box::new(key)])
}

impl PostgresStore {
    /// The present position in the history of commits.
    pub(crate) fn current_mark(&self) -> Result<CommitMark, StoreError> {
        Ok(CommitMark(self.settle()?.commits as u64))
    }

    /// Waits until all commits that are under way have ended, and says how far that is.
    pub(crate) fn settle(&self) -> Result<Horizon, StoreError> {
        let until = Instant::now() + self.pool.patience();
        let settled =
            self.pool.ask(async |connection| settle(connection, &self.under_way_sql(), until).await)?;
        settled.ok_or(StoreError::Locked)
    }

    fn under_way_sql(&self) -> String {
        // The catalogue shows the halves of a key without their signs.
        let (class, object) = (ORDERING as u32, self.key as u32);
        format!(
            "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
               AND classid = {class}::oid AND objid = {object}::oid
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    }
}

async fn settle(
    connection: &mut Connection,
    under_way: &str,
    until: Instant,
) -> Result<Option<Horizon>, Error> {
    let last = connection.prepared(LAST).await?;
    let under_way = connection.prepared(under_way).await?;
    let client = &connection.client;
    // The sequences first: a commit that begins in between is then not counted.
    let (row, holders) = join(client.query_one(&last, &[]), client.query(&under_way, &[])).await;
    let row = row?;
    let settled = Horizon { commits: row.try_get(0)?, position: row.try_get(1)? };
    let names = |rows: Vec<tokio_postgres::Row>| -> Result<Vec<String>, Error> {
        rows.iter().map(|row| row.try_get(0)).collect()
    };
    let mut waited_for = names(holders?)?;
    while !waited_for.is_empty() {
        if Instant::now() > until {
            return Ok(None);
        }
        tokio::time::sleep(AGAIN).await;
        let now = names(connection.client.query(&under_way, &[]).await?)?;
        waited_for.retain(|name| now.contains(name));
    }
    Ok(Some(settled))
}
