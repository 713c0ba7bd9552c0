//! The connection pool. The thread that waits for an answer drives the I/O itself.
//!
//! A separate I/O thread would have to be woken for every query, and would have to wake the caller for every answer, which
//! takes as long as the server needs for most queries. Where several threads wait, one of them drives all connections.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stepback_store::StoreError;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, Row, SimpleQueryMessage, Socket, Statement};

use crate::address::Address;
use crate::error;
use crate::tls::{Protected, Tls};

/// Maximum number of connections per process, besides those of large batches.
const MAX_CONNECTIONS: usize = 8;
/// The oldest supported server version. Older ones cannot report the status of a transaction by its number.
const MIN_SERVER_VERSION: u32 = 130_000;
/// Delays before each retry after a connection was lost: long enough in total for a server that restarts.
const RETRY_DELAYS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_millis(1000),
    Duration::from_millis(2000),
];

/// Sets up a connection, and asks for the server's version. A stronger `synchronous_commit` that the server's administrator
/// configured is kept; a weaker one is raised. JIT compilation is off because it takes longer than any of our statements.
const SESSION_SETUP_SQL: &str = "SELECT set_config('synchronous_commit', 'on', false)
      WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');
    SET idle_in_transaction_session_timeout = '60s'; SET client_min_messages = warning; SET jit = off;
    SELECT current_setting('server_version_num'), pg_backend_pid()";

/// How long to wait until the server has noticed that a connection was closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// A connection that was idle for longer than this is checked before use.
const IDLE_CHECK_AFTER: Duration = Duration::from_secs(1);

/// One connection.
pub(crate) struct Connection {
    pub client: Client,
    /// Process id of the server backend that serves it.
    pub backend: i32,
    /// Whether the last failed commit left no transaction open on this connection.
    pub is_clean: bool,
    statements: HashMap<String, Statement>,
    /// The task that drives the connection's I/O while a thread waits for an answer.
    io_task: JoinHandle<()>,
}

impl Connection {
    /// Returns the prepared statement for `sql`, preparing it on first use.
    pub async fn prepared(&mut self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql.to_string(), statement.clone());
        Ok(statement)
    }

    /// The rows that `sql` returns.
    pub async fn rows(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        let statement = self.prepared(sql).await?;
        self.client.query(&statement, values).await
    }

    /// The row that `sql` returns, if there is one.
    pub async fn row(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>, Error> {
        let statement = self.prepared(sql).await?;
        self.client.query_opt(&statement, values).await
    }
}

/// How to reach the server.
pub(crate) struct Connector {
    config: Config,
    tls: Tls,
}

impl Connector {
    /// Opens a raw connection, and returns it with the future that drives its I/O.
    pub async fn dial(
        &self,
    ) -> Result<(Client, tokio_postgres::Connection<Socket, Protected<Socket>>), Error> {
        self.config.connect(self.tls.clone()).await
    }
}

/// The connections of one store.
pub(crate) struct Pool {
    pub display_address: String,
    pub connector: Arc<Connector>,
    /// `Some` until the pool is dropped.
    runtime: Option<Runtime>,
    patience: Duration,
    state: Mutex<PoolState>,
    returned: Condvar,
}

#[derive(Default)]
struct PoolState {
    /// Idle connections, with the time of their last use.
    connections: Vec<(Connection, Instant)>,
    in_use: usize,
}

/// A connection on loan; it returns to the pool when this is dropped.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    connection: Option<Connection>,
    counted: bool,
}

impl Pool {
    /// Creates a pool without connecting yet.
    pub fn start(address: Address, patience: Duration) -> Result<Self, StoreError> {
        let tls = Tls::new(&address.tls).map_err(|error| {
            let remedy = "see docs/guide/teams.md for sslmode and sslrootcert";
            error::server_error(&address.display, "protect connections to", error, remedy)
        })?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(StoreError::io("prepare to connect to", &address.display))?;
        Ok(Self {
            display_address: address.display,
            connector: Arc::new(Connector { config: address.config, tls }),
            runtime: Some(runtime),
            patience,
            state: Mutex::default(),
            returned: Condvar::new(),
        })
    }

