//! The implementation of [`Store`] for the embedded store.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;

use rusqlite::{Connection, TransactionBehavior};
use stepback_faults as faults;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::record::{Operation, Session, WorkspaceRecord};

use super::commit_record::{ChainLink, CommitEntry, PackRange};
use super::lost_history::CommitState;
use super::objects::{self, PackedBatch};
use super::{DatabaseAccess, EmbeddedStore, apply, find, log, schema, size};
use crate::error::StoreError;
use crate::pack::PackWriter;
use crate::port::{
    BatchAnswers, BatchLookup, CommitLog, CommitMark, FinishedBatch, LostCommit, MaintenanceStore, Mutation,
    ObjectBatch, ObjectInfo, ObjectStore, OperationStore, Questions, Receipt, RefStore, SearchDocument,
    SearchRequest, SearchResult, SearchStore, SessionStore, StepAt, StepCount, StepPage, StepQuery, StepRow,
    StepStore, Store, StoreFormat, StoreUsage, Swept,
};

/// The write-ahead log is checkpointed into the database when it has grown beyond this many pages.
///
/// A process that opens the store while no other process uses it reads the whole log, so it must stay short; a checkpoint
/// costs two syncs, so it must not happen at every commit. SQLite's automatic checkpoint does not help here: it keeps its
/// progress in shared memory, which is gone with the process, so the log would never restart.
const MAX_LOG_PAGES: i64 = 60;

/// The file of the log is truncated when a large commit has made it longer than this, in bytes.
const MAX_LOG_FILE_BYTES: u64 = 1 << 20;

/// A process that has committed this often is not a hook but long-lived. While it runs, no other process has to read the
/// whole log, and pages that many commits change are written to the database once for all of them.
const LONG_LIVED_COMMITS: u64 = 32;
/// The factor by which the log of such a process may be longer.
const LONG_LIVED_LOG_FACTOR: u64 = 64;
/// The number of bytes by which the file of its log is extended, and by which it must be longer than its log. They are
/// synced once, with a file that grew; later writes that replace them need no such sync.
const LOG_EXTENSION_BYTES: usize = 1 << 20;
const LOG_SLACK_BYTES: u64 = 128 << 10;
/// Bytes that a page takes in the log's file: the page and SQLite's frame header.
const LOGGED_PAGE: u64 = 4096 + 24;

/// How full the write-ahead log is.
#[derive(Clone, Copy, Default)]
struct LogFill {
    /// Number of pages in it, if that is known.
    pages: Option<u64>,
    /// Whether the database has all of them.
    is_folded: bool,
}

impl EmbeddedStore {
    /// Checkpoints a long log into the database, right before a commit: that commit then restarts the log, and overwrites
    /// the file from its start. Overwritten bytes are synced faster than bytes that extend a file.
    fn fold_log(&self, connection: &Connection) -> LogFill {
        let checkpoint = |mode: &str| -> rusqlite::Result<LogFill> {
            let mut statement = connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
            statement.query_row([], |row| {
                let (pages, copied): (i64, i64) = (row.get(1)?, row.get(2)?);
                Ok(LogFill { pages: u64::try_from(pages).ok(), is_folded: pages >= 0 && pages == copied })
            })
        };
        let longest = MAX_LOG_PAGES as u64 * self.log_length_factor();
        let Ok(found) = checkpoint("NOOP") else { return LogFill::default() };
        if found.pages.is_none_or(|pages| pages <= longest) {
            return found;
        }
        // Another process that reads the log right now makes this stop halfway; the next commit tries again.
        let is_folded = checkpoint("PASSIVE").is_ok_and(|fill| fill.is_folded);
        LogFill { is_folded, ..found }
    }

    /// Extends the file of a log of `pages` beyond the end of the log. Only a process that may write to the log may do
    /// that: SQLite ignores what is behind the last commit.
    fn make_room(&self, pages: Option<u64>) {
        let Some(pages) = pages.filter(|_| self.is_long_lived()) else { return };
        let log = self.dir.join(schema::LOG);
        if std::fs::metadata(&log)
            .is_ok_and(|metadata| metadata.len() < pages * LOGGED_PAGE + LOG_SLACK_BYTES)
        {
            // A full disk is reported by the commit itself, which may still have room.
            let _ = std::fs::OpenOptions::new()
                .append(true)
                .open(&log)
                .and_then(|mut file| file.write_all(&vec![0; LOG_EXTENSION_BYTES]));
        }
    }

