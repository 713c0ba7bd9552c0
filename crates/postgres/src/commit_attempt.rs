//! One attempt to commit: what is sent to the server, in how many round trips.
//!
//! A commit that only appends steps is one call ([`append`]), and one round trip. Any other commit begins first, because
//! nothing may take effect if the server refuses to begin, and sends the rest in a second round trip. A statement whose
//! precondition fails divides by zero, after which the server refuses the rest.

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use stepback_store::StoreError;
use stepback_store::port::Receipt;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use crate::append::{self, StepBatch};
use crate::commit::{COLLECTING, CommitFailure, CommitInput, TransactionRef};
use crate::mutations::{self, AssignedNumbers, Plan, PlannedStatement};
use crate::objects::{self, Columns, TAKE_OVER};
use crate::pool::Connection;
use crate::schema::{self, FORMAT};
use crate::{PostgresStore, commit_order, error, notify, rows};

/// Maximum number of statements in flight.
const MAX_PIPELINED_STATEMENTS: usize = 16;

/// Assigns the transaction its number. Fails if the store's format is newer than `$2`, or its epoch is not `$1`.
const BEGIN_CHECK_SQL: &str = "SELECT pg_current_xact_id()::text,
        1 / (coalesce($1 = epoch, true) AND $2 >= (SELECT version FROM stepback_schema))::integer FROM stepback_meta";

/// Everything that one attempt sends.
struct CommitStatements<'a> {
    client: &'a Client,
    work: &'a CommitInput<'a>,
    plan: &'a Plan,
    first: Statement,
    insert: Statement,
    beginnings: Vec<Statement>,
    rest: Vec<Statement>,
    begin_transaction: String,
    end: String,
    announcement: String,
}

impl PostgresStore {
    /// Tries to commit once.
    pub(crate) async fn try_commit(
        &self,
        connection: &mut Connection,
        work: &CommitInput<'_>,
        ahead: bool,
    ) -> Result<Receipt, CommitFailure> {
        connection.is_clean = false;
        if !ahead && let Some(batch) = StepBatch::of(work.mutations, work.written.expected.as_ref()) {
            return self.commit_steps(connection, work, batch.to_json()).await;
        }
        let plan = mutations::plan(work.mutations, &self.machine, self.key);
        let first = connection.prepared(BEGIN_CHECK_SQL).await?;
        let insert = connection.prepared(objects::INSERT_NEW).await?;
        let beginnings = prepare_statements(connection, &plan.beginnings).await?;
        let rest = prepare_statements(connection, &plan.rest).await?;
        let sending = CommitStatements {
            client: &connection.client,
            work,
            plan: &plan,
            first,
            insert,
            beginnings,
            rest,
            begin_transaction: format!(
                "BEGIN; SELECT pg_advisory_xact_lock_shared({COLLECTING}, {})",
                self.key
            ),
            end: format!("{}; SELECT nextval('stepback_commits'); COMMIT", commit_order::lock_sql(self.key)),
            announcement: notify::notify_sql(self.key),
        };
        match sending.in_two(ahead).await {
            Err(CommitFailure::Before(error)) => Err(self.classify_error(&connection.client, error).await),
            done => done,
        }
    }

    /// Commits in one call.
    async fn commit_steps(
        &self,
        connection: &mut Connection,
        work: &CommitInput<'_>,
        batch: String,
    ) -> Result<Receipt, CommitFailure> {
        let call = connection.prepared(append::CALL).await?;
        let (format, since) = (FORMAT as i32, work.epoch.map(|epoch| epoch as i64));
        let objects = Columns::new(&work.written.objects);
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&format, &since, &self.key];
        values.extend(objects.values());
        values.push(&batch);
        let client = &connection.client;
        match client.query_one(&call, &values).await {
            Ok(appended) => {
                let (is_heard, steps) = append::read_result(&appended)?;
                if is_heard {
                    // A process that misses it finds the commit when it next checks.
                    let _ = client.batch_execute(&notify::notify_sql(self.key)).await;
                }
                Ok(Receipt { steps, ops: Vec::new() })
            }
            Err(error) if error::is_lost(&error) => {
                Err(CommitFailure::Unsure { which: TransactionRef::Backend(connection.backend), error })
            }
            Err(error) => {
                let refusal = self.classify_error(client, error).await;
                // A single statement leaves no transaction open.
                connection.is_clean = true;
                Err(refusal)
            }
        }
    }

    /// The reason for an error that the server reported before COMMIT.
    async fn classify_error(&self, client: &Client, error: Error) -> CommitFailure {
        match error.code().map(SqlState::code) {
            Some(append::COLLECTED) => StoreError::Collected.into(),
            Some(append::CHANGED) => StoreError::Moved { name: "a session or a reference".into() }.into(),
            Some(append::UNKNOWN) => {
                StoreError::Corrupt { what: "a step of a session that does not exist".into() }.into()
            }
            Some(code) if code == append::NEWER || code == SqlState::DIVISION_BY_ZERO.code() => {
                self.failed_precondition(client).await.unwrap_or_else(|trouble| trouble)
            }
            _ => CommitFailure::Before(error),
        }
    }

    /// Returns why the store does not meet the commit's preconditions.
    async fn failed_precondition(&self, client: &Client) -> Result<CommitFailure, CommitFailure> {
        // The failed transaction may still be open.
        client.batch_execute("ROLLBACK").await?;
        let row = client.query_one("SELECT version FROM stepback_schema", &[]).await?;
        let version: i32 = rows::get(&row, 0)?;
        Ok(match version as u32 > FORMAT {
            true => schema::too_new(&self.pool.display_address, version as u32).into(),
            false => StoreError::Collected.into(),
        })
    }
}

