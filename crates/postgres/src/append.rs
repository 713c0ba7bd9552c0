//! Commits that only append steps, as most do: one call of a function in the database.
//!
//! There are two functions, for a single step ([`one`]) and for any number. A round trip, and every separate statement,
//! takes as long as writing a step does. The function does all of a commit but COMMIT itself in one statement. Outside of
//! an open transaction, a statement is a transaction of its own and takes effect as a whole or not at all. Its plans are
//! made once per connection.

use std::collections::HashMap;

use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_store::StoreError;
use stepback_store::port::Mutation;

use crate::mutations::{Owned, Wanted, counts, given, is_working, wanted, workspace_of};
use crate::optimistic_cache::{ReliedOn, Version};
use crate::steps::Steps;
use crate::{one, text};

/// Calls the function.
const CALL: &str = "SELECT stepback_append_steps($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
    $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42,
    $43, $44, $45, $46, $47, $48, $49)";

/// Error code of the function when the store's format is newer than the caller's.
pub(crate) const NEWER: &str = "SB001";
/// Error code when objects were freed that the caller may rely on.
pub(crate) const COLLECTED: &str = "SB002";

/// Error code when a session or reference is not as the caller recalls.
pub(crate) const CHANGED: &str = "SB003";

/// Creates the function. It is released and must never change: a new version gets a new name.
///
/// `known` is the format that the caller knows, `since` the epoch it relies on, `key` the second half of the keys of locks.
/// Then come columns: of objects (`o_`), of new sessions (`b_`) and of sessions whose info changes (`k_`, with the
/// transaction that must have written the row, or null), of references and their required targets (`r_`), of workspaces and
/// how many numbers each has to assign (`w_`), of steps (`s_`), and of counters (`c_`). It returns the number of its
/// transaction, whether another process may be listening, and the last number that each workspace assigned.
///
/// Each statement in it sees what was committed before it, so the epoch is read after the lock was taken, and references
/// are compared while the rows of the workspaces are locked. Conditions are written as expressions where possible, since
/// these cost next to nothing compared to a statement.
pub(crate) const MAKE: &str = "
CREATE FUNCTION stepback_append_steps(
    known integer, since bigint, key integer,
    o_hash bytea[], o_kind smallint[], o_codec smallint[], o_depth smallint[], o_raw_len bigint[], o_base bytea[], o_payload bytea[],
    b_id bytea[], b_workspace bytea[], b_agent text[], b_started_at bigint[], b_info text[], b_working boolean[],
    k_id bytea[], k_info text[], k_working boolean[], k_version text[],
    r_name text[], r_value bytea[],
    w_id bytea[], w_steps bigint[],
    s_id bytea[], s_workspace bytea[], s_session bytea[], s_after bigint[], s_parent bytea[], s_kind text[], s_at bigint[],
    s_state bytea[], s_summary text[], s_label text[], s_note text[], s_tags text[], s_trigger_kind text[], s_iteration bigint[],
    s_worker text[], s_call text[], s_tool text[], s_failed boolean[], s_duration bigint[], s_detail bytea[],
    c_session bytea[], c_kind text[], c_tool text[], c_steps bigint[], c_failed bigint[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $append$
#variable_conflict use_column
DECLARE
    done boolean;
    version_now integer;
    epoch_now bigint;
    changed bigint;
    given bigint[];
BEGIN
    done := pg_advisory_xact_lock_shared(1396834306, key) IS NULL;
    SELECT s.version, m.epoch INTO version_now, epoch_now FROM stepback_schema s, stepback_meta m;
    IF version_now > known THEN
        RAISE EXCEPTION 'the store is newer' USING ERRCODE = 'SB001';
    ELSIF since <> epoch_now THEN
        RAISE EXCEPTION 'objects were freed' USING ERRCODE = 'SB002';
    END IF;
    IF cardinality(b_id) > 0 THEN
        INSERT INTO stepback_sessions (id, workspace, agent, started_at, info, working)
            SELECT a, b, c, d, e::jsonb, f
            FROM unnest(b_id, b_workspace, b_agent, b_started_at, b_info, b_working) new (a, b, c, d, e, f);
    END IF;
    IF cardinality(o_hash) > 0 THEN
        INSERT INTO stepback_objects (hash, kind, codec, depth, raw_len, base, payload)
            SELECT * FROM unnest(o_hash, o_kind, o_codec, o_depth, o_raw_len, o_base, o_payload)
            ON CONFLICT (hash) DO NOTHING;
    END IF;
    WITH raised AS (
        UPDATE stepback_workspaces w SET steps = w.steps + n.steps
        FROM unnest(w_id, w_steps) n (id, steps) WHERE w.id = n.id RETURNING w.id, w.steps
    ) SELECT array_agg(steps ORDER BY id) INTO given FROM raised;
    done := NOT EXISTS (SELECT FROM unnest(r_name, r_value) r (name, value) LEFT JOIN stepback_refs f USING (name)
        WHERE f.value IS DISTINCT FROM r.value);
    IF NOT done THEN
        RAISE EXCEPTION 'a reference was moved' USING ERRCODE = 'SB003';
    END IF;
    done := pg_advisory_xact_lock_shared(1396834307, key) IS NULL;
    IF cardinality(k_id) > 0 THEN
        UPDATE stepback_sessions s SET info = n.info::jsonb, working = n.working
            FROM unnest(k_id, k_info, k_working, k_version) n (id, info, working, version)
            WHERE s.id = n.id AND (n.version IS NULL OR s.xmin::text = n.version);
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed < cardinality(k_id) AND array_remove(k_version, NULL) <> '{}' THEN
            RAISE EXCEPTION 'a session was changed' USING ERRCODE = 'SB003';
        END IF;
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
    done := nextval('stepback_commits') IS NULL;
    RETURN ARRAY[pg_current_xact_id()::text::bigint, (NOT pg_try_advisory_xact_lock(1396834309, key))::integer] || given;
END
$append$;
";

/// A commit that only appends steps.
pub(crate) struct Appending {
    /// The SQL that calls the function.
    pub call: &'static str,
    /// For each step, its workspace, and how many numbers are assigned after its own.
    pub steps: Vec<(WorkspaceId, i64)>,
    /// The workspaces, in ascending order.
    pub workspaces: Vec<WorkspaceId>,
    /// The arguments of the function after the objects.
    pub values: Vec<Owned>,
}

impl Appending {
    /// What `mutations` append, provided that `relied_on` still holds; `None` if they do anything else. `sessions` are
    /// those that steps are appended to, with their workspaces. There is always at least one step: by its row one can see
    /// later whether the commit took effect.
    pub fn of(
        mutations: &[Mutation],
        sessions: &HashMap<SessionId, WorkspaceId>,
        relied_on: Option<&ReliedOn>,
    ) -> Result<Option<Self>, StoreError> {
        if let Some(one) = one::appending(mutations, sessions, relied_on)? {
            return Ok(Some(one));
        }
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
                    begun.working.push(is_working(&session.info));
                }
                Mutation::SetSessionInfo { session, info } => {
                    known.ids.push(session.as_bytes().to_vec());
                    known.infos.push(text::document(info));
                    known.working.push(is_working(info));
                    known.versions.push(relied_on.and_then(|relied_on| relied_on.version(*session).cloned()));
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
        let references = relied_on.map_or(&[][..], |relied_on| &relied_on.references);
        let mut all: Vec<Owned> = vec![
            Box::new(begun.ids),
            Box::new(begun.workspaces),
            Box::new(begun.agents),
            Box::new(begun.times),
            Box::new(begun.infos),
            Box::new(begun.working),
            Box::new(known.ids),
            Box::new(known.infos),
            Box::new(known.working),
            Box::new(known.versions),
            Box::new(references.iter().map(|(name, _)| text::stored(name).into_owned()).collect::<Vec<_>>()),
            Box::new(
                references.iter().map(|(_, at)| at.map(|at| at.as_bytes().to_vec())).collect::<Vec<_>>(),
            ),
            Box::new(wanted.iter().map(|(id, _)| id.as_bytes().to_vec()).collect::<Vec<_>>()),
            Box::new(wanted.iter().map(|(_, wanted)| wanted.steps).collect::<Vec<_>>()),
        ];
        all.extend(columns.values());
        all.extend(counts(mutations));
        let workspaces = wanted.iter().map(|(id, _)| *id).collect();
        Ok(Some(Self { call: CALL, steps: places, workspaces, values: all }))
    }

    /// The assigned numbers, given the last number of each workspace as the function returns it.
    pub fn numbers(&self, last: &[i64]) -> Result<Vec<u64>, StoreError> {
        let last = self.workspaces.iter().zip(last);
        let last = last.map(|(id, steps)| (*id, Wanted { steps: *steps, operations: 0 })).collect();
        given(&self.steps, &last, |last| last.steps)
    }
}

#[derive(Default)]
struct Begun {
    ids: Vec<Vec<u8>>,
    workspaces: Vec<Vec<u8>>,
    agents: Vec<String>,
    times: Vec<i64>,
    infos: Vec<String>,
    working: Vec<bool>,
}

#[derive(Default)]
struct Known {
    ids: Vec<Vec<u8>>,
    infos: Vec<String>,
    working: Vec<bool>,
    versions: Vec<Option<Version>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::COLLECTING;
    use crate::commit_order::ORDERING;
    use crate::notify::LISTENING;

    #[test]
    fn the_functions_take_the_locks_that_everybody_takes() {
        for make in [MAKE, one::MAKE] {
            for lock in [COLLECTING, ORDERING] {
                assert!(make.contains(&format!("pg_advisory_xact_lock_shared({lock}, key)")), "{lock}");
            }
            assert!(make.contains(&format!("pg_try_advisory_xact_lock({LISTENING}, key)")));
            assert!([NEWER, COLLECTED, CHANGED].iter().all(|code| make.contains(code)));
        }
    }
}
