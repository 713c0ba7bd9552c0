//! The database's tables, and the check that refuses a store whose format this program does not know.

use std::fs::{self, File};
use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::{FORMAT, lost_history};
use crate::copy;
use crate::error::StoreError;
use crate::pack;
use crate::port::Mutation;

/// File name of the database inside the store's directory.
pub const DATABASE: &str = "log.sqlite";
/// File name of the database's write-ahead log.
pub const LOG: &str = "log.sqlite-wal";
/// File name of the memory that the database's users share.
pub const SHARED: &str = "log.sqlite-shm";

/// Name of the directory of packs inside the store's directory.
pub const PACKS: &str = "packs";

/// "SBLG": marks the file as a stepback database.
const APPLICATION_ID: u32 = 0x5342_4c47;

/// Finds a step by its id, the parameter `?1`. The ids of steps of one session have the same last bytes ([`Step::id_of`]),
/// and the index is ordered by these: many steps of a few sessions then change a few of its pages, not one page each.
///
/// [`Step::id_of`]: stepback_model::record::Step::id_of
pub const BY_ID: &str = "substr(id, 13) = substr(?1, 13) AND id = ?1";

/// Records of objects from small batches. Since they are in the database's own file, a commit waits for the disk only once.
const RECORDS: &str = "CREATE TABLE IF NOT EXISTS records (id INTEGER PRIMARY KEY, record BLOB NOT NULL)";

/// Plans that were shown and not applied yet.
const PLANS: &str = "CREATE TABLE IF NOT EXISTS plans (
    id TEXT PRIMARY KEY,
    workspace BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    body BLOB NOT NULL
)";
/// Adds the column that links the database to the commit record, in a store of an older program, which ignores it.
pub const ADD_CHAIN: &str = "ALTER TABLE meta ADD COLUMN chain BLOB";

/// Adds the links of steps and the heads of sessions. Steps from before have none.
const ADD_LINKS: &str = "ALTER TABLE steps ADD COLUMN link BLOB;
ALTER TABLE sessions ADD COLUMN head BLOB;
ALTER TABLE sessions ADD COLUMN linked INTEGER NOT NULL DEFAULT 0";

/// Adds the ids of tasks, traces and spans. Steps from before have none.
const ADD_CONTEXTS: &str = "ALTER TABLE steps ADD COLUMN task TEXT;
ALTER TABLE steps ADD COLUMN trace TEXT;
ALTER TABLE steps ADD COLUMN span TEXT;
ALTER TABLE steps ADD COLUMN parent_span TEXT";

/// The first format with the table of plans.
pub const PLANS_FORMAT: u32 = 3;
/// The first format in which steps have links.
pub const LINKS_FORMAT: u32 = 4;
/// The first format in which steps have ids of tasks, traces and spans, and in which agents send messages.
pub const CONTEXT_FORMAT: u32 = 5;

