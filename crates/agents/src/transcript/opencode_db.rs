//! Reads conversations from opencode's database, in which every message and every part is a row that changes while it grows.
//!
//! Each message becomes a line, in the format of opencode's own export. A cursor has a mark per message, so that only changed
//! messages are returned.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};
use serde_json::{Value, json};
use stepback_model::time::Timestamp;

use super::value::get_string;
use super::{LINE_LIMIT, NewLines, TranscriptCursor, TranscriptError};

/// A session in the database.
pub(crate) struct OpencodeSession {
    pub id: String,
    pub directory: String,
    pub title: String,
    pub version: String,
    pub slug: String,
    pub created: Timestamp,
    /// The parent session, if a sub-agent runs in this one.
    pub parent: Option<String>,
    /// A model that answered in it.
    pub model: Option<String>,
}

fn open_database(path: &Path) -> Result<Connection, TranscriptError> {
    if !path.is_file() {
        return Err(TranscriptError::NotFound(path.into()));
    }
    let open = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::from_millis(500))?;
        Ok(connection)
    };
    open().map_err(|source| TranscriptError::Database { path: path.into(), source })
}

pub(super) fn read_new_lines(
    path: &Path,
    session: &str,
    cursor: &TranscriptCursor,
) -> Result<NewLines, TranscriptError> {
    let connection = open_database(path)?;
    let fresh = query_new_lines(&connection, session, cursor);
    fresh
        .map_err(|source| TranscriptError::Database { path: path.into(), source })?
        .ok_or_else(|| TranscriptError::NotFound(path.into()))
}

fn query_new_lines(
    connection: &Connection,
    session: &str,
    cursor: &TranscriptCursor,
) -> rusqlite::Result<Option<NewLines>> {
    // One transaction, so that messages and parts are from the same time.
    let moment = connection.unchecked_transaction()?;
    let find = "SELECT revert FROM session WHERE id = ?1";
    let Some(revert) = moment.query_row(find, [session], |row| row.get::<_, Option<String>>(0)).optional()?
    else {
        return Ok(None);
    };
    // Reverted messages stay in the database until the next prompt, but are not part of the conversation any more.
    let revert: Value = revert.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let (end, end_part) = (get_string(&revert, "messageID"), get_string(&revert, "partID"));
    let mut messages =
        moment.prepare("SELECT id, data FROM message WHERE session_id = ?1 ORDER BY time_created, id")?;
    let mut parts = moment.prepare("SELECT id, data FROM part WHERE message_id = ?1 ORDER BY id")?;
    let (mut marks, mut lines, mut keep) = (Vec::new(), Vec::new(), 0);
    let mut rows = messages.query([session])?;
    while let Some(row) = rows.next()? {
        let (id, data): (String, String) = (row.get(0)?, row.get(1)?);
        let last = end.as_ref() == Some(&id);
        if last && end_part.is_none() {
            break;
        }
        let of = json!({"id": id, "sessionID": session});
        let info = merge_columns(&data, &of);
        let of = json!({"sessionID": session, "messageID": id});
        let mut all = Vec::new();
        let mut found = parts.query([&id])?;
        while let Some(row) = found.next()? {
            let (part, data): (String, String) = (row.get(0)?, row.get(1)?);
            if last && end_part.as_ref() == Some(&part) {
                break;
            }
            let mut of = of.clone();
            of["id"] = part.into();
            all.push(merge_columns(&data, &of));
        }
        let mut line = json!({"info": info, "parts": all}).to_string();
        if line.len() > LINE_LIMIT {
            line = json!({"info": info, "parts": [], "stepback": "parts left out"}).to_string();
        }
        let mark = blake3::hash(line.as_bytes()).to_hex()[..16].to_owned();
        if keep == marks.len() && cursor.marks.get(keep) == Some(&mark) {
            keep += 1;
        } else {
            lines.push(line);
        }
        marks.push(mark);
        if last {
            break;
        }
    }
    let cursor = TranscriptCursor { lines: marks.len(), marks, ..TranscriptCursor::default() };
    Ok(Some(NewLines { keep, lines, cursor }))
}

/// Returns the row's JSON with the columns that opencode removes from it before storing.
fn merge_columns(data: &str, columns: &Value) -> Value {
    let mut value: Value = serde_json::from_str(data).unwrap_or_else(|_| json!({"unreadable": data}));
    if let (Some(value), Some(columns)) = (value.as_object_mut(), columns.as_object()) {
        value.extend(columns.clone());
    }
    value
}

/// Returns the sessions in a database, oldest first.
pub(super) fn list_sessions(path: &Path) -> Result<Vec<OpencodeSession>, TranscriptError> {
    query_sessions(path, "ORDER BY time_created, id", &[])
}

/// Returns one session; `None` if it does not exist.
pub(crate) fn find_session(path: &Path, session: &str) -> Result<Option<OpencodeSession>, TranscriptError> {
    Ok(query_sessions(path, "WHERE id = ?1", &[&session])?.pop())
}

fn query_sessions(
    path: &Path,
    rest: &str,
    values: &[&dyn rusqlite::ToSql],
) -> Result<Vec<OpencodeSession>, TranscriptError> {
    let connection = open_database(path)?;
    let all = || {
        let what = "SELECT id, directory, title, version, slug, time_created, parent_id";
        let model = "SELECT json_extract(data, '$.modelID') FROM message \
                     WHERE session_id = session.id AND json_extract(data, '$.role') = 'assistant' LIMIT 1";
        let mut statement = connection.prepare(&format!("{what}, ({model}) FROM session {rest}"))?;
        let rows = statement.query_map(values, |row| {
            Ok(OpencodeSession {
                id: row.get(0)?,
                directory: row.get(1)?,
                title: row.get(2)?,
                version: row.get(3)?,
                slug: row.get(4)?,
                created: Timestamp::from_micros(row.get::<_, i64>(5)?.saturating_mul(1000)),
                parent: row.get(6)?,
                model: row.get(7)?,
            })
        })?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    all().map_err(|source| TranscriptError::Database { path: path.into(), source })
}
