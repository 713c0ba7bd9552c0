//! Plans in a table of their own, written outside of commits.

use stepback_model::ids::WorkspaceId;
use stepback_model::time::Timestamp;
use stepback_store::StoreError;
use stepback_store::port::{KEPT_PLANS, PlanStore, StoredPlan};
use tokio_postgres::Row;

use crate::{PostgresStore, rows, text};

const SELECT_PLAN: &str = "SELECT id, workspace, created_at, body FROM stepback_plans";

impl PlanStore for PostgresStore {
    fn put_plan(&self, plan: &StoredPlan) -> Result<(), StoreError> {
        let sql = "INSERT INTO stepback_plans (id, workspace, created_at, body) VALUES ($1, $2, $3, $4)
                   ON CONFLICT (id) DO UPDATE SET workspace = excluded.workspace,
                       created_at = excluded.created_at, body = excluded.body";
        let (id, workspace) = (text::escape_text(&plan.id), plan.workspace.as_bytes().as_slice());
        let created_at = plan.created_at.as_micros();
        self.pool.ask(async |connection| {
            connection.rows(sql, &[&id, &workspace, &created_at, &plan.body]).await.map(drop)
        })
    }

    fn plan(&self, id: &str) -> Result<Option<StoredPlan>, StoreError> {
        let (sql, id) = (format!("{SELECT_PLAN} WHERE id = $1"), text::escape_text(id));
        let row = self.pool.ask(async |connection| connection.row(&sql, &[&id]).await)?;
        row.as_ref().map(read_plan).transpose()
    }

    fn remove_plan(&self, id: &str) -> Result<bool, StoreError> {
        let (sql, id) = ("DELETE FROM stepback_plans WHERE id = $1 RETURNING 1", text::escape_text(id));
        Ok(self.pool.ask(async |connection| connection.row(sql, &[&id]).await)?.is_some())
    }

    fn plans(&self, workspace: WorkspaceId) -> Result<Vec<StoredPlan>, StoreError> {
        let sql = format!("{SELECT_PLAN} WHERE workspace = $1 ORDER BY created_at DESC, id DESC");
        let workspace = workspace.as_bytes().as_slice();
        let rows = self.pool.ask(async |connection| connection.rows(&sql, &[&workspace]).await)?;
        rows.iter().map(read_plan).collect()
    }

    fn prune_plans(&self, workspace: WorkspaceId, oldest: Timestamp) -> Result<(), StoreError> {
        let sql = "DELETE FROM stepback_plans WHERE workspace = $1 AND (created_at < $2 OR id NOT IN
            (SELECT id FROM stepback_plans WHERE workspace = $1 ORDER BY created_at DESC, id DESC LIMIT $3))";
        let workspace = workspace.as_bytes().as_slice();
        let (oldest, max_plans) = (oldest.as_micros(), KEPT_PLANS as i64);
        self.pool
            .ask(async |connection| connection.rows(sql, &[&workspace, &oldest, &max_plans]).await.map(drop))
    }
}

fn read_plan(row: &Row) -> Result<StoredPlan, StoreError> {
    Ok(StoredPlan {
        id: rows::read_text(row, 0)?,
        workspace: rows::id(row, 1, WorkspaceId::from_slice)?,
        created_at: Timestamp::from_micros(rows::get(row, 2)?),
        body: rows::get(row, 3)?,
    })
}
