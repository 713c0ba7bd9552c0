//! The chains of sessions in the database: the link of each step, and the head of each session.

use rusqlite::{Connection, Row, params};
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::step_chain::{StepLink, step_digest};

use super::log::{WIDTH, blob, collect, columns, id, read_checkpoint};
use super::{EmbeddedStore, schema};
use crate::error::StoreError;
use crate::port::{ChainEntry, ChainHead, StepChainStore};

impl EmbeddedStore {
    /// Whether the tables have links: a store of an older format gets them with its next step.
    fn has_links(&self, db: &Connection) -> Result<bool, StoreError> {
        Ok(schema::check_format(db, &self.dir)? >= schema::LINKS_FORMAT)
    }
}

impl StepChainStore for EmbeddedStore {
    fn chain_entries(
        &self,
        workspace: WorkspaceId,
        after: u64,
        most: u64,
    ) -> Result<Vec<ChainEntry>, StoreError> {
        let db = self.reader();
        let link = if self.has_links(&db)? { "s.link" } else { "NULL" };
        let columns = columns(&db)?;
        let sql = format!(
            "SELECT {columns}, {link} FROM steps s WHERE s.workspace = ?1 AND s.number > ?2 ORDER BY s.number LIMIT ?3"
        );
        let after = if after == 0 { i64::MIN } else { i64::try_from(after).unwrap_or(i64::MAX) };
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        collect(&db, &sql, params![blob(workspace.as_bytes()), after, most], read_entry)
    }

    fn chain_heads(&self, workspace: WorkspaceId) -> Result<Vec<ChainHead>, StoreError> {
        let db = self.reader();
        let columns = if self.has_links(&db)? { "head, linked" } else { "NULL, 0" };
        let sql = format!("SELECT id, {columns} FROM sessions WHERE workspace = ?1");
        collect(&db, &sql, [blob(workspace.as_bytes())], |row| {
            Ok(ChainHead {
                session: id(row, 0, SessionId::from_slice)?,
                linked: row.get::<_, i64>(2)?.max(0) as u64,
                head: row.get_ref(1)?.as_blob_or_null()?.and_then(StepLink::from_slice),
            })
        })
    }
}

/// Reads an entry. A row that is no valid step has no digest, which is a break of the chain and not an error: the program that
/// changed it did not have to keep to the types.
fn read_entry(row: &Row<'_>) -> rusqlite::Result<ChainEntry> {
    let read = read_checkpoint(row);
    Ok(ChainEntry {
        session: id(row, 1, SessionId::from_slice).unwrap_or(SessionId::from_bytes([0; 16])),
        number: row.get::<_, i64>(2)? as u64,
        digest: read.ok().map(|stored| step_digest(&stored.step, stored.trigger)),
        link: row.get_ref(WIDTH)?.as_blob_or_null().ok().flatten().and_then(StepLink::from_slice),
    })
}