impl CommitStatements<'_> {
    /// Commits in two round trips: begins first.
    async fn in_two(&self, ahead: bool) -> Result<Receipt, CommitFailure> {
        let transaction = self.begin().await?;
        if ahead {
            self.client.execute(TAKE_OVER, &[]).await?;
        }
        let sent_early = self.rest.len().saturating_sub(MAX_PIPELINED_STATEMENTS);
        let mut receipt = Receipt::default();
        if sent_early > 0 {
            self.write().await?;
            let (statements, planned) = (&self.rest[..sent_early], &self.plan.rest[..sent_early]);
            for (statements, planned) in
                statements.chunks(MAX_PIPELINED_STATEMENTS).zip(planned.chunks(MAX_PIPELINED_STATEMENTS))
            {
                take_numbers(run(self.client, statements, planned).await, planned, &mut receipt)?;
            }
        }
        let write = async {
            match sent_early {
                0 => self.write().await,
                _ => Ok(()),
            }
        };
        let (write_result, (results, commit_result)) = join(write, self.finish(sent_early)).await;
        // The statements may have arrived all the same, together with COMMIT.
        let unsure = |error: Error| CommitFailure::Unsure {
            which: TransactionRef::Transaction(transaction.clone()),
            error,
        };
        let to_error = |error: Error| match error::is_lost(&error) {
            true => unsure(error),
            false => CommitFailure::Before(error),
        };
        write_result.map_err(to_error)?;
        take_numbers(results, &self.plan.rest[sent_early..], &mut receipt).map_err(
            |trouble| match trouble {
                CommitFailure::Before(error) => to_error(error),
                other => other,
            },
        )?;
        commit_result.map_err(unsure)?;
        Ok(receipt)
    }

    /// Begins the transaction and returns its number.
    async fn begin(&self) -> Result<String, Error> {
        let epoch = self.work.epoch.map(|epoch| epoch as i64);
        let format = FORMAT as i32;
        // The lock and the query are separate statements, so that the query sees the state after the lock was taken.
        let (begin_result, status) = join(
            self.client.batch_execute(&self.begin_transaction),
            self.client.query_one(&self.first, &[&epoch, &format]),
        )
        .await;
        begin_result?;
        status?.try_get(0)
    }

    /// Writes what depends on nothing else. It comes before the rest, which locks workspaces, to keep that time short.
    async fn write(&self) -> Result<(), Error> {
        let columns = Columns::new(&self.work.written.objects);
        let inserting = async {
            match self.work.written.objects.is_empty() {
                true => Ok(0),
                false => self.client.execute(&self.insert, &columns.values()).await,
            }
        };
        let beginning = run(self.client, &self.beginnings, &self.plan.beginnings);
        let (begun, inserted) = join(beginning, inserting).await;
        begun.into_iter().collect::<Result<Vec<_>, Error>>()?;
        inserted.map(drop)
    }

    /// Sends the statements from `first` on, COMMIT, and the announcement, whose answer is ignored.
    async fn finish(&self, first: usize) -> (Vec<Result<Vec<Row>, Error>>, Result<(), Error>) {
        let ending = async {
            let ending = self.client.batch_execute(&self.end);
            let announcing = async {
                // `now_or_never` only sends it; the answer is ignored.
                let _ = self.client.batch_execute(&self.announcement).now_or_never();
            };
            join(ending, announcing).await.0
        };
        join(run(self.client, &self.rest[first..], &self.plan.rest[first..]), ending).await
    }
}

/// Adds the numbers that statements returned to `receipt`; returns the error of the first that failed.
fn take_numbers(
    done: Vec<Result<Vec<Row>, Error>>,
    planned: &[PlannedStatement],
    receipt: &mut Receipt,
) -> Result<(), CommitFailure> {
    for (done, planned) in done.into_iter().zip(planned) {
        let returned = match (done, &planned.moves) {
            (Ok(returned), _) => returned,
            (Err(error), Some(name)) if error.code() == Some(&SqlState::DIVISION_BY_ZERO) => {
                return Err(StoreError::Moved { name: name.clone() }.into());
            }
            (Err(error), _) => return Err(error.into()),
        };
        for row in &returned {
            match planned.assigns {
                AssignedNumbers::Nothing => {}
                AssignedNumbers::Steps => receipt.steps.extend(append::read_result(row)?.1),
                AssignedNumbers::Operation => receipt.ops.push(rows::get::<i64>(row, 0)? as u64),
            }
        }
    }
    Ok(())
}

/// Prepares the planned statements.
async fn prepare_statements(
    connection: &mut Connection,
    planned: &[PlannedStatement],
) -> Result<Vec<Statement>, Error> {
    let mut statements = Vec::with_capacity(planned.len());
    for planned in planned {
        statements.push(connection.prepared(planned.sql).await?);
    }
    Ok(statements)
}

/// Runs statements in order, pipelined. Returns the rows of each.
async fn run(
    client: &Client,
    statements: &[Statement],
    planned: &[PlannedStatement],
) -> Vec<Result<Vec<Row>, Error>> {
    join_all(statements.iter().zip(planned).map(async |(statement, planned)| {
        let values: Vec<_> = planned.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
        client.query(statement, &values).await
    }))
    .await
}
