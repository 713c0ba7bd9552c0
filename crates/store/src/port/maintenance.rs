//! Freeing space, and checking what is stored.

use std::collections::HashSet;

use stepback_model::hash::Hash;

use super::{CommitMark, Mutation};
use crate::error::StoreError;

/// Collects garbage, counts, and checks.
///
/// The caller of [`Self::sweep`] decides which objects are live. The store guarantees that no commit relies on an object that
/// is being freed.
pub trait MaintenanceStore {
    /// Deletes every object that is neither in `live` nor the base of one that stays. Fails with [`StoreError::Grew`] if
    /// something was committed since `mark`.
    fn sweep(&self, live: &HashSet<Hash>, mark: CommitMark) -> Result<Swept, StoreError>;
    /// Computes the size that the store will have after a commit of `mutations` and a sweep that keeps `live`, and changes
    /// nothing. The files of the vault are not included: the store does not know which of them are needed.
    fn usage_after(&self, mutations: &[Mutation], live: &HashSet<Hash>) -> Result<StoreUsage, StoreError>;
    /// The size of the store.
    fn usage(&self) -> Result<StoreUsage, StoreError>;
    /// Checks the backend's own structures (not object contents) and returns a description of each problem.
    fn check(&self) -> Result<Vec<String>, StoreError>;
    /// The format of the store, for a backend that has one; another program may have raised it since the store was opened.
    fn format(&self) -> Result<Option<StoreFormat>, StoreError> {
        Ok(None)
    }
    /// Fails if a commit would be refused whatever it contains: because the store was deleted or replaced while this process
    /// had it open, because it lacks acknowledged commits, or because it cannot be written to. Writes nothing.
    fn check_writable(&self) -> Result<(), StoreError> {
        Ok(())
    }
    /// Whether the log lacks commits that were acknowledged; cheap enough for every command.
    fn has_lost_commits(&self) -> Result<bool, StoreError> {
        Ok(false)
    }
    /// The acknowledged commits that the log lacks, oldest first, and which of them can be brought back. Changes nothing.
    fn lost_commits(&self) -> Result<Vec<LostCommit>, StoreError> {
        Ok(Vec::new())
    }
    /// Brings back the commits of [`Self::lost_commits`], and gives up those that cannot be: they are not reported again.
    fn restore_lost_commits(&self) -> Result<Vec<LostCommit>, StoreError> {
        Ok(Vec::new())
    }
    /// Names of the vault files that stored objects are borrowed from; these files must be kept.
    fn lenders(&self) -> Result<HashSet<Vec<u8>>, StoreError> {
        Ok(HashSet::new())
    }
}

/// Size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoreUsage {
    /// Number of objects.
    pub objects: u64,
    /// Size of all objects before compression, in bytes.
    pub raw_bytes: u64,
    /// Size of all objects as stored, in bytes.
    pub stored_bytes: u64,
    /// Bytes the store occupies in all, including its log and space not yet reclaimed.
    pub total_bytes: u64,
}

/// The format of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFormat {
    /// The format of what is stored.
    pub found: u32,
    /// The newest format that this program reads and writes.
    pub known: u32,
}

/// What a sweep freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Swept {
    /// Number of objects deleted.
    pub objects: u64,
    /// Bytes by which the store shrank.
    pub bytes: u64,
}

/// An acknowledged commit that the log lacks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LostCommit {
    /// Its number in the sequence of commits.
    pub commit: u64,
    /// Summaries of the steps that it appended.
    pub steps: Vec<String>,
    /// Summaries of the operations that it appended.
    pub operations: Vec<String>,
    /// Why it cannot be brought back; `None` if it can.
    pub obstacle: Option<String>,
}

impl std::fmt::Display for LostCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "commit {} is missing from the log", self.commit)?;
        let parts: Vec<String> =
            self.steps.iter().chain(&self.operations).filter(|text| !text.is_empty()).cloned().collect();
        if !parts.is_empty() {
            write!(f, " ({})", parts.join("; "))?;
        }
        match &self.obstacle {
            None => f.write_str("; it can be brought back"),
            Some(obstacle) => write!(f, "; it cannot be brought back: {obstacle}"),
        }
    }
}
