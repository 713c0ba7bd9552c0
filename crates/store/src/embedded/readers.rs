//! Connections for reading, beside the one that commits, so that queries and commits do not wait for each other.
//!
//! A short-lived process needs none. The first query that finds the main connection in use opens one, and from then on all
//! queries use these; so a server answers from snapshots, which SQLite's write-ahead log makes possible.

use std::ops::Deref;
use std::sync::{MutexGuard, PoisonError, TryLockError};

use rusqlite::Connection;

use super::{EmbeddedStore, schema};
use crate::error::StoreError;

/// Number of idle connections that stay open.
const MAX_IDLE_CONNECTIONS: usize = 4;

/// Maximum cache size of each connection, in kilobytes.
const CACHE: u32 = 16 << 10;

/// A connection for a query.
pub(super) enum Reader<'a> {
    /// The connection that commits.
    Main(MutexGuard<'a, Connection>),
    /// A connection that only reads. `Some` until it is returned.
    Own(&'a EmbeddedStore, Option<Connection>),
}

impl Deref for Reader<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match self {
            Self::Main(connection) => connection,
            // Only `drop` takes it out.
            Self::Own(_, connection) => connection.as_ref().unwrap_or_else(|| unreachable!("it is here")),
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if let Self::Own(store, connection) = self {
            let mut idle = store.readers.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MAX_IDLE_CONNECTIONS {
                idle.extend(connection.take());
            }
        }
    }
}

impl EmbeddedStore {
    /// A connection for a query, which sees everything that is committed.
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
        match self.open_reader() {
            Ok(connection) => Reader::Own(self, Some(connection)),
            // Opening failed, for example because too many files are open: wait for the main connection.
            Err(_) => Reader::Main(self.connection()),
        }
    }

    fn open_reader(&self) -> Result<Connection, StoreError> {
        let connection = super::connect(&self.dir.join(schema::DATABASE), self.access, self.patience)?;
        schema::configure(&connection, CACHE)?;
        Ok(connection)
    }
}
