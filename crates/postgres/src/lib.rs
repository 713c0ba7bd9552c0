//! A store in PostgreSQL, for a team or for several machines.
//!
//! Objects are rows, the log is rows, and a commit is one transaction, so the store is as durable as the server. Steps
//! are numbered without gaps because an appending commit holds the row lock of the workspace; commits to different
//! workspaces do not wait for each other. What must be on this machine (caches, locks, an agent's inbox) is in a local
//! directory that belongs to one database ([`local_name`]).
//!
//! The store interface is synchronous, the client library is asynchronous: every call blocks until its answer arrives,
//! and drives the I/O of all connections meanwhile. Calls must therefore come from a thread that may block, never from
//! asynchronous code.
//!
//! # Modules
//!
//! - `address`, `tls`, `pool`, `notify`: the database and this machine's name, encryption, connections, and
//!   notifications of commits by other processes.
//! - `schema`, `tables`: numbered migrations, and the format gate.
//! - `store`: the port; each method calls the module that does the work. Start here.
//! - `commit`, `commit_attempt`, `commit_verification`, `commit_order`: one transaction with a definite outcome even if
//!   the connection is lost, and the order of commits across workspaces.
//! - `mutations`, `append`, `append_traced`: the statements of a commit, as few as possible; most commits are one call
//!   of a function in the database.
//! - `objects`, `batch_read`, `optimistic_cache`: objects as rows, several lookups in one round trip, or in none.
//! - `query`, `find`, `rows`: the engine's queries, and rows as records.
//! - `search`, `index`, `postings`, `trigrams`: full-text search, and what it is fast by.
//! - `sweep`, `text`, `error`: freeing and checking, text that PostgreSQL does not accept, and errors with a remedy.
//!
//! The tables are specified in `docs/spec/postgres.md`, the reasons are in `docs/design/0016-postgres-store.md`.

mod address;
mod append;
mod append_traced;
mod batch_read;
mod commit;
mod commit_attempt;
mod commit_order;
mod commit_verification;
mod error;
mod find;
mod index;
mod mutations;
mod notify;
mod objects;
mod plans;
mod pool;
mod postings;
mod query;
mod rows;
mod schema;
mod search;
mod step_chain;
mod store;
mod sweep;
mod tables;
mod text;
mod tls;
mod trigrams;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stepback_store::StoreError;
use stepback_store::tree_cache::Recent;

pub use address::{display_url, is_address, local_name, password_in};
pub use schema::FORMAT;

use pool::Pool;

/// How long to wait for other processes, unless the caller has less time.
const LOCK_TIMEOUT: Duration = Duration::from_secs(15);

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    pool: Arc<Pool>,
    local: PathBuf,
    /// Distinguishes this machine's workspaces from those of other machines at the same path.
    machine: String,
    /// The second half of the keys of this store's advisory locks.
    key: i32,
    recent: Recent,
    /// Notifications of commits; started when a caller first waits for one.
    listener: OnceLock<notify::Listener>,
    patience: Option<Duration>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("at", &self.pool.display_address).finish_non_exhaustive()
    }
}

/// Which store to open, and how.
#[derive(Clone)]
pub struct Access {
    /// The address of the database.
    pub url: String,
    /// A directory on this machine, used for this database alone.
    pub local: PathBuf,
    /// The password, if the address contains none.
    pub password: Option<Vec<u8>>,
    /// The name of this machine; `None` uses the id that the system has given it.
    pub machine: Option<String>,
    /// How long to wait for other processes, if less than usual.
    pub patience: Option<Duration>,
}

impl Access {
    /// Creates one with only an address and a local directory.
    pub fn new(url: &str, local: &Path) -> Self {
        Self {
            url: url.to_string(),
            local: local.to_path_buf(),
            password: None,
            machine: None,
            patience: None,
        }
    }
}

impl PostgresStore {
    /// Opens the store in the database at `url`, creating its tables if there are none. `local` is a directory on this
    /// machine, used for this database alone.
    pub fn open(url: &str, local: &Path) -> Result<Self, StoreError> {
        Self::connect(&Access::new(url, local))
    }

    /// Opens a store, creating its tables if there are none.
    pub fn connect(access: &Access) -> Result<Self, StoreError> {
        Self::open_with(access, schema::CreateTables::Yes)
    }

    /// Opens a store; fails with [`StoreError::Absent`] if the database has none of stepback's tables.
    pub fn connect_existing(access: &Access) -> Result<Self, StoreError> {
        Self::open_with(access, schema::CreateTables::No)
    }

    fn open_with(access: &Access, create: schema::CreateTables) -> Result<Self, StoreError> {
        let address = address::parse(&access.url, access.password.as_deref())?;
        let pool = Arc::new(Pool::start(address, access.patience.unwrap_or(LOCK_TIMEOUT))?);
        let identity = schema::prepare(&pool, create)?;
        address::prepare_local(&access.local, &identity.id)?;
        Ok(Self {
            pool,
            local: access.local.clone(),
            machine: access.machine.clone().unwrap_or_else(address::machine_name),
            key: identity.key,
            recent: Recent::default(),
            listener: OnceLock::new(),
            patience: access.patience,
        })
    }

    /// The address of the store for display, without the password.
    pub fn display_address(&self) -> &str {
        &self.pool.display_address
    }
}
