//! The log's rows: mutations inside a transaction, and the questions the engine asks.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};
use stepback_model::hash::Hash;
use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::json::Root;
use stepback_model::record::{
    Action, Annotation, Checkpoint, Facts, OpStatus, Operation, Session, Step, StepKind, Trigger, Workspace,
};
use stepback_model::time::Timestamp;

use super::schema::BY_ID;
use crate::error::StoreError;
use crate::port::{Mutation, Receipt, StoredCheckpoint};

/// What [`read_checkpoint`] reads, in its order.
pub(super) const COLUMNS: &str = "s.id, s.session, s.number, s.parent, s.kind, s.at, s.state, s.summary, s.label, s.note,
     s.tags, s.trigger_kind, s.hidden_by, s.purged, s.iteration, s.worker, s.call, s.tool, s.failed, s.duration,
     s.detail";
/// How many these are.
pub(super) const WIDTH: usize = 21;

const SESSION: &str = "SELECT id, workspace, agent, started_at, info FROM sessions";

const OPERATION: &str =
    "SELECT id, workspace, number, at, summary, action, status, undone, journal FROM operations";

/// Applies mutations in order. The caller's transaction makes them atomic.
pub(super) fn apply(db: &Connection, mutations: &[Mutation]) -> Result<Receipt, StoreError> {
    let mut receipt = Receipt::default();
    let mut numbering = Numbering::default();
    for mutation in mutations {
        apply_one(db, mutation, &mut receipt, &mut numbering)?;
    }
    Ok(receipt)
}

/// What a commit that appends many steps asks the database only once: the workspaces of sessions, and their next numbers. The
/// caller's transaction is the only one that writes, so the answers hold until its end.
#[derive(Default)]
struct Numbering {
    workspaces: HashMap<SessionId, WorkspaceId>,
    next: HashMap<WorkspaceId, i64>,
}

impl Numbering {
    /// The workspace of a session, and the number of its next step.
    fn next(&mut self, db: &Connection, session: SessionId) -> Result<(WorkspaceId, i64), StoreError> {
        let workspace = match self.workspaces.entry(session) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(slot) => {
                let found = db
                    .prepare_cached("SELECT workspace FROM sessions WHERE id = ?1")?
                    .query_row([blob(session.as_bytes())], |row| id(row, 0, WorkspaceId::from_slice))
                    .optional()?;
                let missing =
                    || StoreError::Corrupt { what: "a step of a session that does not exist".into() };
                *slot.insert(found.ok_or_else(missing)?)
            }
        };
        let number = match self.next.entry(workspace) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(slot) => {
                let sql = "SELECT max(number) FROM steps WHERE workspace = ?1";
                slot.insert(next(db, sql, blob(workspace.as_bytes()))?)
            }
        };
        *number += 1;
        Ok((workspace, *number - 1))
    }
}

