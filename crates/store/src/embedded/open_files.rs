//! Whether the files that this process has open are still the files of the store.
//!
//! After `rm -rf` of the store, or after its directory was replaced, SQLite goes on writing to files that have no name any
//! more. Every commit compares the files with those that were there when the store was opened.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::schema;
use crate::error::StoreError;

/// Device and inode of a file; `None` if it did not exist.
type FileId = Option<(u64, u64)>;

/// The database's files, as they were when the store was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OpenFiles([FileId; 3]);

impl OpenFiles {
    /// The files that are in `dir` now. SQLite creates all of them when the database is first read, and keeps them as long
    /// as any process has it open.
    pub fn find(dir: &Path) -> Self {
        Self(
            [schema::DATABASE, schema::LOG, schema::SHARED].map(|name| {
                fs::metadata(dir.join(name)).ok().map(|metadata| (metadata.dev(), metadata.ino()))
            }),
        )
    }

    /// Fails unless the files in `dir` are still the same.
    pub fn check(&self, dir: &Path) -> Result<(), StoreError> {
        if Self::find(dir) == *self {
            return Ok(());
        }
        Err(StoreError::Replaced { path: dir.to_path_buf() })
    }
}
