//! The table definitions, as the list of migrations that lead to them.

use crate::{append, append_traced};

/// The tables of the first format.
const FIRST: &str = "
CREATE TABLE stepback_schema (version integer NOT NULL);
INSERT INTO stepback_schema VALUES (0);
CREATE TABLE stepback_meta (id uuid NOT NULL, epoch bigint NOT NULL);
INSERT INTO stepback_meta VALUES (gen_random_uuid(), 0);
CREATE SEQUENCE stepback_commits;
CREATE TABLE stepback_objects (
    hash bytea PRIMARY KEY,
    kind smallint NOT NULL,
    codec smallint NOT NULL,
    depth smallint NOT NULL,
    raw_len bigint NOT NULL,
    base bytea,
    payload bytea NOT NULL
);
ALTER TABLE stepback_objects ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE stepback_workspaces (
    id bytea PRIMARY KEY,
    machine text NOT NULL,
    root bytea NOT NULL,
    created_at bigint NOT NULL,
    steps bigint NOT NULL DEFAULT 0,
    operations bigint NOT NULL DEFAULT 0,
    UNIQUE (machine, root)
) WITH (fillfactor = 50);
CREATE TABLE stepback_sessions (
    id bytea PRIMARY KEY,
    workspace bytea NOT NULL,
    agent text NOT NULL,
    started_at bigint NOT NULL,
    info jsonb NOT NULL
);
CREATE INDEX stepback_sessions_of_workspace ON stepback_sessions (workspace, started_at, id);
CREATE INDEX stepback_sessions_working ON stepback_sessions (workspace) WHERE info->'open' <> '[]';
CREATE TABLE stepback_steps (
    id bytea PRIMARY KEY,
    workspace bytea NOT NULL,
    session bytea NOT NULL,
    number bigint NOT NULL,
    parent bytea,
    kind text NOT NULL,
    at bigint NOT NULL,
    state bytea NOT NULL,
    summary text NOT NULL,
    label text,
    note text,
    tags jsonb NOT NULL,
    trigger_kind text,
    hidden_by bytea,
    purged boolean NOT NULL DEFAULT false,
    iteration bigint NOT NULL,
    worker text,
    call text,
    tool text,
    failed boolean NOT NULL,
    duration bigint,
    detail bytea,
    UNIQUE (workspace, number)
);
CREATE INDEX stepback_steps_of_session ON stepback_steps (session, number);
CREATE INDEX stepback_steps_kept ON stepback_steps (workspace, number) WHERE trigger_kind IS NOT NULL;
CREATE INDEX stepback_steps_of_tool ON stepback_steps (workspace, lower(tool COLLATE \"C\"), number) WHERE tool IS NOT NULL;
CREATE INDEX stepback_steps_of_call ON stepback_steps (workspace, call, number) WHERE call IS NOT NULL;
CREATE INDEX stepback_steps_failed ON stepback_steps (workspace, number) WHERE failed;
CREATE TABLE stepback_refs (name text COLLATE \"C\" PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE stepback_operations (
    id bytea PRIMARY KEY,
    workspace bytea NOT NULL,
    number bigint NOT NULL,
    status text NOT NULL,
    undone boolean NOT NULL,
    journal bytea,
    at bigint NOT NULL,
    summary text NOT NULL,
    action jsonb NOT NULL,
    UNIQUE (workspace, number)
);
CREATE INDEX stepback_operations_unfinished ON stepback_operations (workspace) WHERE status = 'applying';
";

/// The order of commits across workspaces, indexes for queries, and step counts. Steps from before get an order that keeps
/// the one within each workspace, and is otherwise the order of time.
const ORDER: &str = "
CREATE SEQUENCE stepback_positions;
ALTER TABLE stepback_steps ADD COLUMN position bigint;
UPDATE stepback_steps s SET position = o.position FROM (
    SELECT id, row_number() OVER (ORDER BY reached, workspace, number) AS position FROM (
        SELECT id, workspace, number, max(at) OVER (PARTITION BY workspace ORDER BY number) AS reached FROM stepback_steps
    ) times
) o WHERE s.id = o.id;
ALTER TABLE stepback_steps ALTER COLUMN position SET NOT NULL;
SELECT setval('stepback_positions', max(position)) FROM stepback_steps HAVING max(position) > 0;
CREATE UNIQUE INDEX stepback_steps_in_order ON stepback_steps (position);
CREATE INDEX stepback_steps_of_time ON stepback_steps (workspace, at, position);
CREATE INDEX stepback_steps_of_duration ON stepback_steps (workspace, coalesce(duration, -1), position);
CREATE INDEX stepback_steps_of_kind ON stepback_steps (workspace, kind, number);
CREATE INDEX stepback_steps_of_state ON stepback_steps (state);
CREATE INDEX stepback_steps_of_worker ON stepback_steps (workspace, worker, number) WHERE worker IS NOT NULL;
CREATE INDEX stepback_steps_labelled ON stepback_steps (workspace, label, number) WHERE label IS NOT NULL;
CREATE INDEX stepback_steps_tagged ON stepback_steps USING gin (tags jsonb_path_ops) WHERE tags <> '[]';
CREATE INDEX stepback_steps_hidden ON stepback_steps (workspace, number) WHERE hidden_by IS NOT NULL;
CREATE INDEX stepback_sessions_of_agent ON stepback_sessions (agent);
CREATE TABLE stepback_tallies (
    session bytea NOT NULL,
    kind text NOT NULL,
    tool text NOT NULL,
    steps bigint NOT NULL,
    failed bigint NOT NULL,
    PRIMARY KEY (session, kind, tool)
) WITH (fillfactor = 50);
INSERT INTO stepback_tallies
    SELECT session, kind, coalesce(lower(tool COLLATE \"C\"), ''), count(*), count(*) FILTER (WHERE failed)
    FROM stepback_steps GROUP BY 1, 2, 3;
";

/// The word index. Where PostgreSQL's trigram extension is installed, words are found by their parts without a full scan.
const SEARCH: &str = "
CREATE TABLE stepback_index (
    documents bigint NOT NULL,
    words bigint NOT NULL,
    blocks bigint NOT NULL,
    known_to bigint NOT NULL,
    commits bigint NOT NULL
);
INSERT INTO stepback_index VALUES (0, 0, 0, 0, -1);
CREATE TABLE stepback_texts (
    position bigint PRIMARY KEY,
    block bigint NOT NULL,
    words integer NOT NULL,
    said text,
    raw_len integer NOT NULL,
    text bytea NOT NULL
);
ALTER TABLE stepback_texts ALTER COLUMN text SET STORAGE EXTERNAL;
CREATE INDEX stepback_texts_of_block ON stepback_texts (block);
CREATE INDEX stepback_texts_said ON stepback_texts (position) WHERE said IS NOT NULL;
CREATE TABLE stepback_words (
    id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    word text COLLATE \"C\" NOT NULL UNIQUE
);
CREATE INDEX stepback_words_long ON stepback_words (id) WHERE char_length(word) >= 64;
CREATE TABLE stepback_postings (
    word integer NOT NULL,
    block bigint NOT NULL,
    places bytea NOT NULL,
    PRIMARY KEY (word, block)
);
ALTER TABLE stepback_postings ALTER COLUMN places SET STORAGE EXTERNAL;
CREATE INDEX stepback_postings_of_block ON stepback_postings USING brin (block);
CREATE TABLE stepback_blocks (id bigint PRIMARY KEY, documents integer NOT NULL);
CREATE INDEX stepback_blocks_small ON stepback_blocks (id) WHERE documents < 128;
CREATE TABLE stepback_stale (block bigint NOT NULL, position bigint NOT NULL, PRIMARY KEY (block, position));
CREATE INDEX stepback_steps_said ON stepback_steps (position)
    WHERE label IS NOT NULL OR note IS NOT NULL OR tags <> '[]' OR purged;
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm') THEN
        CREATE INDEX stepback_words_parts ON stepback_words USING gin (word gin_trgm_ops);
    END IF;
EXCEPTION WHEN undefined_object THEN NULL;
END $$;
";

/// Details of steps are stored as pages: the tables do not change, but a program that takes `detail` for a hash must be
/// kept out.
const PAGES: &str = "";

/// A function that appends steps, and was never released.
const UNRELEASED: &str = "";

/// Sessions change with every step. As long as no indexed column changes, only the row is written and no index.
const STEADY: &str = "
DROP INDEX stepback_sessions_working;
ALTER TABLE stepback_sessions ADD COLUMN working boolean NOT NULL DEFAULT false;
UPDATE stepback_sessions SET working = true WHERE info->'open' <> '[]';
ALTER TABLE stepback_sessions SET (fillfactor = 50);
CREATE INDEX stepback_sessions_working ON stepback_sessions (workspace) WHERE working;
";

/// Plans that were shown and not applied yet.
const PLANS: &str = "
CREATE TABLE stepback_plans (
    id text COLLATE \"C\" PRIMARY KEY,
    workspace bytea NOT NULL,
    created_at bigint NOT NULL,
    body bytea NOT NULL
);
CREATE INDEX stepback_plans_of_workspace ON stepback_plans (workspace, created_at, id);
";

/// The migrations; each leads from one format to the next. A released one is never changed.
pub(crate) const MIGRATIONS: &[&str] = &[
    FIRST,
    ORDER,
    SEARCH,
    PAGES,
    UNRELEASED,
    STEADY,
    UNRELEASED,
    UNRELEASED,
    PLANS,
    UNRELEASED,
    append::MAKE,
    append_traced::MAKE,
];
