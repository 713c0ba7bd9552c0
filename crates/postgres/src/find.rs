//! Queries as SQL: conditions, order, one page of the result, and the total, mostly without counting rows.

use futures_util::future::join4;
use stepback_model::ids::WorkspaceId;
use stepback_model::record::StepKind;
use stepback_store::StoreError;
use stepback_store::port::{QueryCursor, SortKey, StepAt, StepCount, StepPage, StepQuery, StepRow};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::rows::{self, COLUMNS, Record, WIDTH};
use crate::{PostgresStore, text};

/// A parameter value that a statement owns, with its type.
pub(crate) type TypedValue = (Box<dyn ToSql + Sync + Send>, Type);

/// Begins a transaction in which both halves of an answer see the same moment.
pub(crate) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The conditions on a step: SQL about a row `s`, beginning with ` AND` unless it is empty, and its values.
#[derive(Default)]
pub(crate) struct Conditions {
    /// The SQL text.
    pub sql: String,
    values: Vec<TypedValue>,
}

impl Conditions {
    /// Adds a value, and returns its placeholder.
    pub fn name(&mut self, value: impl ToSql + Sync + Send + 'static, sql_type: Type) -> String {
        self.values.push((Box::new(value), sql_type));
        format!("${}", self.values.len())
    }

    /// Adds a condition in which `?` stands for the value.
    fn add(&mut self, condition: &str, value: impl ToSql + Sync + Send + 'static, sql_type: Type) {
        let name = self.name(value, sql_type);
        self.sql.push_str(" AND ");
        self.sql.push_str(&condition.replace('?', &name));
    }

    fn add_words(&mut self, condition: &str, words: &Option<String>) {
        if let Some(words) = words {
            self.add(condition, text::escape_text(words).into_owned(), Type::TEXT);
        }
    }

    fn add_number(&mut self, condition: &str, number: Option<u64>) {
        if let Some(number) = number {
            self.add(condition, to_bigint(number), Type::INT8);
        }
    }

    fn add_either(&mut self, choice: Option<bool>, yes: &str, no: &str) {
        if let Some(choice) = choice {
            self.sql.push_str(" AND ");
            self.sql.push_str(if choice { yes } else { no });
        }
    }

    /// Adds the conditions of a query, without its cursor.
    pub fn add_query(&mut self, workspace: Option<WorkspaceId>, query: &StepQuery) {
        if let Some(workspace) = workspace {
            self.add("s.workspace = ?", workspace.as_bytes().to_vec(), Type::BYTEA);
        }
        if let Some(session) = query.session {
            self.add("s.session = ?", session.as_bytes().to_vec(), Type::BYTEA);
        }
        self.add_words(
            "s.session = ANY(ARRAY(SELECT id FROM stepback_sessions WHERE agent = ?))",
            &query.agent,
        );
        self.add_words("s.worker = ?", &query.worker);
        self.add_words("lower(s.tool COLLATE \"C\") = lower(?::text COLLATE \"C\")", &query.tool);
        self.add_words("s.call = ?", &query.call);
        self.add_number("s.iteration = ?", query.iteration);
        self.add_words("s.task = ?", &query.task);
        self.add_words("s.trace = ?", &query.trace);
        self.add_words("s.span = ?", &query.span);
        self.add_either(query.failed, "s.failed", "NOT s.failed");
        if let Some(since) = query.since {
            self.add("s.at >= ?", since.as_micros(), Type::INT8);
        }
        if let Some(until) = query.until {
            self.add("s.at <= ?", until.as_micros(), Type::INT8);
        }
        if let Some(state) = query.state {
            self.add("s.state = ?", state.as_bytes().to_vec(), Type::BYTEA);
        }
        self.add_either(query.checkpoint, "s.trigger_kind IS NOT NULL", "s.trigger_kind IS NULL");
        self.add_either(query.hidden, "s.hidden_by IS NOT NULL", "s.hidden_by IS NULL");
        self.add_words("s.label = ?", &query.label);
        self.add_words("s.tags <> '[]' AND s.tags @> jsonb_build_array(?::text)", &query.tag);
        self.add_number("coalesce(s.duration, -1) >= ?", query.min_duration);
        self.add_number("s.number > ?", query.after);
        self.add_number("s.number < ?", query.before);
        if !query.kinds.is_empty() {
            let kinds: Vec<&str> = query.kinds.iter().map(|kind| StepKind::as_str(*kind)).collect();
            self.add("s.kind = ANY(?)", kinds, Type::TEXT_ARRAY);
        }
    }

