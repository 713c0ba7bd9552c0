//! Maintains the word index: finds steps that are not indexed, adds documents, and merges small blocks.
//!
//! A process that changes the index holds a lock, so that two processes which index the same steps do so one after the
//! other, and the second finds them already indexed. The index need not be durable at once: what a crash loses is indexed
//! again.

use std::collections::{BTreeMap, HashMap};

use stepback_model::record::Annotation;
use stepback_model::search::Texts;
use stepback_store::StoreError;
use stepback_store::port::{SearchDocument, StepRow};
use stepback_store::search::{pack, unpack};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use crate::pool::Connection;
use crate::postings::Block;
use crate::rows::{self, COLUMNS, Record};
use crate::{PostgresStore, text};

/// The first half of the key of the lock that is held while the index is changed.
const INDEX_LOCK_KEY: i32 = 0x5342_0004;

/// Number of small blocks that are merged into one.
const BLOCKS_PER_MERGE: usize = 32;

/// Whether a step has anything that can change after it was indexed. Must be the same expression as in the tables, or their
/// index is not used.
const IS_ANNOTATED_SQL: &str = "(s.label IS NOT NULL OR s.note IS NOT NULL OR s.tags <> '[]' OR s.purged)";

/// The annotation and purge state of a step, for comparison.
const ANNOTATION_SQL: &str = "jsonb_build_array(s.label, s.note, s.tags, s.purged)::text";

/// What the database has for a document's step: its position, and the texts indexed before.
struct IndexedStep {
    position: u64,
    indexed_before: Option<IndexedText>,
}

struct IndexedText {
    block: i64,
    words: i32,
    text: Vec<u8>,
    /// Whether the step's annotation and purge state are still those that were indexed.
    current: bool,
}

/// A document that is new, ready to be stored.
struct NewDocument<'d> {
    document: &'d SearchDocument,
    indexed_before: Option<IndexedText>,
    raw_len: i32,
    text: Vec<u8>,
}

