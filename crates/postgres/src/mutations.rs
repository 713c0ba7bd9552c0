//! Translates a commit's mutations into as few statements as possible, since each one that has to be waited for is a round
//! trip.
//!
//! Workspaces and sessions come first, since steps depend on them and they depend on nothing. Then the rows of the
//! workspaces are locked and their counters raised, which assigns all numbers at once. The rest is sent in order; where a
//! statement needs a number, the server counts back from the counter. So nothing has to be waited for in between.

use std::collections::HashMap;

use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::record::{SessionInfo, Step};
use stepback_store::StoreError;
use stepback_store::port::{Mutation, Receipt};
use tokio_postgres::types::ToSql;

use crate::steps::Steps;
use crate::text;

/// A parameter value that a statement owns.
pub(crate) type Owned = Box<dyn ToSql + Sync + Send>;

/// One statement with its values.
pub(crate) struct Planned {
    pub sql: &'static str,
    pub values: Vec<Owned>,
    /// The reference that another process moved, if this statement divides by zero.
    pub moves: Option<String>,
}

impl Planned {
    pub fn new(sql: &'static str, values: Vec<Owned>) -> Self {
        Self { sql, values, moves: None }
    }
}

/// All statements of a commit.
pub(crate) struct Plan {
    /// The statements that add workspaces and sessions.
    pub beginnings: Vec<Planned>,
    /// How many numbers each workspace has to assign, in order of the workspaces.
    pub wanted: Vec<(WorkspaceId, Wanted)>,
    /// The remaining statements, in order.
    pub rest: Vec<Planned>,
    /// For each step and each operation, its workspace, and how many numbers are assigned after its own.
    steps: Vec<(WorkspaceId, i64)>,
    operations: Vec<(WorkspaceId, i64)>,
}

impl Plan {
    /// Whether the commit appends steps.
    pub fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    /// The receipt, given the `last` number of each workspace.
    pub fn receipt(&self, last: &HashMap<WorkspaceId, Wanted>) -> Result<Receipt, StoreError> {
        Ok(Receipt {
            steps: given(&self.steps, last, |last| last.steps)?,
            ops: given(&self.operations, last, |last| last.operations)?,
        })
    }
}

/// The assigned numbers, counted back from the `last` ones.
pub(crate) fn given(
    places: &[(WorkspaceId, i64)],
    last: &HashMap<WorkspaceId, Wanted>,
    counter: fn(&Wanted) -> i64,
) -> Result<Vec<u64>, StoreError> {
    let gone = || StoreError::Corrupt { what: "a step of a workspace that does not exist".into() };
    let number = |(workspace, after): &(WorkspaceId, i64)| {
        let last = last.get(workspace).map(counter).ok_or_else(gone)?;
        Ok((last - after) as u64)
    };
    places.iter().map(number).collect()
}

/// How many numbers a workspace has to assign.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub steps: i64,
    pub operations: i64,
}

/// Raises the counters of workspaces, and locks their rows until the end of the transaction.
pub(crate) const NUMBER: &str = "UPDATE stepback_workspaces w
    SET steps = w.steps + n.steps, operations = w.operations + n.operations
    FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) n (id, steps, operations)
    WHERE w.id = n.id RETURNING w.id, w.steps, w.operations";

/// Sessions that `mutations` append steps to and do not add.
pub(crate) fn sessions_needed(mutations: &[Mutation]) -> Vec<SessionId> {
    let mut needed: Vec<SessionId> = mutations
        .iter()
        .filter_map(|mutation| match mutation {
            Mutation::AppendStep { step, .. } => Some(step.session),
            _ => None,
        })
        .collect();
    needed.sort_unstable();
    needed.dedup();
    needed.retain(|id| added_sessions(mutations).all(|(added, _)| added != *id));
    needed
}

/// The sessions that `mutations` add, with their workspaces.
pub(crate) fn added_sessions(mutations: &[Mutation]) -> impl Iterator<Item = (SessionId, WorkspaceId)> {
    mutations.iter().filter_map(|mutation| match mutation {
        Mutation::AddSession(session) => Some((session.id, session.workspace)),
        _ => None,
    })
}

