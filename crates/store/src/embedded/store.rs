//! The embedded store's answers to the [`Store`] port.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;

use rusqlite::{Connection, TransactionBehavior};
use stepback_faults as faults;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::record::{Operation, Session, Workspace};

use super::objects::{self, Written};
use super::{EmbeddedStore, FORMAT, apply, find, log, schema};
use crate::error::StoreError;
use crate::port::{
    Answers, CommitMark, Document, FinishedBatch, Found, Mutation, ObjectBatch, ObjectInfo, Page, Query,
    Questions, Receipt, Search, StepAt, StepCount, Store, StoredCheckpoint, Swept, Usage,
};

/// The write-ahead log is folded into the database when it has grown beyond this many pages.
///
/// Every process that finds nobody else using the store reads the whole log when it opens it, so it must stay short; folding
/// costs two syncs, so it must not happen at every commit. SQLite's own automatic folding does not help here: it keeps what
/// it has folded in shared memory, which is gone with the process, so that the log would never begin anew.
const LONGEST_LOG: i64 = 60;

/// The file of the log is cut off when a large commit has made it longer than this.
const LONGEST_LOG_FILE: u64 = 1 << 20;

/// A process that has committed so often is no hook: it stays. As long as it does, nobody else has to read the whole log, and
/// pages that many commits change are written to the database once for all of them.
const STAYS: u64 = 32;
/// How many times as long the log of such a process may get.
const LONGER: u64 = 64;
/// By how many bytes the file of its log is made longer, and how many it must be longer than its log. That many are synced once,
/// with a file that grew, and what replaces them later without.
const AHEAD: usize = 1 << 20;
const ROOM: u64 = 128 << 10;
/// How many bytes of the log's file a page takes: itself and what SQLite says of it.
const LOGGED_PAGE: u64 = 4096 + 24;

impl EmbeddedStore {
    /// Folds a long log into the database, right before a commit: that one then begins the log anew, and overwrites the file
    /// from its start. Bytes that replace others are synced sooner than bytes that make a file longer.
    ///
    /// Says how many pages the log had, if that is known.
    fn fold_log(&self, connection: &Connection) -> Option<u64> {
        let pages = |mode: &str| -> rusqlite::Result<i64> {
            let mut statement = connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
            statement.query_row([], |row| row.get(1))
        };
        let longest = LONGEST_LOG * self.longer() as i64;
        let found = pages("NOOP").ok()?;
        if found > longest {
            // Somebody reading the log right now makes this stop halfway; the next commit tries again.
            let _ = pages("PASSIVE");
        }
        u64::try_from(found).ok()
    }

    /// Makes the file of a log of `pages` longer than the log is. Only who may write to the log may do that: SQLite takes what
    /// is behind the last commit for nothing.
    fn make_room(&self, pages: Option<u64>) {
        let Some(pages) = pages.filter(|_| self.stays()) else { return };
        let log = self.dir.join(schema::LOG);
        if std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() < pages * LOGGED_PAGE + ROOM) {
            // A disk that is full is the commit's trouble: it says so, and may still have room.
            let _ = std::fs::OpenOptions::new()
                .append(true)
                .open(&log)
                .and_then(|mut file| file.write_all(&vec![0; AHEAD]));
        }
    }

    /// By how much the log may be longer than that of a process that comes and goes.
    fn longer(&self) -> u64 {
        if self.stays() { LONGER } else { 1 }
    }

    fn stays(&self) -> bool {
        self.commits.load(Ordering::Relaxed) > STAYS
    }

    fn shorten_log(&self, connection: &Connection) {
        let log = self.dir.join(schema::LOG);
        if std::fs::metadata(log).is_ok_and(|metadata| metadata.len() > LONGEST_LOG_FILE * self.longer()) {
            let _ = connection.busy_timeout(std::time::Duration::ZERO);
            let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            let _ = connection.busy_timeout(self.patience.unwrap_or(super::PATIENCE));
        }
    }
}

/// Whether a batch wrote nothing.
fn is_empty(batch: &FinishedBatch) -> bool {
    batch.payload.downcast_ref::<Written>().is_some_and(|written| written.objects.is_empty())
}

impl Store for EmbeddedStore {
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, StoreError> {
        Ok(self.locate(kind, hash)?.is_some())
    }

    fn gc_generation(&self) -> Result<u64, StoreError> {
        log::epoch(&self.reader())
    }