fn apply_one(
    db: &Connection,
    mutation: &Mutation,
    receipt: &mut Receipt,
    numbering: &mut Numbering,
) -> Result<(), StoreError> {
    match mutation {
        Mutation::AddWorkspace(workspace) => {
            db.prepare_cached("INSERT INTO workspaces (id, root, created_at) VALUES (?1, ?2, ?3)")?
                .execute(params![
                    blob(workspace.id.as_bytes()),
                    workspace.root,
                    workspace.created_at.as_micros()
                ])
                .map_err(exists("this workspace"))?;
        }
        Mutation::AddSession(session) => {
            db.prepare_cached(
                "INSERT INTO sessions (id, workspace, agent, started_at, info) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                blob(session.id.as_bytes()),
                blob(session.workspace.as_bytes()),
                session.agent,
                session.started_at.as_micros(),
                json(&session.info),
            ])
            .map_err(exists("this session"))?;
        }
        Mutation::SetSessionInfo { session, info } => {
            db.prepare_cached("UPDATE sessions SET info = ?2 WHERE id = ?1")?
                .execute(params![blob(session.as_bytes()), json(info)])?;
        }
        Mutation::AppendStep { step, annotation, trigger } => {
            let (workspace, number) = numbering.next(db, step.session)?;
            db.prepare_cached(
                "INSERT INTO steps (id, workspace, session, number, parent, kind, at, state, summary, label, note, tags,
                                    trigger_kind, iteration, worker, call, tool, failed, duration, detail)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
            )?
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
                json(&annotation.tags),
                trigger.map(Trigger::as_str),
                step.facts.iteration as i64,
                step.facts.worker,
                step.facts.call,
                step.facts.tool,
                step.facts.failed,
                step.facts.duration.map(|micros| micros as i64),
                step.facts.detail.map(Root::to_bytes),
            ])
            .map_err(exists("this step"))?;
            receipt.steps.push(number as u64);
        }
        Mutation::Annotate { step, annotation } => {
            let sql = format!("UPDATE steps SET label = ?2, note = ?3, tags = ?4 WHERE {BY_ID}");
            db.prepare_cached(&sql)?.execute(params![
                blob(step.as_bytes()),
                annotation.label,
                annotation.note,
                json(&annotation.tags)
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
        Mutation::AppendOp(op) => {
            let workspace = blob(op.workspace.as_bytes());
            let number = next(db, "SELECT max(number) FROM operations WHERE workspace = ?1", workspace)?;
            db.prepare_cached(
                "INSERT INTO operations (id, workspace, number, status, undone, journal, at, summary, action)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                blob(op.id.as_bytes()),
                workspace,
                number,
                op.status.as_str(),
                op.undone,
                op.journal.as_ref().map(|hash| hash.as_bytes().as_slice()),
                op.at.as_micros(),
                op.summary,
                json(&op.action),
            ])
            .map_err(exists("this operation"))?;
            receipt.ops.push(number as u64);
        }
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

/// The number after the highest one that `sql` finds for `owner`.
///
/// Asked before the insertion, not returned by it: for `RETURNING`, SQLite makes a table in memory, with a page cache of its
/// own. The caller's transaction is the only one that writes, so the answer holds.
fn next(db: &Connection, sql: &str, owner: &[u8]) -> Result<i64, StoreError> {
    let highest: Option<i64> = db.prepare_cached(sql)?.query_row([owner], |row| row.get(0))?;
    Ok(1 + highest.unwrap_or(0))
}

pub(super) fn workspace_at(db: &Connection, root: &[u8]) -> Result<Option<Workspace>, StoreError> {
    let mut statement = db.prepare_cached("SELECT id, root, created_at FROM workspaces WHERE root = ?1")?;
    Ok(statement.query_row([root], read_workspace).optional()?)
}

pub(super) fn workspaces(db: &Connection) -> Result<Vec<Workspace>, StoreError> {
    collect(db, "SELECT id, root, created_at FROM workspaces ORDER BY created_at, id", [], read_workspace)
}

pub(super) fn sessions(db: &Connection, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
    let sql = format!("{SESSION} WHERE workspace = ?1 ORDER BY started_at, id");
    collect(db, &sql, [blob(workspace.as_bytes())], read_session)
}

/// Reading what is known of a session takes longer than finding it, and hundreds of sessions may have come and gone here. In
/// the text of the others, the list of open calls is empty.
pub(super) fn working_sessions(db: &Connection, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
    let sql =
        format!("{SESSION} WHERE workspace = ?1 AND instr(info, '\"open\":[]') = 0 ORDER BY started_at, id");
    let mut sessions = collect(db, &sql, [blob(workspace.as_bytes())], read_session)?;
    sessions.retain(|session| !session.info.open.is_empty());
    Ok(sessions)
}

pub(super) fn session(db: &Connection, session: SessionId) -> Result<Option<Session>, StoreError> {
    let mut statement = db.prepare_cached(&format!("{SESSION} WHERE id = ?1"))?;
    Ok(statement.query_row([blob(session.as_bytes())], read_session).optional()?)
}

fn read_session(row: &Row<'_>) -> rusqlite::Result<Session> {
    Ok(Session {
        id: id(row, 0, SessionId::from_slice)?,
        workspace: id(row, 1, WorkspaceId::from_slice)?,
        agent: row.get(2)?,
        started_at: Timestamp::from_micros(row.get(3)?),
        info: document(row, 4)?,
    })
}

pub(super) fn reference(db: &Connection, name: &str) -> Result<Option<StepId>, StoreError> {
    let mut statement = db.prepare_cached("SELECT value FROM refs WHERE name = ?1")?;
    Ok(statement.query_row([name], |row| id(row, 0, StepId::from_slice)).optional()?)
}

pub(super) fn references(db: &Connection, prefix: &str) -> Result<Vec<(String, StepId)>, StoreError> {
    collect(
        db,
        "SELECT name, value FROM refs WHERE substr(name, 1, length(?1)) = ?1 ORDER BY name",
        [prefix],
        |row| Ok((row.get(0)?, id(row, 1, StepId::from_slice)?)),
    )
}

pub(super) fn step(db: &Connection, step: StepId) -> Result<Option<StoredCheckpoint>, StoreError> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM steps s WHERE {BY_ID}"))?;
    Ok(statement.query_row([blob(step.as_bytes())], read_checkpoint).optional()?)
}

pub(super) fn stored_among(db: &Connection, steps: &[StepId]) -> Result<HashSet<StepId>, StoreError> {
    // In one transaction, or each question would take and give back the locks of a reader.
    let snapshot = db.unchecked_transaction()?;
    let mut statement = snapshot.prepare_cached(&format!("SELECT 1 FROM steps WHERE {BY_ID}"))?;
    let mut stored = HashSet::new();
    for step in steps {
        if statement.exists([blob(step.as_bytes())])? {
            stored.insert(*step);
        }
    }
    Ok(stored)
}

pub(super) fn step_numbered(
    db: &Connection,
    workspace: WorkspaceId,
    number: u64,
) -> Result<Option<StoredCheckpoint>, StoreError> {
    let Ok(number) = i64::try_from(number) else { return Ok(None) };
    let mut statement = db
        .prepare_cached(&format!("SELECT {COLUMNS} FROM steps s WHERE s.workspace = ?1 AND s.number = ?2"))?;
    Ok(statement.query_row(params![blob(workspace.as_bytes()), number], read_checkpoint).optional()?)
}

pub(super) fn checkpoints(
    db: &Connection,
    workspace: WorkspaceId,
) -> Result<Vec<StoredCheckpoint>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM steps s WHERE s.workspace = ?1 AND s.trigger_kind IS NOT NULL ORDER BY s.number DESC"
    );
    collect(db, &sql, [blob(workspace.as_bytes())], read_checkpoint)
}

