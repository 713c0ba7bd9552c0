//! Queries as SQL: conditions, order, and one page of the result.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use stepback_model::ids::WorkspaceId;
use stepback_model::record::{StepKind, WorkspaceRecord};

use super::log::{self, WIDTH};
use super::schema;
use crate::error::StoreError;
use crate::port::{COUNTED, QueryCursor, SortKey, StepAt, StepCount, StepPage, StepQuery, StepRow};

/// The conditions on a step: SQL about a row `s`, beginning with ` AND` unless it is empty, and its parameters.
#[derive(Default)]
pub(super) struct Conditions {
    /// The SQL text.
    pub sql: String,
    /// The values of its parameters, in order.
    pub values: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, condition: &str, value: Value) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.push(value);
    }

    /// Leaves out forgotten workspaces, if there are any and the query is about all workspaces.
    pub fn leave_out_forgotten(
        mut self,
        db: &Connection,
        workspace: Option<WorkspaceId>,
        workspaces: &str,
    ) -> Result<Self, StoreError> {
        let prefix = WorkspaceRecord::FORGOTTEN;
        let forgotten = format!("SELECT id FROM {workspaces} WHERE substr(root, 1, {}) = ?", prefix.len());
        if workspace.is_none() && db.prepare_cached(&forgotten)?.exists([prefix])? {
            self.add(&format!("+s.workspace NOT IN ({forgotten})"), Value::Blob(prefix.to_vec()));
        }
        Ok(self)
    }

    /// The conditions of a query, without its cursor. `sessions` is the name of the table of sessions.
    pub fn of(workspace: Option<WorkspaceId>, query: &StepQuery, sessions: &str, size: Size) -> Self {
        let mut all = Self::default();
        let text = |text: &String| Value::Text(text.clone());
        if let Some(workspace) = workspace {
            // A plus sign keeps SQLite from using an index here: a session, a call or a label is more selective.
            let plus = if size == Size::Many && is_selective(query) { "+" } else { "" };
            all.add(&format!("{plus}s.workspace = ?"), Value::Blob(workspace.as_bytes().to_vec()));
        }
        if let Some(session) = query.session {
            all.add("s.session = ?", Value::Blob(session.as_bytes().to_vec()));
        }
        if let Some(agent) = &query.agent {
            // An agent's steps are everywhere, and come in order only if they are not looked up session by session.
            all.add(&format!("+s.session IN (SELECT id FROM {sessions} WHERE agent = ?)"), text(agent));
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
            all.add("s.iteration = ?", integer_value(iteration));
        }
        for (column, wanted) in [("task", &query.task), ("trace", &query.trace), ("span", &query.span)] {
            if let Some(wanted) = wanted {
                all.add(&format!("s.{column} = ?"), text(wanted));
            }
        }
        match query.failed {
            // Must be the exact expression of the index.
            Some(true) => all.sql.push_str(" AND s.failed = 1"),
            Some(false) => all.sql.push_str(" AND +s.failed = 0"),
            None => {}
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
            // Must be the exact expression of the index.
            let is = if checkpoint { "IS NOT" } else { "IS" };
            all.sql.push_str(&format!(" AND s.trigger_kind {is} NULL"));
        }
        if let Some(hidden) = query.hidden {
            let is = if hidden { "IS NOT" } else { "IS" };
            all.sql.push_str(&format!(" AND s.hidden_by {is} NULL"));
        }
        if let Some(label) = &query.label {
            all.add("s.label = ?", text(label));
        }
        if let Some(tag) = &query.tag {
            all.add("EXISTS (SELECT 1 FROM json_each(s.tags) WHERE value = ?)", text(tag));
        }
        if let Some(least) = query.min_duration {
            all.add("s.duration >= ?", integer_value(least));
        }
        if let Some(after) = query.after {
            all.add("s.number > ?", integer_value(after));
        }
        if let Some(before) = query.before {
            all.add("s.number < ?", integer_value(before));
        }
        if !query.kinds.is_empty() {
            let places = vec!["?"; query.kinds.len()].join(", ");
            all.sql.push_str(&format!(" AND s.kind IN ({places})"));
            all.values.extend(query.kinds.iter().map(|kind| Value::Text(kind.as_str().to_string())));
        }
        all
    }
}

/// Whether a condition leaves so few steps that sorting them costs less than scanning all steps in order.
fn is_selective(query: &StepQuery) -> bool {
    query.session.is_some() || query.call.is_some() || query.label.is_some() || has_context(query)
}

/// Whether a query asks for a task, a trace or a span.
fn has_context(query: &StepQuery) -> bool {
    query.task.is_some() || query.trace.is_some() || query.span.is_some()
}