impl PostgresStore {
    pub(crate) fn list_unindexed(&self, max_steps: usize) -> Result<Vec<StepRow>, StoreError> {
        let settled = self.settled_horizon()?;
        let state = "SELECT known_to, commits FROM stepback_index";
        let row = self.pool.ask(async |connection| connection.row(state, &[]).await)?;
        let row = row.ok_or_else(|| StoreError::Corrupt { what: "stepback_index is empty".into() })?;
        if rows::get::<i64>(&row, 1)? == settled.commits {
            return Ok(Vec::new());
        }
        let known_to: i64 = rows::get(&row, 0)?;
        let changed = format!(
            "SELECT {COLUMNS}, s.position FROM stepback_steps s WHERE s.position IN (
                 SELECT s.position FROM stepback_steps s JOIN stepback_texts t ON t.position = s.position
                 WHERE {IS_ANNOTATED_SQL} AND t.said IS DISTINCT FROM {ANNOTATION_SQL}
                 UNION ALL
                 SELECT t.position FROM stepback_texts t JOIN stepback_steps s ON s.position = t.position
                 WHERE t.said IS NOT NULL AND NOT {IS_ANNOTATED_SQL})
             ORDER BY s.position LIMIT $1"
        );
        let fresh = format!(
            "SELECT {COLUMNS}, s.position FROM stepback_steps s
             WHERE s.position > $1 AND s.position <= $2
               AND NOT EXISTS (SELECT FROM stepback_texts t WHERE t.position = s.position)
             ORDER BY s.position LIMIT $3"
        );
        let max_steps = i64::try_from(max_steps).unwrap_or(i64::MAX);
        let mut rows = self.pool.ask(async |connection| connection.rows(&changed, &[&max_steps]).await)?;
        let remaining = max_steps - rows.len() as i64;
        if remaining > 0 {
            let values: [&(dyn ToSql + Sync); 3] = [&known_to, &settled.position, &remaining];
            let new = self.pool.ask(async |connection| connection.rows(&fresh, &values).await)?;
            // Everything before the first unindexed step is indexed, and need not be scanned again.
            let first = new.first().map(|row| rows::get::<i64>(row, rows::WIDTH)).transpose()?;
            let known_to = first.map_or(settled.position, |first| first - 1);
            let commits = if rows.is_empty() && new.is_empty() { settled.commits } else { -1 };
            self.note_known(known_to, commits);
            rows.extend(new);
        }
        rows.iter().map(StepRow::read).collect()
    }

    /// Records how far all steps are indexed. This only shortens the next scan, so a failure is ignored.
    fn note_known(&self, known_to: i64, commits: i64) {
        let sql =
            "UPDATE stepback_index SET known_to = greatest(known_to, $1), commits = greatest(commits, $2)
                   WHERE known_to < $1 OR commits < $2";
        let _ = self.pool.ask(async |connection| {
            let statement = connection.prepared(sql).await?;
            connection.client.execute(&statement, &[&known_to, &commits]).await
        });
    }

    pub(crate) fn add_documents(&self, documents: &[SearchDocument]) -> Result<(), StoreError> {
        if documents.is_empty() {
            return Ok(());
        }
        self.changing_index(async |connection| match index_documents(connection, documents).await? {
            Ok(()) => merge(connection).await,
            Err(error) => Ok(Err(error)),
        })
    }

    pub(crate) fn remove_index(&self) -> Result<(), StoreError> {
        const TABLES: &str =
            "stepback_postings, stepback_texts, stepback_words, stepback_blocks, stepback_stale";
        self.changing_index(async |connection| {
            // Truncate where the user has the privilege; otherwise delete row by row.
            let may = "SELECT bool_and(has_table_privilege(name, 'TRUNCATE')) FROM unnest($1::text[]) name";
            let names: Vec<&str> = TABLES.split(", ").collect();
            let may: bool = connection.client.query_one(may, &[&names]).await?.try_get(0)?;
            let empty = match may {
                true => format!("TRUNCATE {TABLES}"),
                false => names.iter().map(|name| format!("DELETE FROM {name};")).collect(),
            };
            connection.client.batch_execute(&empty).await?;
            let reset = "UPDATE stepback_index SET documents = 0, words = 0, known_to = 0, commits = -1";
            connection.client.batch_execute(reset).await?;
            Ok(Ok(()))
        })
    }

    /// Changes the index in a transaction, under its lock.
    fn changing_index(
        &self,
        work: impl AsyncFn(&mut Connection) -> Result<Result<(), StoreError>, Error>,
    ) -> Result<(), StoreError> {
        let begin = format!(
            "BEGIN; SET LOCAL synchronous_commit = off; SELECT pg_advisory_xact_lock({INDEX_LOCK_KEY}, {})",
            self.key
        );
        self.pool.ask(async |connection| {
            connection.client.batch_execute(&begin).await?;
            let result = work(connection).await?;
            let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
            connection.client.batch_execute(end).await?;
            Ok(result)
        })?
    }
}

