//! The function that appends steps with the ids of their tasks, traces and spans, as the migration to format 12 makes it.
//!
//! It is the function of format 11 ([`crate::append`]) with four more columns, and not a change of it: a released function
//! never changes. Programs of format 11 may have the store open; the function that they call refuses them, because it
//! compares the format of the store with the one that they know.

/// Adds the columns and their indexes, and creates the function. Once it is released it must never change.
pub(crate) const MAKE: &str = r#"
ALTER TABLE stepback_steps ADD COLUMN task text, ADD COLUMN trace text, ADD COLUMN span text, ADD COLUMN parent_span text;
CREATE INDEX stepback_steps_of_task ON stepback_steps (workspace, task, number) WHERE task IS NOT NULL;
CREATE INDEX stepback_steps_of_trace ON stepback_steps (workspace, trace, number) WHERE trace IS NOT NULL;
CREATE INDEX stepback_steps_of_span ON stepback_steps (workspace, span, number) WHERE span IS NOT NULL;
CREATE FUNCTION stepback_append_traced(
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
                tags, trigger_kind, iteration, worker, call, tool, failed, duration, detail, task, trace, span, parent_span,
                link, position)
            SELECT id, workspace, session, number, parent, kind, at, state, summary, label, note, tags::jsonb, trigger_kind,
                iteration, worker, call, tool, failed, duration, detail, task, trace, span, parent_span,
                link, nextval('stepback_positions')
            FROM (SELECT new.*, of_session.workspace,
                stepback_chain(new.digest, of_session.head) OVER (PARTITION BY new.session ORDER BY new.ordinality) AS link,
                of_session.steps
                    + row_number() OVER (PARTITION BY of_session.workspace ORDER BY new.ordinality)
                    - count(*) OVER (PARTITION BY of_session.workspace) AS number
                FROM ROWS FROM (jsonb_to_recordset(batch->'steps') AS (id bytea, session bytea, parent bytea, kind text,
                    at bigint, state bytea, summary text, label text, note text, tags text, trigger_kind text,
                    iteration bigint, worker text, call text, tool text, failed boolean, duration bigint, detail bytea,
                    task text, trace text, span text, parent_span text, digest bytea))
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
