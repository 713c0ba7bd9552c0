//! Reads of the log: sessions, references, steps and operations.

use std::collections::HashSet;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};
use stepback_model::hash::Hash;
use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::json::ValueRoot;
use stepback_model::record::{
    Annotation, OpStatus, Operation, OperationAction, Session, Step, StepContext, StepKind, StepMeta,
    Trigger, WorkspaceRecord,
};
use stepback_model::time::Timestamp;

use super::schema::{self, BY_ID};
use crate::error::StoreError;
use crate::port::{BatchAnswers, Questions, ReadVersions, StepRow};

/// The columns that [`read_checkpoint`] reads in every format, in its order.
macro_rules! columns {
    ($context:literal) => {
        concat!(
            "s.id, s.session, s.number, s.parent, s.kind, s.at, s.state, s.summary, s.label, s.note, s.tags, ",
            "s.trigger_kind, s.hidden_by, s.purged, s.iteration, s.worker, s.call, s.tool, s.failed, s.duration, s.detail, ",
            $context
        )
    };
}

/// The columns that [`read_checkpoint`] reads, in its order.
const COLUMNS: &str = columns!("s.task, s.trace, s.span, s.parent_span");
/// The same in a store from before [`schema::CONTEXT_FORMAT`], whose steps have no such ids.
const OLD_COLUMNS: &str = columns!("NULL, NULL, NULL, NULL");
/// The number of these columns.
pub(super) const WIDTH: usize = 25;

/// The columns that [`read_checkpoint`] reads. Reading does not raise the format of a store: it may be read-only.
pub(super) fn columns(db: &Connection) -> Result<&'static str, StoreError> {
    Ok(if schema::has_contexts(db, "main")? { COLUMNS } else { OLD_COLUMNS })
}

/// Like [`columns`], for a connection to which the log is attached.
pub(super) fn attached_columns(db: &Connection) -> Result<&'static str, StoreError> {
    Ok(if schema::has_contexts(db, "log")? { COLUMNS } else { OLD_COLUMNS })
}

const SELECT_SESSION: &str = "SELECT id, workspace, agent, started_at, info FROM sessions";

const SELECT_OPERATION: &str =
    "SELECT id, workspace, number, at, summary, action, status, undone, journal FROM operations";

pub(super) fn workspace_at(db: &Connection, root: &[u8]) -> Result<Option<WorkspaceRecord>, StoreError> {
    let mut statement = db.prepare_cached("SELECT id, root, created_at FROM workspaces WHERE root = ?1")?;
    Ok(statement.query_row([root], read_workspace).optional()?)
}

pub(super) fn workspaces(db: &Connection) -> Result<Vec<WorkspaceRecord>, StoreError> {
    let mut all = all_workspaces(db)?;
    all.retain(|workspace| !workspace.is_forgotten());
    Ok(all)
}

/// All workspaces, forgotten ones too.
pub(super) fn all_workspaces(db: &Connection) -> Result<Vec<WorkspaceRecord>, StoreError> {
    collect(db, "SELECT id, root, created_at FROM workspaces ORDER BY created_at, id", [], read_workspace)
}

pub(super) fn sessions(db: &Connection, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
    let sql = format!("{SELECT_SESSION} WHERE workspace = ?1 ORDER BY started_at, id");
    collect(db, &sql, [blob(workspace.as_bytes())], read_session)
}

/// The sessions of a workspace with open calls. Parsing a session's info takes longer than finding it, and a workspace may
/// have hundreds of past sessions; those whose text has an empty or missing list of open calls are not parsed.
pub(super) fn working_sessions(db: &Connection, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
    let sql = format!(
        "{SELECT_SESSION} WHERE workspace = ?1 AND instr(info, '\"open\":[{{') > 0 ORDER BY started_at, id"
    );
    let mut sessions = collect(db, &sql, [blob(workspace.as_bytes())], read_session)?;
    sessions.retain(|session| !session.info.open.is_empty());
    Ok(sessions)
}