/// Whether a query asks for ids that no step of this store can have, because its format has no room for them.
pub(super) fn is_before_contexts(db: &Connection, name: &str, query: &StepQuery) -> Result<bool, StoreError> {
    Ok(has_context(query) && !schema::has_contexts(db, name)?)
}

/// The indexes in the log that a query needs. They are created by the first such query over many steps, so a process that
/// only records never pays for them. SQLite keeps them up to date, whichever program writes.
fn needed_indexes(workspace: Option<WorkspaceId>, query: &StepQuery) -> Vec<&'static str> {
    let mut needed = Vec::new();
    let mut need = |is_asked: bool, sql: &'static str| needed.extend(is_asked.then_some(sql));
    need(query.session.is_some(), "steps_of_session ON steps (session, number)");
    need(query.call.is_some(), "steps_of_call ON steps (call) WHERE call IS NOT NULL");
    need(query.label.is_some(), "steps_labelled ON steps (label) WHERE label IS NOT NULL");
    need(query.task.is_some(), "steps_of_task ON steps (task) WHERE task IS NOT NULL");
    need(query.trace.is_some(), "steps_of_trace ON steps (trace) WHERE trace IS NOT NULL");
    need(query.span.is_some(), "steps_of_span ON steps (span) WHERE span IS NOT NULL");
    if workspace.is_some() && !is_selective(query) {
        need(query.failed == Some(true), "steps_failed ON steps (workspace, number) WHERE failed = 1");
        need(query.kinds.len() == 1, "steps_of_kind ON steps (workspace, kind, number)");
        need(query.tool.is_some(), "steps_of_tool ON steps (workspace, tool COLLATE NOCASE, number)");
        let by_time = query.by == SortKey::Time || query.since.is_some() || query.until.is_some();
        need(by_time, "steps_in_time ON steps (workspace, at, position)");
        need(
            query.by == SortKey::Duration,
            "steps_by_duration ON steps (workspace, coalesce(duration, -1), position)",
        );
    }
    needed
}

/// With fewer steps than this, scanning them in order is fast enough.
const MIN_STEPS_FOR_INDEX: u64 = 20_000;

/// Whether there are enough steps for queries to have their own indexes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// Few steps and no such indexes; selective conditions are checked in the order of the result.
    Few,
    /// Many steps, with indexes.
    Many,
}

/// Creates the indexes that a query needs. They only make it faster, so failures (another process writes, the disk is full)
/// are ignored.
fn make_indexes(db: &Connection, workspace: Option<WorkspaceId>, query: &StepQuery) -> Size {
    if newest_position(db).is_ok_and(|steps| steps < MIN_STEPS_FOR_INDEX) {
        return Size::Few;
    }
    for index in needed_indexes(workspace, query) {
        let name = index.split(' ').next().unwrap_or_default();
        let is_there = db
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?1")
            .and_then(|mut statement| statement.exists([name]));
        if is_there.is_ok_and(|is_there| !is_there) {
            let _ = db.execute_batch(&format!("CREATE INDEX IF NOT EXISTS {index}"));
        }
    }
    Size::Many
}

fn integer_value(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The columns that steps are ordered by. In one workspace, numbers are in commit order and have an index.
fn order_of(workspace: Option<WorkspaceId>, query: &StepQuery) -> &'static [&'static str] {
    match query.by {
        SortKey::Commit if workspace.is_some() => &["s.number"],
        SortKey::Commit => &["s.position"],
        SortKey::Time => &["s.at", "s.position"],
        SortKey::Duration => &["coalesce(s.duration, -1)", "s.position"],
    }
}

/// `ORDER BY` for a query.
pub(super) fn order_by(workspace: Option<WorkspaceId>, query: &StepQuery) -> String {
    let direction = if query.oldest_first { "" } else { " DESC" };
    let columns: Vec<String> =
        order_of(workspace, query).iter().map(|column| format!("{column}{direction}")).collect();
    format!(" ORDER BY {}", columns.join(", "))
}

pub(super) fn steps(
    db: &Connection,
    workspace: WorkspaceId,
    query: &StepQuery,
) -> Result<Vec<StepRow>, StoreError> {
    let size =
        make_indexes(db, Some(workspace), &StepQuery { session: query.session, ..StepQuery::default() });
    select_steps(db, (Some(workspace), query, size), query.limit, |_, placed| placed.stored)
}

