//! Queries as SQL: the conditions, the order, and a page of the answer.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use stepback_model::ids::WorkspaceId;
use stepback_model::record::StepKind;

use super::log::{self, COLUMNS, WIDTH};
use crate::error::StoreError;
use crate::port::{By, Cursor, Page, Placed, Query, StoredCheckpoint, Tally};

/// What a step must fulfil: SQL about a row `s`, beginning with ` AND` unless it is empty, and its parameters.
#[derive(Default)]
pub(super) struct Conditions {
    /// The SQL.
    pub sql: String,
    /// The parameters.
    pub values: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, condition: &str, value: Value) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.push(value);
    }

    /// Those of a query, without its cursor. `sessions` is the name of the table of sessions.
    pub fn of(workspace: Option<WorkspaceId>, query: &Query, sessions: &str) -> Self {
        let mut all = Self::default();
        let text = |text: &String| Value::Text(text.clone());
        let flag = |flag: bool| Value::Integer(i64::from(flag));
        if let Some(workspace) = workspace {
            all.add("s.workspace = ?", Value::Blob(workspace.as_bytes().to_vec()));
        }
        if let Some(session) = query.session {
            all.add("s.session = ?", Value::Blob(session.as_bytes().to_vec()));
        }
        if let Some(agent) = &query.agent {
            all.add(&format!("s.session IN (SELECT id FROM {sessions} WHERE agent = ?)"), text(agent));
        }
        if let Some(worker) = &query.worker {
            all.add("s.worker = ?", text(worker));
        }
        if let Some(tool) = &query.tool {
            all.add("s.tool = ? COLLATE NOCASE", text(tool));
        }
        if let Some(call) = &query.call {
            all.add("s.call = ?", text(call));
        }
        if let Some(iteration) = query.iteration {
            all.add("s.iteration = ?", number(iteration));
        }
        if let Some(failed) = query.failed {
            all.add("s.failed = ?", flag(failed));
        }
        if let Some(since) = query.since {
            all.add("s.at >= ?", Value::Integer(since.as_micros()));
        }
        if let Some(until) = query.until {
            all.add("s.at <= ?", Value::Integer(until.as_micros()));
        }
        if let Some(state) = query.state {
            all.add("s.state = ?", Value::Blob(state.as_bytes().to_vec()));
        }
        if let Some(checkpoint) = query.checkpoint {
            all.add("(s.trigger_kind IS NOT NULL) = ?", flag(checkpoint));
        }
        if let Some(hidden) = query.hidden {
            all.add("(s.hidden_by IS NOT NULL) = ?", flag(hidden));
        }
        if let Some(label) = &query.label {
            all.add("s.label = ?", text(label));
        }
        if let Some(tag) = &query.tag {
            all.add("EXISTS (SELECT 1 FROM json_each(s.tags) WHERE value = ?)", text(tag));
        }
        if let Some(least) = query.min_duration {
            all.add("s.duration >= ?", number(least));
        }
        if let Some(after) = query.after {
            all.add("s.number > ?", number(after));
        }
        if let Some(before) = query.before {
            all.add("s.number < ?", number(before));
        }
        if !query.kinds.is_empty() {
            let places = vec!["?"; query.kinds.len()].join(", ");
            all.sql.push_str(&format!(" AND s.kind IN ({places})"));
            all.values.extend(query.kinds.iter().map(|kind| Value::Text(kind.as_str().to_string())));
        }
        all
    }
}

fn number(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The columns that steps are ordered by. In one workspace the numbers are in order of commits, and have an index.
fn order_of(workspace: Option<WorkspaceId>, query: &Query) -> &'static [&'static str] {
    match query.by {
        By::Commit if workspace.is_some() => &["s.number"],
        By::Commit => &["s.position"],
        By::Time => &["s.at", "s.position"],
        By::Duration => &["coalesce(s.duration, -1)", "s.position"],
    }
}

/// `ORDER BY` for a query.
pub(super) fn order(workspace: Option<WorkspaceId>, query: &Query) -> String {
    let direction = if query.oldest_first { "" } else { " DESC" };
    let columns: Vec<String> =
        order_of(workspace, query).iter().map(|column| format!("{column}{direction}")).collect();
    format!(" ORDER BY {}", columns.join(", "))
}