    /// The factor by which the log may be longer than that of a short-lived process.
    fn log_length_factor(&self) -> u64 {
        if self.is_long_lived() { LONG_LIVED_LOG_FACTOR } else { 1 }
    }

    /// Fails if the store is on a file system that is mounted read-only.
    fn refuse_read_only(&self) -> Result<(), StoreError> {
        match self.access {
            DatabaseAccess::ReadWrite => Ok(()),
            _ => Err(StoreError::ReadOnly { path: self.dir.clone() }),
        }
    }

    fn is_long_lived(&self) -> bool {
        self.commits.load(Ordering::Relaxed) > LONG_LIVED_COMMITS
    }

    fn shorten_log(&self, connection: &Connection) {
        let log = self.dir.join(schema::LOG);
        if std::fs::metadata(log)
            .is_ok_and(|metadata| metadata.len() > MAX_LOG_FILE_BYTES * self.log_length_factor())
        {
            let _ = connection.busy_timeout(std::time::Duration::ZERO);
            let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            let _ = connection.busy_timeout(self.patience.unwrap_or(super::PATIENCE));
        }
    }
}

/// The entry of a commit in the commit record.
fn new_entry(state: &CommitState, written: Option<&PackedBatch>, mutations: &[Mutation]) -> CommitEntry {
    let packs = written.map_or(&[][..], |written| &written.packs);
    let ranges =
        packs.iter().map(|writer| PackRange { pack: writer.id(), start: writer.start(), end: writer.end() });
    let objects = written.into_iter().flat_map(|written| &written.objects);
    let records = objects.filter_map(|(hash, _)| written?.records.get(hash).cloned());
    CommitEntry {
        commit: state.commits + 1,
        epoch: state.epoch,
        before: state.chain.unwrap_or(ChainLink::NONE),
        // Mutations are plain data with string keys, which always serialise.
        mutations: serde_json::to_vec(mutations).unwrap_or_default(),
        ranges: ranges.collect(),
        records: records.collect(),
    }
}

/// Whether a batch wrote nothing.
fn is_empty(batch: &FinishedBatch) -> bool {
    batch.payload.downcast_ref::<PackedBatch>().is_some_and(|written| written.objects.is_empty())
}

impl ObjectStore for EmbeddedStore {
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, StoreError> {
        Ok(self.locate(kind, hash)?.is_some())
    }

    fn gc_generation(&self) -> Result<u64, StoreError> {
        log::gc_generation(&self.reader())
    }

    fn cache_generation(&self) -> Result<u64, StoreError> {
        // Every object that is found damaged changes it.
        Ok(self.gc_generation()? ^ (self.damage_len() << 24))
    }

    fn damaged_objects(&self) -> HashSet<Hash> {
        EmbeddedStore::damaged_objects(self)
    }

    fn begin_since(&self, epoch: u64) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        Ok(Box::new(self.new_batch(epoch)?))
    }

    fn for_each_object(&self, visit: &mut dyn FnMut(ObjectInfo)) -> Result<(), StoreError> {
        self.visit_objects(&mut |object, _| visit(object))
    }

    fn for_each_stored_object(&self, visit: &mut dyn FnMut(ObjectInfo, u64)) -> Result<(), StoreError> {
        self.visit_objects(visit)
    }
}