pub(super) fn page(
    db: &Connection,
    workspace: Option<WorkspaceId>,
    query: &StepQuery,
) -> Result<StepPage, StoreError> {
    if is_before_contexts(db, "main", query)? {
        return Ok(StepPage::default());
    }
    let size = make_indexes(db, workspace, query);
    // The total and the page see the same moment.
    let _snapshot = db.unchecked_transaction()?;
    // Fetch one more than requested, to know whether there are more.
    let limit = query.limit.map(|most| most.saturating_add(1));
    let mut rows = select_steps(db, (workspace, query, size), limit, |place, placed| (place, placed))?;
    let most = query.limit.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let more = rows.len() > most;
    rows.truncate(most);
    let (total, at_least) = match !more && query.from.is_none() && most > 0 {
        true => (rows.len() as u64, false),
        false => count(db, workspace, query, size)?,
    };
    let next = rows.last().filter(|_| more).map(|(place, _)| *place);
    Ok(StepPage { steps: rows.into_iter().map(|(_, placed)| placed).collect(), total, at_least, next })
}

/// The number of steps that match a query, and whether it is only a lower bound.
fn count(
    db: &Connection,
    workspace: Option<WorkspaceId>,
    query: &StepQuery,
    size: Size,
) -> Result<(u64, bool), StoreError> {
    let conditions = Conditions::of(workspace, query, "sessions", size);
    let Conditions { sql, mut values } = conditions.leave_out_forgotten(db, workspace, "workspaces")?;
    let most = if query.count_all { u64::MAX } else { COUNTED };
    values.push(integer_value(most.saturating_add(1)));
    // In the order of the page, so that SQLite uses the same index.
    let order = order_by(workspace, query);
    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM steps s WHERE 1{sql}{order} LIMIT ?)");
    let total: i64 = db.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?;
    let total = total as u64;
    Ok((total.min(most), total > most))
}

pub(super) fn steps_after(db: &Connection, position: u64, most: u64) -> Result<Vec<StepAt>, StoreError> {
    let from = Some(QueryCursor { value: 0, position });
    let query = StepQuery { oldest_first: true, from, ..StepQuery::default() };
    select_steps(db, (None, &query, Size::Few), Some(most), |_, placed| placed)
}

pub(super) fn newest_position(db: &Connection) -> Result<u64, StoreError> {
    let newest: Option<i64> =
        db.prepare_cached("SELECT max(position) FROM steps")?.query_row([], |row| row.get(0))?;
    Ok(newest.unwrap_or_default() as u64)
}

/// The steps that match a query, each converted by `keep`.
fn select_steps<T>(
    db: &Connection,
    (workspace, query, size): (Option<WorkspaceId>, &StepQuery, Size),
    limit: Option<u64>,
    keep: impl Fn(QueryCursor, StepAt) -> T,
) -> Result<Vec<T>, StoreError> {
    if is_before_contexts(db, "main", query)? {
        return Ok(Vec::new());
    }
    let conditions = Conditions::of(workspace, query, "sessions", size);
    let Conditions { sql: conditions, mut values } =
        conditions.leave_out_forgotten(db, workspace, "workspaces")?;
    let columns = log::columns(db)?;
    let mut sql = format!("SELECT {columns}, s.position, s.workspace FROM steps s WHERE 1{conditions}");
    if let Some(from) = query.from {
        let sign = if query.oldest_first { '>' } else { '<' };
        let position = integer_value(from.position);
        match query.by {
            SortKey::Commit => {
                sql.push_str(&format!(" AND s.position {sign} ?"));
                values.push(position);
            }
            SortKey::Time | SortKey::Duration => {
                let columns = order_of(workspace, query).join(", ");
                sql.push_str(&format!(" AND ({columns}) {sign} (?, ?)"));
                values.extend([Value::Integer(from.value), position]);
            }
        }
    }
    sql.push_str(&order_by(workspace, query));
    if let Some(most) = limit {
        sql.push_str(" LIMIT ?");
        values.push(integer_value(most));
    }
    log::collect(db, &sql, params_from_iter(values), |row| {
        let stored = log::read_checkpoint(row)?;
        let position = row.get::<_, i64>(WIDTH)? as u64;
        let place = query.place(&stored, position);
        let workspace = log::id(row, WIDTH + 1, WorkspaceId::from_slice)?;
        Ok(keep(place, StepAt { workspace, position, stored }))
    })
}

pub(super) fn step_counts(db: &Connection, workspace: WorkspaceId) -> Result<Vec<StepCount>, StoreError> {
    let sql =
        "SELECT n.agent, s.kind, count(*), sum(s.failed) FROM steps s JOIN sessions n ON n.id = s.session
               WHERE s.workspace = ?1 GROUP BY 1, 2 ORDER BY 1, 2";
    log::collect(db, sql, [workspace.as_bytes().as_slice()], |row| {
        Ok(StepCount {
            agent: row.get(0)?,
            kind: log::read_enum(row, 1, StepKind::parse)?,
            steps: row.get::<_, i64>(2)? as u64,
            failed: row.get::<_, i64>(3)? as u64,
        })
    })
}
