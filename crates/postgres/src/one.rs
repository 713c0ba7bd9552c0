//! Appends a single step to an existing session, which is what an agent that reports live sends.
//!
//! It has its own database function: building lists of one, and taking them apart again, takes longer than much of the
//! rest.

use std::collections::HashMap;

use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_store::StoreError;
use stepback_store::port::Mutation;

use crate::append::Appending;
use crate::mutations::{Owned, counted_tool, is_working, workspace_of};
use crate::optimistic_cache::ReliedOn;
use crate::steps::Steps;
use crate::text;

/// Calls the function.
const CALL: &str = "SELECT stepback_append_step($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
    $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35)";

/// Creates the function. It is released and must never change: a new version gets a new name.
///
/// It does what [`append::MAKE`] does, in the same order, and returns the same. `k_info` is the new info of the session,
/// and `r_name` the reference that must be unchanged; each may be null.
///
/// [`append::MAKE`]: crate::append::MAKE
pub(crate) const MAKE: &str = "
CREATE FUNCTION stepback_append_step(
    known integer, since bigint, key integer,
    o_hash bytea[], o_kind smallint[], o_codec smallint[], o_depth smallint[], o_raw_len bigint[], o_base bytea[],
    o_payload bytea[],
    k_info text, k_working boolean, k_version text, r_name text, r_value bytea,
    s_id bytea, s_workspace bytea, s_session bytea, s_parent bytea, s_kind text, s_at bigint, s_state bytea, s_summary text,
    s_label text, s_note text, s_tags text, s_trigger_kind text, s_iteration bigint, s_worker text, s_call text, s_tool text,
    s_failed boolean, s_duration bigint, s_detail bytea, c_tool text
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $append$
#variable_conflict use_column
DECLARE
    done boolean;
    version_now integer;
    epoch_now bigint;
    last bigint;
BEGIN
    done := pg_advisory_xact_lock_shared(1396834306, key) IS NULL;
    SELECT s.version, m.epoch INTO version_now, epoch_now FROM stepback_schema s, stepback_meta m;
    IF version_now > known THEN
        RAISE EXCEPTION 'the store is newer' USING ERRCODE = 'SB001';
    ELSIF since <> epoch_now THEN
        RAISE EXCEPTION 'objects were freed' USING ERRCODE = 'SB002';
    END IF;
    IF cardinality(o_hash) = 1 THEN
        INSERT INTO stepback_objects (hash, kind, codec, depth, raw_len, base, payload)
            VALUES (o_hash[1], o_kind[1], o_codec[1], o_depth[1], o_raw_len[1], o_base[1], o_payload[1])
            ON CONFLICT (hash) DO NOTHING;
    ELSIF cardinality(o_hash) > 0 THEN
        INSERT INTO stepback_objects (hash, kind, codec, depth, raw_len, base, payload)
            SELECT * FROM unnest(o_hash, o_kind, o_codec, o_depth, o_raw_len, o_base, o_payload)
            ON CONFLICT (hash) DO NOTHING;
    END IF;
    UPDATE stepback_workspaces w SET steps = w.steps + 1 WHERE w.id = s_workspace RETURNING w.steps INTO last;
    done := pg_advisory_xact_lock_shared(1396834307, key) IS NULL;
    IF k_info IS NOT NULL THEN
        UPDATE stepback_sessions s SET info = k_info::jsonb, working = k_working
            WHERE s.id = s_session AND (k_version IS NULL OR s.xmin::text = k_version)
            AND (r_name IS NULL OR (SELECT value FROM stepback_refs WHERE name = r_name) IS NOT DISTINCT FROM r_value);
        IF NOT FOUND AND (k_version IS NOT NULL OR r_name IS NOT NULL) THEN
            RAISE EXCEPTION 'a session or a reference was changed' USING ERRCODE = 'SB003';
        END IF;
    END IF;
    INSERT INTO stepback_steps (id, workspace, session, number, parent, kind, at, state, summary, label, note,
            tags, trigger_kind, iteration, worker, call, tool, failed, duration, detail, position)
        VALUES (s_id, s_workspace, s_session, last, s_parent, s_kind, s_at, s_state, s_summary, s_label, s_note, s_tags::jsonb,
            s_trigger_kind, s_iteration, s_worker, s_call, s_tool, s_failed, s_duration, s_detail, nextval('stepback_positions'));
    UPDATE stepback_tallies t SET steps = t.steps + 1, failed = t.failed + s_failed::integer
        WHERE t.session = s_session AND t.kind = s_kind AND t.tool = c_tool;
    IF NOT FOUND THEN
        INSERT INTO stepback_tallies (session, kind, tool, steps, failed)
            VALUES (s_session, s_kind, c_tool, 1, s_failed::integer);
    END IF;
    done := nextval('stepback_commits') IS NULL;
    RETURN ARRAY[
        pg_current_xact_id()::text::bigint, (NOT pg_try_advisory_xact_lock(1396834309, key))::integer, last
    ];
END
$append$;
";

/// What `mutations` append, if that is a single step of an existing session, with that session's new info.
pub(crate) fn appending(
    mutations: &[Mutation],
    sessions: &HashMap<SessionId, WorkspaceId>,
    relied_on: Option<&ReliedOn>,
) -> Result<Option<Appending>, StoreError> {
    let (known, step, annotation, trigger) = match mutations {
        [Mutation::AppendStep { step, annotation, trigger }] => (None, step, annotation, trigger),
        [Mutation::SetSessionInfo { session, info }, Mutation::AppendStep { step, annotation, trigger }]
            if *session == step.session =>
        {
            (Some(info), step, annotation, trigger)
        }
        _ => return Ok(None),
    };
    let reference = match relied_on.map_or(&[][..], |relied_on| &relied_on.references) {
        [] => None,
        // The reference is compared together with the row of the session.
        [reference] if known.is_some() => Some(reference),
        _ => return Ok(None),
    };
    let workspace = workspace_of(step, sessions)?;
    let version = relied_on.and_then(|relied_on| relied_on.version(step.session).cloned());
    let mut values: Vec<Owned> = vec![
        Box::new(known.map(|info| text::document(&**info))),
        Box::new(known.map(|info| is_working(info))),
        Box::new(version),
        Box::new(reference.map(|(name, _)| text::stored(name).into_owned())),
        Box::new(reference.and_then(|(_, at)| at.map(|at| at.as_bytes().to_vec()))),
    ];
    let mut columns = Steps::default();
    columns.push(step, workspace, 0, annotation, *trigger);
    values.extend(columns.only());
    values.push(Box::new(counted_tool(step)));
    Ok(Some(Appending { call: CALL, steps: vec![(workspace, 0)], workspaces: vec![workspace], values }))
}