const TABLES: &str = "
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    epoch INTEGER NOT NULL,
    commits INTEGER NOT NULL,
    next_pack INTEGER NOT NULL,
    chain BLOB
);
INSERT INTO meta VALUES (0, 0, 0, 1, NULL);
CREATE TABLE packs (id INTEGER PRIMARY KEY, committed INTEGER NOT NULL);
CREATE TABLE objects (
    hash BLOB PRIMARY KEY,
    kind INTEGER NOT NULL,
    pack INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    record_len INTEGER NOT NULL,
    raw_len INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    base BLOB,
    lender INTEGER
) WITHOUT ROWID;
CREATE TABLE lenders (id INTEGER PRIMARY KEY, pack BLOB NOT NULL UNIQUE);
CREATE TABLE workspaces (
    id BLOB PRIMARY KEY,
    root BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
);
CREATE TABLE sessions (
    id BLOB PRIMARY KEY,
    workspace BLOB NOT NULL,
    agent TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    info TEXT NOT NULL
);
CREATE INDEX sessions_of_workspace ON sessions (workspace);
CREATE TABLE steps (
    position INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    workspace BLOB NOT NULL,
    session BLOB NOT NULL,
    number INTEGER NOT NULL,
    parent BLOB,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    state BLOB NOT NULL,
    summary TEXT NOT NULL,
    label TEXT,
    note TEXT,
    tags TEXT NOT NULL,
    trigger_kind TEXT,
    hidden_by BLOB,
    purged INTEGER NOT NULL DEFAULT 0,
    iteration INTEGER NOT NULL,
    worker TEXT,
    call TEXT,
    tool TEXT,
    failed INTEGER NOT NULL,
    duration INTEGER,
    detail BLOB,
    UNIQUE (workspace, number)
);
CREATE UNIQUE INDEX steps_by_id ON steps (substr(id, 13), id);
CREATE INDEX checkpoints_of_workspace ON steps (workspace, number) WHERE trigger_kind IS NOT NULL;
CREATE TABLE refs (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE operations (
    position INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    workspace BLOB NOT NULL,
    number INTEGER NOT NULL,
    status TEXT NOT NULL,
    undone INTEGER NOT NULL,
    journal BLOB,
    at INTEGER NOT NULL,
    summary TEXT NOT NULL,
    action TEXT NOT NULL,
    UNIQUE (workspace, number)
);
CREATE INDEX operations_unfinished ON operations (workspace) WHERE status = 'applying';
";

/// Maximum cache size of the connection that commits, in kilobytes: a few pages for a hook, all of a large commit for a
/// server.
const CACHE: u32 = 64 << 10;

/// What to do with a store whose database is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfLost {
    /// Refuse it, and change nothing.
    Refuse,
    /// Create an empty database, into which the commits of the record are to be brought back.
    Rebuild,
}

/// Configures a connection for any use. `cache` is in kilobytes.
pub fn configure(connection: &Connection, cache: u32) -> Result<(), StoreError> {
    connection.execute_batch(&format!(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -{cache};
         PRAGMA trusted_schema = OFF;",
    ))?;
    Ok(())
}

/// Checks that the database is a stepback store and not of a newer format; creates the tables in a new one.
pub fn prepare(connection: &Connection, dir: &Path, if_lost: IfLost) -> Result<(), StoreError> {
    configure(connection, CACHE)?;
    {
        // In one transaction, or the answers could come from before and after another process creates the tables.
        let _snapshot = connection.unchecked_transaction()?;
        if is_store(connection, dir)? {
            return refuse_incomplete(connection, dir);
        }
    }
    // One process at a time: SQLite fails at once, without waiting, when two connections switch to WAL mode together.
    let making =
        File::open(dir).and_then(|file| file.lock().map(|()| file)).map_err(StoreError::io("lock", dir))?;
    // Both are properties of the file, set once when the store is created. Free pages can be moved to the end, so that a
    // sweep returns them to the system.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let transaction = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Another process may have created the tables during the wait for the lock.
    if !is_store(&transaction, dir)? {
        if if_lost == IfLost::Refuse {
            refuse_lost_database(dir)?;
        }
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        raise(&transaction)?;
    }
    transaction.commit()?;
    drop(making);
    Ok(())
}

/// The format of the store; fails if this program does not know it. Checked again in every write: another process may have
/// raised it since.
pub fn check_format(transaction: &Connection, dir: &Path) -> Result<u32, StoreError> {
    let found: i64 = transaction.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
    match u32::try_from(found) {
        Ok(known @ 1..=FORMAT) => Ok(known),
        Ok(newer) if newer > FORMAT => Err(newer_error(dir, newer)),
        _ => Err(not_a_store(dir, &format!("its format {found} was never released"))),
    }
}

/// Whether the database keeps track of its pages, so that it can be shortened without being rewritten.
pub fn is_incremental(connection: &Connection) -> Result<bool, StoreError> {
    Ok(connection.pragma_query_value(None, "auto_vacuum", |row| row.get::<_, i64>(0))? == 2)
}