impl CommitLog for EmbeddedStore {
    fn commit(
        &self,
        mut batch: Option<FinishedBatch>,
        mutations: &[Mutation],
    ) -> Result<Receipt, StoreError> {
        self.files.check(&self.dir)?;
        if let Some(batch) = batch.as_ref().filter(|batch| mutations.is_empty() && is_empty(batch)) {
            // Nothing to write, but objects that the batch found stored may have been freed.
            return if batch.epoch == self.gc_generation()? {
                Ok(Receipt::default())
            } else {
                Err(StoreError::Collected)
            };
        }
        self.refuse_read_only()?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        let connection = self.connection();
        let logged = self.fold_log(&connection);
        let transaction = rusqlite::Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
        let state = self.commit_state(&transaction)?;
        self.make_room(logged.pages);
        let format = schema::check_format(&transaction, &self.dir)?;
        let written = batch.as_ref().and_then(|batch| batch.payload.downcast_ref::<PackedBatch>());
        let has_records = written.is_some_and(|written| !written.records.is_empty());
        if format < schema::needed(mutations, has_records) {
            schema::raise(&transaction)?;
        }
        if let Some(batch) = &batch {
            if batch.epoch != state.epoch {
                return Err(StoreError::Collected);
            }
            if let Some(written) = batch.payload.downcast_ref::<PackedBatch>() {
                objects::insert(&transaction, written)?;
            }
        }
        let receipt = apply::apply(&transaction, mutations)?;
        let (entry, name) = new_entry(&state, written, mutations).encode();
        state.write(&transaction, state.commits + 1, name)?;
        let written = batch.as_mut().and_then(|batch| batch.payload.downcast_mut::<PackedBatch>());
        for pack in written.into_iter().flat_map(|written| &mut written.packs) {
            // `finish` has already started writing small packs to the disk.
            pack.sync()?;
        }
        faults::point().map_err(StoreError::io("commit to", &self.dir))?;
        transaction.commit()?;
        // After the commit, a crash must lose nothing; tests inject faults at this point.
        faults::point().map_err(StoreError::io("acknowledge a commit to", &self.dir))?;
        self.record_commit(&entry, name, logged.is_folded);
        // What is written to files that have no name any more is lost.
        self.files.check(&self.dir)?;
        let packs = batch.iter().filter_map(|batch| batch.payload.downcast_ref::<PackedBatch>());
        if packs.flat_map(|written| &written.packs).any(PackWriter::is_deleted) {
            return Err(StoreError::Replaced { path: self.dir.clone() });
        }
        if let Some(written) = batch.as_ref().and_then(|batch| batch.payload.downcast_ref::<PackedBatch>()) {
            self.forget_damage(&written.replaced);
        }
        // Only now may another writer append to the packs of this batch.
        drop(batch);
        self.shorten_log(&connection);
        drop(connection);
        if let Some(observer) = &self.after_commit {
            observer();
        }
        Ok(receipt)
    }

    fn commit_seq(&self) -> Result<CommitMark, StoreError> {
        let connection = self.reader();
        let commits: i64 = connection.query_row("SELECT commits FROM meta", [], |row| row.get(0))?;
        Ok(CommitMark(commits as u64))
    }
}

impl SessionStore for EmbeddedStore {
    fn workspace_at(&self, root: &[u8]) -> Result<Option<WorkspaceRecord>, StoreError> {
        log::workspace_at(&self.reader(), root)
    }

    fn workspaces(&self) -> Result<Vec<WorkspaceRecord>, StoreError> {
        log::workspaces(&self.reader())
    }

    fn sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
        log::sessions(&self.reader(), workspace)
    }

    fn working_sessions(&self, workspace: WorkspaceId) -> Result<Vec<Session>, StoreError> {
        log::working_sessions(&self.reader(), workspace)
    }

    fn session(&self, session: SessionId) -> Result<Option<Session>, StoreError> {
        log::session(&self.reader(), session)
    }
}

impl StepStore for EmbeddedStore {
    fn step(&self, step: StepId) -> Result<Option<StepRow>, StoreError> {
        log::step(&self.reader(), step)
    }

    fn step_numbered(&self, workspace: WorkspaceId, number: u64) -> Result<Option<StepRow>, StoreError> {
        log::step_numbered(&self.reader(), workspace, number)
    }

    fn steps(&self, workspace: WorkspaceId, query: &StepQuery) -> Result<Vec<StepRow>, StoreError> {
        find::steps(&self.reader(), workspace, query)
    }

