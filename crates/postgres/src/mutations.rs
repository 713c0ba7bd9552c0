//! Translates a commit's mutations into statements that are sent in order, without waiting in between.
//!
//! Workspaces and sessions come first, since steps depend on them and they depend on nothing. Then the rows of the
//! workspaces are locked, in the same order by every commit. The rest follows the order of the mutations; consecutive steps
//! are one call of the function that appends them. The server assigns the numbers and returns them.

use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_store::port::Mutation;
use tokio_postgres::types::ToSql;

use crate::append::{self, StepBatch, is_working};
use crate::schema::FORMAT;
use crate::text;

/// A parameter value that a statement owns.
pub(crate) type OwnedValue = Box<dyn ToSql + Sync + Send>;

/// Which numbers a statement returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AssignedNumbers {
    Nothing,
    Steps,
    Operation,
}

/// One statement with its values.
pub(crate) struct PlannedStatement {
    pub sql: &'static str,
    pub values: Vec<OwnedValue>,
    /// The reference that another process moved, if this statement divides by zero.
    pub moves: Option<String>,
    pub assigns: AssignedNumbers,
}

impl PlannedStatement {
    pub fn new(sql: &'static str, values: Vec<OwnedValue>) -> Self {
        Self { sql, values, moves: None, assigns: AssignedNumbers::Nothing }
    }
}

/// All statements of a commit.
pub(crate) struct Plan {
    /// The statements that add workspaces and sessions.
    pub beginnings: Vec<PlannedStatement>,
    /// The remaining statements, in order.
    pub rest: Vec<PlannedStatement>,
}

/// Plans a commit. `key` is the second half of the keys of this store's locks.
pub(crate) fn plan(mutations: &[Mutation], machine: &str, key: i32) -> Plan {
    let mut rest = Vec::from_iter(lock_statement(mutations));
    let mut batch = StepBatch::default();
    for mutation in mutations {
        if let Mutation::AppendStep { step, annotation, trigger } = mutation {
            batch.push_step(step, annotation, *trigger);
            continue;
        }
        rest.extend(append_statement(std::mem::take(&mut batch), key));
        rest.extend(change_statement(mutation));
    }
    rest.extend(append_statement(batch, key));
    Plan { beginnings: creation_statements(mutations, machine), rest }
}

/// The statement that locks the workspaces in which numbers are assigned; `None` if there are none. Without it, commits
/// that change the same rows in another order would wait for each other.
fn lock_statement(mutations: &[Mutation]) -> Option<PlannedStatement> {
    let (mut workspaces, mut sessions): (Vec<WorkspaceId>, Vec<SessionId>) = Default::default();
    for mutation in mutations {
        match mutation {
            Mutation::AppendStep { step, .. } => sessions.push(step.session),
            Mutation::AppendOp(op) => workspaces.push(op.workspace),
            _ => {}
        }
    }
    if workspaces.is_empty() && sessions.is_empty() {
        return None;
    }
    sessions.sort_unstable();
    sessions.dedup();
    let sql = "SELECT 1 FROM stepback_workspaces WHERE id = ANY ($1::bytea[] ||
            ARRAY(SELECT workspace FROM stepback_sessions WHERE id = ANY ($2::bytea[])))
        ORDER BY id FOR NO KEY UPDATE";
    let workspaces: Vec<_> = workspaces.iter().map(|id| id.as_bytes().to_vec()).collect();
    let sessions: Vec<_> = sessions.iter().map(|id| id.as_bytes().to_vec()).collect();
    Some(PlannedStatement::new(sql, vec![Box::new(workspaces), Box::new(sessions)]))
}

/// The call that appends steps; `None` if there are none.
fn append_statement(batch: StepBatch<'_>, key: i32) -> Option<PlannedStatement> {
    if batch.is_empty() {
        return None;
    }
    let values: Vec<OwnedValue> = vec![Box::new(FORMAT as i32), Box::new(key), Box::new(batch.to_json())];
    Some(PlannedStatement {
        assigns: AssignedNumbers::Steps,
        ..PlannedStatement::new(append::CALL_INSIDE, values)
    })
}

/// The statements that add workspaces and sessions.
fn creation_statements(mutations: &[Mutation], machine: &str) -> Vec<PlannedStatement> {
    let mut planned = Vec::new();
    for mutation in mutations {
        match mutation {
            Mutation::AddWorkspace(workspace) => planned.push(PlannedStatement::new(
                "INSERT INTO stepback_workspaces (id, machine, root, created_at) VALUES ($1, $2, $3, $4)",
                vec![
                    bytes(workspace.id.as_bytes()),
                    Box::new(if workspace.remote_name().is_some() {
                        String::new()
                    } else {
                        machine.to_string()
                    }),
                    bytes(&workspace.root),
                    Box::new(workspace.created_at.as_micros()),
                ],
            )),
            Mutation::AddSession(session) => planned.push(PlannedStatement::new(
                "INSERT INTO stepback_sessions (id, workspace, agent, started_at, info, working)
                 VALUES ($1, $2, $3, $4, $5::text::jsonb, $6)",
                vec![
                    bytes(session.id.as_bytes()),
                    bytes(session.workspace.as_bytes()),
                    text_value(&session.agent),
                    Box::new(session.started_at.as_micros()),
                    Box::new(text::to_json(&session.info)),
                    Box::new(is_working(&session.info)),
                ],
            )),
            _ => {}
        }
    }
    planned
}

