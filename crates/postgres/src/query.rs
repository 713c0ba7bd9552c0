//! The questions the engine asks of the log.

use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::record::{Operation, Session, StepKind, Workspace};
use stepback_store::StoreError;
use stepback_store::port::{Query, StoredCheckpoint};
use tokio_postgres::types::ToSql;

use crate::rows::{self, OPERATION, Record, SESSION, STEP, WORKSPACE};
use crate::{PostgresStore, text};

/// A value of a statement.
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

    pub(crate) fn find_workspace(&self, root: &[u8]) -> Result<Option<Workspace>, StoreError> {
        // What is no directory of any machine is the same for all of them.
        let machine = if root.starts_with(Workspace::REMOTE) { "" } else { self.machine.as_str() };
        self.find(&format!("{WORKSPACE} WHERE machine = $1 AND root = $2"), &[&machine, &root])
    }

    pub(crate) fn list_workspaces(&self) -> Result<Vec<Workspace>, StoreError> {
        self.list(&format!("{WORKSPACE} ORDER BY created_at, id"), &[])
    }

    pub(crate) fn list_sessions(
        &self,
        workspace: WorkspaceId,
        only_working: bool,
    ) -> Result<Vec<Session>, StoreError> {
        let working = if only_working { "AND info->'open' <> '[]'" } else { "" };
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

    pub(crate) fn find_step(&self, step: StepId) -> Result<Option<StoredCheckpoint>, StoreError> {
        self.find(&format!("{STEP} WHERE id = $1"), &[&step.as_bytes().as_slice()])
    }

    pub(crate) fn find_step_numbered(
        &self,
        workspace: WorkspaceId,
        number: u64,
    ) -> Result<Option<StoredCheckpoint>, StoreError> {
        let Ok(number) = i64::try_from(number) else { return Ok(None) };
        let sql = format!("{STEP} WHERE workspace = $1 AND number = $2");
        self.find(&sql, &[&workspace.as_bytes().as_slice(), &number])
    }

    pub(crate) fn list_steps(
        &self,
        workspace: WorkspaceId,
        query: &Query,
    ) -> Result<Vec<StoredCheckpoint>, StoreError> {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let workspace = workspace.as_bytes().as_slice();
        let session = query.session.as_ref().map(|session| session.as_bytes().as_slice());
        let tool = query.tool.as_deref().map(text::stored);
        let call = query.call.as_deref().map(text::stored);
        let iteration = query.iteration.map(number);
        let (after, before, limit) =
            (query.after.map(number), query.before.map(number), query.limit.map(number));
        let kinds: Vec<&str> = query.kinds.iter().map(|kind| StepKind::as_str(*kind)).collect();

        let mut sql = format!("{STEP} WHERE workspace = $1");
        let mut values: Vec<Value<'_>> = vec![&workspace];
        if let Some(session) = &session {
            values.push(session);
            sql.push_str(&format!(" AND session = ${}", values.len()));
        }
        if let Some(tool) = &tool {
            values.push(tool);
            sql.push_str(&format!(
                " AND lower(tool COLLATE \"C\") = lower(${}::text COLLATE \"C\")",
                values.len()
            ));
        }
        if let Some(call) = &call {
            values.push(call);
            sql.push_str(&format!(" AND call = ${}", values.len()));
        }
        if let Some(iteration) = &iteration {
            values.push(iteration);
            sql.push_str(&format!(" AND iteration = ${}", values.len()));
        }
        match query.failed {
            Some(true) => sql.push_str(" AND failed"),
            Some(false) => sql.push_str(" AND NOT failed"),
            None => {}
        }
        if let Some(after) = &after {
            values.push(after);
            sql.push_str(&format!(" AND number > ${}", values.len()));
        }
        if let Some(before) = &before {
            values.push(before);
            sql.push_str(&format!(" AND number < ${}", values.len()));
        }
        if !kinds.is_empty() {
            values.push(&kinds);
            sql.push_str(&format!(" AND kind = ANY(${})", values.len()));
        }
        sql.push_str(if query.oldest_first { " ORDER BY number" } else { " ORDER BY number DESC" });
        if let Some(limit) = &limit {
            values.push(limit);
            sql.push_str(&format!(" LIMIT ${}", values.len()));
        }
        self.list(&sql, &values)
    }

    pub(crate) fn list_checkpoints(
        &self,
        workspace: WorkspaceId,
    ) -> Result<Vec<StoredCheckpoint>, StoreError> {
        let sql = format!("{STEP} WHERE workspace = $1 AND trigger_kind IS NOT NULL ORDER BY number DESC");
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
