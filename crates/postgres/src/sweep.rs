//! Garbage collection of unreferenced objects, and the consistency check.

use std::collections::{HashMap, HashSet};
use std::pin::pin;

use futures_util::TryStreamExt;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_store::StoreError;
use stepback_store::port::{CommitMark, MaintenanceStore, Mutation, ObjectInfo, StoreUsage, Swept};
use tokio_postgres::types::ToSql;

use crate::commit::COLLECTING;
use crate::{PostgresStore, commit_order, error, notify, rows};

/// Number of objects deleted by one statement.
const OBJECTS_PER_DELETE: usize = 10_000;

/// The size of all tables, in bytes.
const TOTAL_SIZE_SQL: &str = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
    WHERE c.relkind = 'r' AND c.relname LIKE 'stepback\\_%' AND c.relnamespace = current_schema()::regnamespace";

/// Queries that find nothing in a healthy store, each with the message for what it finds.
const CONSISTENCY_CHECKS: [(&str, &str); 9] = [
    (
        "SELECT count(*) FROM stepback_objects WHERE octet_length(hash) <> 32 OR kind NOT BETWEEN 1 AND 8",
        "objects without a valid hash or kind",
    ),
    (
        "SELECT count(*) FROM stepback_objects o WHERE base IS NOT NULL
           AND NOT EXISTS (SELECT FROM stepback_objects b WHERE b.hash = o.base AND b.depth < o.depth)",
        "objects whose base is missing",
    ),
    (
        "SELECT count(*) FROM stepback_workspaces w
           WHERE steps <> (SELECT count(*) FROM stepback_steps s WHERE s.workspace = w.id)
              OR steps <> (SELECT coalesce(max(number), 0) FROM stepback_steps s WHERE s.workspace = w.id)",
        "workspaces whose steps have gaps",
    ),
    (
        "SELECT count(*) FROM (SELECT position, lag(position) OVER (PARTITION BY workspace ORDER BY number) AS before
           FROM stepback_steps) s WHERE position <= before OR position > (SELECT last_value FROM stepback_positions)",
        "steps whose place in the order of commits is wrong",
    ),
    (
        "SELECT count(*) FROM (SELECT session, kind, coalesce(lower(tool COLLATE \"C\"), '') AS tool, count(*) AS steps,
               count(*) FILTER (WHERE failed) AS failed FROM stepback_steps GROUP BY 1, 2, 3) s
           FULL JOIN stepback_tallies t USING (session, kind, tool)
           WHERE (s.steps, s.failed) IS DISTINCT FROM (t.steps, t.failed)",
        "sessions whose steps are not counted right",
    ),
    (
        "SELECT count(*) FROM stepback_index i, (SELECT count(*) AS documents, coalesce(sum(words), 0) AS words FROM stepback_texts) t
           WHERE i.documents <> t.documents OR i.words <> t.words",
        "index whose texts are not counted right; \"stepback search --reindex\" makes it again",
    ),
    (
        "SELECT count(*) FROM stepback_workspaces w
           WHERE operations <> (SELECT count(*) FROM stepback_operations o WHERE o.workspace = w.id)",
        "workspaces whose operations have gaps",
    ),
    (
        "SELECT count(*) FROM stepback_steps s
           WHERE NOT EXISTS (SELECT FROM stepback_sessions n WHERE n.id = s.session AND n.workspace = s.workspace)",
        "steps of a session that does not exist",
    ),
    (
        "SELECT count(*) FROM stepback_sessions s
           WHERE NOT EXISTS (SELECT FROM stepback_workspaces w WHERE w.id = s.workspace)",
        "sessions of a workspace that does not exist",
    ),
];

impl PostgresStore {
    /// Calls `visit` for every object, without loading all of them into memory.
    pub(crate) fn visit_objects(&self, visit: &mut dyn FnMut(ObjectInfo)) -> Result<(), StoreError> {
        let mut lease = self.pool.lease()?;
        let connection = lease.connection()?;
        let visited = self.pool.wait(async {
            let sql = "SELECT kind, hash, raw_len, base FROM stepback_objects";
            let statement = connection.prepared(sql).await?;
            let no_values: [&(dyn ToSql + Sync); 0] = [];
            let mut rows = pin!(connection.client.query_raw(&statement, no_values).await?);
            while let Some(row) = rows.try_next().await? {
                let read = || {
                    let kind = u8::try_from(rows::get::<i16>(&row, 0)?).ok().and_then(ObjectKind::from_u8);
                    let kind = kind.ok_or_else(|| StoreError::Corrupt {
                        what: "an object row has no valid kind".into(),
                    })?;
                    Ok(ObjectInfo {
                        kind,
                        hash: rows::id(&row, 1, Hash::from_slice)?,
                        raw_len: rows::get::<i64>(&row, 2)? as u64,
                        base: rows::maybe_id(&row, 3, Hash::from_slice)?,
                    })
                };
                match read() {
                    Ok(object) => visit(object),
                    Err(error) => return Ok(Err(error)),
                }
            }
            Ok(Ok(()))
        });
        visited.map_err(|error| self.pool.failed("read from", &error)).flatten()
    }

    fn total_bytes(&self) -> Result<u64, StoreError> {
        let row = self.pool.ask(async |connection| connection.client.query_one(TOTAL_SIZE_SQL, &[]).await)?;
        Ok(rows::get::<i64>(&row, 0)? as u64)
    }
}

