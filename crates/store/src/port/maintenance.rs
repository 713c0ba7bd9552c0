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
    /// Names of the vault files that stored objects are borrowed from; these files must be kept.
    fn lenders(&self) -> Result<HashSet<Vec<u8>>, StoreError> {
        Ok(HashSet::new())
    }
}

/// Size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
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

/// What a sweep freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Swept {
    /// Number of objects deleted.
    pub objects: u64,
    /// Bytes by which the store shrank.
    pub bytes: u64,
}
