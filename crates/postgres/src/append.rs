//! A commit that only appends steps, as most do: one call of a function in the database.
//!
//! A way to the server and back, and every statement by itself, takes as long as writing a step does. The function has all of
//! a commit but its end in one statement, which takes effect as a whole or not at all: outside of an open transaction, a
//! statement is one. Its plans are made once for each connection.

use std::collections::HashMap;

use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_store::StoreError;
use stepback_store::port::Mutation;

use crate::mutations::{Owned, Wanted, counts, given, wanted, workspace_of};
use crate::steps::Steps;
use crate::text;

/// Calls the function.
pub(crate) const CALL: &str = "SELECT id, last FROM stepback_append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
    $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38,
    $39, $40, $41, $42, $43, $44)";

/// What the function says when the store is newer than the caller.
pub(crate) const NEWER: &str = "SB001";
/// What it says when objects were freed that the caller may rely on.
pub(crate) const COLLECTED: &str = "SB002";

/// Makes the function. Released, and never changed: another one is a function of another name.
///
/// `known` is the format that the caller knows, `since` the epoch it relies on, `key` the second half of the keys of locks.
/// Then come columns: of objects (`o_`), of sessions that begin (`b_`) and of those of which something is known now (`k_`), of
/// workspaces and how many numbers each has to give (`w_`), of steps (`s_`), and of what is counted (`c_`).
/// Each statement of it sees what was committed before it, so that the epoch is the one after the lock. A single step, which is
/// what an agent that reports as it goes sends, has statements of its own: to take lists apart takes longer than the rest.
pub(crate) const MAKE: &str = "
CREATE FUNCTION stepback_append(
    known integer, since bigint, key integer,
    o_hash bytea[], o_kind smallint[], o_codec smallint[], o_depth smallint[], o_raw_len bigint[], o_base bytea[], o_payload bytea[],
    b_id bytea[], b_workspace bytea[], b_agent text[], b_started_at bigint[], b_info text[],
    k_id bytea[], k_info text[],
    w_id bytea[], w_steps bigint[],
    s_id bytea[], s_workspace bytea[], s_session bytea[], s_after bigint[], s_parent bytea[], s_kind text[], s_at bigint[],
    s_state bytea[], s_summary text[], s_label text[], s_note text[], s_tags text[], s_trigger_kind text[], s_iteration bigint[],
    s_worker text[], s_call text[], s_tool text[], s_failed boolean[], s_duration bigint[], s_detail bytea[],
    c_session bytea[], c_kind text[], c_tool text[], c_steps bigint[], c_failed bigint[]
) RETURNS TABLE (id bytea, last bigint) LANGUAGE plpgsql VOLATILE AS $append$
#variable_conflict use_column
DECLARE
    version_now integer;
    epoch_now bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1396834306, key);
    SELECT s.version, m.epoch INTO version_now, epoch_now FROM stepback_schema s, stepback_meta m;
    IF version_now > known THEN
        RAISE EXCEPTION 'the store is newer' USING ERRCODE = 'SB001';
    ELSIF since <> epoch_now THEN
        RAISE EXCEPTION 'objects were freed' USING ERRCODE = 'SB002';
    END IF;
    IF cardinality(b_id) > 0 THEN
        INSERT INTO stepback_sessions (id, workspace, agent, started_at, info)
            SELECT a, b, c, d, e::jsonb FROM unnest(b_id, b_workspace, b_agent, b_started_at, b_info) new (a, b, c, d, e);
    END IF;
    IF cardinality(o_hash) > 0 THEN
        INSERT INTO stepback_objects (hash, kind, codec, depth, raw_len, base, payload)
            SELECT * FROM unnest(o_hash, o_kind, o_codec, o_depth, o_raw_len, o_base, o_payload)
            ON CONFLICT (hash) DO NOTHING;
    END IF;
    IF cardinality(s_id) = 1 THEN
        UPDATE stepback_workspaces w SET steps = w.steps + 1 WHERE w.id = w_id[1] RETURNING w.id, w.steps INTO id, last;
        PERFORM pg_advisory_xact_lock_shared(1396834307, key);
        IF cardinality(k_id) = 1 THEN
            UPDATE stepback_sessions s SET info = k_info[1]::jsonb WHERE s.id = k_id[1];
        END IF;
        INSERT INTO stepback_steps (id, workspace, session, number, parent, kind, at, state, summary, label, note,
                tags, trigger_kind, iteration, worker, call, tool, failed, duration, detail, position)
            VALUES (s_id[1], id, s_session[1], last, s_parent[1], s_kind[1], s_at[1], s_state[1], s_summary[1], s_label[1],
                s_note[1], s_tags[1]::jsonb, s_trigger_kind[1], s_iteration[1], s_worker[1], s_call[1], s_tool[1], s_failed[1],
                s_duration[1], s_detail[1], nextval('stepback_positions'));
        INSERT INTO stepback_tallies AS t (session, kind, tool, steps, failed)
            VALUES (c_session[1], c_kind[1], c_tool[1], c_steps[1], c_failed[1])
            ON CONFLICT (session, kind, tool)
            DO UPDATE SET steps = t.steps + excluded.steps, failed = t.failed + excluded.failed;
        RETURN NEXT;
    ELSE
        RETURN QUERY UPDATE stepback_workspaces w SET steps = w.steps + n.steps
            FROM unnest(w_id, w_steps) n (id, steps) WHERE w.id = n.id RETURNING w.id, w.steps;
        PERFORM pg_advisory_xact_lock_shared(1396834307, key);
        IF cardinality(k_id) > 0 THEN
            UPDATE stepback_sessions s SET info = n.info::jsonb FROM unnest(k_id, k_info) n (id, info) WHERE s.id = n.id;
        END IF;
        INSERT INTO stepback_steps (id, workspace, session, number, parent, kind, at, state, summary, label, note,
                tags, trigger_kind, iteration, worker, call, tool, failed, duration, detail, position)
            SELECT a, b, c, last_number - d, e, f, g, h, i, j, k, l::jsonb, m, n, o, p, q, r, s, t, nextval('stepback_positions')
            FROM (SELECT new.*, w.steps AS last_number
                FROM unnest(s_id, s_workspace, s_session, s_after, s_parent, s_kind, s_at, s_state, s_summary, s_label, s_note,
                    s_tags, s_trigger_kind, s_iteration, s_worker, s_call, s_tool, s_failed, s_duration, s_detail)
                    WITH ORDINALITY AS new (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, place)
                JOIN stepback_workspaces w ON w.id = new.b ORDER BY place) steps;
        INSERT INTO stepback_tallies AS t (session, kind, tool, steps, failed)
            SELECT * FROM unnest(c_session, c_kind, c_tool, c_steps, c_failed)
            ON CONFLICT (session, kind, tool)
            DO UPDATE SET steps = t.steps + excluded.steps, failed = t.failed + excluded.failed;
    END IF;
    PERFORM nextval('stepback_commits');
