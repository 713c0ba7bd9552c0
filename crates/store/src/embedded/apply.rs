//! Applies mutations to the rows of the log, inside a transaction.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::json::ValueRoot;
use stepback_model::record::{Annotation, Operation, Session, Step, Trigger, WorkspaceRecord};
use stepback_model::step_chain::{StepLink, step_digest};

use super::log::{blob, id, reference};
use super::schema::BY_ID;
use crate::error::StoreError;
use crate::port::{Mutation, Receipt};

const APPEND: &str =
    "INSERT INTO steps (id, workspace, session, number, parent, kind, at, state, summary, label, note, tags,
                        trigger_kind, iteration, worker, call, tool, failed, duration, detail, link,
                        task, trace, span, parent_span)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
             ?22, ?23, ?24, ?25)";

/// Applies mutations in order. The caller's transaction makes them atomic.
pub(super) fn apply(db: &Connection, mutations: &[Mutation]) -> Result<Receipt, StoreError> {
    let mut applying =
        CommitApplier { db, receipt: Receipt::default(), numbering: Numbering::default(), append: None };
    for mutation in mutations {
        applying.apply_mutation(mutation)?;
    }
    applying.numbering.write_heads(db)?;
    Ok(applying.receipt)
}

/// A commit being applied.
struct CommitApplier<'a> {
    db: &'a Connection,
    receipt: Receipt,
    numbering: Numbering,
    /// The statement that appends a step, looked up once: a commit may append thousands.
    append: Option<CachedStatement<'a>>,
}

/// What a commit that appends many steps reads from the database only once: the workspaces and heads of sessions, and the
/// next numbers. The caller's transaction is the only writer, so these values hold until its end.
#[derive(Default)]
struct Numbering {
    sessions: HashMap<SessionId, SessionEnd>,
    next: HashMap<WorkspaceId, i64>,
}

/// A session that a commit appends to.
struct SessionEnd {
    workspace: WorkspaceId,
    head: StepLink,
    linked: i64,
}

impl Numbering {
    /// The session that the next step belongs to, and the number of that step.
    fn next(&mut self, db: &Connection, session: SessionId) -> Result<(&mut SessionEnd, i64), StoreError> {
        let end = match self.sessions.entry(session) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(slot) => {
                let found = db
                    .prepare_cached("SELECT workspace, head, linked FROM sessions WHERE id = ?1")?
                    .query_row([blob(session.as_bytes())], |row| {
                        let head = row.get_ref(1)?.as_blob_or_null()?.and_then(StepLink::from_slice);
                        Ok(SessionEnd {
                            workspace: id(row, 0, WorkspaceId::from_slice)?,
                            head: head.unwrap_or(StepLink::START),
                            linked: row.get(2)?,
                        })
                    })
                    .optional()?;
                let missing =
                    || StoreError::Corrupt { what: "a step of a session that does not exist".into() };
                slot.insert(found.ok_or_else(missing)?)
            }
        };
        let number = match self.next.entry(end.workspace) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(slot) => {
                let sql = "SELECT max(number) FROM steps WHERE workspace = ?1";
                slot.insert(next(db, sql, blob(end.workspace.as_bytes()))?)
            }
        };
        *number += 1;
        Ok((end, *number - 1))
    }

    /// Writes the heads of the sessions that were appended to.
    fn write_heads(&self, db: &Connection) -> Result<(), StoreError> {
        for (session, end) in &self.sessions {
            db.prepare_cached("UPDATE sessions SET head = ?2, linked = ?3 WHERE id = ?1")?
                .execute(params![blob(session.as_bytes()), end.head.as_bytes().as_slice(), end.linked])?;
        }
        Ok(())
    }
}

impl SessionEnd {
    /// The link of a step that is appended to the session.
    fn add(&mut self, digest: Hash) -> StepLink {
        self.head = self.head.next(digest);
        self.linked += 1;
        self.head
    }
}