    /// Adds the condition that a step comes after a place in the order of a query.
    fn add_cursor(&mut self, workspace: Option<WorkspaceId>, query: &StepQuery, from: QueryCursor) {
        let sign = if query.oldest_first { '>' } else { '<' };
        let position = self.name(to_bigint(from.position), Type::INT8);
        if query.by != SortKey::Commit {
            let value = self.name(from.value, Type::INT8);
            let columns = order_columns(workspace.is_some(), query.by).join(", ");
            self.sql.push_str(&format!(" AND ({columns}) {sign} ({value}, {position})"));
            return;
        }
        self.sql.push_str(&format!(" AND s.position {sign} {position}"));
        if workspace.is_some() {
            // Numbers are in the same order and have an index with the workspace; if there is no such step, this does not
            // restrict.
            let end = if query.oldest_first { 0 } else { i64::MAX };
            self.sql.push_str(&format!(
                " AND s.number {sign} coalesce((SELECT number FROM stepback_steps c
                    WHERE c.position = {position} AND c.workspace = $1), {end})"
            ));
        }
    }

    /// The values, as parameters of a statement.
    pub fn values(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        self.values
            .iter()
            .map(|(value, sql_type)| (&**value as &(dyn ToSql + Sync), sql_type.clone()))
            .collect()
    }
}

pub(crate) fn to_bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The columns that steps are ordered by. In one workspace, numbers are in commit order and have an index.
fn order_columns(inside_one: bool, by: SortKey) -> &'static [&'static str] {
    match by {
        SortKey::Commit if inside_one => &["s.number"],
        SortKey::Commit => &["s.position"],
        SortKey::Time => &["s.at", "s.position"],
        SortKey::Duration => &["coalesce(s.duration, -1)", "s.position"],
    }
}

/// `ORDER BY` for a query, within one workspace or across all.
pub(crate) fn order_by(inside_one: bool, query: &StepQuery) -> String {
    let direction = if query.oldest_first { "" } else { " DESC" };
    let columns: Vec<String> =
        order_columns(inside_one, query.by).iter().map(|column| format!("{column}{direction}")).collect();
    format!(" ORDER BY {}", columns.join(", "))
}

/// The statement for a page. `settled` is the last position that is final.
fn page_statement(
    workspace: Option<WorkspaceId>,
    query: &StepQuery,
    limit: Option<u64>,
    settled: Option<i64>,
) -> (String, Conditions) {
    let mut conditions = Conditions::default();
    conditions.add_query(workspace, query);
    let is_plain_order = workspace.is_some() || (conditions.sql.is_empty() && query.by == SortKey::Commit);
    if let Some(from) = query.from {
        conditions.add_cursor(workspace, query, from);
    }
    if let Some(settled) = settled {
        conditions.add("s.position <= ?", settled, Type::INT8);
    }
    let limit = limit.map(|limit_value| conditions.name(to_bigint(limit_value), Type::INT8));
    let limit = limit.map(|name| format!(" LIMIT {name}")).unwrap_or_default();
    let (conditions_sql, page_in_workspace, page_across_workspaces) =
        (&conditions.sql, order_by(true, query), order_by(workspace.is_some(), query));
    let columns = format!("SELECT {COLUMNS}, s.position, s.workspace");
    let sql = if is_plain_order {
        format!("{columns} FROM stepback_steps s WHERE true{conditions_sql}{page_across_workspaces}{limit}")
    } else {
        // Indexes begin with the workspace: the first steps of each workspace are cheap to find, and the first of those are
        // the answer.
        format!(
            "{columns} FROM stepback_workspaces w CROSS JOIN LATERAL (
                SELECT * FROM stepback_steps s WHERE s.workspace = w.id{conditions_sql}{page_in_workspace}{limit}
             ) s{page_across_workspaces}{limit}"
        )
    };
    (sql, conditions)
}

/// The statement for the total. Numbers have no gaps, and steps are counted by session, kind and tool as they are
/// committed; only queries with other filters count rows now.
fn total_statement(workspace: Option<WorkspaceId>, query: &StepQuery) -> (String, Conditions) {
    let mut conditions = Conditions::default();
    // The whole query, and the part of it that the counters can answer.
    let countable =
        StepQuery { by: SortKey::default(), oldest_first: false, from: None, limit: None, ..query.clone() };
    let numbers = StepQuery { after: query.after, before: query.before, ..StepQuery::default() };
    let counted = StepQuery {
        session: query.session,
        agent: query.agent.clone(),
        kinds: query.kinds.clone(),
        // In the counters an empty name stands for no tool.
        tool: query.tool.clone().filter(|tool| !tool.is_empty()),
        failed: query.failed,
        ..StepQuery::default()
    };
    if countable == numbers {
        let after_param = conditions.name(to_bigint(query.after.unwrap_or(0)), Type::INT8);
        let before_param = conditions.name(to_bigint(query.before.unwrap_or(u64::MAX)), Type::INT8);
        let mut sql = format!(
            "SELECT coalesce(sum(greatest(0, least(steps, {before_param} - 1) - {after_param})), 0)::bigint FROM stepback_workspaces"
        );
        if let Some(workspace) = workspace {
            let name = conditions.name(workspace.as_bytes().to_vec(), Type::BYTEA);
            sql.push_str(&format!(" WHERE id = {name}"));
        }
        return (sql, conditions);
    }
    if countable == counted {
        conditions.add_query(None, &StepQuery { failed: None, ..counted });
        if let Some(workspace) = workspace {
            let in_workspace = "s.session = ANY(ARRAY(SELECT id FROM stepback_sessions WHERE workspace = ?))";
            conditions.add(in_workspace, workspace.as_bytes().to_vec(), Type::BYTEA);
        }
        let column = match query.failed {
            None => "s.steps",
            Some(true) => "s.failed",
            Some(false) => "s.steps - s.failed",
        };
        let conditions_sql = &conditions.sql;
        let sql = format!(
            "SELECT coalesce(sum({column}), 0)::bigint FROM stepback_tallies s WHERE true{conditions_sql}"
        );
        return (sql, conditions);
    }
    conditions.add_query(workspace, query);
    if workspace.is_none() {
        // Indexes begin with the workspace.
        conditions.sql.push_str(" AND s.workspace = ANY(ARRAY(SELECT id FROM stepback_workspaces))");
    }
    (format!("SELECT count(*) FROM stepback_steps s WHERE true{}", conditions.sql), conditions)
}

