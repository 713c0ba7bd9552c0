//! The simple reads of the log: workspaces, sessions, references, steps and operations.

use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::record::{Operation, Session, StepRow, WorkspaceRecord};
use stepback_store::StoreError;
use stepback_store::port::{OperationStore, RefStore, SessionStore};
use tokio_postgres::types::ToSql;

use crate::rows::{self, COLUMNS, OPERATION, Record, SESSION, WORKSPACE};
use crate::{PostgresStore, text};

/// A parameter value of a statement.
type Value<'a> = &'a (dyn ToSql + Sync);

impl PostgresStore {
    fn read_all<T: Record>(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<T>, StoreError> {
        let rows = self.pool.ask(async |connection| connection.rows(sql, values).await)?;
        rows.iter().map(T::read).collect()
    }

    fn read_one<T: Record>(&self, sql: &str, values: &[Value<'_>]) -> Result<Option<T>, StoreError> {
        let row = self.pool.ask(async |connection| connection.row(sql, values).await)?;
        row.as_ref().map(T::read).transpose()
    }

    pub(crate) fn find_step(&self, step: StepId) -> Result<Option<StepRow>, StoreError> {
        self.read_one(
            &format!("SELECT {COLUMNS} FROM stepback_steps s WHERE id = $1"),
            &[&step.as_bytes().as_slice()],
        )
    }

    pub(crate) fn find_step_numbered(
        &self,
        workspace: WorkspaceId,
        number: u64,
    ) -> Result<Option<StepRow>, StoreError> {
        let Ok(number) = i64::try_from(number) else { return Ok(None) };
        let sql = format!("SELECT {COLUMNS} FROM stepback_steps s WHERE workspace = $1 AND number = $2");
        self.read_one(&sql, &[&workspace.as_bytes().as_slice(), &number])
    }

    pub(crate) fn list_checkpoints(&self, workspace: WorkspaceId) -> Result<Vec<StepRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM stepback_steps s WHERE workspace = $1 AND trigger_kind IS NOT NULL ORDER BY number DESC"
        );
        self.read_all(&sql, &[&workspace.as_bytes().as_slice()])
    }
}

impl SessionStore for PostgresStore {
    fn workspace_at(&self, root: &[u8]) -> Result<Option<WorkspaceRecord>, StoreError> {
        // A remote workspace is the same for all machines.
        let machine = if root.starts_with(WorkspaceRecord::REMOTE) { "" } else { self.machine.as_str() };
        self.read_one(&format!("{WORKSPACE} WHERE machine = $1 AND root = $2"), &[&machine, &root])
    }

    fn workspaces(&self) -> Result<Vec<WorkspaceRecord>, StoreError> {
        let mut all: Vec<WorkspaceRecord> =
            self.read_all(&format!("{WORKSPACE} ORDER BY created_at, id"), &[])?;
        all.retain(|workspace| !workspace.is_forgotten());
        Ok(all)
    }

    fn forgotten_workspaces(&self) -> Result<Vec<WorkspaceRecord>, StoreError> {
        let mut all: Vec<WorkspaceRecord> =
            self.read_all(&format!("{WORKSPACE} ORDER BY created_at, id"), &[])?;
        all.retain(WorkspaceRecord::is_forgotten);
        Ok(all)
    }

    fn sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
        let sql = format!("{SESSION} WHERE workspace = $1 ORDER BY started_at, id");
        self.read_all(&sql, &[&workspace.as_bytes().as_slice()])
    }

    fn working_sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
        let sql = format!("{SESSION} WHERE workspace = $1 AND working ORDER BY started_at, id");
        self.read_all(&sql, &[&workspace.as_bytes().as_slice()])
    }

    fn session(&self, session: SessionId) -> Result<Option<Session>, StoreError> {
        self.read_one(&format!("{SESSION} WHERE id = $1"), &[&session.as_bytes().as_slice()])
    }
}

impl RefStore for PostgresStore {
    fn reference(&self, name: &str) -> Result<Option<StepId>, StoreError> {
        let name = text::escape_text(name);
        let sql = "SELECT value FROM stepback_refs WHERE name = $1";
        let row = self.pool.ask(async |connection| connection.row(sql, &[&name]).await)?;
        row.map(|row| rows::id(&row, 0, StepId::from_slice)).transpose()
    }

    fn references(&self, prefix: &str) -> Result<Vec<(String, StepId)>, StoreError> {
        let prefix = text::escape_text(prefix);
        let sql =
            "SELECT name, value FROM stepback_refs WHERE name >= $1 AND starts_with(name, $1) ORDER BY name";
        let rows = self.pool.ask(async |connection| connection.rows(sql, &[&prefix]).await)?;
        rows.iter().map(|row| Ok((rows::read_text(row, 0)?, rows::id(row, 1, StepId::from_slice)?))).collect()
    }
}

impl OperationStore for PostgresStore {
    fn operation(&self, op: OpId) -> Result<Option<Operation>, StoreError> {
        self.read_one(&format!("{OPERATION} WHERE id = $1"), &[&op.as_bytes().as_slice()])
    }

    fn operations(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError> {
        let sql = format!("{OPERATION} WHERE workspace = $1 ORDER BY number DESC");
        self.read_all(&sql, &[&workspace.as_bytes().as_slice()])
    }

    fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError> {
        let sql = format!("{OPERATION} WHERE workspace = $1 AND status = 'applying' ORDER BY number DESC");
        self.read_all(&sql, &[&workspace.as_bytes().as_slice()])
    }
}
