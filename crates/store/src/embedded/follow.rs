//! Reads what was committed since a known commit, and the whole log at once: what a mirror follows.
//!
//! The commit record has every recent commit, linked to the one before. A reader that knows a link finds all commits after
//! it by walking back from the newest link in the database; entries that are not on this way, whoever wrote them, are
//! ignored. If the way does not lead to the known link, the reader learns why, and reads the whole log instead.

use std::collections::HashMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use stepback_model::ids::StepId;

use super::commit_record::{self, ChainLink, CommitEntry};
use super::lost_history::CommitState;
use super::{EmbeddedStore, find, log};
use crate::copy::{appended, hidden};
use crate::error::StoreError;
use crate::pack::RecordHeader;
use crate::port::{Mutation, ObjectInfo, StepQuery};

/// Number of steps that [`EmbeddedStore::read_log`] passes on at a time.
const STEPS: u64 = 500;
/// A commit is in the database before it is in the record; a reader tries so often to find it there.
const ATTEMPTS: u32 = 40;
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// A commit as the record has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FollowedCommit {
    /// The commit.
    pub link: ChainLink,
    /// The one before it.
    pub before: ChainLink,
    /// The changes of the log: a JSON array of [`Mutation`].
    pub mutations: Vec<u8>,
    /// The objects that it stored. A collection may have freed some since.
    pub objects: Vec<ObjectInfo>,
}

/// Why the commits after a link cannot be listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkFailure {
    /// The newest commit of the store has a lower number: the store is older than the link.
    WentBack {
        /// The newest commit of the store.
        newest: ChainLink,
    },
    /// The store has another commit with this number, or none: its history is another one.
    OtherHistory,
    /// The record does not reach back to the link, so it is not known whether the store has the commit.
    OutOfReach,
}

/// The answer of [`EmbeddedStore::commits_after`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommitsAfter {
    /// All of them, oldest first.
    Linked(Vec<FollowedCommit>),
    /// They cannot be listed.
    Unlinked(LinkFailure),
}

impl EmbeddedStore {
    /// The newest commit; [`ChainLink::NONE`] before the first.
    pub fn newest_link(&self) -> Result<ChainLink, StoreError> {
        Ok(CommitState::read(&self.reader())?.chain.unwrap_or(ChainLink::NONE))
    }

    /// The commits after the one that `known` names, with at most `most` of them.
    pub fn commits_after(&self, known: ChainLink, most: usize) -> Result<CommitsAfter, StoreError> {
        for attempt in 1.. {
            match self.walk_back_to(known)? {
                // Another process may be between its commit and its entry, or have just begun a new record.
                Err(LinkFailure::OutOfReach) if attempt < ATTEMPTS => thread::sleep(RETRY_INTERVAL),
                Err(failure) => return Ok(CommitsAfter::Unlinked(failure)),
                Ok(entries) => {
                    let commits =
                        entries.into_iter().take(most).map(|(link, entry)| self.followed(link, entry));
                    return match commits.collect::<Result<_, _>>() {
                        Ok(commits) => Ok(CommitsAfter::Linked(commits)),
                        // A collection since has removed the pack, and moved what is alive in it.
                        Err(StoreError::Corrupt { .. }) => {
                            Ok(CommitsAfter::Unlinked(LinkFailure::OutOfReach))
                        }
                        Err(error) => Err(error),
                    };
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    /// The entries after `known`, oldest first.
    fn walk_back_to(
        &self,
        known: ChainLink,
    ) -> Result<Result<Vec<(ChainLink, CommitEntry)>, LinkFailure>, StoreError> {
        let newest = self.newest_link()?;
        if newest == known {
            return Ok(Ok(Vec::new()));
        }
        if newest.commit < known.commit {
            return Ok(Err(LinkFailure::WentBack { newest }));
        }
        let read = commit_record::read_entries(&self.dir)
            .map_err(StoreError::io("read", self.dir.join(commit_record::RECORD)))?;
        let mut entries: HashMap<ChainLink, CommitEntry> =
            read.entries.into_iter().map(|(entry, link)| (link, entry)).collect();
        let mut found = Vec::new();
        let mut at = newest;
        while at != known {
            if at.commit <= known.commit {
                return Ok(Err(LinkFailure::OtherHistory));
            }
            let Some(entry) = entries.remove(&at) else { return Ok(Err(LinkFailure::OutOfReach)) };
            let before = entry.before;
            found.push((at, entry));
            at = before;
        }
        found.reverse();
        Ok(Ok(found))
    }

    fn followed(&self, link: ChainLink, entry: CommitEntry) -> Result<FollowedCommit, StoreError> {
        let mut objects = Vec::new();
        for range in &entry.ranges {
            let mut located = Vec::new();
            self.locate_records(*range, &mut located)?;
            objects.extend(located.into_iter().map(|(hash, location)| ObjectInfo {
                kind: location.kind,
                hash,
                raw_len: u64::from(location.raw_len),
                base: location.base,
            }));
        }
        for record in &entry.records {
            let (header, _) = RecordHeader::decode(record).map_err(|what| StoreError::Corrupt { what })?;
            let raw_len = u64::from(header.raw_len);
            objects.push(ObjectInfo { kind: header.kind, hash: header.hash, raw_len, base: header.base });
        }
        Ok(FollowedCommit { link, before: entry.before, mutations: entry.mutations, objects })
    }

    /// Reads the whole log as it is at one moment, as mutations that make it in an empty store, and returns the newest
    /// commit of that moment. Steps have their numbers; every workspace comes before its sessions, and these before their
    /// steps. As long as `visit` runs, the write-ahead log cannot be begun anew.
    pub fn read_log<E: From<StoreError>>(
        &self,
        visit: &mut dyn FnMut(Vec<Mutation>) -> Result<(), E>,
    ) -> Result<ChainLink, E> {
        let db = self.reader();
        let _snapshot = db.unchecked_transaction().map_err(StoreError::from)?;
        let newest = CommitState::read(&db)?.chain.unwrap_or(ChainLink::NONE);
        for workspace in log::workspaces(&db)? {
            let id = workspace.id;
            let mut mutations = vec![Mutation::AddWorkspace(workspace)];
            mutations.extend(log::sessions(&db, id)?.into_iter().map(Mutation::AddSession));
            visit(mutations)?;
            let mut after = 0;
            loop {
                let query = StepQuery {
                    after: Some(after),
                    oldest_first: true,
                    limit: Some(STEPS),
                    ..StepQuery::default()
                };
                let steps = find::steps(&db, id, &query)?;
                let Some(last) = steps.last() else { break };
                after = last.step.number;
                let mut mutations: Vec<Mutation> = steps.iter().map(appended).collect();
                mutations.extend(steps.iter().flat_map(hidden));
                visit(mutations)?;
            }
            let mut operations = log::operations(&db, id, false)?;
            operations.reverse();
            visit(operations.into_iter().map(Mutation::AppendOp).collect())?;
        }
        let set = |(name, value): (String, StepId)| Mutation::SetRef { name, expected: None, value };
        visit(log::references(&db, "")?.into_iter().map(set).collect())?;
        Ok(newest)
    }

    /// Says up to which commit every mirror has this store: the commit record keeps what is newer. `None`: no mirror.
    pub fn note_mirrored(dir: &Path, commit: Option<u64>) -> Result<(), StoreError> {
        commit_record::note_mirrored(dir, commit).map_err(StoreError::io("write to", dir))
    }
}