impl CommitApplier<'_> {
    fn apply_mutation(&mut self, mutation: &Mutation) -> Result<(), StoreError> {
        let db = self.db;
        match mutation {
            Mutation::AddWorkspace(workspace) => self.add_workspace(workspace)?,
            Mutation::SetWorkspaceRoot { workspace, root } => {
                db.prepare_cached("UPDATE workspaces SET root = ?2 WHERE id = ?1")?
                    .execute(params![blob(workspace.as_bytes()), root])
                    .map_err(conflict_error("this workspace"))?;
            }
            Mutation::AddSession(session) => self.add_session(session)?,
            Mutation::SetSessionInfo { session, info } => {
                db.prepare_cached("UPDATE sessions SET info = ?2 WHERE id = ?1")?
                    .execute(params![blob(session.as_bytes()), to_json(info)])?;
            }
            Mutation::AppendStep { step, annotation, trigger } => {
                self.append_step(step, annotation, *trigger)?
            }
            Mutation::Annotate { step, annotation } => {
                let sql = format!("UPDATE steps SET label = ?2, note = ?3, tags = ?4 WHERE {BY_ID}");
                db.prepare_cached(&sql)?.execute(params![
                    blob(step.as_bytes()),
                    annotation.label,
                    annotation.note,
                    to_json(&annotation.tags)
                ])?;
            }
            Mutation::SetHidden { steps, by } => {
                let mut statement =
                    db.prepare_cached(&format!("UPDATE steps SET hidden_by = ?2 WHERE {BY_ID}"))?;
                for step in steps {
                    statement
                        .execute(params![blob(step.as_bytes()), by.as_ref().map(|op| blob(op.as_bytes()))])?;
                }
            }
            Mutation::Purge { steps } => {
                let sql = format!("UPDATE steps SET purged = 1 WHERE {BY_ID} AND hidden_by IS NOT NULL");
                let mut statement = db.prepare_cached(&sql)?;
                for step in steps {
                    statement.execute([blob(step.as_bytes())])?;
                }
            }
            Mutation::SetRef { name, expected, value } => {
                if reference(db, name)? != *expected {
                    return Err(StoreError::Moved { name: name.clone() });
                }
                db.prepare_cached(
                    "INSERT INTO refs (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                )?
                .execute(params![name, blob(value.as_bytes())])?;
            }
            Mutation::DropRef { name } => {
                db.prepare_cached("DELETE FROM refs WHERE name = ?1")?.execute([name])?;
            }
            Mutation::AppendOp(operation) => self.append_operation(operation)?,
            Mutation::SetOpStatus { op, status } => {
                db.prepare_cached(
                    "UPDATE operations SET status = ?2, journal = CASE ?2 WHEN 'applying' THEN journal END WHERE id = ?1",
                )?
                .execute(params![blob(op.as_bytes()), status.as_str()])?;
            }
            Mutation::SetOpUndone { op, undone } => {
                db.prepare_cached("UPDATE operations SET undone = ?2 WHERE id = ?1")?
                    .execute(params![blob(op.as_bytes()), undone])?;
            }
        }
        Ok(())
    }

    fn add_workspace(&self, workspace: &WorkspaceRecord) -> Result<(), StoreError> {
        self.db
            .prepare_cached("INSERT INTO workspaces (id, root, created_at) VALUES (?1, ?2, ?3)")?
            .execute(params![blob(workspace.id.as_bytes()), workspace.root, workspace.created_at.as_micros()])
            .map_err(conflict_error("this workspace"))?;
        Ok(())
    }

    fn add_session(&self, session: &Session) -> Result<(), StoreError> {
        self.db
            .prepare_cached(
                "INSERT INTO sessions (id, workspace, agent, started_at, info) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                blob(session.id.as_bytes()),
                blob(session.workspace.as_bytes()),
                session.agent,
                session.started_at.as_micros(),
                to_json(&session.info),
            ])
            .map_err(conflict_error("this session"))?;
        Ok(())
    }

    fn append_operation(&mut self, operation: &Operation) -> Result<(), StoreError> {
        let workspace = blob(operation.workspace.as_bytes());
        let number = next(self.db, "SELECT max(number) FROM operations WHERE workspace = ?1", workspace)?;
        self.db
            .prepare_cached(
                "INSERT INTO operations (id, workspace, number, status, undone, journal, at, summary, action)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                blob(operation.id.as_bytes()),
                workspace,
                number,
                operation.status.as_str(),
                operation.undone,
                operation.journal.as_ref().map(|hash| hash.as_bytes().as_slice()),
                operation.at.as_micros(),
                operation.summary,
                to_json(&operation.action),
            ])
            .map_err(conflict_error("this operation"))?;
        self.receipt.ops.push(number as u64);
        Ok(())
    }

    fn append_step(
        &mut self,
        step: &Step,
        annotation: &Annotation,
        trigger: Option<Trigger>,
    ) -> Result<(), StoreError> {
        let (end, number) = self.numbering.next(self.db, step.session)?;
        let link = end.add(step_digest(step, trigger));
        let workspace = end.workspace;
        let append = match &mut self.append {
            Some(append) => append,
            none => none.insert(self.db.prepare_cached(APPEND)?),
        };
        let tags =
            if annotation.tags.is_empty() { Cow::Borrowed("[]") } else { to_json(&annotation.tags).into() };
        append
            .execute(params![
                blob(step.id.as_bytes()),
                blob(workspace.as_bytes()),
                blob(step.session.as_bytes()),
                number,
                step.parent.as_ref().map(|id| blob(id.as_bytes())),
                step.kind.as_str(),
                step.at.as_micros(),
                step.state.as_bytes().as_slice(),
                step.summary,
                annotation.label,
                annotation.note,
                tags,
                trigger.map(Trigger::as_str),
                step.meta.iteration as i64,
                step.meta.worker,
                step.meta.call,
                step.meta.tool,
                step.meta.failed,
                step.meta.duration.map(|micros| micros as i64),
                step.meta.detail.map(ValueRoot::to_bytes),
                link.as_bytes().as_slice(),
                step.meta.context.task,
                step.meta.context.trace,
                step.meta.context.span,
                step.meta.context.parent_span,
            ])
            .map_err(conflict_error("this step"))?;
        self.receipt.steps.push(number as u64);
        Ok(())
    }
}

/// The number after the highest one that `sql` finds for `owner`.
///
/// Queried before the insertion, not returned by it: for `RETURNING`, SQLite creates a table in memory, with a page cache
/// of its own. The caller's transaction is the only writer, so the answer holds.
fn next(db: &Connection, sql: &str, owner: &[u8]) -> Result<i64, StoreError> {
    let highest: Option<i64> = db.prepare_cached(sql)?.query_row([owner], |row| row.get(0))?;
    Ok(1 + highest.unwrap_or(0))
}

/// Converts a violated uniqueness constraint into an error that names what it protects.
fn conflict_error(what: &'static str) -> impl FnOnce(rusqlite::Error) -> StoreError {
    move |error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::ConstraintViolation) => StoreError::Exists { what },
        _ => error.into(),
    }
}

fn to_json(value: &impl serde::Serialize) -> String {
    // The records are plain data with string keys, which always serialise.
    serde_json::to_string(value).unwrap_or_default()
}
