//! Creates and migrates the tables by numbered migrations, and refuses to open a store whose format this program does not
//! know.

use std::sync::Arc;

use stepback_store::StoreError;
use stepback_store::copy::{INCOMPLETE, INCOMPLETE_REASON};
use tokio_postgres::Error;

use crate::commit::COLLECTING;
use crate::pool::{Connection, Pool};
use crate::tables::MIGRATIONS;

/// The format this program reads and writes: the number of migrations. Raise it by adding one.
pub const FORMAT: u32 = MIGRATIONS.len() as u32;

/// The first half of the key of the lock that is held while the tables are changed.
const MIGRATION_LOCK_KEY: i32 = 0x5342_0001;

/// Whether to create the tables if there are none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreateTables {
    /// Create them.
    Yes,
    /// Do not create them; the store must exist.
    No,
}

/// The identity of a store, read when it is opened.
pub(crate) struct StoreIdentity {
    /// Unique id of the store.
    pub id: String,
    /// The second half of the keys of its locks.
    pub key: i32,
}

/// Checks that the tables exist and that their format is not too new; otherwise creates or migrates them.
pub(crate) fn prepare(pool: &Arc<Pool>, create: CreateTables) -> Result<StoreIdentity, StoreError> {
    match pool.ask(async |connection| read_version(connection).await)? {
        None if create == CreateTables::No => {
            return Err(StoreError::Absent { path: (&pool.display_address).into() });
        }
        Some(FORMAT) => {}
        Some(newer) if newer > FORMAT => return Err(too_new(&pool.display_address, newer)),
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
        return Err(StoreError::NotAStore {
            path: (&pool.display_address).into(),
            reason: INCOMPLETE_REASON.into(),
        });
    }
    Ok(StoreIdentity { id, key: key as i32 })
}

/// The error for a store whose format is newer than this program.
pub(crate) fn too_new(address: &str, version: u32) -> StoreError {
    StoreError::Newer { path: address.into(), found: version, known: FORMAT }
}

/// The format of the tables, if there are any.
async fn read_version(connection: &mut Connection) -> Result<Option<u32>, Error> {
    let exists = connection.row("SELECT to_regclass('stepback_schema') IS NOT NULL", &[]).await?;
    if !exists.map(|row| row.try_get::<_, bool>(0)).transpose()?.unwrap_or_default() {
        return Ok(None);
    }
    let row = connection.client.query_one("SELECT version FROM stepback_schema", &[]).await?;
    Ok(Some(row.try_get::<_, i32>(0)? as u32))
}

/// Migrates the tables to the current format in one transaction, while other processes that want to do the same wait.
fn migrate(pool: &Arc<Pool>) -> Result<(), StoreError> {
    let mut lease = pool.lease()?;
    let connection = lease.connection()?;
    let migrated = pool.wait(async {
        let key = format!("({MIGRATION_LOCK_KEY}, current_schema()::regnamespace::oid::integer)");
        // Take the lock before the transaction begins, so that it sees what was committed during the wait.
        connection.client.batch_execute(&format!("SELECT pg_advisory_lock{key}")).await?;
        connection.client.batch_execute("BEGIN").await?;
        // Commits are locked out meanwhile: a program that knows only the old tables would otherwise query them halfway
        // through.
        let commits = format!(
            "SELECT pg_advisory_xact_lock({COLLECTING}, current_schema()::regnamespace::oid::integer)"
        );
        connection.client.batch_execute(&commits).await?;
        // Another process may have migrated during the wait.
        let version = read_version(connection).await?.unwrap_or(0);
        if version > FORMAT {
            return Ok(Err(too_new(&pool.display_address, version)));
        }
        for sql in &MIGRATIONS[version as usize..] {
            connection.client.batch_execute(sql).await?;
        }
        let raise =
            format!("UPDATE stepback_schema SET version = {FORMAT}; COMMIT; SELECT pg_advisory_unlock{key}");
        connection.client.batch_execute(&raise).await?;
        Ok(Ok(()))
    });
    let migrated = migrated.map_err(|error| pool.failed("make the tables in", &error)).flatten();
    if migrated.is_err() {
        // Discarding the connection also ends the transaction and releases the lock.
        lease.discard();
    }
    migrated
}