pub(super) fn steps(
    db: &Connection,
    workspace: WorkspaceId,
    query: &Query,
) -> Result<Vec<StoredCheckpoint>, StoreError> {
    let rows = rows(db, Some(workspace), query, query.limit)?;
    Ok(rows.into_iter().map(|(_, placed)| placed.stored).collect())
}

pub(super) fn page(
    db: &Connection,
    workspace: Option<WorkspaceId>,
    query: &Query,
) -> Result<Page, StoreError> {
    // The total and the page are of the same moment.
    let _snapshot = db.unchecked_transaction()?;
    // One more than asked for tells whether there are more.
    let mut rows = rows(db, workspace, query, query.limit.map(|most| most.saturating_add(1)))?;
    let most = query.limit.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let more = rows.len() > most;
    rows.truncate(most);
    let total = match query.limit.is_none() && query.from.is_none() {
        true => rows.len() as u64,
        false => {
            let Conditions { sql, values } = Conditions::of(workspace, query, "sessions");
            let sql = format!("SELECT count(*) FROM steps s WHERE 1{sql}");
            let total: i64 =
                db.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?;
            total as u64
        }
    };
    let next = rows.last().filter(|_| more).map(|(place, _)| *place);
    Ok(Page { steps: rows.into_iter().map(|(_, placed)| placed).collect(), total, at_least: false, next })
}

pub(super) fn follow(db: &Connection, position: u64, most: u64) -> Result<Vec<Placed>, StoreError> {
    let from = Some(Cursor { value: 0, position });
    let query = Query { oldest_first: true, from, ..Query::default() };
    let rows = rows(db, None, &query, Some(most))?;
    Ok(rows.into_iter().map(|(_, placed)| placed).collect())
}

pub(super) fn newest_position(db: &Connection) -> Result<u64, StoreError> {
    let newest: Option<i64> =
        db.prepare_cached("SELECT max(position) FROM steps")?.query_row([], |row| row.get(0))?;
    Ok(newest.unwrap_or_default() as u64)
}

fn rows(
    db: &Connection,
    workspace: Option<WorkspaceId>,
    query: &Query,
    limit: Option<u64>,
) -> Result<Vec<(Cursor, Placed)>, StoreError> {
    let Conditions { sql: conditions, mut values } = Conditions::of(workspace, query, "sessions");
    let mut sql = format!("SELECT {COLUMNS}, s.position, s.workspace FROM steps s WHERE 1{conditions}");
    if let Some(from) = query.from {
        let sign = if query.oldest_first { '>' } else { '<' };
        let position = number(from.position);
        match query.by {
            By::Commit => {
                sql.push_str(&format!(" AND s.position {sign} ?"));
                values.push(position);
            }
            By::Time | By::Duration => {
                let columns = order_of(workspace, query).join(", ");
                sql.push_str(&format!(" AND ({columns}) {sign} (?, ?)"));
                values.extend([Value::Integer(from.value), position]);
            }
        }
    }
    sql.push_str(&order(workspace, query));
    if let Some(most) = limit {
        sql.push_str(" LIMIT ?");
        values.push(number(most));
    }
    log::collect(db, &sql, params_from_iter(values), |row| {
        let stored = log::read_checkpoint(row)?;
        let position = row.get::<_, i64>(WIDTH)? as u64;
        let place = query.place(&stored, position);
        let workspace = log::id(row, WIDTH + 1, WorkspaceId::from_slice)?;
        Ok((place, Placed { workspace, position, stored }))
    })
}

pub(super) fn tally(db: &Connection, workspace: WorkspaceId) -> Result<Vec<Tally>, StoreError> {
    let sql =
        "SELECT n.agent, s.kind, count(*), sum(s.failed) FROM steps s JOIN sessions n ON n.id = s.session
               WHERE s.workspace = ?1 GROUP BY 1, 2 ORDER BY 1, 2";
    log::collect(db, sql, [workspace.as_bytes().as_slice()], |row| {
        Ok(Tally {
            agent: row.get(0)?,
            kind: log::named(row, 1, StepKind::parse)?,
            steps: row.get::<_, i64>(2)? as u64,
            failed: row.get::<_, i64>(3)? as u64,
        })
    })
}