async fn index_documents(
    connection: &mut Connection,
    documents: &[SearchDocument],
) -> Result<Result<(), StoreError>, Error> {
    let mut indexed = match read_indexed(connection, documents).await? {
        Ok(indexed) => indexed,
        Err(error) => return Ok(Err(error)),
    };
    let mut new_documents: BTreeMap<u64, NewDocument<'_>> = BTreeMap::new();
    for document in documents {
        let step = &document.stored.step;
        let Some(IndexedStep { position, indexed_before: indexed_text }) =
            indexed.remove(step.id.as_bytes().as_slice())
        else {
            continue;
        };
        let (raw_len, text) = pack(&document.texts);
        let raw_len = i32::try_from(raw_len).unwrap_or(i32::MAX);
        new_documents.insert(position, NewDocument { document, indexed_before: indexed_text, raw_len, text });
    }
    let mut block = Block::default();
    let mut columns = TextColumns::default();
    let (mut stale, mut words, mut new) = ((Vec::new(), Vec::new()), 0i64, 0i64);
    for (position, new_document) in new_documents {
        let NewDocument { document, indexed_before: indexed_text, raw_len, text } = new_document;
        let annotation = &document.stored.annotation;
        // Another process indexed it first.
        if indexed_text.as_ref().is_some_and(|indexed_text| indexed_text.text == text && indexed_text.current)
        {
            continue;
        }
        let length = block.add(position, &document.texts);
        words += length as i64;
        match indexed_text {
            None => new += 1,
            Some(indexed_text) => {
                words -= i64::from(indexed_text.words);
                stale.0.push(indexed_text.block);
                stale.1.push(position as i64);
            }
        }
        columns.positions.push(position as i64);
        columns.words.push(i32::try_from(length).unwrap_or(i32::MAX));
        columns.is_said.push(document.stored.purged || *annotation != Annotation::default());
        columns.labels.push(annotation.label.as_deref().map(|label| text::escape_text(label).into_owned()));
        columns.notes.push(annotation.note.as_deref().map(|note| text::escape_text(note).into_owned()));
        columns.tags.push(text::to_json(&annotation.tags));
        columns.purged.push(document.stored.purged);
        columns.lengths.push(raw_len);
        columns.texts.push(text);
    }
    if block.documents == 0 {
        return Ok(Ok(()));
    }
    let id = write_block(connection, &block, new, words).await?;
    if !stale.0.is_empty() {
        let sql = "INSERT INTO stepback_stale SELECT * FROM unnest($1::bigint[], $2::bigint[]) ON CONFLICT DO NOTHING";
        connection.client.execute(sql, &[&stale.0, &stale.1]).await?;
    }
    columns.write(connection, id).await?;
    Ok(Ok(()))
}

/// What the database has for the steps of documents, by their ids.
async fn read_indexed(
    connection: &mut Connection,
    documents: &[SearchDocument],
) -> Result<Result<HashMap<Vec<u8>, IndexedStep>, StoreError>, Error> {
    let sql = format!(
        "SELECT s.id, s.position, t.block, t.words, t.text, t.said IS NOT DISTINCT FROM CASE WHEN {IS_ANNOTATED_SQL} THEN {ANNOTATION_SQL} END
         FROM stepback_steps s LEFT JOIN stepback_texts t ON t.position = s.position WHERE s.id = ANY($1)"
    );
    let ids: Vec<&[u8]> =
        documents.iter().map(|document| document.stored.step.id.as_bytes().as_slice()).collect();
    let read = |row: &Row| -> Result<(Vec<u8>, IndexedStep), StoreError> {
        let indexed_text = match rows::get::<Option<i64>>(row, 2)? {
            None => None,
            Some(block) => Some(IndexedText {
                block,
                words: rows::get(row, 3)?,
                text: rows::get(row, 4)?,
                current: rows::get(row, 5)?,
            }),
        };
        Ok((
            rows::get(row, 0)?,
            IndexedStep { position: rows::get::<i64>(row, 1)? as u64, indexed_before: indexed_text },
        ))
    };
    Ok(connection.rows(&sql, &[&ids]).await?.iter().map(read).collect())
}

/// Writes a block, and adds `new` steps and `words` words to the totals. Returns the block's number.
async fn write_block(connection: &mut Connection, block: &Block, new: i64, words: i64) -> Result<i64, Error> {
    let count = "WITH counted AS (
            UPDATE stepback_index SET blocks = blocks + 1, documents = documents + $1, words = words + $2 RETURNING blocks
        ) INSERT INTO stepback_blocks (id, documents) SELECT blocks, $3 FROM counted RETURNING id";
    let documents = i32::try_from(block.documents).unwrap_or(i32::MAX);
    let row = connection.row(count, &[&new, &words, &documents]).await?;
    let id: i64 = row.map(|row| row.try_get(0)).transpose()?.unwrap_or_default();

    let all: Vec<&str> = block.rows().map(|(word, _)| word).collect();
    let mut ids: HashMap<String, i32> = HashMap::with_capacity(all.len());
    let find = "SELECT word, id FROM stepback_words WHERE word = ANY($1)";
    for row in connection.rows(find, &[&all]).await? {
        ids.insert(row.try_get(0)?, row.try_get(1)?);
    }
    let missing: Vec<&str> = all.iter().copied().filter(|word| !ids.contains_key(*word)).collect();
    if !missing.is_empty() {
        let add = "INSERT INTO stepback_words (word) SELECT * FROM unnest($1::text[]) RETURNING word, id";
        for row in connection.rows(add, &[&missing]).await? {
            ids.insert(row.try_get(0)?, row.try_get(1)?);
        }
    }
    let mut rows: Vec<(i32, &[u8])> =
        block.rows().filter_map(|(word, places)| Some((*ids.get(word)?, places))).collect();
    rows.sort_unstable_by_key(|(word, _)| *word);
    let (words, places): (Vec<i32>, Vec<&[u8]>) = rows.into_iter().unzip();
    let sql = "INSERT INTO stepback_postings (word, block, places)
        SELECT word, $2, places FROM unnest($1::integer[], $3::bytea[]) AS rows (word, places)";
    let statement = connection.prepared(sql).await?;
    connection.client.execute(&statement, &[&words, &id, &places]).await?;
    Ok(id)
}

