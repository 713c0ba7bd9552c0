//! The chains of sessions: the link of each step, and the head of each session.

use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::record::StepRow;
use stepback_model::step_chain::{StepLink, step_digest};
use stepback_store::StoreError;
use stepback_store::port::{ChainEntry, ChainHead, StepChainStore};
use tokio_postgres::Row;

use crate::PostgresStore;
use crate::rows::{self, COLUMNS, Record, WIDTH};

impl StepChainStore for PostgresStore {
    fn chain_entries(
        &self,
        workspace: WorkspaceId,
        after: u64,
        limit: u64,
    ) -> Result<Vec<ChainEntry>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, s.link FROM stepback_steps s
             WHERE workspace = $1 AND number > $2 ORDER BY number LIMIT $3"
        );
        let after = if after == 0 { i64::MIN } else { i64::try_from(after).unwrap_or(i64::MAX) };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let workspace = workspace.as_bytes().as_slice();
        let rows =
            self.pool.ask(async |connection| connection.rows(&sql, &[&workspace, &after, &limit]).await)?;
        rows.iter().map(read_entry).collect()
    }

    fn chain_heads(&self, workspace: WorkspaceId) -> Result<Vec<ChainHead>, StoreError> {
        let sql = "SELECT s.id, c.head, coalesce(c.linked, 0) FROM stepback_sessions s
            LEFT JOIN stepback_chains c ON c.session = s.id WHERE s.workspace = $1";
        let workspace = workspace.as_bytes().as_slice();
        let rows = self.pool.ask(async |connection| connection.rows(sql, &[&workspace]).await)?;
        let read = |row: &Row| {
            Ok(ChainHead {
                session: rows::id(row, 0, SessionId::from_slice)?,
                head: rows::maybe_id(row, 1, StepLink::from_slice)?,
                linked: rows::get::<i64>(row, 2)?.max(0) as u64,
            })
        };
        rows.iter().map(read).collect()
    }
}

/// Reads an entry. A row that is no valid step has no digest, which is a break of the chain and not an error.
fn read_entry(row: &Row) -> Result<ChainEntry, StoreError> {
    let read = StepRow::read(row).ok();
    Ok(ChainEntry {
        session: rows::id(row, 1, SessionId::from_slice).unwrap_or(SessionId::from_bytes([0; 16])),
        number: rows::get::<i64>(row, 2)? as u64,
        digest: read.map(|stored| step_digest(&stored.step, stored.trigger)),
        link: rows::maybe_id(row, WIDTH, StepLink::from_slice)?,
    })
}
