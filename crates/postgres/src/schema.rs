//! The tables, made and changed by numbered migrations, and the gate that keeps a program out of a store it does not
//! understand.

use std::sync::Arc;

use stepback_store::StoreError;
use stepback_store::copy::{INCOMPLETE, INCOMPLETE_REASON};
use tokio_postgres::Error;

use crate::pool::{Connection, Pool};

/// The format this program reads and writes: the number of migrations. Raise it by adding one.
pub const FORMAT: u32 = MIGRATIONS.len() as u32;

/// The first half of the key of the lock that whoever changes the tables holds.
const MIGRATING: i32 = 0x5342_0001;

/// Each leads from the format before it to the next. One that was released is never changed.
const MIGRATIONS: &[&str] = &["
CREATE TABLE stepback_schema (version integer NOT NULL);
INSERT INTO stepback_schema VALUES (0);
CREATE TABLE stepback_meta (id uuid NOT NULL, epoch bigint NOT NULL);
INSERT INTO stepback_meta VALUES (gen_random_uuid(), 0);
CREATE SEQUENCE stepback_commits;
CREATE TABLE stepback_objects (
    hash bytea PRIMARY KEY,
    kind smallint NOT NULL,
    codec smallint NOT NULL,
    depth smallint NOT NULL,
    raw_len bigint NOT NULL,
    base bytea,
    payload bytea NOT NULL
);
ALTER TABLE stepback_objects ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE stepback_workspaces (
    id bytea PRIMARY KEY,
    machine text NOT NULL,
    root bytea NOT NULL,
    created_at bigint NOT NULL,
    steps bigint NOT NULL DEFAULT 0,
    operations bigint NOT NULL DEFAULT 0,
    UNIQUE (machine, root)
) WITH (fillfactor = 50);
CREATE TABLE stepback_sessions (
    id bytea PRIMARY KEY,
    workspace bytea NOT NULL,
    agent text NOT NULL,
    started_at bigint NOT NULL,
    info jsonb NOT NULL
);
CREATE INDEX stepback_sessions_of_workspace ON stepback_sessions (workspace, started_at, id);
CREATE INDEX stepback_sessions_working ON stepback_sessions (workspace) WHERE info->'open' <> '[]';
CREATE TABLE stepback_steps (
    id bytea PRIMARY KEY,
    workspace bytea NOT NULL,
    session bytea NOT NULL,
    number bigint NOT NULL,
    parent bytea,
    kind text NOT NULL,
    at bigint NOT NULL,
    state bytea NOT NULL,
    summary text NOT NULL,
    label text,
    note text,
    tags jsonb NOT NULL,
    trigger_kind text,
    hidden_by bytea,
    purged boolean NOT NULL DEFAULT false,
    iteration bigint NOT NULL,
    worker text,
    call text,
    tool text,
    failed boolean NOT NULL,
    duration bigint,
    detail bytea,
    UNIQUE (workspace, number)
);
CREATE INDEX stepback_steps_of_session ON stepback_steps (session, number);
CREATE INDEX stepback_steps_kept ON stepback_steps (workspace, number) WHERE trigger_kind IS NOT NULL;
CREATE INDEX stepback_steps_of_tool ON stepback_steps (workspace, lower(tool COLLATE \"C\"), number) WHERE tool IS NOT NULL;
CREATE INDEX stepback_steps_of_call ON stepback_steps (workspace, call, number) WHERE call IS NOT NULL;
CREATE INDEX stepback_steps_failed ON stepback_steps (workspace, number) WHERE failed;
CREATE TABLE stepback_refs (name text COLLATE \"C\" PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE stepback_operations (
    id bytea PRIMARY KEY,
    workspace bytea NOT NULL,
    number bigint NOT NULL,
    status text NOT NULL,
    undone boolean NOT NULL,
    journal bytea,
    at bigint NOT NULL,
    summary text NOT NULL,
    action jsonb NOT NULL,
    UNIQUE (workspace, number)
);
CREATE INDEX stepback_operations_unfinished ON stepback_operations (workspace) WHERE status = 'applying';
"];

/// Whether tables may be made where there are none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Make {
    /// They may.
    Yes,
    /// There must be some.
    No,
}

/// What is known of a store before anything else is asked.
pub(crate) struct Found {
    /// Different for every store ever made.
    pub id: String,
    /// The second half of the keys of its locks.
    pub key: i32,
}

/// Checks that the tables are there and not newer than we are; makes or changes them otherwise.
pub(crate) fn prepare(pool: &Arc<Pool>, make: Make) -> Result<Found, StoreError> {
    match pool.ask(async |connection| version(connection).await)? {
        None if make == Make::No => return Err(StoreError::Absent { path: (&pool.shown).into() }),
        Some(FORMAT) => {}
        Some(newer) if newer > FORMAT => return Err(too_new(&pool.shown, newer)),
        _ => migrate(pool)?,
    }
    let (id, key, incomplete) = pool.ask(async |connection| {
        let sql = "SELECT id::text, current_schema()::regnamespace::oid::bigint,
                          EXISTS (SELECT FROM stepback_refs WHERE name = $1) FROM stepback_meta";
        let statement = connection.prepared(sql).await?;
        let row = connection.client.query_one(&statement, &[&INCOMPLETE]).await?;
        Ok((row.try_get::<_, String>(0)?, row.try_get::<_, i64>(1)?, row.try_get::<_, bool>(2)?))
    })?;
    if incomplete {
        return Err(StoreError::NotAStore { path: (&pool.shown).into(), reason: INCOMPLETE_REASON.into() });
    }
    Ok(Found { id, key: key as i32 })
}

/// What to say about a store that is newer than we are.
pub(crate) fn too_new(shown: &str, found: u32) -> StoreError {
    StoreError::Newer { path: shown.into(), found, known: FORMAT }
}

/// The format of the tables, if there are any.
async fn version(connection: &mut Connection) -> Result<Option<u32>, Error> {
    let there = connection.row("SELECT to_regclass('stepback_schema') IS NOT NULL", &[]).await?;
    if !there.map(|row| row.try_get::<_, bool>(0)).transpose()?.unwrap_or_default() {
        return Ok(None);
    }
    let row = connection.client.query_one("SELECT version FROM stepback_schema", &[]).await?;
    Ok(Some(row.try_get::<_, i32>(0)? as u32))
}

/// Brings the tables to the present format, in one transaction, while everybody else who wants to waits.
fn migrate(pool: &Arc<Pool>) -> Result<(), StoreError> {
    let mut lease = pool.lease()?;
    let connection = lease.connection()?;
    let migrated = pool.wait(async {
        let key = format!("({MIGRATING}, current_schema()::regnamespace::oid::integer)");
        // First the lock and then the transaction, so that it sees what was done while we waited.
        connection.client.batch_execute(&format!("SELECT pg_advisory_lock{key}")).await?;
        connection.client.batch_execute("BEGIN").await?;
        // Another process may have done it while we waited.
        let found = version(connection).await?.unwrap_or(0);
        if found > FORMAT {
            return Ok(Err(too_new(&pool.shown, found)));
        }
        for sql in &MIGRATIONS[found as usize..] {
            connection.client.batch_execute(sql).await?;
        }
        let raise =
            format!("UPDATE stepback_schema SET version = {FORMAT}; COMMIT; SELECT pg_advisory_unlock{key}");
        connection.client.batch_execute(&raise).await?;
        Ok(Ok(()))
    });
    let migrated = migrated.map_err(|error| pool.failed("make the tables in", &error)).flatten();
    if migrated.is_err() {
        // With it go the transaction and the lock.
        lease.discard();
    }
    migrated
}