    fn find(&self, workspace: Option<WorkspaceId>, query: &StepQuery) -> Result<StepPage, StoreError> {
        find::page(&self.reader(), workspace, query)
    }

    fn follow(&self, position: u64, most: u64) -> Result<Vec<StepAt>, StoreError> {
        find::steps_after(&self.reader(), position, most)
    }

    fn newest_position(&self) -> Result<u64, StoreError> {
        find::newest_position(&self.reader())
    }

    fn tally(&self, workspace: WorkspaceId) -> Result<Vec<StepCount>, StoreError> {
        find::step_counts(&self.reader(), workspace)
    }

    fn checkpoints(&self, workspace: WorkspaceId) -> Result<Vec<StepRow>, StoreError> {
        log::checkpoints(&self.reader(), workspace)
    }
}

impl OperationStore for EmbeddedStore {
    fn operation(&self, op: OpId) -> Result<Option<Operation>, StoreError> {
        log::operation(&self.reader(), op)
    }

    fn operations(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError> {
        log::operations(&self.reader(), workspace, false)
    }

    fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError> {
        log::operations(&self.reader(), workspace, true)
    }
}

impl RefStore for EmbeddedStore {
    fn reference(&self, name: &str) -> Result<Option<StepId>, StoreError> {
        log::reference(&self.reader(), name)
    }

    fn references(&self, prefix: &str) -> Result<Vec<(String, StepId)>, StoreError> {
        log::references(&self.reader(), prefix)
    }
}

impl BatchLookup for EmbeddedStore {
    fn look(&self, questions: &Questions<'_>) -> Result<BatchAnswers, StoreError> {
        log::read_batch(&self.reader(), questions)
    }
}

impl SearchStore for EmbeddedStore {
    fn unindexed(&self, most: usize) -> Result<Vec<StepRow>, StoreError> {
        self.with_index(|index| index.unindexed_steps(most))
    }

    fn index(&self, documents: &[SearchDocument]) -> Result<(), StoreError> {
        self.with_index(|index| index.add(documents))
    }

    fn forget_index(&self) -> Result<(), StoreError> {
        self.remove_index()
    }

    fn search(&self, search: &SearchRequest) -> Result<SearchResult, StoreError> {
        self.ask_index(search)
    }
}

impl MaintenanceStore for EmbeddedStore {
    fn sweep(&self, live: &HashSet<Hash>, mark: CommitMark) -> Result<Swept, StoreError> {
        self.sweep_objects(live, mark)
    }

    fn usage_after(&self, mutations: &[Mutation], live: &HashSet<Hash>) -> Result<StoreUsage, StoreError> {
        self.preview_sweep(mutations, live)
    }

    fn usage(&self) -> Result<StoreUsage, StoreError> {
        size::usage(&self.reader(), &self.dir)
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        let mut problems: Vec<String> = self.lost_commits()?.iter().map(ToString::to_string).collect();
        problems.extend(self.check_structures()?);
        Ok(problems)
    }

    fn format(&self) -> Result<Option<StoreFormat>, StoreError> {
        let found = schema::check_format(&self.reader(), &self.dir)?;
        Ok(Some(StoreFormat { found, known: super::FORMAT }))
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.refuse_read_only()?;
        self.files.check(&self.dir)?;
        let db = self.reader();
        self.commit_state(&db).map(drop)
    }

    fn has_lost_commits(&self) -> Result<bool, StoreError> {
        EmbeddedStore::has_lost_commits(self)
    }

    fn lost_commits(&self) -> Result<Vec<LostCommit>, StoreError> {
        if self.refuse_read_only().is_err() {
            return self.describe_lost();
        }
        self.replay_lost(false)
    }

    fn restore_lost_commits(&self) -> Result<Vec<LostCommit>, StoreError> {
        self.replay_lost(true)
    }

    fn lenders(&self) -> Result<HashSet<Vec<u8>>, StoreError> {
        self.lender_files()
    }
}

impl Store for EmbeddedStore {
    fn local_dir(&self) -> Option<&Path> {
        Some(&self.dir)
    }

    fn patience(&self) -> Option<std::time::Duration> {
        self.patience
    }
}
