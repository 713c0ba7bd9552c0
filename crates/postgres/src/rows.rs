//! Conversion of rows to records.

use stepback_model::hash::Hash;
use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::json::ValueRoot;
use stepback_model::record::StepRow;
use stepback_model::record::{
    Annotation, OpStatus, Operation, OperationAction, Session, Step, StepContext, StepKind, StepMeta,
    Trigger, WorkspaceRecord,
};
use stepback_model::time::Timestamp;
use stepback_store::StoreError;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::text;

/// The columns of a workspace.
pub(crate) const WORKSPACE: &str = "SELECT id, root, created_at FROM stepback_workspaces";
/// The columns of a session.
pub(crate) const SESSION: &str = "SELECT id, workspace, agent, started_at, info::text FROM stepback_sessions";
/// The columns of a step, of a row called `s`.
pub(crate) const COLUMNS: &str = "s.id, s.session, s.number, s.parent, s.kind, s.at, s.state, s.summary, s.label, s.note,
    s.tags::text, s.trigger_kind, s.hidden_by, s.purged, s.iteration, s.worker, s.call, s.tool, s.failed, s.duration, s.detail,
    s.task, s.trace, s.span, s.parent_span";
/// The number of these columns.
pub(crate) const WIDTH: usize = 25;
/// The columns of an operation.
pub(crate) const OPERATION: &str = "SELECT id, workspace, number, at, summary, action::text, status, undone, journal FROM stepback_operations";

/// A record that can be read from a row.
pub(crate) trait Record: Sized {
    /// Reads the record in `row`.
    fn read(row: &Row) -> Result<Self, StoreError>;
}

impl Record for WorkspaceRecord {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: id(row, 0, WorkspaceId::from_slice)?,
            root: get(row, 1)?,
            created_at: Timestamp::from_micros(get(row, 2)?),
        })
    }
}

impl Record for Session {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: id(row, 0, SessionId::from_slice)?,
            workspace: id(row, 1, WorkspaceId::from_slice)?,
            agent: read_text(row, 2)?,
            started_at: Timestamp::from_micros(get(row, 3)?),
            info: read_json(row, 4)?,
        })
    }
}

impl Record for StepRow {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let step = Step {
            id: id(row, 0, StepId::from_slice)?,
            session: id(row, 1, SessionId::from_slice)?,
            number: get::<i64>(row, 2)? as u64,
            parent: maybe_id(row, 3, StepId::from_slice)?,
            kind: read_enum(row, 4, StepKind::parse)?,
            at: Timestamp::from_micros(get(row, 5)?),
            state: id(row, 6, Hash::from_slice)?,
            summary: read_text(row, 7)?,
            meta: StepMeta {
                iteration: get::<i64>(row, 14)? as u64,
                worker: maybe_words(row, 15)?,
                call: maybe_words(row, 16)?,
                tool: maybe_words(row, 17)?,
                failed: get(row, 18)?,
                duration: get::<Option<i64>>(row, 19)?.map(|micros| micros as u64),
                detail: maybe_id(row, 20, ValueRoot::from_slice)?,
                context: StepContext {
                    task: maybe_words(row, 21)?,
                    trace: maybe_words(row, 22)?,
                    span: maybe_words(row, 23)?,
                    parent_span: maybe_words(row, 24)?,
                },
            },
        };
        let annotation =
            Annotation { label: maybe_words(row, 8)?, note: maybe_words(row, 9)?, tags: read_json(row, 10)? };
        let trigger = match get::<Option<&str>>(row, 11)? {
            Some(_) => Some(read_enum(row, 11, Trigger::parse)?),
            None => None,
        };
        let hidden_by = maybe_id(row, 12, OpId::from_slice)?;
        Ok(Self { step, annotation, trigger, hidden_by, purged: get(row, 13)? })
    }
}

impl Record for Operation {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: id(row, 0, OpId::from_slice)?,
            workspace: id(row, 1, WorkspaceId::from_slice)?,
            number: get::<i64>(row, 2)? as u64,
            at: Timestamp::from_micros(get(row, 3)?),
            summary: read_text(row, 4)?,
            action: read_json::<OperationAction>(row, 5)?,
            status: read_enum(row, 6, OpStatus::parse)?,
            undone: get(row, 7)?,
            journal: maybe_id(row, 8, Hash::from_slice)?,
        })
    }
}

/// Reads one column.
pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, StoreError> {
    row.try_get(column).map_err(|error| damaged_column(column, error))
}

/// Reads a column with an id or a hash.
pub(crate) fn id<T>(row: &Row, column: usize, parse: impl Fn(&[u8]) -> Option<T>) -> Result<T, StoreError> {
    parse(get(row, column)?).ok_or_else(|| damaged_column(column, "wrong length"))
}

/// Reads a nullable column with an id or a hash.
pub(crate) fn maybe_id<T>(
    row: &Row,
    column: usize,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    Ok(get::<Option<&[u8]>>(row, column)?.and_then(parse))
}

/// Reads a column with text.
pub(crate) fn read_text(row: &Row, column: usize) -> Result<String, StoreError> {
    Ok(text::unescape_text(get(row, column)?))
}

fn maybe_words(row: &Row, column: usize) -> Result<Option<String>, StoreError> {
    Ok(get::<Option<String>>(row, column)?.map(text::unescape_text))
}

pub(crate) fn read_enum<T>(
    row: &Row,
    column: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, StoreError> {
    let text: &str = get(row, column)?;
    parse(text).ok_or_else(|| damaged_column(column, format!("unknown value {text:?}")))
}

fn read_json<T: serde::de::DeserializeOwned>(row: &Row, column: usize) -> Result<T, StoreError> {
    text::from_json(get(row, column)?).map_err(|error| damaged_column(column, error))
}

fn damaged_column(column: usize, reason: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { what: format!("column {column} of a row cannot be read: {reason}") }
}
