//! A commit: one transaction, and certainty about what became of it.
//!
//! Commits hold a shared lock, a collection the exclusive one, so that nobody commits what relies on something being freed.
//! When the connection is lost before the end was asked for, nothing happened, and the commit is tried again. When it is lost
//! after that, the server is asked what became of the transaction, by its number and by the rows it makes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all, join3};
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_store::StoreError;
use stepback_store::port::{FinishedBatch, Mutation, Receipt};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};

use crate::mutations::{self, NUMBER, Planned, Wanted};
use crate::objects::{self, Columns, TAKE_OVER, Written};
use crate::pool::{Connection, Failed};
use crate::schema::{self, FORMAT};
use crate::{PostgresStore, error, listen, order, rows};

/// The first half of the key of the lock between commits and collections.
pub(crate) const COLLECTING: i32 = 0x5342_0002;

/// How many sessions are remembered.
const MOST_SESSIONS: usize = 10_000;
/// How many statements are under way at once.
const AT_ONCE: usize = 16;
/// How long to look for the outcome of a transaction at least.
const UNTIL_KNOWN: Duration = Duration::from_secs(20);

/// Why an attempt did not succeed.
enum Trouble {
    /// It was refused, and nothing happened.
    Refused(StoreError),
    /// The server failed before the end was asked for.
    Before(Error),
    /// The server failed after that: what happened is not known.
    Unsure { transaction: String, error: Error, receipt: Receipt },
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Before(error)
    }
}

/// What the transaction of a commit is about.
struct Work<'a> {
    epoch: Option<u64>,
    written: &'a Written,
    mutations: &'a [Mutation],
}

impl PostgresStore {
    pub(crate) fn commit_all(
        &self,
        batch: Option<FinishedBatch>,
        mutations: &[Mutation],
    ) -> Result<Receipt, StoreError> {
        let epoch = batch.as_ref().map(|batch| batch.epoch);
        let written = batch.and_then(|batch| batch.payload.downcast::<Written>().ok());
        let mut written = written.map(|written| *written).unwrap_or_default();
        if mutations.is_empty() && written.is_empty() {
            // Nothing to write, but what the batch found stored may be gone.
            return match epoch {
                Some(epoch) if epoch != self.current_epoch()? => Err(StoreError::Collected),
                _ => Ok(Receipt::default()),
            };
        }
        let receipt = match written.ahead.take() {
            // Its objects are on this connection alone, so there is no second attempt.
            Some(mut lease) => {
                let work = Work { epoch, written: &written, mutations };
                let attempt = lease
                    .connection()
                    .map_err(Failed::from)
                    .and_then(|connection| self.try_once(connection, &work, true));
                lease.discard();
                attempt.map_err(|failed| match failed {
                    Failed::For(error) | Failed::Lost(error) => error,
                })?
            }
            None => {
                let work = Work { epoch, written: &written, mutations };
                self.pool.persistently(|lease| {
                    let attempt = self.try_once(lease.connection()?, &work, false);
                    if attempt.is_err() {
                        // With it goes whatever the transaction left.
                        lease.discard();
                    }
                    attempt
                })?
            }
        };
        self.remember(mutations::added_sessions(mutations));
        Ok(receipt)
    }

    fn try_once(&self, connection: &mut Connection, work: &Work<'_>, ahead: bool) -> Result<Receipt, Failed> {
        let failed = |error: &Error| self.pool.failed("commit to", error);
        match self.pool.wait(self.attempt(connection, work, ahead)) {
            Ok(receipt) => Ok(receipt),
            Err(Trouble::Refused(error)) => Err(Failed::For(error)),
            Err(Trouble::Before(error)) if error::is_lost(&error) => Err(Failed::Lost(failed(&error))),
            // Two commits that stand in each other's way: the server has let the other one go ahead.
            Err(Trouble::Before(error)) if error::is_conflict(&error) => {
                Err(Failed::Lost(StoreError::Locked))
            }
            Err(Trouble::Before(error)) => Err(Failed::For(failed(&error))),
            Err(Trouble::Unsure { transaction, error, receipt }) => {
                match self.outcome(&transaction, &error, work.mutations)? {
                    true => Ok(receipt),
                    false if error::is_lost(&error) => Err(Failed::Lost(failed(&error))),
                    false => Err(Failed::For(failed(&error))),
                }
            }
        }
    }

