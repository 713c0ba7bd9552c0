//! One attempt to commit: what is sent to the server, in how many round trips.
//!
//! Each round trip takes as long as writing a step does. A commit that only appends steps takes one ([`append`]). Any other
//! commit begins first, because nothing may take effect if the server refuses to begin, and sends the rest in a second
//! round trip. A statement whose precondition fails divides by zero, after which the server refuses the rest.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use futures_util::future::{join, join_all, join3};
use stepback_model::ids::WorkspaceId;
use stepback_store::StoreError;
use stepback_store::port::Receipt;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use crate::append::Appending;
use crate::commit::{COLLECTING, TransactionRef, Trouble, Work};
use crate::mutations::{self, NUMBER, Plan, Planned, Wanted};
use crate::objects::{self, Columns, TAKE_OVER};
use crate::pool::Connection;
use crate::schema::{self, FORMAT};
use crate::{PostgresStore, append, commit_order, error, notify, rows};

/// Maximum number of statements in flight.
const AT_ONCE: usize = 16;

/// Assigns the transaction its number. Fails if the store's format is newer than `$2`, or its epoch is not `$1`.
const FIRST: &str = "SELECT pg_current_xact_id()::text,
        1 / (coalesce($1 = epoch, true) AND $2 >= (SELECT version FROM stepback_schema))::integer FROM stepback_meta";

/// Everything that one attempt sends.
struct Sending<'a> {
    client: &'a Client,
    work: &'a Work<'a>,
    plan: &'a Plan,
    first: Statement,
    insert: Statement,
    number: Statement,
    beginnings: Vec<Statement>,
    rest: Vec<Statement>,
    begin: String,
    end: String,
    announcement: String,
}