/// Moves the used pages to the front of the database and shortens it by all free ones.
pub fn vacuum(connection: &Connection) -> Result<(), StoreError> {
    // Each step of the statement frees one page.
    let mut statement = connection.prepare("PRAGMA incremental_vacuum")?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Raises a store of an older format to the current one, inside the transaction of the first change that needs it.
pub fn raise(transaction: &Connection) -> Result<(), StoreError> {
    transaction.execute_batch(RECORDS)?;
    transaction.execute_batch(PLANS)?;
    if !has_column(transaction, "link")? {
        transaction.execute_batch(ADD_LINKS)?;
    }
    if !has_column(transaction, "task")? {
        transaction.execute_batch(ADD_CONTEXTS)?;
    }
    transaction.pragma_update(None, "user_version", FORMAT)?;
    Ok(())
}

/// Whether steps have a column with this name.
fn has_column(connection: &Connection, name: &str) -> Result<bool, StoreError> {
    Ok(connection.prepare("SELECT 1 FROM pragma_table_info('steps') WHERE name = ?1")?.exists([name])?)
}

/// Whether the steps of a database that is connected as `name` have the columns of contexts.
pub fn has_contexts(connection: &Connection, name: &str) -> Result<bool, StoreError> {
    let sql = if name == "log" { "PRAGMA log.user_version" } else { "PRAGMA user_version" };
    let format: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(format >= i64::from(CONTEXT_FORMAT))
}

/// The lowest format that a store can have after these mutations; `has_records` if the commit stores objects in the database.
pub fn needed(mutations: &[Mutation], has_records: bool) -> u32 {
    let appends = mutations.iter().any(|mutation| matches!(mutation, Mutation::AppendStep { .. }));
    match (appends, has_records) {
        (true, _) => CONTEXT_FORMAT,
        (false, true) => 2,
        (false, false) => 1,
    }
}

/// Refuses an incomplete copy of another store.
fn refuse_incomplete(connection: &Connection, dir: &Path) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM refs WHERE name = ?1")?;
    if statement.exists([copy::INCOMPLETE])? {
        Err(not_a_store(dir, copy::INCOMPLETE_REASON))
    } else {
        Ok(())
    }
}

fn has_packs(dir: &Path) -> bool {
    fs::read_dir(dir.join(PACKS)).is_ok_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| pack::id_of(&entry.file_name()).is_some()))
    })
}

/// Refuses a directory whose database is missing or empty, before SQLite is asked to open it: it would remove the
/// write-ahead log beside an empty database.
pub fn refuse_missing_database(dir: &Path) -> Result<(), StoreError> {
    let has_database = || fs::metadata(dir.join(DATABASE)).is_ok_and(|metadata| metadata.len() > 0);
    if has_database() {
        return Ok(());
    }
    let lost = refuse_lost_database(dir);
    // Another process may just have created the store and committed to it.
    if has_database() { Ok(()) } else { lost }
}

/// Refuses to create a store over packs or a commit record. Packs are only created by a store that has its tables: without these, the history
/// is lost, and a new store must not overwrite what may still be rescued.
fn refuse_lost_database(dir: &Path) -> Result<(), StoreError> {
    let evidence = if lost_history::has_entries(dir) {
        "a record of its commits exists"
    } else if has_packs(dir) {
        "packs exist"
    } else {
        return Ok(());
    };
    Err(StoreError::Corrupt { what: format!("{DATABASE} is empty or missing, but {evidence}") })
}

/// `true` for a stepback store, `false` for an empty database, an error for anything else.
fn is_store(connection: &Connection, dir: &Path) -> Result<bool, StoreError> {
    let read = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let application = read("application_id")?;
    let version = read("user_version")?;
    if application == 0 && version == 0 {
        let tables: u32 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        return match tables {
            0 => Ok(false),
            _ => Err(not_a_store(dir, "its database has tables that are not stepback's")),
        };
    }
    if application != i64::from(APPLICATION_ID) {
        return Err(not_a_store(dir, "its database belongs to another program"));
    }
    check_format(connection, dir)?;
    Ok(true)
}

fn newer_error(dir: &Path, found: u32) -> StoreError {
    StoreError::Newer { path: dir.to_path_buf(), found, known: FORMAT }
}

fn not_a_store(dir: &Path, reason: &str) -> StoreError {
    StoreError::NotAStore { path: dir.to_path_buf(), reason: reason.into() }
}
