//! Determines whether a commit took effect, from the rows that it writes.

use std::collections::HashMap;

use stepback_store::port::{Mutation, Receipt};
use tokio_postgres::{Client, Error};

use crate::text;

/// The receipt of a commit of `mutations`, if it took effect. Also `None` if the mutations write nothing that could be
/// looked up: repeating those does no harm.
pub(crate) async fn find_receipt(client: &Client, mutations: &[Mutation]) -> Result<Option<Receipt>, Error> {
    let (steps, ops): (Vec<&[u8]>, Vec<&[u8]>) = (
        mutations.iter().filter_map(appended_step).collect(),
        mutations.iter().filter_map(appended_op).collect(),
    );
    if steps.is_empty() && ops.is_empty() {
        let Some((sql, key)) = evidence_query(mutations) else { return Ok(None) };
        let row = client.query_one(&format!("SELECT EXISTS (SELECT FROM {sql})"), &[&key]).await?;
        return Ok(row.try_get::<_, bool>(0)?.then(Receipt::default));
    }
    let steps =
        row_numbers(client, "SELECT id, number FROM stepback_steps WHERE id = ANY($1)", &steps).await?;
    let ops =
        row_numbers(client, "SELECT id, number FROM stepback_operations WHERE id = ANY($1)", &ops).await?;
    Ok(steps.zip(ops).map(|(steps, ops)| Receipt { steps, ops }))
}

fn appended_step(mutation: &Mutation) -> Option<&[u8]> {
    match mutation {
        Mutation::AppendStep { step, .. } => Some(step.id.as_bytes()),
        _ => None,
    }
}

fn appended_op(mutation: &Mutation) -> Option<&[u8]> {
    match mutation {
        Mutation::AppendOp(op) => Some(op.id.as_bytes()),
        _ => None,
    }
}

/// The numbers of all these rows, if all exist.
async fn row_numbers(client: &Client, sql: &str, ids: &[&[u8]]) -> Result<Option<Vec<u64>>, Error> {
    let mut numbers: HashMap<Vec<u8>, u64> = HashMap::new();
    for row in client.query(sql, &[&ids]).await? {
        numbers.insert(row.try_get(0)?, row.try_get::<_, i64>(1)? as u64);
    }
    Ok(ids.iter().map(|id| numbers.get(*id).copied()).collect())
}

/// A row that exists if and only if the mutations took effect, or the store is at least as if they had.
fn evidence_query(mutations: &[Mutation]) -> Option<(String, Vec<u8>)> {
    let written_row = mutations.iter().find_map(|mutation| {
        let (table, id) = match mutation {
            Mutation::AddSession(session) => ("sessions", session.id.as_bytes()),
            Mutation::AddWorkspace(workspace) => ("workspaces", workspace.id.as_bytes()),
            _ => return None,
        };
        Some((format!("stepback_{table} WHERE id = $1"), id.to_vec()))
    });
    let moved = || {
        mutations.iter().rev().find_map(|mutation| match mutation {
            Mutation::SetRef { name, value, .. } => {
                let name = text::escape_text(name).replace('\'', "''");
                Some((
                    format!("stepback_refs WHERE name = '{name}' AND value = $1"),
                    value.as_bytes().to_vec(),
                ))
            }
            _ => None,
        })
    };
    written_row.or_else(moved)
}