/// The statement for a mutation that changes an existing row, or appends an operation.
fn change_statement(mutation: &Mutation) -> Option<PlannedStatement> {
    Some(match mutation {
        Mutation::SetSessionInfo { session, info } => PlannedStatement::new(
            "UPDATE stepback_sessions SET info = $2::text::jsonb, working = $3 WHERE id = $1",
            vec![bytes(session.as_bytes()), Box::new(text::to_json(info)), Box::new(is_working(info))],
        ),
        Mutation::SetWorkspaceRoot { workspace, root } => PlannedStatement::new(
            "UPDATE stepback_workspaces SET root = $2 WHERE id = $1",
            vec![bytes(workspace.as_bytes()), bytes(root)],
        ),
        Mutation::Annotate { step, annotation } => PlannedStatement::new(
            "UPDATE stepback_steps SET label = $2, note = $3, tags = $4::text::jsonb WHERE id = $1",
            vec![
                bytes(step.as_bytes()),
                maybe_words(annotation.label.as_deref()),
                maybe_words(annotation.note.as_deref()),
                Box::new(text::to_json(&annotation.tags)),
            ],
        ),
        Mutation::SetHidden { steps, by } => PlannedStatement::new(
            "UPDATE stepback_steps SET hidden_by = $2 WHERE id = ANY($1)",
            vec![
                Box::new(steps.iter().map(|step| step.as_bytes().to_vec()).collect::<Vec<_>>()),
                Box::new(by.map(|op| op.as_bytes().to_vec())),
            ],
        ),
        Mutation::Purge { steps } => PlannedStatement::new(
            "UPDATE stepback_steps SET purged = true WHERE id = ANY($1) AND hidden_by IS NOT NULL",
            vec![Box::new(steps.iter().map(|step| step.as_bytes().to_vec()).collect::<Vec<_>>())],
        ),
        Mutation::SetRef { name, expected, value } => {
            let mut values = vec![text_value(name), bytes(value.as_bytes())];
            // Dividing by zero makes the statement fail, and with it those that follow.
            let sql = match expected {
                None => {
                    "WITH moved AS (INSERT INTO stepback_refs (name, value) VALUES ($1, $2)
                         ON CONFLICT (name) DO NOTHING RETURNING 1)
                     SELECT 1 / count(*) FROM moved"
                }
                Some(expected) => {
                    values.push(bytes(expected.as_bytes()));
                    "WITH moved AS (UPDATE stepback_refs SET value = $2 WHERE name = $1 AND value = $3 RETURNING 1)
                     SELECT 1 / count(*) FROM moved"
                }
            };
            PlannedStatement { moves: Some(name.clone()), ..PlannedStatement::new(sql, values) }
        }
        Mutation::DropRef { name } => {
            PlannedStatement::new("DELETE FROM stepback_refs WHERE name = $1", vec![text_value(name)])
        }
        Mutation::SetOpStatus { op, status } => PlannedStatement::new(
            "UPDATE stepback_operations SET status = $2, journal = CASE $2 WHEN 'applying' THEN journal END WHERE id = $1",
            vec![bytes(op.as_bytes()), Box::new(status.as_str())],
        ),
        Mutation::SetOpUndone { op, undone } => PlannedStatement::new(
            "UPDATE stepback_operations SET undone = $2 WHERE id = $1",
            vec![bytes(op.as_bytes()), Box::new(*undone)],
        ),
        Mutation::AppendOp(op) => {
            let sql = "WITH raised AS (UPDATE stepback_workspaces SET operations = operations + 1 WHERE id = $2 RETURNING operations)
                INSERT INTO stepback_operations (id, workspace, number, status, undone, journal, at, summary, action)
                SELECT $1, $2, operations, $3, $4, $5, $6, $7, $8::text::jsonb FROM raised RETURNING number";
            let values = vec![
                bytes(op.id.as_bytes()),
                bytes(op.workspace.as_bytes()),
                Box::new(op.status.as_str()),
                Box::new(op.undone),
                Box::new(op.journal.map(|hash| hash.as_bytes().to_vec())),
                Box::new(op.at.as_micros()),
                text_value(&op.summary),
                Box::new(text::to_json(&op.action)),
            ];
            PlannedStatement { assigns: AssignedNumbers::Operation, ..PlannedStatement::new(sql, values) }
        }
        Mutation::AddWorkspace(_) | Mutation::AddSession(_) | Mutation::AppendStep { .. } => return None,
    })
}

fn bytes(bytes: &[u8]) -> OwnedValue {
    Box::new(bytes.to_vec())
}

fn text_value(words: &str) -> OwnedValue {
    Box::new(text::escape_text(words).into_owned())
}

fn maybe_words(words: Option<&str>) -> OwnedValue {
    Box::new(words.map(|words| text::escape_text(words).into_owned()))
}
