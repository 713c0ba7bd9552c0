//! Connections for reading, beside the one that commits: who asks something does not wait for a commit, nor a commit for whom.
//!
//! A process that comes and goes needs none. The first question that finds the main connection taken opens one, and from then
//! on all questions go to these; so a server's answers come from snapshots, as SQLite's write-ahead log makes possible.

use std::ops::Deref;
use std::sync::{MutexGuard, PoisonError, TryLockError};

use rusqlite::Connection;

use super::{EmbeddedStore, schema};
use crate::error::StoreError;

/// So many stay open when nobody asks anything.
const KEPT: usize = 4;

/// How many kilobytes of the database each keeps in memory, at most.
const CACHE: u32 = 16 << 10;

/// A connection to ask something of.
pub(super) enum Reader<'a> {
    /// The one that commits.
    Main(MutexGuard<'a, Connection>),
    /// One that only reads. Always there until it is given back.
    Own(&'a EmbeddedStore, Option<Connection>),
}

impl Deref for Reader<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match self {
            Self::Main(connection) => connection,
            // Taken out by `drop` alone.
            Self::Own(_, connection) => connection.as_ref().unwrap_or_else(|| unreachable!("it is here")),
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if let Self::Own(store, connection) = self {
            let mut idle = store.readers.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < KEPT {
                idle.extend(connection.take());
            }
        }
    }
}

impl EmbeddedStore {
    /// A connection to ask something of, which sees everything that is committed.
    pub(super) fn reader(&self) -> Reader<'_> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if idle.is_some() {
            return Reader::Own(self, idle);
        }
        match self.connection.try_lock() {
            Ok(main) => return Reader::Main(main),
            Err(TryLockError::Poisoned(main)) => return Reader::Main(main.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        match self.another() {
            Ok(connection) => Reader::Own(self, Some(connection)),
            // Too many files are open, or the like: then it has to wait.
            Err(_) => Reader::Main(self.connection()),
        }
    }

    fn another(&self) -> Result<Connection, StoreError> {
        let connection = super::connect(&self.dir.join(schema::DATABASE), self.patience)?;
        schema::configure(&connection, CACHE)?;
        Ok(connection)
    }
}
