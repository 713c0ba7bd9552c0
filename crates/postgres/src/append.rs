//! Appends steps: one function in the database, for a single step or many.
//!
//! A commit that only appends steps, as most do, is one call of the function. Outside of an open transaction, a statement
//! is a transaction of its own and takes effect as a whole or not at all, so the call takes one round trip. Any other
//! commit calls the same function where its mutations append steps.
//!
//! Steps, sessions and references are one JSON argument, so that the function has few parameters; objects are columns,
//! because their bytes would have to be encoded in JSON.

use std::borrow::Cow;

use serde::Serialize;
use stepback_model::json::ValueRoot;
use stepback_model::record::{Annotation, Session, SessionInfo, Step, Trigger};
use stepback_model::step_chain::step_digest;
use stepback_store::StoreError;
use stepback_store::port::{Mutation, ReadVersions};
use tokio_postgres::Row;

use crate::{rows, text};

/// Calls the function: the format that the caller knows, the epoch it relies on, the key of locks, seven columns of
/// objects, and a [`StepBatch`] as JSON.
pub(crate) const CALL: &str = "SELECT stepback_append_traced($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
/// Calls it inside a transaction that has checked the epoch and added the objects.
pub(crate) const CALL_INSIDE: &str =
    "SELECT stepback_append_traced($1, NULL, $2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, $3)";

/// Error code of the function when the store's format is newer than the caller's.
pub(crate) const NEWER: &str = "SB001";
/// Error code when objects were freed that the caller may rely on.
pub(crate) const COLLECTED: &str = "SB002";
/// Error code when a session or reference has changed since the caller read it.
pub(crate) const CHANGED: &str = "SB003";
/// Error code when a session, or its workspace, does not exist.
pub(crate) const UNKNOWN: &str = "SB004";

