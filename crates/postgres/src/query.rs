//! The simple reads of the log: workspaces, sessions, references, steps and operations.

use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::record::StepRow;
use stepback_model::record::{Operation, Session, WorkspaceRecord};
use stepback_store::StoreError;
use tokio_postgres::types::ToSql;

use crate::rows::{self, COLUMNS, OPERATION, Record, SESSION, WORKSPACE};
use crate::{PostgresStore, text};

/// A parameter value of a statement.
type Value<'a> = &'a (dyn ToSql + Sync);

impl PostgresStore {
    fn list<T: Record>(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<T>, StoreError> {
        let rows = self.pool.ask(async |connection| connection.rows(sql, values).await)?;
        rows.iter().map(T::read).collect()
    }

    fn find<T: Record>(&self, sql: &str, values: &[Value<'_>]) -> Result<Option<T>, StoreError> {
        let row = self.pool.ask(async |connection| connection.row(sql, values).await)?;
        row.as_ref().map(T::read).transpose()
    }

    pub(crate) fn find_workspace(&self, root: &[u8]) -> Result<Option<WorkspaceRecord>, StoreError> {
        // A remote workspace is the same for all machines.
        let machine = if root.starts_with(WorkspaceRecord::REMOTE) { "" } else { self.machine.as_str() };
        self.find(&format!("{WORKSPACE} WHERE machine = $1 AND root = $2"), &[&machine, &root])
    }

    pub(crate) fn list_workspaces(&self) -> Result<Vec<WorkspaceRecord>, StoreError> {
        self.list(&format!("{WORKSPACE} ORDER BY created_at, id"), &[])
    }

    pub(crate) fn list_sessions(
        &self,
        workspace: WorkspaceId,
        only_working: bool,
    ) -> Result<Vec<Session>, StoreError> {
        let working = if only_working { "AND working" } else { "" };
        let sql = format!("{SESSION} WHERE workspace = $1 {working} ORDER BY started_at, id");
        self.list(&sql, &[&workspace.as_bytes().as_slice()])
    }

    pub(crate) fn find_session(&self, session: SessionId) -> Result<Option<Session>, StoreError> {
        self.find(&format!("{SESSION} WHERE id = $1"), &[&session.as_bytes().as_slice()])
    }

    pub(crate) fn find_reference(&self, name: &str) -> Result<Option<StepId>, StoreError> {
        let name = text::stored(name);
        let sql = "SELECT value FROM stepback_refs WHERE name = $1";
        let row = self.pool.ask(async |connection| connection.row(sql, &[&name]).await)?;
        row.map(|row| rows::id(&row, 0, StepId::from_slice)).transpose()
    }

    pub(crate) fn list_references(&self, prefix: &str) -> Result<Vec<(String, StepId)>, StoreError> {
        let prefix = text::stored(prefix);
        let sql =
            "SELECT name, value FROM stepback_refs WHERE name >= $1 AND starts_with(name, $1) ORDER BY name";
        let rows = self.pool.ask(async |connection| connection.rows(sql, &[&prefix]).await)?;
        rows.iter().map(|row| Ok((rows::words(row, 0)?, rows::id(row, 1, StepId::from_slice)?))).collect()
    }

    pub(crate) fn find_step(&self, step: StepId) -> Result<Option<StepRow>, StoreError> {
        self.find(
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
        self.find(&sql, &[&workspace.as_bytes().as_slice(), &number])
    }

    pub(crate) fn list_checkpoints(&self, workspace: WorkspaceId) -> Result<Vec<StepRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM stepback_steps s WHERE workspace = $1 AND trigger_kind IS NOT NULL ORDER BY number DESC"
        );
        self.list(&sql, &[&workspace.as_bytes().as_slice()])
    }

    pub(crate) fn find_operation(&self, op: OpId) -> Result<Option<Operation>, StoreError> {
        self.find(&format!("{OPERATION} WHERE id = $1"), &[&op.as_bytes().as_slice()])
    }

    pub(crate) fn list_operations(
        &self,
        workspace: WorkspaceId,
        only_unfinished: bool,
    ) -> Result<Vec<Operation>, StoreError> {
        let unfinished = if only_unfinished { "AND status = 'applying'" } else { "" };
        let sql = format!("{OPERATION} WHERE workspace = $1 {unfinished} ORDER BY number DESC");
        self.list(&sql, &[&workspace.as_bytes().as_slice()])
    }
}
