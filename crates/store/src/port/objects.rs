//! Objects: immutable bytes, addressed by their hash.

use std::collections::HashSet;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};

use super::BatchAnswers;
use crate::error::StoreError;

/// Reads and writes objects.
///
/// An object is written into a batch and becomes visible with the commit of that batch ([`CommitLog::commit`]), durable and
/// together with all others of the batch. It never changes. It may be freed by a collection, which starts a new epoch; a
/// batch that began in an earlier epoch may rely on freed objects, so its commit fails with [`StoreError::Collected`].
///
/// [`CommitLog::commit`]: super::CommitLog::commit
pub trait ObjectStore: ObjectSource {
    /// Whether an object is stored.
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, StoreError>;
    /// The number of garbage collections so far: the current epoch. Objects seen in one epoch may be gone in the next.
    fn gc_generation(&self) -> Result<u64, StoreError>;
    /// Starts writing objects.
    fn begin(&self) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        self.begin_since(self.gc_generation()?)
    }
    /// A number that changes when a cache of hashes must look up each of them again: after a collection, and when objects were
    /// found damaged.
    fn cache_generation(&self) -> Result<u64, StoreError> {
        self.gc_generation()
    }
    /// Objects that reads have found missing or damaged. A batch that is given one of them stores it again.
    fn damaged_objects(&self) -> HashSet<Hash> {
        HashSet::new()
    }
    /// Starts writing objects, for a caller whose knowledge of what is stored dates from `epoch`.
    fn begin_since(&self, epoch: u64) -> Result<Box<dyn ObjectBatch + '_>, StoreError>;
    /// Starts writing objects, for a caller that relies on these answers. The commit fails with [`StoreError::Moved`] or
    /// [`StoreError::Exists`] if they no longer hold, where the store compares them.
    fn begin_on(&self, answers: &BatchAnswers) -> Result<Box<dyn ObjectBatch + '_>, StoreError> {
        self.begin_since(answers.epoch)
    }
    /// Calls `visit` for every object. `visit` must not call the store.
    fn for_each_object(&self, visit: &mut dyn FnMut(ObjectInfo)) -> Result<(), StoreError>;
    /// Calls `visit` for every object, with the bytes that it occupies in the store; a store that does not know them passes
    /// the size before compression. `visit` must not call the store.
    fn for_each_stored_object(&self, visit: &mut dyn FnMut(ObjectInfo, u64)) -> Result<(), StoreError> {
        self.for_each_object(&mut |object| visit(object, object.raw_len))
    }
}

/// Objects being written, not yet visible to others. Usable from several threads.
///
/// Dropping a batch without committing it discards what it wrote.
pub trait ObjectBatch: ObjectSink + Sync + Send {
    /// Whether an object is already stored or in this batch.
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, ObjectError>;
    /// Names git packs in the store's vault whose blobs need not be stored again. A store without a vault ignores the call.
    fn reuse_packs(&self, _packs: &[Vec<u8>]) {}
    /// Completes the batch, so that a commit can make it durable and visible.
    fn finish(self: Box<Self>) -> Result<FinishedBatch, StoreError>;
}

/// A complete batch, waiting for the commit that makes its objects visible.
pub struct FinishedBatch {
    /// The collection epoch in which the batch was started; a commit in a later epoch fails with [`StoreError::Collected`].
    pub epoch: u64,
    /// The backend's own record of what was written.
    pub payload: Box<dyn std::any::Any + Send>,
}

impl std::fmt::Debug for FinishedBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FinishedBatch").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// An object as listed for verification and collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Hash of the object.
    pub hash: Hash,
    /// Size before compression, in bytes.
    pub raw_len: u64,
    /// The object that its stored form is a delta against, if any. The base must be kept as long as this object is needed.
    pub base: Option<Hash>,
}
