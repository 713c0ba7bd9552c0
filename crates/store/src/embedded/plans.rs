//! Plans in the database, in a table of their own that commits do not touch.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use stepback_model::ids::WorkspaceId;
use stepback_model::time::Timestamp;

use super::log::{blob, collect, id};
use super::{EmbeddedStore, schema};
use crate::error::StoreError;
use crate::port::{KEPT_PLANS, PlanStore, StoredPlan};

const SELECT_PLAN: &str = "SELECT id, workspace, created_at, body FROM plans";

impl EmbeddedStore {
    /// Whether the table exists: a store of an older format gets it with its first plan.
    fn has_plans(&self, db: &Connection) -> Result<bool, StoreError> {
        Ok(schema::check_format(db, &self.dir)? >= schema::PLANS_FORMAT)
    }

    /// Changes the table in one transaction. If it does not exist, `add` creates it; without `add`, nothing happens.
    fn change_plans<T: Default>(
        &self,
        add: bool,
        change: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let connection = self.connection();
        let transaction = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
        match (self.has_plans(&transaction)?, add) {
            (true, _) => {}
            (false, true) => schema::raise(&transaction)?,
            (false, false) => return Ok(T::default()),
        }
        let changed = change(&transaction)?;
        transaction.commit()?;
        Ok(changed)
    }
}

impl PlanStore for EmbeddedStore {
    fn put_plan(&self, plan: &StoredPlan) -> Result<(), StoreError> {
        self.change_plans(true, |db| {
            let sql =
                "INSERT OR REPLACE INTO plans (id, workspace, created_at, body) VALUES (?1, ?2, ?3, ?4)";
            let workspace = blob(plan.workspace.as_bytes());
            db.execute(sql, params![plan.id, workspace, plan.created_at.as_micros(), plan.body])?;
            Ok(())
        })
    }

    fn plan(&self, id: &str) -> Result<Option<StoredPlan>, StoreError> {
        let db = self.reader();
        if !self.has_plans(&db)? {
            return Ok(None);
        }
        Ok(db.query_row(&format!("{SELECT_PLAN} WHERE id = ?1"), [id], read_plan).optional()?)
    }

    fn remove_plan(&self, id: &str) -> Result<bool, StoreError> {
        self.change_plans(false, |db| Ok(db.execute("DELETE FROM plans WHERE id = ?1", [id])? > 0))
    }

    fn plans(&self, workspace: WorkspaceId) -> Result<Vec<StoredPlan>, StoreError> {
        let db = self.reader();
        if !self.has_plans(&db)? {
            return Ok(Vec::new());
        }
        let sql = format!("{SELECT_PLAN} WHERE workspace = ?1 ORDER BY created_at DESC, id DESC");
        collect(&db, &sql, [blob(workspace.as_bytes())], read_plan)
    }

    fn prune_plans(&self, workspace: WorkspaceId, oldest: Timestamp) -> Result<(), StoreError> {
        self.change_plans(false, |db| {
            let sql = "DELETE FROM plans WHERE workspace = ?1 AND (created_at < ?2 OR id NOT IN
                (SELECT id FROM plans WHERE workspace = ?1 ORDER BY created_at DESC, id DESC LIMIT ?3))";
            let workspace = blob(workspace.as_bytes());
            db.execute(sql, params![workspace, oldest.as_micros(), KEPT_PLANS as i64])?;
            Ok(())
        })
    }
}

fn read_plan(row: &Row<'_>) -> rusqlite::Result<StoredPlan> {
    Ok(StoredPlan {
        id: row.get(0)?,
        workspace: id(row, 1, WorkspaceId::from_slice)?,
        created_at: Timestamp::from_micros(row.get(2)?),
        body: row.get(3)?,
    })
}
