//! The full-text index: a separate database beside the log, derived from what is stored, and rebuilt when it is lost.
//!
//! It is separate from the log for two reasons. A hook's commit must not wait for indexing, neither its own nor that of a
//! process that searches; and a program that does not know the index can still use the store. A row of the index belongs to
//! the step with the same position in the log, which is attached to read everything else about the step.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params, params_from_iter};
use stepback_model::ids::WorkspaceId;
use stepback_model::search::{TextField, Texts, fold, words};

use super::log::{self, WIDTH};
use super::ranked_hits::{self, RankedMatches};
use super::{EmbeddedStore, PATIENCE, find, make_private, schema};
use crate::error::StoreError;
use crate::port::{SearchDocument, SearchHit, SearchRequest, SearchResult, StepRow};
use crate::search::{pack, unpack};

/// File name of the index inside the store's directory.
const INDEX: &str = "search.sqlite";

/// Version of the index's format; an index of another version is rebuilt.
const VERSION: i64 = 3;

const TABLES: &str = "
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    commits INTEGER NOT NULL,
    documents INTEGER NOT NULL,
    words INTEGER NOT NULL
);
INSERT INTO state VALUES (0, -1, 0, 0);
CREATE TABLE texts (
    position INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    said TEXT,
    words INTEGER NOT NULL,
    raw_len INTEGER NOT NULL,
    text BLOB NOT NULL
);
CREATE INDEX texts_said ON texts (position) WHERE said IS NOT NULL;
";

/// Whether a step has anything that can change after it was indexed. Must be the same expression as in [`CREATE_ANNOTATION_INDEX`], or
/// SQLite would not use it.
const IS_ANNOTATED_SQL: &str =
    "(s.label IS NOT NULL OR s.note IS NOT NULL OR s.tags <> '[]' OR s.purged = 1)";
/// Created in the log by the first search. SQLite keeps it up to date, whichever program writes.
const CREATE_ANNOTATION_INDEX: &str = "CREATE INDEX IF NOT EXISTS steps_said ON steps (purged)
    WHERE (label IS NOT NULL OR note IS NOT NULL OR tags <> '[]' OR purged = 1)";

/// Maximum cache size of the connection for searches, in kilobytes.
const SEARCH_CACHE_KILOBYTES: i64 = 16 << 10;

/// An open index.
pub(super) struct Index {
    pub(super) db: Connection,
}

impl EmbeddedStore {
    /// Runs work on the index. A damaged index is rebuilt, once.
    pub(super) fn with_index<T>(
        &self,
        work: impl Fn(&Index) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut slot = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        for again in [true, false] {
            let result = match &*slot {
                Some(index) => work(index),
                None => self.open_index().and_then(|index| work(slot.insert(index))),
            };
            match result {
                Err(StoreError::Corrupt { .. }) if again => {
                    *slot = None;
                    *self.searching.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    remove(&self.dir)?;
                }
                result => return result,
            }
        }
        unreachable!("the second time, the result is returned")
    }

    /// Searches the index; on a second connection if the first is in use. While many steps are indexed, a search would
    /// otherwise wait for each batch of them.
    pub(super) fn ask_index(&self, search: &SearchRequest) -> Result<SearchResult, StoreError> {
        let asked = match self.index.try_lock().ok().filter(|slot| slot.is_some()) {
            Some(slot) => slot.as_ref().map(|index| index.search(search)),
            None => {
                let mut slot = self.searching.lock().unwrap_or_else(PoisonError::into_inner);
                Some(match &*slot {
                    Some(index) => index.search(search),
                    None => self.open_index().and_then(|index| {
                        index.db.pragma_update(None, "cache_size", -SEARCH_CACHE_KILOBYTES)?;
                        slot.insert(index).search(search)
                    }),
                })
            }
        };
        match asked {
            // `with_index` rebuilds the index.
            None | Some(Err(StoreError::Corrupt { .. })) => self.with_index(|index| index.search(search)),
            Some(asked) => asked,
        }
    }

    /// Whether a search has created the index of the store in `dir`.
    pub fn has_index(dir: &Path) -> bool {
        dir.join(INDEX).exists()
    }

    /// Deletes the whole index.
    pub(super) fn remove_index(&self) -> Result<(), StoreError> {
        self.with_index(Index::clear)
    }