/// Texts as columns, so that one statement inserts any number of them.
#[derive(Default)]
struct TextColumns {
    positions: Vec<i64>,
    words: Vec<i32>,
    is_said: Vec<bool>,
    labels: Vec<Option<String>>,
    notes: Vec<Option<String>>,
    tags: Vec<String>,
    purged: Vec<bool>,
    lengths: Vec<i32>,
    texts: Vec<Vec<u8>>,
}

impl TextColumns {
    async fn write(&self, connection: &mut Connection, block: i64) -> Result<(), Error> {
        let sql = "INSERT INTO stepback_texts (position, block, words, said, raw_len, text)
            SELECT position, $1, words, CASE WHEN is_said THEN jsonb_build_array(label, note, tags::jsonb, purged)::text END,
                   raw_len, text
            FROM unnest($2::bigint[], $3::integer[], $4::boolean[], $5::text[], $6::text[], $7::text[], $8::boolean[],
                $9::integer[], $10::bytea[]) AS rows (position, words, is_said, label, note, tags, purged, raw_len, text)
            ON CONFLICT (position) DO UPDATE SET block = excluded.block, words = excluded.words, said = excluded.said,
                raw_len = excluded.raw_len, text = excluded.text";
        let statement = connection.prepared(sql).await?;
        let values: [&(dyn ToSql + Sync); 10] = [
            &block,
            &self.positions,
            &self.words,
            &self.is_said,
            &self.labels,
            &self.notes,
            &self.tags,
            &self.purged,
            &self.lengths,
            &self.texts,
        ];
        connection.client.execute(&statement, &values).await?;
        Ok(())
    }
}

/// Merges small blocks if there are many: each block is one more row to read for each of its words.
async fn merge(connection: &mut Connection) -> Result<Result<(), StoreError>, Error> {
    let small = "SELECT id FROM stepback_blocks WHERE documents < 128 ORDER BY id";
    let small: Vec<i64> =
        connection.rows(small, &[]).await?.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    if small.len() < BLOCKS_PER_MERGE {
        return Ok(Ok(()));
    }
    let read = "SELECT position, raw_len, text FROM stepback_texts WHERE block = ANY($1) ORDER BY position";
    let mut block = Block::default();
    for row in connection.rows(read, &[&small]).await? {
        let length = i64::from(row.try_get::<_, i32>(1)?);
        let texts: Texts = match unpack(length, row.try_get(2)?) {
            Ok(texts) => texts,
            Err(error) => return Ok(Err(error)),
        };
        block.add(row.try_get::<_, i64>(0)? as u64, &texts);
    }
    let id = write_block(connection, &block, 0, 0).await?;
    let clean = [
        "UPDATE stepback_texts SET block = $2 WHERE block = ANY($1)",
        "DELETE FROM stepback_postings WHERE block = ANY($1) AND block <> $2",
        "DELETE FROM stepback_stale WHERE block = ANY($1) AND block <> $2",
        "DELETE FROM stepback_blocks WHERE id = ANY($1) AND id <> $2",
    ];
    for sql in clean {
        let statement = connection.prepared(sql).await?;
        connection.client.execute(&statement, &[&small, &id]).await?;
    }
    Ok(Ok(()))
}
