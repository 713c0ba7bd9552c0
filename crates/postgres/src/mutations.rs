//! A commit's mutations as statements, as few as possible: every one that has to be waited for is a way to the server and back.
//!
//! Workspaces and sessions come first, since steps need them and they need nothing. Then the rows of the workspaces are locked
//! and their counters raised, which assigns all numbers at once. The rest goes out in order, without waiting in between.

use std::collections::HashMap;

use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::json::Root;
use stepback_model::record::{Annotation, Step, Trigger};
use stepback_store::StoreError;
use stepback_store::port::{Mutation, Receipt};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};

use crate::text;

/// A value that a statement keeps.
type Owned = Box<dyn ToSql + Sync + Send>;

/// One statement with its values.
pub(crate) struct Planned {
    pub sql: &'static str,
    pub values: Vec<Owned>,
    /// The reference that was moved by somebody else if no row is changed.
    pub moves: Option<String>,
}

impl Planned {
    pub fn new(sql: &'static str, values: Vec<Owned>) -> Self {
        Self { sql, values, moves: None }
    }
}

/// How many numbers a workspace has to give.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub steps: i64,
    pub operations: i64,
}

/// Raises the counters of workspaces, and holds their rows until the end of the transaction.
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

/// Sessions that `mutations` add, with their workspaces.
pub(crate) fn added_sessions(mutations: &[Mutation]) -> impl Iterator<Item = (SessionId, WorkspaceId)> {
    mutations.iter().filter_map(|mutation| match mutation {
        Mutation::AddSession(session) => Some((session.id, session.workspace)),
        _ => None,
    })
}

/// How many numbers each workspace has to give, in order of the workspaces.
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

fn workspace_of(step: &Step, sessions: &HashMap<SessionId, WorkspaceId>) -> Result<WorkspaceId, StoreError> {
    sessions
        .get(&step.session)
        .copied()
        .ok_or_else(|| StoreError::Corrupt { what: "a step of a session that does not exist".into() })
}

/// The statements that add workspaces and sessions.
pub(crate) fn beginnings(mutations: &[Mutation], machine: &str) -> Vec<Planned> {
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
                "INSERT INTO stepback_sessions (id, workspace, agent, started_at, info)
                 VALUES ($1, $2, $3, $4, $5::text::jsonb)",
                vec![
                    bytes(session.id.as_bytes()),
                    bytes(session.workspace.as_bytes()),
                    words(&session.agent),
                    Box::new(session.started_at.as_micros()),
                    Box::new(text::document(&session.info)),
                ],
            )),
            _ => {}
        }
    }
    planned
}

/// The other statements, and the numbers they use. `next` are the numbers each workspace gives next.
pub(crate) fn the_rest(
    mutations: &[Mutation],
    sessions: &HashMap<SessionId, WorkspaceId>,
    next: &mut HashMap<WorkspaceId, Wanted>,
) -> Result<(Vec<Planned>, Receipt), StoreError> {
    let mut planned = Vec::new();
    let mut receipt = Receipt::default();
    let mut steps = Steps::default();
    let gone = || StoreError::Corrupt { what: "a step of a workspace that does not exist".into() };
    for mutation in mutations {
        if let Mutation::AppendStep { step, annotation, trigger } = mutation {
            let workspace = workspace_of(step, sessions)?;
            let number = &mut next.get_mut(&workspace).ok_or_else(gone)?.steps;
            *number += 1;
            receipt.steps.push(*number as u64);
            steps.push(step, workspace, *number, annotation, *trigger);
            continue;
        }
        planned.extend(std::mem::take(&mut steps).planned());
        if let Mutation::AppendOp(op) = mutation {
            let number = &mut next.get_mut(&op.workspace).ok_or_else(gone)?.operations;
            *number += 1;
            receipt.ops.push(*number as u64);
            planned.push(Planned::new(
                "INSERT INTO stepback_operations (id, workspace, number, status, undone, journal, at, summary, action)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::jsonb)",
                vec![
                    bytes(op.id.as_bytes()),
                    bytes(op.workspace.as_bytes()),
                    Box::new(*number),
                    Box::new(op.status.as_str()),
                    Box::new(op.undone),
                    Box::new(op.journal.map(|hash| hash.as_bytes().to_vec())),
                    Box::new(op.at.as_micros()),
                    words(&op.summary),
                    Box::new(text::document(&op.action)),
                ],
            ));
        } else {
            planned.extend(change(mutation));
        }
    }
    planned.extend(steps.planned());
    planned.extend(counted(mutations));
    Ok((planned, receipt))
}