END
$append$;
";

/// A commit that only appends.
pub(crate) struct Appending {
    /// For each step, its workspace, and how many numbers are given after its own.
    steps: Vec<(WorkspaceId, i64)>,
    /// Columns, from those of sessions that begin on.
    pub columns: Vec<Owned>,
}

impl Appending {
    /// What `mutations` append; `None` if they do anything else. `sessions` are those that steps are appended to, with their
    /// workspaces. There is a step in any case: by that one sees later whether it took effect.
    pub fn of(
        mutations: &[Mutation],
        sessions: &HashMap<SessionId, WorkspaceId>,
    ) -> Result<Option<Self>, StoreError> {
        let (mut begun, mut known) = (Begun::default(), Known::default());
        let (mut columns, mut places) = (Steps::default(), Vec::new());
        let wanted = wanted(mutations, sessions)?;
        let mut left: HashMap<WorkspaceId, Wanted> = wanted.iter().copied().collect();
        for mutation in mutations {
            match mutation {
                Mutation::AddSession(session) => {
                    begun.ids.push(session.id.as_bytes().to_vec());
                    begun.workspaces.push(session.workspace.as_bytes().to_vec());
                    begun.agents.push(text::stored(&session.agent).into_owned());
                    begun.times.push(session.started_at.as_micros());
                    begun.infos.push(text::document(&session.info));
                }
                Mutation::SetSessionInfo { session, info } => {
                    known.ids.push(session.as_bytes().to_vec());
                    known.infos.push(text::document(info));
                }
                Mutation::AppendStep { step, annotation, trigger } => {
                    let workspace = workspace_of(step, sessions)?;
                    let after = &mut left.entry(workspace).or_default().steps;
                    *after -= 1;
                    places.push((workspace, *after));
                    columns.push(step, workspace, *after, annotation, *trigger);
                }
                _ => return Ok(None),
            }
        }
        if places.is_empty() {
            return Ok(None);
        }
        let mut all: Vec<Owned> = vec![
            Box::new(begun.ids),
            Box::new(begun.workspaces),
            Box::new(begun.agents),
            Box::new(begun.times),
            Box::new(begun.infos),
            Box::new(known.ids),
            Box::new(known.infos),
            Box::new(wanted.iter().map(|(id, _)| id.as_bytes().to_vec()).collect::<Vec<_>>()),
            Box::new(wanted.iter().map(|(_, wanted)| wanted.steps).collect::<Vec<_>>()),
        ];
        all.extend(columns.values());
        all.extend(counts(mutations));
        Ok(Some(Self { steps: places, columns: all }))
    }

    /// The numbers that were given, when each workspace has counted to `last`.
    pub fn numbers(&self, last: &HashMap<WorkspaceId, Wanted>) -> Result<Vec<u64>, StoreError> {
        given(&self.steps, last, |last| last.steps)
    }
}

#[derive(Default)]
struct Begun {
    ids: Vec<Vec<u8>>,
    workspaces: Vec<Vec<u8>>,
    agents: Vec<String>,
    times: Vec<i64>,
    infos: Vec<String>,
}

#[derive(Default)]
struct Known {
    ids: Vec<Vec<u8>>,
    infos: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::COLLECTING;
    use crate::order::ORDERING;

    #[test]
    fn the_function_takes_the_locks_that_everybody_takes() {
        for lock in [COLLECTING, ORDERING] {
            assert!(MAKE.contains(&format!("pg_advisory_xact_lock_shared({lock}, key)")), "{lock}");
        }
        assert!(MAKE.contains(NEWER) && MAKE.contains(COLLECTED));
    }
}