impl MaintenanceStore for PostgresStore {
    fn sweep(&self, live: &HashSet<Hash>, mark: CommitMark) -> Result<Swept, StoreError> {
        self.recent.clear();
        let bytes_before = self.total_bytes()?;
        let mut objects = Vec::new();
        self.visit_objects(&mut |object| objects.push((object.hash, object.base)))?;
        let count = objects.len();
        let dead = dead_among(objects, live);
        let mut lease = self.pool.lease()?;
        let connection = lease.connection()?;
        let swept = self.pool.wait(async {
            let lock = format!("BEGIN; SELECT pg_advisory_xact_lock({COLLECTING}, {})", self.key);
            connection.client.batch_execute(&lock).await?;
            let row = connection.client.query_one(MARK, &[]).await?;
            if row.try_get::<_, i64>(0)? as u64 != mark.0 {
                return Ok(Err(StoreError::Grew));
            }
            for chunk in dead.chunks(OBJECTS_PER_DELETE) {
                let hashes: Vec<&[u8]> = chunk.iter().map(|hash| hash.as_bytes().as_slice()).collect();
                let sql = "DELETE FROM stepback_objects WHERE hash = ANY($1)";
                connection.client.execute(sql, &[&hashes]).await?;
            }
            let end = format!(
                "UPDATE stepback_meta SET epoch = epoch + 1; {}; SELECT nextval('stepback_commits'); COMMIT; {}",
                commit_order::lock_sql(self.key),
                notify::notify_sql(self.key)
            );
            connection.client.batch_execute(&end).await?;
            Ok(Ok(()))
        });
        let swept = swept.map_err(|error| self.pool.failed("free objects in", &error)).flatten();
        if let Err(error) = swept {
            // Discarding the connection also ends the transaction.
            lease.discard();
            return Err(error);
        }
        // Returning space to the system rewrites the table, while all others wait: do so only when it is worth it. A user
        // who does not own the table cannot; the server then reuses the space for new rows.
        if !dead.is_empty() {
            let vacuum = if dead.len() * 3 >= count { "VACUUM FULL" } else { "VACUUM" };
            let vacuumed = self.pool.wait(async {
                connection_of(&mut lease)?
                    .client
                    .batch_execute(&format!("{vacuum} stepback_objects"))
                    .await
                    .map_err(|error| error::to_store_error(&self.pool.display_address, "clean up", &error))
            });
            drop(vacuumed);
        }
        Ok(Swept { objects: dead.len() as u64, bytes: bytes_before.saturating_sub(self.total_bytes()?) })
    }

    /// An estimate: the server decides when it returns which pages to the system.
    fn usage_after(&self, _: &[Mutation], live: &HashSet<Hash>) -> Result<StoreUsage, StoreError> {
        let mut objects = Vec::new();
        self.visit_objects(&mut |object| objects.push((object.hash, object.base)))?;
        let mut usage = self.usage()?;
        for chunk in dead_among(objects, live).chunks(OBJECTS_PER_DELETE) {
            let hashes: Vec<&[u8]> = chunk.iter().map(|hash| hash.as_bytes().as_slice()).collect();
            let sql = "SELECT count(*), coalesce(sum(raw_len), 0)::bigint,
                              coalesce(sum(octet_length(payload)), 0)::bigint
                       FROM stepback_objects WHERE hash = ANY($1)";
            let row = self.pool.ask(async |connection| connection.client.query_one(sql, &[&hashes]).await)?;
            let freed = rows::get::<i64>(&row, 2)? as u64;
            usage.objects = usage.objects.saturating_sub(rows::get::<i64>(&row, 0)? as u64);
            usage.raw_bytes = usage.raw_bytes.saturating_sub(rows::get::<i64>(&row, 1)? as u64);
            usage.stored_bytes = usage.stored_bytes.saturating_sub(freed);
            usage.total_bytes = usage.total_bytes.saturating_sub(freed);
        }
        Ok(usage)
    }

    fn usage(&self) -> Result<StoreUsage, StoreError> {
        let sql = "SELECT count(*), coalesce(sum(raw_len), 0)::bigint,
                          coalesce(sum(octet_length(payload)), 0)::bigint FROM stepback_objects";
        let row = self.pool.ask(async |connection| connection.client.query_one(sql, &[]).await)?;
        Ok(StoreUsage {
            objects: rows::get::<i64>(&row, 0)? as u64,
            raw_bytes: rows::get::<i64>(&row, 1)? as u64,
            stored_bytes: rows::get::<i64>(&row, 2)? as u64,
            total_bytes: self.total_bytes()?,
        })
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        // The check must read from the server, not from the cache.
        self.recent.clear();
        let mut complaints = Vec::new();
        for (sql, message) in CONSISTENCY_CHECKS {
            let row = self.pool.ask(async |connection| connection.client.query_one(sql, &[]).await)?;
            let count: i64 = rows::get(&row, 0)?;
            if count > 0 {
                complaints.push(format!("the database has {count} {message}"));
            }
        }
        Ok(complaints)
    }
}

/// Reads the number of commits.
const MARK: &str = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM stepback_commits";

fn connection_of(lease: &mut crate::pool::Lease) -> Result<&mut crate::pool::Connection, StoreError> {
    lease.connection()
}

/// The objects that are neither in `live` nor needed by one that is.
fn dead_among(objects: Vec<(Hash, Option<Hash>)>, live: &HashSet<Hash>) -> Vec<Hash> {
    let base_of: HashMap<Hash, Hash> =
        objects.iter().filter_map(|(hash, base)| Some((*hash, (*base)?))).collect();
    let mut bases = HashSet::new();
    for hash in live {
        let mut next = base_of.get(hash);
        while let Some(base) = next.filter(|base| bases.insert(**base)) {
            next = base_of.get(base);
        }
    }
    objects
        .into_iter()
        .map(|(hash, _)| hash)
        .filter(|hash| !live.contains(hash) && !bases.contains(hash))
        .collect()
}
