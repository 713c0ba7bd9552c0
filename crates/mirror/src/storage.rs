//! Where a mirror's files are: a directory, or a bucket of an object store.
//!
//! A mirror needs only three operations, and none that changes or deletes: create a file that does not exist, read one, and
//! list a folder. So the credentials of the mirror can exclude everything else.

use crate::error::MirrorError;

pub mod bucket;
pub mod directory;
mod listing;
pub mod signature;

use self::bucket::BucketAccess;

/// What is needed to reach places other than directories.
#[derive(Clone, Debug, Default)]
pub struct StorageAccess {
    /// For buckets; `None` without credentials.
    pub bucket: Option<BucketAccess>,
}

/// What [`MirrorStorage::create`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateOutcome {
    /// The file is there, with these bytes, and durable.
    Created,
    /// A file of that name was there before; it is unchanged.
    Exists,
}

/// A file of a mirror, as listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedFile {
    /// Its name in its folder.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The files of a mirror. A name is one or two components of ASCII letters, digits, `.` and `-`.
pub trait MirrorStorage: Send + Sync {
    /// The place, for messages.
    fn place(&self) -> String;
    /// Creates a file, whole or not at all, and durable when this returns. Never changes one that exists.
    fn create(&self, name: &str, bytes: &[u8]) -> Result<CreateOutcome, MirrorError>;
    /// The bytes of a file; `None` if it does not exist.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, MirrorError>;
    /// Whether there is nothing at the place, so that a mirror can be created there.
    fn is_empty(&self) -> Result<bool, MirrorError>;
    /// The files in a folder whose names are after `after`, in order of their names. A missing folder is empty.
    fn list(&self, folder: &str, after: &str) -> Result<Vec<ListedFile>, MirrorError>;
}