/// Creates the function of format 11; [`crate::append_traced`] has the present one. Once it is released it must never change: a new version gets a new name.
///
/// Inside a transaction, without objects, it does not count the commit: that must be the last thing before COMMIT, because
/// it cannot be rolled back. It returns whether another process may be listening (1 or 0), and the number of each step.
///
/// Each statement in it sees what was committed before it, so the epoch is read after the lock was taken, and references
/// are compared while the rows of the workspaces are locked. Workspaces are locked in order of their ids, as every commit
/// does. Sessions are looked up one by one (`LATERAL … OFFSET 0`): the server takes every JSON list for a long one, and
/// would read the whole table otherwise.
///
/// The heads of chains are in a table of their own, because callers rely on the version of a session's row. They are read
/// and written while the workspace is locked, so that a session has one chain even if several processes append to it.
///
/// The function of format 10 is replaced by one that refuses, as it would by itself: a program of that format may have the
/// store open.
pub(crate) const MAKE: &str = r#"
DROP FUNCTION IF EXISTS stepback_append_steps;
DROP FUNCTION IF EXISTS stepback_append_step;
CREATE OR REPLACE FUNCTION stepback_append(
    known integer, since bigint, key integer,
    o_hash bytea[], o_kind smallint[], o_codec smallint[], o_depth smallint[], o_raw_len bigint[], o_base bytea[],
    o_payload bytea[], argument text
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $refuse$
BEGIN
    RAISE EXCEPTION 'the store is newer' USING ERRCODE = 'SB001';
END
$refuse$;
ALTER TABLE stepback_steps ADD COLUMN link bytea;
CREATE TABLE stepback_chains (session bytea PRIMARY KEY, linked bigint NOT NULL, head bytea NOT NULL)
    WITH (fillfactor = 50);
CREATE FUNCTION stepback_link(link bytea, digest bytea, head bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $link$ BEGIN RETURN sha256(coalesce(link, head) || digest); END $link$;
CREATE AGGREGATE stepback_chain (digest bytea, head bytea) (SFUNC = stepback_link, STYPE = bytea);
CREATE FUNCTION stepback_append_linked(
    known integer, since bigint, key integer,
    o_hash bytea[], o_kind smallint[], o_codec smallint[], o_depth smallint[], o_raw_len bigint[], o_base bytea[],
    o_payload bytea[], argument text
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $append$
#variable_conflict use_column
DECLARE
    batch jsonb := argument::jsonb;
    done boolean;
    version_now integer;
    epoch_now bigint;
    appended_to bytea;
    appended bigint;
    changed bigint;
    numbers bigint[];
BEGIN
    done := pg_advisory_xact_lock_shared(1396834306, key) IS NULL;
    SELECT s.version, m.epoch INTO version_now, epoch_now FROM stepback_schema s, stepback_meta m;
    IF version_now > known THEN
        RAISE EXCEPTION 'the store is newer' USING ERRCODE = 'SB001';
    ELSIF since <> epoch_now THEN
        RAISE EXCEPTION 'objects were freed' USING ERRCODE = 'SB002';
    END IF;
    IF jsonb_array_length(batch->'new_sessions') > 0 THEN
        INSERT INTO stepback_sessions (id, workspace, agent, started_at, info, working)
            SELECT id, workspace, agent, started_at, info::jsonb, working
            FROM jsonb_to_recordset(batch->'new_sessions')
                AS new (id bytea, workspace bytea, agent text, started_at bigint, info text, working boolean);
    END IF;
    IF cardinality(o_hash) > 0 THEN
        INSERT INTO stepback_objects (hash, kind, codec, depth, raw_len, base, payload)
            SELECT * FROM unnest(o_hash, o_kind, o_codec, o_depth, o_raw_len, o_base, o_payload)
            ON CONFLICT (hash) DO NOTHING;
    END IF;
    FOR appended_to, appended IN
        SELECT of_session.workspace, count(*) FROM jsonb_to_recordset(batch->'steps') AS new (session bytea)
            LEFT JOIN LATERAL (SELECT workspace FROM stepback_sessions WHERE id = new.session OFFSET 0) of_session ON true
            GROUP BY 1 ORDER BY 1
    LOOP
        UPDATE stepback_workspaces SET steps = steps + appended WHERE id = appended_to;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'a session or its workspace does not exist' USING ERRCODE = 'SB004';
        END IF;
    END LOOP;
    IF jsonb_array_length(batch->'references') > 0 THEN
        done := NOT EXISTS (SELECT FROM jsonb_to_recordset(batch->'references') AS expected (name text, value bytea)
            WHERE (SELECT value FROM stepback_refs WHERE name = expected.name) IS DISTINCT FROM expected.value);
        IF NOT done THEN
            RAISE EXCEPTION 'a reference was moved' USING ERRCODE = 'SB003';
        END IF;
    END IF;
    IF jsonb_array_length(batch->'sessions') > 0 THEN
        UPDATE stepback_sessions s SET info = n.info::jsonb, working = n.working
            FROM jsonb_to_recordset(batch->'sessions') AS n (id bytea, info text, working boolean, version text)
            WHERE s.id = ANY (ARRAY(SELECT id FROM jsonb_to_recordset(batch->'sessions') AS i (id bytea)))
                AND s.id = n.id AND (n.version IS NULL OR s.xmin::text = n.version);
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed < jsonb_array_length(batch->'sessions') AND EXISTS (SELECT
                FROM jsonb_to_recordset(batch->'sessions') AS n (version text) WHERE version IS NOT NULL) THEN
            RAISE EXCEPTION 'a session was changed' USING ERRCODE = 'SB003';
        END IF;
    END IF;
    done := pg_advisory_xact_lock_shared(1396834307, key) IS NULL;
    WITH inserted AS (
        INSERT INTO stepback_steps (id, workspace, session, number, parent, kind, at, state, summary, label, note,
                tags, trigger_kind, iteration, worker, call, tool, failed, duration, detail, link, position)
            SELECT id, workspace, session, number, parent, kind, at, state, summary, label, note, tags::jsonb, trigger_kind,
                iteration, worker, call, tool, failed, duration, detail, link, nextval('stepback_positions')
            FROM (SELECT new.*, of_session.workspace,
                stepback_chain(new.digest, of_session.head) OVER (PARTITION BY new.session ORDER BY new.ordinality) AS link,
                of_session.steps
                    + row_number() OVER (PARTITION BY of_session.workspace ORDER BY new.ordinality)
                    - count(*) OVER (PARTITION BY of_session.workspace) AS number
                FROM ROWS FROM (jsonb_to_recordset(batch->'steps') AS (id bytea, session bytea, parent bytea, kind text,
                    at bigint, state bytea, summary text, label text, note text, tags text, trigger_kind text,
                    iteration bigint, worker text, call text, tool text, failed boolean, duration bigint, detail bytea,
                    digest bytea))
                    WITH ORDINALITY AS new
                CROSS JOIN LATERAL (SELECT w.id AS workspace, w.steps,
                        coalesce((SELECT head FROM stepback_chains WHERE session = new.session),
                            decode(repeat('00', 32), 'hex')) AS head
                    FROM stepback_sessions s
                    JOIN stepback_workspaces w ON w.id = s.workspace WHERE s.id = new.session OFFSET 0) of_session
                ORDER BY new.ordinality) steps
            RETURNING number, position, session, link
    ), chained AS (
        INSERT INTO stepback_chains AS c (session, linked, head)
            SELECT session, count(*), (array_agg(link ORDER BY position DESC))[1] FROM inserted GROUP BY session ORDER BY session
            ON CONFLICT (session) DO UPDATE SET linked = c.linked + excluded.linked, head = excluded.head
    ) SELECT array_agg(number ORDER BY position) INTO numbers FROM inserted;
    INSERT INTO stepback_tallies AS t (session, kind, tool, steps, failed)
        SELECT session, kind, coalesce(lower(tool COLLATE "C"), ''), count(*), count(*) FILTER (WHERE failed)
        FROM jsonb_to_recordset(batch->'steps') AS new (session bytea, kind text, tool text, failed boolean)
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
        ON CONFLICT (session, kind, tool)
        DO UPDATE SET steps = t.steps + excluded.steps, failed = t.failed + excluded.failed;
    IF o_hash IS NOT NULL THEN
        done := nextval('stepback_commits') IS NULL;
    END IF;
    RETURN ARRAY[(NOT pg_try_advisory_xact_lock(1396834309, key))::integer::bigint] || numbers;
END
$append$;
"#;

/// What the function appends, and what it changes with it.
#[derive(Default, Serialize)]
pub(crate) struct StepBatch<'a> {
    new_sessions: Vec<NewSession<'a>>,
    sessions: Vec<ChangedSession<'a>>,
    references: Vec<ExpectedReference<'a>>,
    steps: Vec<NewStep<'a>>,
}

#[derive(Serialize)]
struct NewSession<'a> {
    id: String,
    workspace: String,
    agent: Cow<'a, str>,
    started_at: i64,
    info: String,
    working: bool,
}

#[derive(Serialize)]
struct ChangedSession<'a> {
    id: String,
    info: String,
    working: bool,
    /// The version that the row must have; `None` for any.
    version: Option<&'a str>,
}