impl PostgresStore {
    /// Tries to commit once.
    pub(crate) async fn attempt(
        &self,
        connection: &mut Connection,
        work: &Work<'_>,
        ahead: bool,
    ) -> Result<Receipt, Trouble> {
        if work.written.recalled.is_some_and(|dialed| dialed != self.pool.dialed()) {
            return Err(StoreError::Collected.into());
        }
        connection.is_clean = false;
        let sessions = self.workspaces_of_sessions(connection, work.mutations).await?;
        if !ahead
            && let Some(appending) =
                Appending::of(work.mutations, &sessions, work.written.relied_on.as_deref())?
        {
            return self.append(connection, work, &appending).await;
        }
        if work.written.relied_on.as_ref().is_some_and(|relied_on| relied_on.recalled.is_some()) {
            // Recalled answers are not compared on this path: the recorder has to look them up.
            return Err(recalled_wrong().into());
        }
        let mut plan = mutations::plan(work.mutations, &sessions, &self.machine)?;
        if plan.has_steps() {
            // The lock must be taken before the first position.
            plan.rest.insert(0, commit_order::taking_first(self.key));
        }
        let first = connection.prepared(FIRST).await?;
        let insert = connection.prepared(objects::INSERT_NEW).await?;
        let number = connection.prepared(NUMBER).await?;
        let beginnings = prepared(connection, &plan.beginnings).await?;
        let rest = prepared(connection, &plan.rest).await?;
        let sending = Sending {
            client: &connection.client,
            work,
            plan: &plan,
            first,
            insert,
            number,
            beginnings,
            rest,
            begin: format!("BEGIN; SELECT pg_advisory_xact_lock_shared({COLLECTING}, {})", self.key),
            end: format!("{}; SELECT nextval('stepback_commits'); COMMIT", commit_order::taking(self.key)),
            announcement: notify::announcement(self.key),
        };
        match sending.in_two(ahead).await {
            Ok(numbered) => {
                self.recall.forget();
                Ok(plan.receipt(&last_numbers(&numbered)?)?)
            }
            Err(Trouble::Before(error)) if error.code() == Some(&SqlState::DIVISION_BY_ZERO) => {
                Err(self.unfit(&connection.client).await?)
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Appends steps in one call.
    async fn append(
        &self,
        connection: &mut Connection,
        work: &Work<'_>,
        appending: &Appending,
    ) -> Result<Receipt, Trouble> {
        let call = connection.prepared(appending.call).await?;
        let (known, since) = (FORMAT as i32, work.epoch.map(|epoch| epoch as i64));
        let objects = Columns::new(&work.written.objects);
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&known, &since, &self.key];
        values.extend(objects.values());
        values.extend(appending.values.iter().map(|value| &**value as &(dyn ToSql + Sync)));
        let client = &connection.client;
        let announcement = notify::announcement(self.key);
        let announced = self.heard.load(Ordering::Relaxed);
        let announcing = async {
            if announced {
                // `now_or_never` only sends it, right behind the call; the answer is ignored.
                let _ = client.batch_execute(&announcement).now_or_never();
            }
        };
        let (appended, ()) = join(client.query_one(&call, &values), announcing).await;
        let appended = match appended {
            Ok(appended) => appended,
            Err(error) => {
                // A single statement leaves no transaction open.
                connection.is_clean = !error::is_lost(&error);
                let client = &connection.client;
                return Err(match error.code().map(SqlState::code) {
                    Some(append::NEWER) => self.unfit(client).await?,
                    Some(append::COLLECTED) => StoreError::Collected.into(),
                    Some(append::CHANGED) => recalled_wrong().into(),
                    _ if error::is_lost(&error) => {
                        Trouble::Unsure { which: TransactionRef::Backend(connection.backend), error }
                    }
                    _ => Trouble::Before(error),
                });
            }
        };
        let said: Vec<i64> = rows::get(&appended, 0)?;
        let [transaction, heard, last @ ..] = said.as_slice() else {
            return Err(StoreError::Corrupt { what: "appending says something else".into() }.into());
        };
        let is_heard = *heard != 0;
        self.heard.store(is_heard, Ordering::Relaxed);
        if is_heard && !announced {
            // Another process is listening now. Wait for the announcement, since no other thread may drive this connection;
            // from the next commit on it is sent with the call.
            let _ = client.batch_execute(&announcement).await;
        }
        let receipt = Receipt { steps: appending.numbers(last)?, ops: Vec::new() };
        // `xmin` shows the lower half of the transaction number.
        let version = (*transaction as u32).to_string();
        let objects = work.written.objects.iter().map(|object| object.hash);
        self.recall.committed(self.pool.dialed(), work.epoch, objects, work.mutations, &version);
        Ok(receipt)
    }

    /// Returns why the store does not meet the commit's preconditions.
    async fn unfit(&self, client: &Client) -> Result<Trouble, Trouble> {
        // The failed transaction may still be open.
        client.batch_execute("ROLLBACK").await?;
        let row = client.query_one("SELECT version FROM stepback_schema", &[]).await?;
        let version: i32 = rows::get(&row, 0)?;
        Ok(match version as u32 > FORMAT {
            true => schema::too_new(&self.pool.shown, version as u32).into(),
            false => StoreError::Collected.into(),
        })
    }
}

impl Sending<'_> {
    /// Commits in two round trips: begins first.
    async fn in_two(&self, ahead: bool) -> Result<Vec<Row>, Trouble> {
        let transaction = self.begin().await?;
        if ahead {
            self.client.execute(TAKE_OVER, &[]).await?;
        }
        let before = self.rest.len().saturating_sub(AT_ONCE);
        let mut numbered = Vec::new();
        if before > 0 {
            numbered = self.write().await?;
            let (statements, planned) = (&self.rest[..before], &self.plan.rest[..before]);
            for (statements, planned) in statements.chunks(AT_ONCE).zip(planned.chunks(AT_ONCE)) {
                moved(under_way(self.client, statements, planned).await, planned)?;
            }
        }
        let write = async {
            match before {
                0 => self.write().await,
                _ => Ok(numbered),
            }
        };
        let (numbered, (done, ended)) = join(write, self.finish()).await;
        // The statements may have arrived all the same, together with COMMIT.
        let unsure =
            |error: Error| Trouble::Unsure { which: TransactionRef::Transaction(transaction.clone()), error };
        let lost = |error: Error| match error::is_lost(&error) {
            true => unsure(error),
            false => Trouble::Before(error),
        };
        let numbered = numbered.map_err(lost)?;
        moved(done, &self.plan.rest[before..]).map_err(|trouble| match trouble {
            Trouble::Before(error) => lost(error),
            other => other,
        })?;
        ended.map_err(unsure)?;
        Ok(numbered)
    }

    /// Begins the transaction and returns its number.
    async fn begin(&self) -> Result<String, Error> {
        let epoch = self.work.epoch.map(|epoch| epoch as i64);
        let known = FORMAT as i32;
        // The lock and the query are separate statements, so that the query sees the state after the lock was taken.
        let (begun, found) = join(
            self.client.batch_execute(&self.begin),
            self.client.query_one(&self.first, &[&epoch, &known]),
        )
        .await;
        begun?;
        found?.try_get(0)
    }

    /// Writes what depends on nothing else, and assigns numbers. Returns the rows with the numbers.
    ///
    /// Objects come before numbers, to keep the time short for which a workspace's row is locked.
    async fn write(&self) -> Result<Vec<Row>, Error> {
        let columns = Columns::new(&self.work.written.objects);
        let wanted = &self.plan.wanted;
        let ids: Vec<&[u8]> = wanted.iter().map(|(id, _)| id.as_bytes().as_slice()).collect();
        let steps: Vec<i64> = wanted.iter().map(|(_, wanted)| wanted.steps).collect();
        let operations: Vec<i64> = wanted.iter().map(|(_, wanted)| wanted.operations).collect();
        let inserting = async {
            match self.work.written.objects.is_empty() {
                true => Ok(0),
                false => self.client.execute(&self.insert, &columns.values()).await,
            }
        };
        let numbering = async {
            match wanted.is_empty() {
                true => Ok(Vec::new()),
                false => self.client.query(&self.number, &[&ids, &steps, &operations]).await,
            }
        };
        let beginning = under_way(self.client, &self.beginnings, &self.plan.beginnings);
        let (begun, inserted, numbered) = join3(beginning, inserting, numbering).await;
        begun.into_iter().collect::<Result<Vec<u64>, Error>>()?;
        inserted?;
        numbered
    }

    /// Sends the last statements, COMMIT, and the announcement, whose answer is ignored.
    async fn finish(&self) -> (Vec<Result<u64, Error>>, Result<(), Error>) {
        let last = self.rest.len().saturating_sub(AT_ONCE);
        let ending = async {
            let ending = self.client.batch_execute(&self.end);
            let announcing = async {
                // `now_or_never` only sends it; the answer is ignored.
                let _ = self.client.batch_execute(&self.announcement).now_or_never();
            };
            join(ending, announcing).await.0
        };
        join(under_way(self.client, &self.rest[last..], &self.plan.rest[last..]), ending).await
    }
}

fn recalled_wrong() -> StoreError {
    StoreError::Moved { name: "what this process had last seen".into() }
}

/// The last number assigned in each workspace.
fn last_numbers(numbered: &[Row]) -> Result<HashMap<WorkspaceId, Wanted>, StoreError> {
    let mut last = HashMap::new();
    for row in numbered {
        let given = Wanted { steps: rows::get(row, 1)?, operations: rows::get(row, 2)? };
        last.insert(rows::id(row, 0, WorkspaceId::from_slice)?, given);
    }
    Ok(last)
}

/// Checks the results of statements; returns the error of the first that failed.
fn moved(done: Vec<Result<u64, Error>>, planned: &[Planned]) -> Result<(), Trouble> {
    for (done, planned) in done.into_iter().zip(planned) {
        match (done, &planned.moves) {
            (Ok(_), _) => {}
            (Err(error), Some(name)) if error.code() == Some(&SqlState::DIVISION_BY_ZERO) => {
                return Err(StoreError::Moved { name: name.clone() }.into());
            }
            (Err(error), _) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Prepares the planned statements.
async fn prepared(connection: &mut Connection, planned: &[Planned]) -> Result<Vec<Statement>, Error> {
    let mut statements = Vec::with_capacity(planned.len());
    for planned in planned {
        statements.push(connection.prepared(planned.sql).await?);
    }
    Ok(statements)
}

/// Runs statements in order, pipelined. Returns for each the number of rows it changed.
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