/// The statement that counts the steps by session, kind and tool. Whoever appends holds the row of the workspace, so that
/// nobody else counts for the same session.
fn counted(mutations: &[Mutation]) -> Option<Planned> {
    let mut counts: HashMap<(SessionId, &'static str, String), (i64, i64)> = HashMap::new();
    for mutation in mutations {
        if let Mutation::AppendStep { step, .. } = mutation {
            let tool = step.facts.tool.as_deref().map(text::stored).unwrap_or_default().to_ascii_lowercase();
            let (steps, failed) = counts.entry((step.session, step.kind.as_str(), tool)).or_default();
            *steps += 1;
            *failed += i64::from(step.facts.failed);
        }
    }
    if counts.is_empty() {
        return None;
    }
    let sql = "INSERT INTO stepback_tallies AS t (session, kind, tool, steps, failed)
        SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])
        ON CONFLICT (session, kind, tool)
        DO UPDATE SET steps = t.steps + excluded.steps, failed = t.failed + excluded.failed";
    let values: Vec<Owned> = vec![
        Box::new(counts.keys().map(|(session, ..)| session.as_bytes().to_vec()).collect::<Vec<_>>()),
        Box::new(counts.keys().map(|(_, kind, _)| *kind).collect::<Vec<_>>()),
        Box::new(counts.keys().map(|(.., tool)| tool.clone()).collect::<Vec<_>>()),
        Box::new(counts.values().map(|(steps, _)| *steps).collect::<Vec<_>>()),
        Box::new(counts.values().map(|(_, failed)| *failed).collect::<Vec<_>>()),
    ];
    Some(Planned::new(sql, values))
}