pub(super) fn operation(db: &Connection, op: OpId) -> Result<Option<Operation>, StoreError> {
    let mut statement = db.prepare_cached(&format!("{OPERATION} WHERE id = ?1"))?;
    Ok(statement.query_row([blob(op.as_bytes())], read_operation).optional()?)
}

pub(super) fn operations(
    db: &Connection,
    workspace: WorkspaceId,
    only_unfinished: bool,
) -> Result<Vec<Operation>, StoreError> {
    // The plus keeps SQLite from walking all operations in order of their numbers to find the few that are unfinished.
    let rest = if only_unfinished {
        "AND status = 'applying' ORDER BY +number DESC"
    } else {
        "ORDER BY number DESC"
    };
    let sql = format!("{OPERATION} WHERE workspace = ?1 {rest}");
    collect(db, &sql, [blob(workspace.as_bytes())], read_operation)
}

pub(super) fn collect<T>(
    db: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn read_workspace(row: &Row<'_>) -> rusqlite::Result<Workspace> {
    Ok(Workspace {
        id: id(row, 0, WorkspaceId::from_slice)?,
        root: row.get(1)?,
        created_at: Timestamp::from_micros(row.get(2)?),
    })
}

pub(super) fn read_checkpoint(row: &Row<'_>) -> rusqlite::Result<StoredCheckpoint> {
    let step = Step {
        id: id(row, 0, StepId::from_slice)?,
        session: id(row, 1, SessionId::from_slice)?,
        number: row.get::<_, i64>(2)? as u64,
        parent: row.get_ref(3)?.as_blob_or_null()?.and_then(StepId::from_slice),
        kind: named(row, 4, StepKind::parse)?,
        at: Timestamp::from_micros(row.get(5)?),
        state: id(row, 6, Hash::from_slice)?,
        summary: row.get(7)?,
        facts: Facts {
            iteration: row.get::<_, i64>(14)? as u64,
            worker: row.get(15)?,
            call: row.get(16)?,
            tool: row.get(17)?,
            failed: row.get(18)?,
            duration: row.get::<_, Option<i64>>(19)?.map(|micros| micros as u64),
            detail: row.get_ref(20)?.as_blob_or_null()?.and_then(Root::from_slice),
        },
    };
    let annotation = Annotation { label: row.get(8)?, note: row.get(9)?, tags: document(row, 10)? };
    let checkpoint = Checkpoint {
        step,
        annotation,
        trigger: match row.get_ref(11)?.as_str_or_null()? {
            Some(_) => Some(named(row, 11, Trigger::parse)?),
            None => None,
        },
        hidden_by: row.get_ref(12)?.as_blob_or_null()?.and_then(OpId::from_slice),
    };
    Ok(StoredCheckpoint { checkpoint, purged: row.get(13)? })
}

fn read_operation(row: &Row<'_>) -> rusqlite::Result<Operation> {
    Ok(Operation {
        id: id(row, 0, OpId::from_slice)?,
        workspace: id(row, 1, WorkspaceId::from_slice)?,
        number: row.get::<_, i64>(2)? as u64,
        at: Timestamp::from_micros(row.get(3)?),
        summary: row.get(4)?,
        action: document::<Action>(row, 5)?,
        status: named(row, 6, OpStatus::parse)?,
        undone: row.get(7)?,
        journal: row.get_ref(8)?.as_blob_or_null()?.and_then(Hash::from_slice),
    })
}

/// Names what a violated uniqueness constraint protects.
fn exists(what: &'static str) -> impl FnOnce(rusqlite::Error) -> StoreError {
    move |error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::ConstraintViolation) => StoreError::Exists { what },
        _ => error.into(),
    }
}

fn blob(bytes: &[u8; 16]) -> &[u8] {
    bytes.as_slice()
}

fn json(value: &impl serde::Serialize) -> String {
    // The records are plain data with string keys, which always serialise.
    serde_json::to_string(value).unwrap_or_default()
}

pub(super) fn id<T>(row: &Row<'_>, column: usize, parse: impl Fn(&[u8]) -> Option<T>) -> rusqlite::Result<T> {
    parse(row.get_ref(column)?.as_blob()?)
        .ok_or_else(|| rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, "wrong length".into()))
}

pub(super) fn named<T>(
    row: &Row<'_>,
    column: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    parse(&text).ok_or_else(|| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            Type::Text,
            format!("{text:?} is unknown here; a newer stepback may have written it").into(),
        )
    })
}

fn document<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}