    fn begin_since(&self, epoch: u64) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        Ok(Box::new(self.new_batch(epoch)?))
    }

    fn commit(
        &self,
        mut batch: Option<FinishedBatch>,
        mutations: &[Mutation],
    ) -> Result<Receipt, StoreError> {
        if let Some(batch) = batch.as_ref().filter(|batch| mutations.is_empty() && is_empty(batch)) {
            // Nothing to write, but what the batch found stored may be gone.
            return if batch.epoch == self.gc_generation()? {
                Ok(Receipt::default())
            } else {
                Err(StoreError::Collected)
            };
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        let connection = self.connection();
        let logged = self.fold_log(&connection);
        let transaction = rusqlite::Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
        self.make_room(logged);
        let format = schema::check_format(&transaction, &self.dir)?;
        let written = batch.as_ref().and_then(|batch| batch.payload.downcast_ref::<Written>());
        let has_records = written.is_some_and(|written| !written.records.is_empty());
        if format < FORMAT && (has_records || format < schema::needed(mutations)) {
            schema::raise(&transaction)?;
        }
        transaction.prepare_cached("UPDATE meta SET commits = commits + 1")?.execute([])?;
        if let Some(batch) = &batch {
            if batch.epoch != log::epoch(&transaction)? {
                return Err(StoreError::Collected);
            }
            if let Some(written) = batch.payload.downcast_ref::<Written>() {
                objects::insert(&transaction, written)?;
            }
        }
        let receipt = apply::apply(&transaction, mutations)?;
        let written = batch.as_mut().and_then(|batch| batch.payload.downcast_mut::<Written>());
        for pack in written.into_iter().flat_map(|written| &mut written.packs) {
            // What is little was sent to the disk by `finish`, which has been writing it since.
            pack.sync()?;
        }
        faults::point().map_err(StoreError::io("commit to", &self.dir))?;
        transaction.commit()?;
        // After the commit, a crash must find everything; this point is where tests look.
        faults::point().map_err(StoreError::io("acknowledge a commit to", &self.dir))?;
        // Only now may another writer append to the packs of this batch.
        drop(batch);
        self.shorten_log(&connection);
        Ok(receipt)
    }

    fn workspace_at(&self, root: &[u8]) -> Result<Option<Workspace>, StoreError> {
        log::workspace_at(&self.reader(), root)
    }

    fn workspaces(&self) -> Result<Vec<Workspace>, StoreError> {
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

    fn reference(&self, name: &str) -> Result<Option<StepId>, StoreError> {
        log::reference(&self.reader(), name)
    }

    fn references(&self, prefix: &str) -> Result<Vec<(String, StepId)>, StoreError> {
        log::references(&self.reader(), prefix)
    }

    fn step(&self, step: StepId) -> Result<Option<StoredCheckpoint>, StoreError> {
        log::step(&self.reader(), step)
    }

    fn look(&self, questions: &Questions<'_>) -> Result<Answers, StoreError> {
        log::look(&self.reader(), questions)
    }

    fn step_numbered(
        &self,
        workspace: WorkspaceId,
        number: u64,
    ) -> Result<Option<StoredCheckpoint>, StoreError> {
        log::step_numbered(&self.reader(), workspace, number)
    }

    fn steps(&self, workspace: WorkspaceId, query: &Query) -> Result<Vec<StoredCheckpoint>, StoreError> {
        find::steps(&self.reader(), workspace, query)
    }

    fn find(&self, workspace: Option<WorkspaceId>, query: &Query) -> Result<Page, StoreError> {
        find::page(&self.reader(), workspace, query)
    }

    fn follow(&self, position: u64, most: u64) -> Result<Vec<StepAt>, StoreError> {
        find::follow(&self.reader(), position, most)
    }

    fn newest_position(&self) -> Result<u64, StoreError> {
        find::newest_position(&self.reader())
    }

    fn tally(&self, workspace: WorkspaceId) -> Result<Vec<StepCount>, StoreError> {
        find::tally(&self.reader(), workspace)
    }

    fn unindexed(&self, most: usize) -> Result<Vec<StoredCheckpoint>, StoreError> {
        self.with_index(|index| index.unindexed(most))
    }

    fn index(&self, documents: &[Document]) -> Result<(), StoreError> {
        self.with_index(|index| index.add(documents))
    }

    fn forget_index(&self) -> Result<(), StoreError> {
        self.remove_index()
    }

    fn search(&self, search: &Search) -> Result<Found, StoreError> {
        self.ask_index(search)
    }

    fn checkpoints(&self, workspace: WorkspaceId) -> Result<Vec<StoredCheckpoint>, StoreError> {
        log::checkpoints(&self.reader(), workspace)
    }

    fn operation(&self, op: OpId) -> Result<Option<Operation>, StoreError> {
        log::operation(&self.reader(), op)
    }

    fn operations(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError> {
        log::operations(&self.reader(), workspace, false)
    }

    fn unfinished(&self, workspace: WorkspaceId) -> Result<Vec<Operation>, StoreError> {
        log::operations(&self.reader(), workspace, true)
    }

    fn commit_seq(&self) -> Result<CommitMark, StoreError> {
        let connection = self.reader();
        let commits: i64 = connection.query_row("SELECT commits FROM meta", [], |row| row.get(0))?;
        Ok(CommitMark(commits as u64))
    }

    fn for_each_object(&self, visit: &mut dyn FnMut(ObjectInfo)) -> Result<(), StoreError> {
        self.visit_objects(visit)
    }

    fn sweep(&self, live: &HashSet<Hash>, mark: CommitMark) -> Result<Swept, StoreError> {
        self.sweep_objects(live, mark)
    }

    fn usage(&self) -> Result<Usage, StoreError> {
        let (objects, raw, stored) = self.reader().query_row(
            "SELECT count(*), coalesce(sum(raw_len), 0), coalesce(sum(record_len), 0) FROM objects",
            [],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)),
        )?;
        let total_bytes = super::sweep::bytes_below(&self.dir);
        Ok(Usage { objects: objects as u64, raw_bytes: raw as u64, stored_bytes: stored as u64, total_bytes })
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        self.check_structures()
    }

    fn lenders(&self) -> Result<HashSet<Vec<u8>>, StoreError> {
        self.lender_files()
    }

    fn local_dir(&self) -> Option<&Path> {
        Some(&self.dir)
    }

    fn patience(&self) -> Option<std::time::Duration> {
        self.patience
    }
}