#[derive(Serialize)]
struct ExpectedReference<'a> {
    name: Cow<'a, str>,
    value: Option<String>,
}

#[derive(Serialize)]
struct NewStep<'a> {
    id: String,
    session: String,
    parent: Option<String>,
    kind: &'static str,
    at: i64,
    state: String,
    summary: Cow<'a, str>,
    label: Option<Cow<'a, str>>,
    note: Option<Cow<'a, str>>,
    tags: String,
    trigger_kind: Option<&'static str>,
    iteration: u64,
    worker: Option<Cow<'a, str>>,
    call: Option<Cow<'a, str>>,
    tool: Option<Cow<'a, str>>,
    failed: bool,
    duration: Option<u64>,
    detail: Option<String>,
    task: Option<Cow<'a, str>>,
    trace: Option<Cow<'a, str>>,
    span: Option<Cow<'a, str>>,
    parent_span: Option<Cow<'a, str>>,
    /// What the link of the step is computed from.
    digest: String,
}

impl<'a> StepBatch<'a> {
    /// The batch of a commit of `mutations`, provided that `expected` still holds; `None` if they do anything but append
    /// steps. There is always at least one step: by its row one can see later whether the commit took effect.
    pub fn of(mutations: &'a [Mutation], expected: Option<&'a ReadVersions>) -> Option<Self> {
        let mut batch = Self::default();
        for mutation in mutations {
            match mutation {
                Mutation::AddSession(session) => batch.new_sessions.push(new_session(session)),
                Mutation::SetSessionInfo { session, info } => {
                    let version = expected.and_then(|expected| expected.sessions.get(session));
                    batch.sessions.push(ChangedSession {
                        id: to_bytea(session.as_bytes()),
                        info: text::to_json(info),
                        working: is_working(info),
                        version: version.map(String::as_str),
                    });
                }
                Mutation::AppendStep { step, annotation, trigger } => {
                    batch.push_step(step, annotation, *trigger);
                }
                _ => return None,
            }
        }
        for (name, value) in expected.map_or(&[][..], |expected| &expected.references) {
            let value = value.map(|step| to_bytea(step.as_bytes()));
            batch.references.push(ExpectedReference { name: text::escape_text(name), value });
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Adds a step.
    pub fn push_step(&mut self, step: &'a Step, annotation: &'a Annotation, trigger: Option<Trigger>) {
        fn stored(words: &Option<String>) -> Option<Cow<'_, str>> {
            words.as_deref().map(text::escape_text)
        }
        self.steps.push(NewStep {
            id: to_bytea(step.id.as_bytes()),
            session: to_bytea(step.session.as_bytes()),
            parent: step.parent.map(|id| to_bytea(id.as_bytes())),
            kind: step.kind.as_str(),
            at: step.at.as_micros(),
            state: to_bytea(step.state.as_bytes()),
            summary: text::escape_text(&step.summary),
            label: stored(&annotation.label),
            note: stored(&annotation.note),
            tags: text::to_json(&annotation.tags),
            trigger_kind: trigger.map(Trigger::as_str),
            iteration: step.meta.iteration,
            worker: stored(&step.meta.worker),
            call: stored(&step.meta.call),
            tool: stored(&step.meta.tool),
            failed: step.meta.failed,
            duration: step.meta.duration,
            detail: step.meta.detail.map(|detail| to_bytea(&ValueRoot::to_bytes(detail))),
            task: stored(&step.meta.context.task),
            trace: stored(&step.meta.context.trace),
            span: stored(&step.meta.context.span),
            parent_span: stored(&step.meta.context.parent_span),
            digest: to_bytea(step_digest(step, trigger).as_bytes()),
        });
    }

    /// The last argument of the function.
    pub fn to_json(&self) -> String {
        // Plain data with string keys always serialises.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn new_session(session: &Session) -> NewSession<'_> {
    NewSession {
        id: to_bytea(session.id.as_bytes()),
        workspace: to_bytea(session.workspace.as_bytes()),
        agent: text::escape_text(&session.agent),
        started_at: session.started_at.as_micros(),
        info: text::to_json(&session.info),
        working: is_working(&session.info),
    }
}

/// Whether a session has an open call.
pub(crate) fn is_working(info: &SessionInfo) -> bool {
    !info.open.is_empty()
}

/// Bytes as PostgreSQL writes them in a text.
fn to_bytea(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Reads what the function returned: whether another process may be listening, and the numbers of the steps.
pub(crate) fn read_result(row: &Row) -> Result<(bool, Vec<u64>), StoreError> {
    let result: Vec<i64> = rows::get(row, 0)?;
    let Some((heard, numbers)) = result.split_first() else {
        return Err(StoreError::Corrupt { what: "stepback_append_traced returned nothing".into() });
    };
    Ok((*heard != 0, numbers.iter().map(|number| *number as u64).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::append_traced;
    use crate::commit::COLLECTING;
    use crate::commit_order::ORDERING;
    use crate::notify::LISTENING;

    #[test]
    fn the_function_takes_the_locks_that_every_commit_takes() {
        for make in [MAKE, append_traced::MAKE] {
            for lock in [COLLECTING, ORDERING] {
                assert!(make.contains(&format!("pg_advisory_xact_lock_shared({lock}, key)")), "{lock}");
            }
            assert!(make.contains(&format!("pg_try_advisory_xact_lock({LISTENING}, key)")));
            assert!([NEWER, COLLECTED, CHANGED, UNKNOWN].iter().all(|code| make.contains(code)));
        }
    }
}