    /// Blocks until `answer` is ready.
    pub fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        self.runtime().block_on(answer)
    }

    fn runtime(&self) -> &Runtime {
        // Only `drop` takes it out.
        self.runtime.as_ref().unwrap_or_else(|| unreachable!("it is here"))
    }

    /// How long to wait for other processes.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Converts a server error that occurred while doing `what`.
    pub fn failed(&self, what: &str, error: &Error) -> StoreError {
        error::to_store_error(&self.display_address, what, error)
    }

    /// Leases a connection for exclusive use.
    pub fn lease(self: &Arc<Self>) -> Result<Lease, StoreError> {
        let mut idle = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + self.patience;
        while idle.in_use >= MAX_CONNECTIONS {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(StoreError::Locked);
            }
            idle = self.returned.wait_timeout(idle, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
        idle.in_use += 1;
        drop(idle);
        let mut lease = Lease { pool: self.clone(), connection: None, counted: true };
        while let Some((connection, used)) = self.take_idle() {
            if used.elapsed() > IDLE_CHECK_AFTER {
                // That the server closed it is noticed only while the runtime runs.
                self.wait(async { tokio::time::sleep(Duration::from_millis(1)).await });
            }
            if !connection.client.is_closed() {
                lease.connection = Some(connection);
                return Ok(lease);
            }
        }
        lease.connection = Some(self.wait(self.connect())?);
        Ok(lease)
    }

    fn take_idle(&self) -> Option<(Connection, Instant)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).connections.pop()
    }

    /// Leases a new connection for a batch that is too large for memory; it does not count towards the shared ones.
    pub fn lease_apart(self: &Arc<Self>) -> Result<Lease, StoreError> {
        let connection = self.wait(self.connect())?;
        Ok(Lease { pool: self.clone(), connection: Some(connection), counted: false })
    }

    /// Runs a query; if the connection is lost, retries it on a new one.
    pub fn ask<T>(
        self: &Arc<Self>,
        question: impl AsyncFn(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        self.run_with_retry(|lease| {
            let connection = lease.connection()?;
            self.wait(question(connection)).map_err(|error| {
                // Discarding it also ends a transaction that may be open.
                lease.discard();
                let is_lost = error::is_lost(&error);
                let failure = self.failed("read from", &error);
                if is_lost { AttemptError::Lost(failure) } else { AttemptError::For(failure) }
            })
        })
    }

    /// Runs `work` on a connection, and retries on a new one whenever the connection is lost before anything was decided.
    pub fn run_with_retry<T>(
        self: &Arc<Self>,
        mut work: impl FnMut(&mut Lease) -> Result<T, AttemptError>,
    ) -> Result<T, StoreError> {
        let mut last = None;
        let deadline = Instant::now() + self.patience;
        for pause in RETRY_DELAYS {
            if last.is_some() && Instant::now() + pause > deadline {
                break;
            }
            std::thread::sleep(pause);
            let mut lease = match self.lease() {
                Ok(lease) => lease,
                // Retrying pays only for a server that was reachable a moment ago.
                Err(error) if last.is_some() => {
                    last = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            match work(&mut lease) {
                Ok(result) => return Ok(result),
                Err(AttemptError::For(error)) => return Err(error),
                Err(AttemptError::Lost(error)) => {
                    lease.discard();
                    // The other connections were most likely lost too.
                    self.state.lock().unwrap_or_else(PoisonError::into_inner).connections.clear();
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or(StoreError::Locked))
    }

    /// Opens and sets up a new connection.
    pub async fn connect(&self) -> Result<Connection, StoreError> {
        let failed = |error: Error| self.failed("connect to", &error);
        let (client, connection) = self.connector.dial().await.map_err(failed)?;
        let moving = self.runtime().spawn(async move {
            // The caller that waits for an answer gets the error.
            let _ = connection.await;
        });
        let set_up = format!("SET lock_timeout = {}; {SESSION_SETUP_SQL}", self.patience.as_millis());
        let messages = client.simple_query(&set_up).await.map_err(failed)?;
        let server_message = messages.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((row.get(0)?.parse::<u32>().ok()?, row.get(1)?.parse::<i32>().ok()?))
            }
            _ => None,
        });
        match server_message {
            Some((version, _)) if version < MIN_SERVER_VERSION => Err(error::server_error(
                &self.display_address,
                "use",
                format!("the server is PostgreSQL {}, but 13 or later is required", version / 10_000),
                "use a newer server",
            )),
            _ => {
                let backend = server_message.map_or(0, |(_, backend)| backend);
                Ok(Connection {
                    client,
                    backend,
                    is_clean: true,
                    statements: HashMap::new(),
                    io_task: moving,
                })
            }
        }
    }

    /// Closes a connection, and with it any open transaction.
    fn close(&self, connection: Connection) {
        let Connection { client, io_task: moving, .. } = connection;
        drop(client);
        self.wait(async {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, moving).await;
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Do not block here: the drop may run where blocking is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Why `work` did not succeed.
pub(crate) enum AttemptError {
    /// An error that a retry would not fix.
    For(StoreError),
    /// The connection was lost before anything was decided.
    Lost(StoreError),
}

impl From<StoreError> for AttemptError {
    fn from(error: StoreError) -> Self {
        Self::For(error)
    }
}

impl Lease {
    /// The leased connection.
    pub fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        self.connection.as_mut().ok_or(StoreError::Locked)
    }

    /// Closes the connection instead of returning it to the pool.
    pub fn discard(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.close(connection);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.counted {
            return;
        }
        let mut idle = self.pool.state.lock().unwrap_or_else(PoisonError::into_inner);
        idle.in_use -= 1;
        if let Some(connection) =
            self.connection.take().filter(|open_connection| !open_connection.client.is_closed())
        {
            idle.connections.push((connection, Instant::now()));
        }
        drop(idle);
        self.pool.returned.notify_one();
    }
}