    async fn attempt(
        &self,
        connection: &mut Connection,
        work: &Work<'_>,
        ahead: bool,
    ) -> Result<Receipt, Trouble> {
        let sessions = self.workspaces_of_sessions(connection, work.mutations).await?;
        let wanted = mutations::wanted(work.mutations, &sessions)?;
        let transaction = self.begin(connection, work).await?;
        let mut next = self.write_and_number(connection, work, ahead, &wanted).await?;
        let (mut planned, receipt) = mutations::the_rest(work.mutations, &sessions, &mut next)?;
        if !receipt.steps.is_empty() {
            // Before the first position is taken.
            planned.insert(0, order::taking_first(self.key));
        }
        let (ordered, announced) = (order::taking(self.key), listen::notify(self.key));
        let end = format!("{ordered}; SELECT nextval('stepback_commits'); COMMIT{announced}");
        match finish(connection, planned, &end).await {
            Ok(()) => Ok(receipt),
            Err(Ended::Before(trouble)) => Err(trouble),
            Err(Ended::Unsure(error)) => Err(Trouble::Unsure { transaction, error, receipt }),
        }
    }

    /// Begins the transaction and returns its number. Nothing is sent along that writes: if the server refused to begin, that
    /// would take effect by itself.
    async fn begin(&self, connection: &mut Connection, work: &Work<'_>) -> Result<String, Trouble> {
        let first = connection
            .prepared("SELECT pg_current_xact_id()::text, epoch, version FROM stepback_meta, stepback_schema")
            .await?;
        let begin = format!("BEGIN; SELECT pg_advisory_xact_lock_shared({COLLECTING}, {})", self.key);
        // The lock is one statement and the question another: only then does the answer come from after the lock.
        let (begun, found) =
            join(connection.client.batch_execute(&begin), connection.client.query_one(&first, &[])).await;
        begun?;
        let found = found?;
        let version: i32 = rows::get(&found, 2)?;
        if version as u32 > FORMAT {
            return Err(schema::too_new(&self.pool.shown, version as u32).into());
        }
        let epoch = rows::get::<i64>(&found, 1)? as u64;
        if work.epoch.is_some_and(|expected| expected != epoch) {
            return Err(StoreError::Collected.into());
        }
        Ok(rows::get(&found, 0)?)
    }

    /// Writes what needs nothing else and, without waiting in between, assigns numbers. Returns the last ones that were given
    /// before.
    ///
    /// Objects come before numbers: what a workspace's row is held for should be short.
    async fn write_and_number(
        &self,
        connection: &mut Connection,
        work: &Work<'_>,
        ahead: bool,
        wanted: &[(WorkspaceId, Wanted)],
    ) -> Result<HashMap<WorkspaceId, Wanted>, Trouble> {
        let insert = connection.prepared(objects::INSERT_NEW).await?;
        let number = connection.prepared(NUMBER).await?;
        if ahead {
            connection.client.execute(TAKE_OVER, &[]).await?;
        }
        let beginnings = mutations::beginnings(work.mutations, &self.machine);
        let statements = prepared(connection, &beginnings).await?;
        let columns = Columns::new(&work.written.objects);
        let ids: Vec<&[u8]> = wanted.iter().map(|(id, _)| id.as_bytes().as_slice()).collect();
        let steps: Vec<i64> = wanted.iter().map(|(_, wanted)| wanted.steps).collect();
        let operations: Vec<i64> = wanted.iter().map(|(_, wanted)| wanted.operations).collect();
        let client = &connection.client;
        let inserting = async {
            match work.written.objects.is_empty() {
                true => Ok(0),
                false => client.execute(&insert, &columns.values()).await,
            }
        };
        let numbering = async {
            match wanted.is_empty() {
                true => Ok(Vec::new()),
                false => client.query(&number, &[&ids, &steps, &operations]).await,
            }
        };
        let (begun, inserted, numbered) =
            join3(under_way(client, &statements, &beginnings), inserting, numbering).await;
        begun.into_iter().collect::<Result<Vec<u64>, Error>>()?;
        inserted?;
        let by_id: HashMap<WorkspaceId, Wanted> = wanted.iter().copied().collect();
        let mut next = HashMap::new();
        for row in numbered? {
            let id = rows::id(&row, 0, WorkspaceId::from_slice)?;
            let taken = by_id.get(&id).copied().unwrap_or_default();
            let last = Wanted {
                steps: rows::get::<i64>(&row, 1)? - taken.steps,
                operations: rows::get::<i64>(&row, 2)? - taken.operations,
            };
            next.insert(id, last);
        }
        Ok(next)
    }

    /// The workspaces of all sessions that steps are appended to.
    async fn workspaces_of_sessions(
        &self,
        connection: &mut Connection,
        mutations: &[Mutation],
    ) -> Result<HashMap<SessionId, WorkspaceId>, Trouble> {
        let mut found: HashMap<SessionId, WorkspaceId> = mutations::added_sessions(mutations).collect();
        let mut unknown = Vec::new();
        {
            let known = self.sessions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for session in mutations::sessions_needed(mutations) {
                match known.get(&session) {
                    Some(workspace) => drop(found.insert(session, *workspace)),
                    None => unknown.push(session.as_bytes().to_vec()),
                }
            }
        }
        if !unknown.is_empty() {
            let sql = "SELECT id, workspace FROM stepback_sessions WHERE id = ANY($1)";
            let mut asked = Vec::new();
            for row in connection.rows(sql, &[&unknown]).await? {
                asked.push((
                    rows::id(&row, 0, SessionId::from_slice)?,
                    rows::id(&row, 1, WorkspaceId::from_slice)?,
                ));
            }
            found.extend(asked.iter().copied());
            self.remember(asked.into_iter());
        }
        Ok(found)
    }