/// The statement of a mutation that changes what is there.
fn change(mutation: &Mutation) -> Option<Planned> {
    Some(match mutation {
        Mutation::SetSessionInfo { session, info } => Planned::new(
            "UPDATE stepback_sessions SET info = $2::text::jsonb WHERE id = $1",
            vec![bytes(session.as_bytes()), Box::new(text::document(info))],
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
            let sql = match expected {
                None => {
                    "INSERT INTO stepback_refs (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"
                }
                Some(expected) => {
                    values.push(bytes(expected.as_bytes()));
                    "UPDATE stepback_refs SET value = $2 WHERE name = $1 AND value = $3"
                }
            };
            Planned { sql, values, moves: Some(name.clone()) }
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

/// Whether what `mutations` make is there. `false` if they make nothing that could be looked for: doing those again does no
/// harm.
pub(crate) async fn took_effect(client: &Client, mutations: &[Mutation]) -> Result<bool, Error> {
    let (sql, key) = match evidence(mutations) {
        Some(evidence) => evidence,
        None => return Ok(false),
    };
    let row = client.query_one(&format!("SELECT EXISTS (SELECT FROM {sql})"), &[&key]).await?;
    row.try_get(0)
}

/// A row that is there if and only if the mutations took effect, or at least as if they had.
fn evidence(mutations: &[Mutation]) -> Option<(String, Vec<u8>)> {
    let made = mutations.iter().find_map(|mutation| {
        let (table, id) = match mutation {
            Mutation::AppendStep { step, .. } => ("steps", step.id.as_bytes()),
            Mutation::AppendOp(op) => ("operations", op.id.as_bytes()),
            Mutation::AddSession(session) => ("sessions", session.id.as_bytes()),
            Mutation::AddWorkspace(workspace) => ("workspaces", workspace.id.as_bytes()),
            _ => return None,
        };
        Some((format!("stepback_{table} WHERE id = $1"), id.to_vec()))
    });
    let moved = || {
        mutations.iter().rev().find_map(|mutation| match mutation {
            Mutation::SetRef { name, value, .. } => {
                let name = text::stored(name).replace('\'', "''");
                Some((
                    format!("stepback_refs WHERE name = '{name}' AND value = $1"),
                    value.as_bytes().to_vec(),
                ))
            }
            _ => None,
        })
    };
    made.or_else(moved)
}

/// Steps as columns, so that any number of them is one statement.
#[derive(Default)]
struct Steps {
    ids: Vec<Vec<u8>>,
    workspaces: Vec<Vec<u8>>,
    sessions: Vec<Vec<u8>>,
    numbers: Vec<i64>,
    parents: Vec<Option<Vec<u8>>>,
    kinds: Vec<&'static str>,
    times: Vec<i64>,
    states: Vec<Vec<u8>>,
    summaries: Vec<String>,
    labels: Vec<Option<String>>,
    notes: Vec<Option<String>>,
    tags: Vec<String>,
    triggers: Vec<Option<&'static str>>,
    iterations: Vec<i64>,
    workers: Vec<Option<String>>,
    calls: Vec<Option<String>>,
    tools: Vec<Option<String>>,
    failed: Vec<bool>,
    durations: Vec<Option<i64>>,
    details: Vec<Option<Vec<u8>>>,
}

impl Steps {
    fn push(
        &mut self,
        step: &Step,
        workspace: WorkspaceId,
        number: i64,
        annotation: &Annotation,
        trigger: Option<Trigger>,
    ) {
        let kept = |words: &Option<String>| words.as_deref().map(|words| text::stored(words).into_owned());
        self.ids.push(step.id.as_bytes().to_vec());
        self.workspaces.push(workspace.as_bytes().to_vec());
        self.sessions.push(step.session.as_bytes().to_vec());
        self.numbers.push(number);
        self.parents.push(step.parent.map(|id| id.as_bytes().to_vec()));
        self.kinds.push(step.kind.as_str());
        self.times.push(step.at.as_micros());
        self.states.push(step.state.as_bytes().to_vec());
        self.summaries.push(text::stored(&step.summary).into_owned());
        self.labels.push(kept(&annotation.label));
        self.notes.push(kept(&annotation.note));
        self.tags.push(text::document(&annotation.tags));
        self.triggers.push(trigger.map(Trigger::as_str));
        self.iterations.push(step.facts.iteration as i64);
        self.workers.push(kept(&step.facts.worker));
        self.calls.push(kept(&step.facts.call));
        self.tools.push(kept(&step.facts.tool));
        self.failed.push(step.facts.failed);
        self.durations.push(step.facts.duration.map(|micros| micros as i64));
        self.details.push(step.facts.detail.map(Root::to_bytes));
    }

    fn planned(self) -> Option<Planned> {
        if self.ids.is_empty() {
            return None;
        }
        let sql = "INSERT INTO stepback_steps (id, workspace, session, number, parent, kind, at, state, summary, label, note,
                tags, trigger_kind, iteration, worker, call, tool, failed, duration, detail, position)
            SELECT a, b, c, d, e, f, g, h, i, j, k, l::jsonb, m, n, o, p, q, r, s, t, nextval('stepback_positions')
            FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[], $6::text[], $7::bigint[], $8::bytea[],
                $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::text[], $16::text[],
                $17::text[], $18::boolean[], $19::bigint[], $20::bytea[])
            AS steps (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t)";
        let values: Vec<Owned> = vec![
            Box::new(self.ids),
            Box::new(self.workspaces),
            Box::new(self.sessions),
            Box::new(self.numbers),
            Box::new(self.parents),
            Box::new(self.kinds),
            Box::new(self.times),
            Box::new(self.states),
            Box::new(self.summaries),
            Box::new(self.labels),
            Box::new(self.notes),
            Box::new(self.tags),
            Box::new(self.triggers),
            Box::new(self.iterations),
            Box::new(self.workers),
            Box::new(self.calls),
            Box::new(self.tools),
            Box::new(self.failed),
            Box::new(self.durations),
            Box::new(self.details),
        ];
        Some(Planned::new(sql, values))
    }
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