pub(super) fn session(db: &Connection, session: SessionId) -> Result<Option<Session>, StoreError> {
    let mut statement = db.prepare_cached(&format!("{SELECT_SESSION} WHERE id = ?1"))?;
    Ok(statement.query_row([blob(session.as_bytes())], read_session).optional()?)
}

fn read_session(row: &Row<'_>) -> rusqlite::Result<Session> {
    Ok(Session {
        id: id(row, 0, SessionId::from_slice)?,
        workspace: id(row, 1, WorkspaceId::from_slice)?,
        agent: row.get(2)?,
        started_at: Timestamp::from_micros(row.get(3)?),
        info: read_json(row, 4)?,
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

pub(super) fn step(db: &Connection, step: StepId) -> Result<Option<StepRow>, StoreError> {
    let columns = columns(db)?;
    let mut statement = db.prepare_cached(&format!("SELECT {columns} FROM steps s WHERE {BY_ID}"))?;
    Ok(statement.query_row([blob(step.as_bytes())], read_checkpoint).optional()?)
}

/// The number of garbage collections so far.
pub(super) fn gc_generation(db: &Connection) -> Result<u64, StoreError> {
    let epoch: i64 = db.prepare_cached("SELECT epoch FROM meta")?.query_row([], |row| row.get(0))?;
    Ok(epoch as u64)
}

pub(super) fn read_batch(db: &Connection, questions: &Questions<'_>) -> Result<BatchAnswers, StoreError> {
    // In one transaction, or each query would acquire and release the reader locks.
    let snapshot = db.unchecked_transaction()?;
    let mut statement = snapshot.prepare_cached(&format!("SELECT 1 FROM steps WHERE {BY_ID}"))?;
    let mut stored = HashSet::new();
    for step in questions.steps {
        if statement.exists([blob(step.as_bytes())])? {
            stored.insert(*step);
        }
    }
    let references = questions.references.iter().map(|name| reference(&snapshot, name));
    let references = references.collect::<Result<_, _>>()?;
    let sessions = questions.sessions.iter().map(|id| session(&snapshot, *id)).collect::<Result<_, _>>()?;
    Ok(BatchAnswers {
        epoch: gc_generation(&snapshot)?,
        stored,
        references,
        sessions,
        versions: ReadVersions::default(),
    })
}

pub(super) fn step_numbered(
    db: &Connection,
    workspace: WorkspaceId,
    number: u64,
) -> Result<Option<StepRow>, StoreError> {
    let Ok(number) = i64::try_from(number) else { return Ok(None) };
    let columns = columns(db)?;
    let mut statement = db
        .prepare_cached(&format!("SELECT {columns} FROM steps s WHERE s.workspace = ?1 AND s.number = ?2"))?;
    Ok(statement.query_row(params![blob(workspace.as_bytes()), number], read_checkpoint).optional()?)
}

pub(super) fn checkpoints(db: &Connection, workspace: WorkspaceId) -> Result<Vec<StepRow>, StoreError> {
    let columns = columns(db)?;
    let sql = format!(
        "SELECT {columns} FROM steps s WHERE s.workspace = ?1 AND s.trigger_kind IS NOT NULL ORDER BY s.number DESC"
    );
    collect(db, &sql, [blob(workspace.as_bytes())], read_checkpoint)
}

pub(super) fn operation(db: &Connection, op: OpId) -> Result<Option<Operation>, StoreError> {
    let mut statement = db.prepare_cached(&format!("{SELECT_OPERATION} WHERE id = ?1"))?;
    Ok(statement.query_row([blob(op.as_bytes())], read_operation).optional()?)
}

pub(super) fn operations(
    db: &Connection,
    workspace: WorkspaceId,
    only_unfinished: bool,
) -> Result<Vec<Operation>, StoreError> {
    // The plus keeps SQLite from scanning all operations in order of their numbers to find the few that are unfinished.
    let rest = if only_unfinished {
        "AND status = 'applying' ORDER BY +number DESC"
    } else {
        "ORDER BY number DESC"
    };
    let sql = format!("{SELECT_OPERATION} WHERE workspace = ?1 {rest}");
    collect(db, &sql, [blob(workspace.as_bytes())], read_operation)
}

pub(super) fn collect<T>(
    db: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut all = Vec::new();
    // A plain loop: a step is a few hundred bytes, and every iterator adapter moves it once more.
    while let Some(row) = rows.next()? {
        all.push(read(row)?);
    }
    Ok(all)
}

fn read_workspace(row: &Row<'_>) -> rusqlite::Result<WorkspaceRecord> {
    Ok(WorkspaceRecord {
        id: id(row, 0, WorkspaceId::from_slice)?,
        root: row.get(1)?,
        created_at: Timestamp::from_micros(row.get(2)?),
    })
}

pub(super) fn read_checkpoint(row: &Row<'_>) -> rusqlite::Result<StepRow> {
    let step = Step {
        id: id(row, 0, StepId::from_slice)?,
        session: id(row, 1, SessionId::from_slice)?,
        number: row.get::<_, i64>(2)? as u64,
        parent: row.get_ref(3)?.as_blob_or_null()?.and_then(StepId::from_slice),
        kind: read_enum(row, 4, StepKind::parse)?,
        at: Timestamp::from_micros(row.get(5)?),
        state: id(row, 6, Hash::from_slice)?,
        summary: row.get(7)?,
        meta: StepMeta {
            iteration: row.get::<_, i64>(14)? as u64,
            worker: row.get(15)?,
            call: row.get(16)?,
            tool: row.get(17)?,
            failed: row.get(18)?,
            duration: row.get::<_, Option<i64>>(19)?.map(|micros| micros as u64),
            detail: row.get_ref(20)?.as_blob_or_null()?.and_then(ValueRoot::from_slice),
            context: StepContext {
                task: row.get(21)?,
                trace: row.get(22)?,
                span: row.get(23)?,
                parent_span: row.get(24)?,
            },
        },
    };
    let annotation = Annotation { label: row.get(8)?, note: row.get(9)?, tags: read_json(row, 10)? };
    Ok(StepRow {
        step,
        annotation,
        trigger: match row.get_ref(11)?.as_str_or_null()? {
            Some(_) => Some(read_enum(row, 11, Trigger::parse)?),
            None => None,
        },
        hidden_by: row.get_ref(12)?.as_blob_or_null()?.and_then(OpId::from_slice),
        purged: row.get(13)?,
    })
}

fn read_operation(row: &Row<'_>) -> rusqlite::Result<Operation> {
    Ok(Operation {
        id: id(row, 0, OpId::from_slice)?,
        workspace: id(row, 1, WorkspaceId::from_slice)?,
        number: row.get::<_, i64>(2)? as u64,
        at: Timestamp::from_micros(row.get(3)?),
        summary: row.get(4)?,
        action: read_json::<OperationAction>(row, 5)?,
        status: read_enum(row, 6, OpStatus::parse)?,
        undone: row.get(7)?,
        journal: row.get_ref(8)?.as_blob_or_null()?.and_then(Hash::from_slice),
    })
}

pub(super) fn blob(bytes: &[u8; 16]) -> &[u8] {
    bytes.as_slice()
}

pub(super) fn id<T>(row: &Row<'_>, column: usize, parse: impl Fn(&[u8]) -> Option<T>) -> rusqlite::Result<T> {
    parse(row.get_ref(column)?.as_blob()?)
        .ok_or_else(|| rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, "wrong length".into()))
}

pub(super) fn read_enum<T>(
    row: &Row<'_>,
    column: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    parse(text).ok_or_else(|| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            Type::Text,
            format!("{text:?} is unknown; a newer version of stepback may have written it").into(),
        )
    })
}

fn read_json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(row.get_ref(column)?.as_str()?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}