    fn remember(&self, sessions: impl Iterator<Item = (SessionId, WorkspaceId)>) {
        let mut known = self.sessions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.len() > MOST_SESSIONS {
            known.clear();
        }
        known.extend(sessions);
    }

    /// Whether a transaction took effect. Does not return before that is certain, unless the server stays away.
    fn outcome(&self, transaction: &str, error: &Error, mutations: &[Mutation]) -> Result<bool, StoreError> {
        let until = Instant::now() + UNTIL_KNOWN.max(self.pool.patience());
        loop {
            let asked = self.pool.wait(async {
                let connection = self.pool.connect().await.ok()?;
                let sql = "SELECT pg_xact_status($1::text::xid8)";
                let row = connection.client.query_one(sql, &[&transaction]).await;
                let status = match row {
                    Ok(row) => row.try_get::<_, Option<String>>(0).ok()??,
                    // "in the future": a server that crashed or took over has never heard of the transaction.
                    Err(error) if error.code() == Some(&SqlState::INVALID_PARAMETER_VALUE) => {
                        return Some(false);
                    }
                    Err(_) => return None,
                };
                match status.as_str() {
                    "aborted" => Some(false),
                    // A server that crashed gives the number of a lost transaction to the next one.
                    "committed" => mutations::took_effect(&connection.client, mutations).await.ok(),
                    _ => None,
                }
            });
            match asked {
                Some(happened) => return Ok(happened),
                _ if Instant::now() > until => {
                    return Err(error::server(
                        &self.pool.shown,
                        "learn from",
                        format!(
                            "whether a commit took effect; the connection was lost while it was under way ({})",
                            error::why(error)
                        ),
                        "when the server is back, \"stepback log\" shows whether it was recorded",
                    ));
                }
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}

/// Why a transaction did not end well.
enum Ended {
    /// It was never asked to, or cannot have.
    Before(Trouble),
    /// It was asked to, and what became of that is not known.
    Unsure(Error),
}

impl<T: Into<Trouble>> From<T> for Ended {
    fn from(error: T) -> Self {
        Self::Before(error.into())
    }
}

/// Carries out statements in order and ends the transaction. The end goes along with the last statements, unless one of them
/// says by what it changed whether there may be an end: after one that fails, the server refuses everything, that too.
async fn finish(connection: &mut Connection, planned: Vec<Planned>, end: &str) -> Result<(), Ended> {
    let together = if planned.iter().any(|planned| planned.moves.is_some()) { 0 } else { AT_ONCE };
    let (before, last) = planned.split_at(planned.len().saturating_sub(together));
    for some in before.chunks(AT_ONCE) {
        let statements = prepared(connection, some).await?;
        // In order: after the first that fails, the others only say so.
        for (done, planned) in under_way(&connection.client, &statements, some).await.into_iter().zip(some) {
            let changed = done?;
            if let Some(name) = planned.moves.as_ref().filter(|_| changed == 0) {
                return Err(StoreError::Moved { name: name.clone() }.into());
            }
        }
    }
    let statements = prepared(connection, last).await?;
    let client = &connection.client;
    let (done, ended) = join(under_way(client, &statements, last), client.batch_execute(end)).await;
    match done.into_iter().find_map(Result::err) {
        // It may have got there all the same, with the end.
        Some(error) if error::is_lost(&error) => Err(Ended::Unsure(error)),
        Some(error) => Err(error.into()),
        None => ended.map_err(Ended::Unsure),
    }
}

/// The statements of what is planned.
async fn prepared(connection: &mut Connection, planned: &[Planned]) -> Result<Vec<Statement>, Error> {
    let mut statements = Vec::with_capacity(planned.len());
    for planned in planned {
        statements.push(connection.prepared(planned.sql).await?);
    }
    Ok(statements)
}

/// Carries out statements in order, all under way at once. Says of each how many rows it changed.
async fn under_way(
    client: &Client,
    statements: &[Statement],
    planned: &[Planned],
) -> Vec<Result<u64, Error>> {
    join_all(statements.iter().zip(planned).map(|(statement, planned)| {
        client.execute_raw(statement, planned.values.iter().map(|value| &**value as &(dyn ToSql + Sync)))
    }))
    .await
}