    fn open_index(&self) -> Result<Index, StoreError> {
        // It only makes queries faster, so failures (another process writes, the disk is full) are ignored.
        let _ = self.connection().execute_batch(CREATE_ANNOTATION_INDEX);
        let path = self.dir.join(INDEX);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&path, flags)?;
        make_private(&path, 0o600)?;
        db.busy_timeout(self.patience.unwrap_or(PATIENCE))?;
        // What a crash of the machine loses is indexed again; the file itself stays consistent.
        db.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF;
             PRAGMA cache_size = -65536;",
        )?;
        let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version != VERSION {
            make_tables(&db)?;
        }
        let log = self.dir.join(schema::DATABASE);
        let log = log.to_str().ok_or_else(|| StoreError::NotAStore {
            path: self.dir.clone(),
            reason: "its path is not UTF-8, which a search needs".into(),
        })?;
        db.execute("ATTACH ?1 AS log", [log])?;
        let index = Index { db };
        if !index.matches_log()? {
            index.clear()?;
        }
        Ok(index)
    }
}

fn make_tables(db: &Connection) -> Result<(), StoreError> {
    let transaction = rusqlite::Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    // Another process may have created the tables during the wait for the lock.
    if version != VERSION {
        let columns: Vec<&str> = TextField::ALL.iter().map(|field| field.as_str()).collect();
        transaction.execute_batch(
            "DROP TABLE IF EXISTS words; DROP TABLE IF EXISTS trigrams; DROP TABLE IF EXISTS texts;
             DROP TABLE IF EXISTS state;",
        )?;
        transaction.execute_batch(TABLES)?;
        // Words are split and folded here; this tokenizer only splits them at blanks.
        transaction.execute_batch(&format!(
            "CREATE VIRTUAL TABLE words USING fts5({}, content = '', contentless_delete = 1,
                                                   tokenize = \"ascii tokenchars '_'\")",
            columns.join(", ")
        ))?;
        // Only which steps contain a trigram, not where: the texts are read anyway.
        transaction.execute_batch(
            "CREATE VIRTUAL TABLE trigrams USING fts5(all_texts, content = '', contentless_delete = 1, detail = 'none',
                                                      tokenize = \"trigram case_sensitive 1\")",
        )?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Removes the files of the index.
fn remove(dir: &Path) -> Result<(), StoreError> {
    for suffix in ["", "-wal", "-shm"] {
        let path: PathBuf = dir.join(format!("{INDEX}{suffix}"));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Index {
    fn begin_transaction(&self) -> Result<rusqlite::Transaction<'_>, StoreError> {
        Ok(rusqlite::Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate)?)
    }

    /// Whether the index was built from this log: a store restored from a backup may have other steps at the same
    /// positions.
    fn matches_log(&self) -> Result<bool, StoreError> {
        let sql = "SELECT t.id IS s.id FROM texts t LEFT JOIN log.steps s ON s.position = t.position
                   ORDER BY t.position DESC LIMIT 1";
        Ok(self.db.query_row(sql, [], |row| row.get(0)).optional()?.unwrap_or(true))
    }

    fn clear(&self) -> Result<(), StoreError> {
        let transaction = self.begin_transaction()?;
        transaction.execute_batch(
            "DELETE FROM texts; INSERT INTO words (words) VALUES ('delete-all');
             INSERT INTO trigrams (trigrams) VALUES ('delete-all'); UPDATE state SET commits = -1, documents = 0, words = 0;",
        )?;
        transaction.commit()?;
        Ok(())
    }

    pub(super) fn unindexed_steps(&self, most: usize) -> Result<Vec<StepRow>, StoreError> {
        let commits: i64 = self.db.query_row("SELECT commits FROM log.meta", [], |row| row.get(0))?;
        let seen: i64 = self.db.query_row("SELECT commits FROM state", [], |row| row.get(0))?;
        if seen == commits {
            return Ok(Vec::new());
        }
        let read = |sql: &str, most: usize| {
            log::collect(&self.db, sql, [i64::try_from(most).unwrap_or(i64::MAX)], log::read_checkpoint)
        };
        let columns = log::attached_columns(&self.db)?;
        let fresh = format!(
            "SELECT {columns} FROM log.steps s
             WHERE s.position > (SELECT coalesce(max(position), 0) FROM texts) ORDER BY s.position LIMIT ?1"
        );
        let changed = format!(
            "SELECT {columns} FROM log.steps s WHERE s.position IN (
                 SELECT s.position FROM log.steps s JOIN texts t ON t.position = s.position
                 WHERE {IS_ANNOTATED_SQL} AND t.said IS NOT json_array(s.label, s.note, s.tags, s.purged)
                 UNION ALL
                 SELECT t.position FROM texts t JOIN log.steps s ON s.position = t.position
                 WHERE t.said IS NOT NULL AND NOT {IS_ANNOTATED_SQL})
             ORDER BY s.position LIMIT ?1"
        );
        let mut steps = read(&changed, most)?;
        if steps.len() < most {
            steps.extend(read(&fresh, most - steps.len())?);
        }
        if steps.is_empty() {
            self.db.execute("UPDATE state SET commits = ?1", [commits])?;
        }
        Ok(steps)
    }

    pub(super) fn add(&self, documents: &[SearchDocument]) -> Result<(), StoreError> {
        let transaction = self.begin_transaction()?;
        let db = &transaction;
        let columns: Vec<&str> = TextField::ALL.iter().map(|field| field.as_str()).collect();
        let places: Vec<String> = (2..).take(columns.len()).map(|at| format!("?{at}")).collect();
        let insert =
            format!("INSERT INTO words (rowid, {}) VALUES (?1, {})", columns.join(", "), places.join(", "));
        for SearchDocument { stored, texts } in documents {
            let id = stored.step.id.as_bytes().as_slice();
            let position: Option<i64> = db
                .prepare_cached(&format!("SELECT position FROM log.steps WHERE {}", schema::BY_ID))?
                .query_row([id], |row| row.get(0))
                .optional()?;
            let Some(position) = position else { continue };
            let known: Option<i64> = db
                .prepare_cached("DELETE FROM texts WHERE position = ?1 RETURNING words")?
                .query_row([position], |row| row.get(0))
                .optional()?;
            let counts = db.prepare_cached("UPDATE state SET documents = documents + ?1, words = words + ?2");
            let count = texts.values().map(|text| words(text).count()).sum::<usize>() as i64;
            counts?.execute([i64::from(known.is_none()), count - known.unwrap_or(0)])?;
            if known.is_some() {
                db.prepare_cached("DELETE FROM words WHERE rowid = ?1")?.execute([position])?;
                db.prepare_cached("DELETE FROM trigrams WHERE rowid = ?1")?.execute([position])?;
            }
            let annotation = &stored.annotation;
            let tags = serde_json::to_string(&annotation.tags).unwrap_or_default();
            let is_said = stored.purged
                || annotation.label.is_some()
                || annotation.note.is_some()
                || !annotation.tags.is_empty();
            let (raw_len, text) = pack(texts);
            db.prepare_cached(
                "INSERT INTO texts (position, id, said, raw_len, text, words)
                 VALUES (?1, ?2, CASE ?3 WHEN 1 THEN json_array(?4, ?5, ?6, ?7) END, ?8, ?9, ?10)",
            )?
            .execute(params![
                position,
                id,
                is_said,
                annotation.label,
                annotation.note,
                tags,
                stored.purged,
                raw_len as i64,
                text,
                count
            ])?;
            let mut values = vec![Value::Integer(position)];
            values.extend(TextField::ALL.iter().map(|field| match texts.get(field) {
                Some(text) => Value::Text(separate_words(text)),
                None => Value::Null,
            }));
            db.prepare_cached(&insert)?.execute(params_from_iter(values))?;
            db.prepare_cached("INSERT INTO trigrams (rowid, all_texts) VALUES (?1, ?2)")?
                .execute(params![position, join_texts(texts)])?;
        }
        transaction.commit()?;
        Ok(())
    }

    pub(super) fn search(&self, search: &SearchRequest) -> Result<SearchResult, StoreError> {
        if find::is_before_contexts(&self.db, "log", &search.among)? {
            return Ok(SearchResult::default());
        }
        // The total and the hits see the same moment.
        let _snapshot = self.db.unchecked_transaction()?;
        let RankedMatches { shown, total, at_least, more } = ranked_hits::find_matches(self, search)?;
        let columns = log::attached_columns(&self.db)?;
        let sql = format!(
            "SELECT {columns}, s.workspace, t.raw_len, t.text
             FROM log.steps s JOIN texts t ON t.position = s.position WHERE s.position = ?1"
        );
        let mut statement = self.db.prepare_cached(&sql)?;
        let mut hits = Vec::with_capacity(shown.len());
        for (position, score) in shown {
            let (workspace, stored, raw_len, text) = statement.query_row([position], |row| {
                let workspace = log::id(row, WIDTH, WorkspaceId::from_slice)?;
                let stored = log::read_checkpoint(row)?;
                Ok((workspace, stored, row.get::<_, i64>(WIDTH + 1)?, row.get::<_, Vec<u8>>(WIDTH + 2)?))
            })?;
            let snippets = search.pattern.snippets(&unpack(raw_len, &text)?);
            hits.push(SearchHit { workspace, stored, score, snippets });
        }
        let next = more.then(|| search.skip.saturating_add(search.limit));
        Ok(SearchResult { hits, total, at_least, next })
    }
}

/// The words of a text, separated by blanks.
fn separate_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in words(text) {
        out.push_str(&word.text);
        out.push(' ');
    }
    out
}

/// All texts of a step as one, for their trigrams. A match that extends from one text to the next is ruled out when the
/// texts are read.
fn join_texts(texts: &Texts) -> String {
    let folded: Vec<String> = texts.values().map(|text| fold(text)).collect();
    // The tokenizer stops at NUL; a substring that contains one is searched for in every text.
    folded.join("\n").replace('\0', "\n")
}