impl PostgresStore {
    pub(crate) fn list_steps(
        &self,
        workspace: WorkspaceId,
        query: &StepQuery,
    ) -> Result<Vec<StepRow>, StoreError> {
        let (sql, conditions) = page_statement(Some(workspace), query, query.limit, None);
        let rows = self
            .pool
            .ask(async |connection| connection.client.query_typed(&sql, &conditions.values()).await)?;
        rows.iter().map(StepRow::read).collect()
    }

    pub(crate) fn find_page(
        &self,
        workspace: Option<WorkspaceId>,
        query: &StepQuery,
    ) -> Result<StepPage, StoreError> {
        // Within one workspace commits are serialised, so what is visible is complete and in order.
        let settled = match (workspace, query.by) {
            (None, SortKey::Commit) => Some(self.settled_horizon()?.position),
            _ => None,
        };
        // Fetch one more than requested, to know whether there are more.
        let limit = query.limit.map(|max_steps| max_steps.saturating_add(1));
        let (sql, conditions) = page_statement(workspace, query, limit, settled);
        let (counting, counted) = total_statement(workspace, query);
        let (rows, total) = self.pool.ask(async |connection| {
            let client = &connection.client;
            let (begin_result, rows, total, end_result) = join4(
                client.batch_execute(SNAPSHOT),
                client.query_typed(&sql, &conditions.values()),
                client.query_typed(&counting, &counted.values()),
                client.batch_execute("COMMIT"),
            )
            .await;
            begin_result?;
            let page_and_total = (rows?, total?);
            end_result?;
            Ok(page_and_total)
        })?;
        let total = total.first().map(|row| rows::get::<i64>(row, 0)).transpose()?.unwrap_or_default();
        let mut steps = rows.iter().map(|row| read_step_at(row, query)).collect::<Result<Vec<_>, _>>()?;
        let max_steps =
            query.limit.map_or(usize::MAX, |max_steps| usize::try_from(max_steps).unwrap_or(usize::MAX));
        let has_more = steps.len() > max_steps;
        steps.truncate(max_steps);
        let next = steps.last().filter(|_| has_more).map(|(cursor, _)| *cursor);
        Ok(StepPage {
            steps: steps.into_iter().map(|(_, placed)| placed).collect(),
            total: total as u64,
            at_least: false,
            next,
        })
    }

    pub(crate) fn count_by_agent(&self, workspace: WorkspaceId) -> Result<Vec<StepCount>, StoreError> {
        let sql = "SELECT n.agent, t.kind, sum(t.steps)::bigint, sum(t.failed)::bigint
            FROM stepback_sessions n JOIN stepback_tallies t ON t.session = n.id
            WHERE n.workspace = $1 GROUP BY 1, 2 ORDER BY n.agent COLLATE \"C\", t.kind COLLATE \"C\"";
        let workspace = workspace.as_bytes().as_slice();
        let rows = self.pool.ask(async |connection| connection.rows(sql, &[&workspace]).await)?;
        let tally = |row: &Row| {
            Ok(StepCount {
                agent: rows::read_text(row, 0)?,
                kind: rows::read_enum(row, 1, StepKind::parse)?,
                steps: rows::get::<i64>(row, 2)? as u64,
                failed: rows::get::<i64>(row, 3)? as u64,
            })
        };
        rows.iter().map(tally).collect()
    }
}

fn read_step_at(row: &Row, query: &StepQuery) -> Result<(QueryCursor, StepAt), StoreError> {
    let stored = StepRow::read(row)?;
    let cursor = query.place(&stored, rows::get::<i64>(row, WIDTH)? as u64);
    let workspace = rows::id(row, WIDTH + 1, WorkspaceId::from_slice)?;
    Ok((cursor, StepAt { workspace, position: cursor.position, stored }))
}
