//! Acknowledged commits that the database has lost: noticed by the commit record, and applied again from it.
//!
//! A store that has lost commits can be read. It refuses new ones until `stepback fsck --repair` has brought back what can
//! be: a new commit would take the numbers of the lost steps, and overwrite their bytes in packs.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::PoisonError;

use rusqlite::{Connection, TransactionBehavior, params};
use stepback_faults as faults;
use stepback_model::hash::Hash;

use super::commit_record::{self, ChainLink, CommitEntry, PackRange, RecordTail};
use super::objects::{self, IN_DATABASE, Location, PackedBatch};
use super::{EmbeddedStore, apply, schema};
use crate::codec::Codec;
use crate::error::StoreError;
use crate::pack::{self, RecordHeader};
use crate::port::{LostCommit, Mutation};

/// The row of `meta` that commits change.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitState {
    pub commits: u64,
    pub epoch: u64,
    /// The newest entry that a commit of this database has in the record; `None` before the first.
    pub chain: Option<ChainLink>,
    /// Whether the table has the column for it, which older programs did not make.
    pub has_chain: bool,
}

impl CommitState {
    pub fn read(db: &Connection) -> Result<Self, StoreError> {
        match db.prepare_cached("SELECT commits, epoch, chain FROM meta") {
            Ok(mut statement) => Ok(statement.query_row([], |row| {
                let chain = row.get_ref(2)?.as_blob_or_null()?.and_then(ChainLink::from_slice);
                let (commits, epoch) = (row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64);
                Ok(Self { commits, epoch, chain, has_chain: true })
            })?),
            Err(error) if error.to_string().contains("no such column") => {
                Ok(db.query_row("SELECT commits, epoch FROM meta", [], |row| {
                    let (commits, epoch) = (row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64);
                    Ok(Self { commits, epoch, chain: None, has_chain: false })
                })?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the number of a commit and its entry, in the transaction of the commit.
    pub fn write(self, db: &Connection, commits: u64, chain: ChainLink) -> Result<(), StoreError> {
        if !self.has_chain {
            db.execute_batch(schema::ADD_CHAIN)?;
        }
        db.prepare_cached("UPDATE meta SET commits = ?1, chain = ?2")?
            .execute(params![commits as i64, chain.to_bytes().as_slice()])?;
        Ok(())
    }

    fn link(&self) -> ChainLink {
        self.chain.unwrap_or(ChainLink::NONE)
    }

    /// Whether an entry of the record is of a commit that this database does not have.
    fn lacks(&self, entry: ChainLink) -> bool {
        let own = self.link();
        entry.commit > own.commit || (entry.commit == own.commit && entry.hash != own.hash)
    }
}

impl EmbeddedStore {
    /// The state of the log, if no acknowledged commit is missing from it; otherwise an error.
    pub(super) fn commit_state(&self, db: &Connection) -> Result<CommitState, StoreError> {
        // First the record: every commit in it is in the database that is read afterwards.
        let newest = self.newest_entry()?;
        let state = CommitState::read(db)?;
        match newest.filter(|newest| state.lacks(*newest)) {
            None => Ok(state),
            Some(newest) => Err(lost_error(state.link().commit, newest.commit)),
        }
    }

    fn newest_entry(&self) -> Result<Option<ChainLink>, StoreError> {
        let mut known = self.record_tail.lock().unwrap_or_else(PoisonError::into_inner);
        *known = RecordTail::read(&self.dir, known.as_ref())
            .map_err(StoreError::io("read", self.dir.join(commit_record::RECORD)))?;
        Ok(known.as_ref().and_then(RecordTail::newest))
    }

    /// Adds the entry of a commit that is durable to the record. A failure is ignored: the commit is done.
    pub(super) fn record_commit(&self, bytes: &[u8], name: ChainLink, is_folded: bool) {
        if let Ok(tail) = commit_record::append(&self.dir, bytes, name, is_folded) {
            *self.record_tail.lock().unwrap_or_else(PoisonError::into_inner) = Some(tail);
        }
    }

    /// Writes an entry without changes for a collection, which has just raised the numbers of commits and collections.
    pub(super) fn begin_collection(&self, db: &Connection) -> Result<(Vec<u8>, ChainLink), StoreError> {
        let state = self.commit_state(db)?;
        let entry = CommitEntry {
            commit: state.commits,
            epoch: state.epoch,
            before: state.link(),
            mutations: b"[]".to_vec(),
            ranges: Vec::new(),
            records: Vec::new(),
        };
        let (bytes, name) = entry.encode();
        state.write(db, state.commits, name)?;
        Ok((bytes, name))
    }

    /// Drops the entries before `commit` from the record, after a collection: they refer to objects that may be gone. Those
    /// that a mirror does not have yet stay.
    pub(super) fn restart_record(&self, commit: u64) {
        let mirrored = commit_record::mirrored_commit(&self.dir).unwrap_or(u64::MAX);
        let kept = commit_record::read_entries(&self.dir).map(|read| {
            let is_kept = |entry: &CommitEntry| entry.commit >= commit || entry.commit > mirrored;
            let kept = read.entries.into_iter().filter(|(entry, _)| is_kept(entry));
            kept.flat_map(|(entry, _)| entry.encode().0).collect::<Vec<u8>>()
        });
        // A longer record does no harm.
        let _ = kept.and_then(|kept| commit_record::restart(&self.dir, &kept));
    }

    /// Fails if a lost commit has bytes in pack `id` beyond `committed`: they must not be cut off.
    pub(super) fn refuse_to_cut(&self, id: u64, committed: u64) -> Result<(), StoreError> {
        let path = pack::path_of(&self.packs, id);
        if std::fs::metadata(&path).map_or(true, |metadata| metadata.len() <= committed) {
            return Ok(());
        }
        let read = commit_record::read_entries(&self.dir)
            .map_err(StoreError::io("read", self.dir.join(commit_record::RECORD)))?;
        let mut ranges = read.entries.iter().flat_map(|(entry, _)| &entry.ranges);
        if ranges.any(|range| range.pack == id && range.end > committed) {
            return Err(StoreError::Corrupt {
                what: format!("{} has bytes of a commit that is missing from the log", path.display()),
            });
        }
        Ok(())
    }

    /// Whether acknowledged commits are missing from the log.
    pub(super) fn has_lost_commits(&self) -> Result<bool, StoreError> {
        let db = self.reader();
        match self.commit_state(&db) {
            Ok(_) => Ok(false),
            Err(StoreError::Lost { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Applies the lost commits again, in a transaction that is kept only if `keep`. Says of each what it has, and why it
    /// cannot be brought back, if so.
    pub(super) fn replay_lost(&self, keep: bool) -> Result<Vec<LostCommit>, StoreError> {
        let connection = self.connection();
        let read = commit_record::read_entries(&self.dir)
            .map_err(StoreError::io("read", self.dir.join(commit_record::RECORD)))?;
        let transaction = rusqlite::Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
        let state = CommitState::read(&transaction)?;
        let lost: Vec<_> = read.entries.iter().filter(|(_, name)| state.lacks(*name)).collect();
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        schema::check_format(&transaction, &self.dir)?;
        schema::raise(&transaction)?;
        let mut outcomes = Vec::new();
        for (entry, name) in lost {
            let mutations: Result<Vec<Mutation>, _> = serde_json::from_slice(&entry.mutations);
            let mut outcome = LostCommit::describe(entry.commit, mutations.as_deref().unwrap_or_default());
            let applied = match mutations {
                Ok(mutations) => self.replay_entry(&transaction, entry, &mutations),
                Err(error) => Err(StoreError::Corrupt { what: error.to_string() }),
            };
            match applied {
                Ok(()) => {}
                Err(error @ (StoreError::Io { .. } | StoreError::Locked | StoreError::Database { .. })) => {
                    return Err(error);
                }
                Err(error) => outcome.obstacle = Some(error.to_string()),
            }
            // Also past one that cannot be brought back: it is not reported again.
            let state = CommitState::read(&transaction)?;
            state.write(&transaction, state.commits.max(entry.commit), *name)?;
            outcomes.push(outcome);
        }
        if keep {
            faults::point().map_err(StoreError::io("commit to", &self.dir))?;
            transaction.commit()?;
        }
        Ok(outcomes)
    }

    /// The lost commits, without trying whether they can be brought back: for a store that cannot be written to.
    pub(super) fn describe_lost(&self) -> Result<Vec<LostCommit>, StoreError> {
        let read = commit_record::read_entries(&self.dir)
            .map_err(StoreError::io("read", self.dir.join(commit_record::RECORD)))?;
        let state = CommitState::read(&self.reader())?;
        let lost = read.entries.iter().filter(|(_, name)| state.lacks(*name));
        Ok(lost
            .map(|(entry, _)| LostCommit {
                obstacle: Some("the store is read-only".into()),
                ..LostCommit::describe(
                    entry.commit,
                    &serde_json::from_slice::<Vec<Mutation>>(&entry.mutations).unwrap_or_default(),
                )
            })
            .collect())
    }

    /// Applies one lost commit as a whole, or nothing of it.
    fn replay_entry(
        &self,
        db: &Connection,
        entry: &CommitEntry,
        mutations: &[Mutation],
    ) -> Result<(), StoreError> {
        db.execute_batch("SAVEPOINT lost")?;
        let applied = self.replay_objects(db, entry).and_then(|()| apply::apply(db, mutations).map(drop));
        db.execute_batch(match applied {
            Ok(()) => "RELEASE lost",
            Err(_) => "ROLLBACK TO lost; RELEASE lost",
        })?;
        applied
    }

    fn replay_objects(&self, db: &Connection, entry: &CommitEntry) -> Result<(), StoreError> {
        let epoch = CommitState::read(db)?.epoch;
        if entry.epoch < epoch {
            return Err(StoreError::Collected);
        }
        let mut written = PackedBatch {
            objects: Vec::new(),
            records: HashMap::new(),
            packs: Vec::new(),
            replaced: HashSet::new(),
        };
        for range in &entry.ranges {
            self.locate_records(*range, &mut written.objects)?;
        }
        for record in &entry.records {
            let (header, start) = RecordHeader::decode(record).map_err(damaged)?;
            let place = (IN_DATABASE, 0, record.len() as u64);
            written.objects.push((header.hash, location(&header, place, &record[start..])));
            written.records.insert(header.hash, record.clone());
        }
        objects::insert(db, &written)?;
        for PackRange { pack, end, .. } in &entry.ranges {
            db.execute(
                "INSERT INTO packs (id, committed) VALUES (?1, ?2)
                 ON CONFLICT (id) DO UPDATE SET committed = max(committed, excluded.committed)",
                params![*pack as i64, *end as i64],
            )?;
            db.execute("UPDATE meta SET next_pack = max(next_pack, ?1 + 1)", [*pack as i64])?;
        }
        Ok(())
    }

    /// The records in a range of a pack.
    pub(super) fn locate_records(
        &self,
        range: PackRange,
        found: &mut Vec<(Hash, Location)>,
    ) -> Result<(), StoreError> {
        let path = pack::path_of(&self.packs, range.pack);
        let is_short = |what: String| StoreError::Corrupt { what: format!("{}: {what}", path.display()) };
        let file = File::open(&path).map_err(|error| is_short(error.to_string()))?;
        let size = file.metadata().map_err(StoreError::io("read", &path))?.len();
        if size < range.end {
            return Err(is_short(format!("it has {size} bytes where {} were committed", range.end)));
        }
        let mut at = if range.start == 0 { pack::MAGIC.len() as u64 } else { range.start };
        while at < range.end {
            // Header, base, and the ids in a record that is borrowed from git.
            let mut start = vec![0; (range.end - at).min(160) as usize];
            file.read_exact_at(&mut start, at).map_err(StoreError::io("read", &path))?;
            let (header, payload) = RecordHeader::decode(&start).map_err(is_short)?;
            let len = header.record_len();
            if len > range.end - at {
                return Err(is_short(format!("the record at byte {at} does not end where it should")));
            }
            found.push((header.hash, location(&header, (range.pack, at, len), &start[payload..])));
            at += len;
        }
        Ok(())
    }
}

fn location(header: &RecordHeader, (pack, offset, record_len): (u64, u64, u64), payload: &[u8]) -> Location {
    let borrowed = payload.get(..40).filter(|_| header.codec == Codec::Borrowed);
    Location {
        kind: header.kind,
        pack,
        offset,
        record_len,
        raw_len: header.raw_len,
        depth: header.depth,
        base: header.base,
        lender: borrowed.and_then(|ids| ids[20..].try_into().ok()),
    }
}

fn damaged(what: String) -> StoreError {
    StoreError::Corrupt { what }
}

fn lost_error(has: u64, newest: u64) -> StoreError {
    StoreError::Lost { commits: newest.saturating_sub(has).max(1) }
}

impl LostCommit {
    fn describe(commit: u64, mutations: &[Mutation]) -> Self {
        let mut described = Self { commit, steps: Vec::new(), operations: Vec::new(), obstacle: None };
        for mutation in mutations {
            match mutation {
                Mutation::AppendStep { step, .. } => described.steps.push(step.summary.clone()),
                Mutation::AppendOp(operation) => described.operations.push(operation.summary.clone()),
                _ => {}
            }
        }
        described
    }
}

/// Whether the record in `dir` has an entry of a store that had tables.
pub(super) fn has_entries(dir: &std::path::Path) -> bool {
    RecordTail::read(dir, None).is_ok_and(|tail| tail.is_some_and(|tail| tail.newest().is_some()))
}

/// The commits in the record of the store in `dir`, if it has every one of them, from the first on.
pub(super) fn all_commits(dir: &std::path::Path) -> Option<Vec<LostCommit>> {
    let entries = commit_record::read_entries(dir).ok()?.entries;
    let (first, _) = entries.first()?;
    // Entries from before a collection, which are kept for a mirror, refer to objects that may be gone.
    let is_collected = entries.iter().any(|(entry, _)| entry.epoch != first.epoch);
    if first.before != ChainLink::NONE || first.commit != 1 || is_collected {
        return None;
    }
    let describe = |entry: &CommitEntry| {
        let mutations: Vec<Mutation> = serde_json::from_slice(&entry.mutations).unwrap_or_default();
        LostCommit::describe(entry.commit, &mutations)
    };
    Some(entries.iter().map(|(entry, _)| describe(entry)).collect())
}