/// How many numbers each workspace has to assign, in order of the workspaces.
pub(crate) fn wanted(
    mutations: &[Mutation],
    sessions: &HashMap<SessionId, WorkspaceId>,
) -> Result<Vec<(WorkspaceId, Wanted)>, StoreError> {
    let mut wanted: HashMap<WorkspaceId, Wanted> = HashMap::new();
    for mutation in mutations {
        match mutation {
            Mutation::AppendStep { step, .. } => {
                wanted.entry(workspace_of(step, sessions)?).or_default().steps += 1;
            }
            Mutation::AppendOp(op) => wanted.entry(op.workspace).or_default().operations += 1,
            _ => {}
        }
    }
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort_unstable_by_key(|(workspace, _)| *workspace);
    Ok(wanted)
}

pub(crate) fn workspace_of(
    step: &Step,
    sessions: &HashMap<SessionId, WorkspaceId>,
) -> Result<WorkspaceId, StoreError> {
    sessions
        .get(&step.session)
        .copied()
        .ok_or_else(|| StoreError::Corrupt { what: "a step of a session that does not exist".into() })
}

/// The statements that add workspaces and sessions.
fn beginnings(mutations: &[Mutation], machine: &str) -> Vec<Planned> {
    let mut planned = Vec::new();
    for mutation in mutations {
        match mutation {
            Mutation::AddWorkspace(workspace) => planned.push(Planned::new(
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
            Mutation::AddSession(session) => planned.push(Planned::new(
                "INSERT INTO stepback_sessions (id, workspace, agent, started_at, info, working)
                 VALUES ($1, $2, $3, $4, $5::text::jsonb, $6)",
                vec![
                    bytes(session.id.as_bytes()),
                    bytes(session.workspace.as_bytes()),
                    words(&session.agent),
                    Box::new(session.started_at.as_micros()),
                    Box::new(text::document(&session.info)),
                    Box::new(is_working(&session.info)),
                ],
            )),
            _ => {}
        }
    }
    planned
}

/// Plans a commit. `sessions` are those that steps are appended to, with their workspaces.
pub(crate) fn plan(
    mutations: &[Mutation],
    sessions: &HashMap<SessionId, WorkspaceId>,
    machine: &str,
) -> Result<Plan, StoreError> {
    let wanted = wanted(mutations, sessions)?;
    let mut left: HashMap<WorkspaceId, Wanted> = wanted.iter().copied().collect();
    let mut plan = Plan {
        beginnings: beginnings(mutations, machine),
        wanted,
        rest: Vec::new(),
        steps: Vec::new(),
        operations: Vec::new(),
    };
    let mut steps = Steps::default();
    for mutation in mutations {
        if let Mutation::AppendStep { step, annotation, trigger } = mutation {
            let workspace = workspace_of(step, sessions)?;
            let after = &mut left.entry(workspace).or_default().steps;
            *after -= 1;
            plan.steps.push((workspace, *after));
            steps.push(step, workspace, *after, annotation, *trigger);
            continue;
        }
        plan.rest.extend(std::mem::take(&mut steps).planned());
        if let Mutation::AppendOp(op) = mutation {
            let after = &mut left.entry(op.workspace).or_default().operations;
            *after -= 1;
            plan.operations.push((op.workspace, *after));
            plan.rest.push(Planned::new(
                "INSERT INTO stepback_operations (id, workspace, number, status, undone, journal, at, summary, action)
                 SELECT $1, w.id, w.operations - $3, $4, $5, $6, $7, $8, $9::text::jsonb
                 FROM stepback_workspaces w WHERE w.id = $2",
                vec![
                    bytes(op.id.as_bytes()),
                    bytes(op.workspace.as_bytes()),
                    Box::new(*after),
                    Box::new(op.status.as_str()),
                    Box::new(op.undone),
                    Box::new(op.journal.map(|hash| hash.as_bytes().to_vec())),
                    Box::new(op.at.as_micros()),
                    words(&op.summary),
                    Box::new(text::document(&op.action)),
                ],
            ));
        } else {
            plan.rest.extend(change(mutation));
        }
    }
    plan.rest.extend(steps.planned());
    if plan.has_steps() {
        plan.rest.push(counted(mutations));
    }
    Ok(plan)
}

/// The number of steps by session, kind and tool, as columns.
pub(crate) fn counts(mutations: &[Mutation]) -> Vec<Owned> {
    let mut counts: HashMap<(SessionId, &'static str, String), (i64, i64)> = HashMap::new();
    for mutation in mutations {
        if let Mutation::AppendStep { step, .. } = mutation {
            let tool = counted_tool(step);
            let (steps, failed) = counts.entry((step.session, step.kind.as_str(), tool)).or_default();
            *steps += 1;
            *failed += i64::from(step.meta.failed);
        }
    }
    vec![
        Box::new(counts.keys().map(|(session, ..)| session.as_bytes().to_vec()).collect::<Vec<_>>()),
        Box::new(counts.keys().map(|(_, kind, _)| *kind).collect::<Vec<_>>()),
        Box::new(counts.keys().map(|(.., tool)| tool.clone()).collect::<Vec<_>>()),
        Box::new(counts.values().map(|(steps, _)| *steps).collect::<Vec<_>>()),
        Box::new(counts.values().map(|(_, failed)| *failed).collect::<Vec<_>>()),
    ]
}

/// Whether a session has an open call.
pub(crate) fn is_working(info: &SessionInfo) -> bool {
    !info.open.is_empty()
}

/// The name under which the tool of a step is counted.
pub(crate) fn counted_tool(step: &Step) -> String {
    step.meta.tool.as_deref().map(text::stored).unwrap_or_default().to_ascii_lowercase()
}

/// The statement that counts the steps by session, kind and tool. The appending commit holds the row lock of the workspace,
/// so no other commit counts for the same session.
fn counted(mutations: &[Mutation]) -> Planned {
    let sql = "INSERT INTO stepback_tallies AS t (session, kind, tool, steps, failed)
         SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])
         ON CONFLICT (session, kind, tool)
         DO UPDATE SET steps = t.steps + excluded.steps, failed = t.failed + excluded.failed";
    Planned::new(sql, counts(mutations))
}

/// The statement for a mutation that changes an existing row.
fn change(mutation: &Mutation) -> Option<Planned> {
    Some(match mutation {
        Mutation::SetSessionInfo { session, info } => Planned::new(
            "UPDATE stepback_sessions SET info = $2::text::jsonb, working = $3 WHERE id = $1",
            vec![bytes(session.as_bytes()), Box::new(text::document(info)), Box::new(is_working(info))],
        ),
        Mutation::Annotate { step, annotation } => Planned::new(
            "UPDATE stepback_steps SET label = $2, note = $3, tags = $4::text::jsonb WHERE id = $1",
            vec![
                bytes(step.as_bytes()),
                maybe_words(annotation.label.as_deref()),
                maybe_words(annotation.note.as_deref()),
                Box::new(text::document(&annotation.tags)),
            ],
        ),
        Mutation::SetHidden { steps, by } => Planned::new(
            "UPDATE stepback_steps SET hidden_by = $2 WHERE id = ANY($1)",
            vec![
                Box::new(steps.iter().map(|step| step.as_bytes().to_vec()).collect::<Vec<_>>()),
                Box::new(by.map(|op| op.as_bytes().to_vec())),
            ],
        ),
        Mutation::Purge { steps } => Planned::new(
            "UPDATE stepback_steps SET purged = true WHERE id = ANY($1) AND hidden_by IS NOT NULL",
            vec![Box::new(steps.iter().map(|step| step.as_bytes().to_vec()).collect::<Vec<_>>())],
        ),
        Mutation::SetRef { name, expected, value } => {
            let mut values = vec![words(name), bytes(value.as_bytes())];
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
            Planned { moves: Some(name.clone()), ..Planned::new(sql, values) }
        }
        Mutation::DropRef { name } => {
            Planned::new("DELETE FROM stepback_refs WHERE name = $1", vec![words(name)])
        }
        Mutation::SetOpStatus { op, status } => Planned::new(
            "UPDATE stepback_operations SET status = $2, journal = CASE $2 WHEN 'applying' THEN journal END WHERE id = $1",
            vec![bytes(op.as_bytes()), Box::new(status.as_str())],
        ),
        Mutation::SetOpUndone { op, undone } => Planned::new(
            "UPDATE stepback_operations SET undone = $2 WHERE id = $1",
            vec![bytes(op.as_bytes()), Box::new(*undone)],
        ),
        Mutation::AddWorkspace(_)
        | Mutation::AddSession(_)
        | Mutation::AppendStep { .. }
        | Mutation::AppendOp(_) => return None,
    })
}

fn bytes(bytes: &[u8]) -> Owned {
    Box::new(bytes.to_vec())
}

fn words(words: &str) -> Owned {
    Box::new(text::stored(words).into_owned())
}

fn maybe_words(words: Option<&str>) -> Owned {
    Box::new(words.map(|words| text::stored(words).into_owned()))
}
