//! Several lookups in one round trip.

use std::collections::HashMap;

use futures_util::future::join;
use stepback_model::ids::StepId;
use stepback_model::record::Session;
use stepback_store::StoreError;
use stepback_store::port::{BatchAnswers, BatchLookup, Questions, ReadVersions};

use crate::rows::{self, Record};
use crate::{PostgresStore, text};

/// Reads sessions, each with the transaction that wrote its row, which is the version of the row.
const SELECT_SESSION_VERSIONS: &str =
    "SELECT id, workspace, agent, started_at, info::text, xmin::text FROM stepback_sessions";

/// Reads the epoch, which of some steps are stored, and the targets of references. One statement sees all of it at one
/// moment.
///
/// The usual lookup is for one step of one session, and gets its own form: for a list of any length the server makes a new
/// plan every time, which takes longer than the answer.
fn look_sql(steps: usize, names: usize) -> String {
    let step = if steps == 1 { "= ($1::bytea[])[1]" } else { "= ANY($1)" };
    let references = match names {
        1 => "ARRAY[(SELECT value FROM stepback_refs WHERE name = ($2::text[])[1])]",
        _ => {
            "ARRAY(SELECT r.value FROM unnest($2::text[]) WITH ORDINALITY asked (name, place)
                LEFT JOIN stepback_refs r USING (name) ORDER BY place)"
        }
    };
    format!(
        "SELECT epoch, ARRAY(SELECT id FROM stepback_steps WHERE id {step}), {references} FROM stepback_meta"
    )
}

impl PostgresStore {
    pub(crate) fn current_epoch(&self) -> Result<u64, StoreError> {
        let sql = "SELECT epoch FROM stepback_meta";
        let row = self.pool.ask(async |connection| connection.row(sql, &[]).await)?;
        Ok(rows::get::<i64>(&row.ok_or_else(without_meta)?, 0)? as u64)
    }
}

impl BatchLookup for PostgresStore {
    fn look(&self, questions: &Questions<'_>) -> Result<BatchAnswers, StoreError> {
        let steps: Vec<&[u8]> = questions.steps.iter().map(|step| step.as_bytes().as_slice()).collect();
        let names: Vec<_> = questions.references.iter().map(|name| text::escape_text(name)).collect();
        let sessions: Vec<&[u8]> =
            questions.sessions.iter().map(|session| session.as_bytes().as_slice()).collect();
        let (row, met) = self.pool.ask(async |connection| {
            let look = connection.prepared(&look_sql(steps.len(), names.len())).await?;
            let session_condition = if sessions.len() == 1 { "= ($1::bytea[])[1]" } else { "= ANY($1)" };
            let meet = connection
                .prepared(&format!("{SELECT_SESSION_VERSIONS} WHERE id {session_condition}"))
                .await?;
            let client = &connection.client;
            // Read the epoch first, so that a collection after this lookup is noticed.
            let (row, met) =
                join(client.query_opt(&look, &[&steps, &names]), client.query(&meet, &[&sessions])).await;
            Ok((row?, met?))
        })?;
        let row = row.ok_or_else(without_meta)?;
        let bad_id = || StoreError::Corrupt { what: "an id of another length".into() };
        let step = |bytes: &[u8]| StepId::from_slice(bytes).ok_or_else(bad_id);
        let stored = rows::get::<Vec<&[u8]>>(&row, 1)?.into_iter().map(step).collect::<Result<_, _>>()?;
        let references = rows::get::<Vec<Option<&[u8]>>>(&row, 2)?;
        let references = references.into_iter().map(|value| value.map(step).transpose());
        let references = references.collect::<Result<Vec<_>, _>>()?;
        let (mut sessions_by_id, mut versions) = (HashMap::new(), HashMap::new());
        for row in &met {
            let session = Session::read(row)?;
            versions.insert(session.id, rows::get::<String>(row, 5)?);
            sessions_by_id.insert(session.id, session);
        }
        let sessions =
            questions.sessions.iter().map(|session| sessions_by_id.get(session).cloned()).collect();
        let targets = questions.references.iter().cloned().zip(references.iter().copied()).collect();
        Ok(BatchAnswers {
            epoch: rows::get::<i64>(&row, 0)? as u64,
            stored,
            references,
            sessions,
            versions: ReadVersions { sessions: versions, references: targets },
        })
    }
}

fn without_meta() -> StoreError {
    StoreError::Corrupt { what: "stepback_meta is empty".into() }
}
