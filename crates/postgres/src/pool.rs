//! Connections, whose bytes are moved by whoever waits for an answer.
//!
//! A thread of their own would have to be woken for every question, and would wake the asker for every answer: as long as the
//! server takes for most of them. Where several threads wait, one of them moves the bytes of all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// How many connections one process uses at most, besides those of large batches.
const MOST: usize = 8;
/// Servers before this version lack what we rely on: the fate of a transaction by its number.
const OLDEST: u32 = 130_000;
/// How long to wait before each new attempt after a connection was lost: long enough for a server that restarts.
const AGAIN: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_millis(1000),
    Duration::from_millis(2000),
];

/// Sets up a connection, and asks which version is at the other end. Whoever set up the server to wait for more than its own
/// disk keeps that; nobody gets less. Making machine code of a statement takes longer than any of ours.
const SET_UP: &str = "SELECT set_config('synchronous_commit', 'on', false)
      WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');
    SET idle_in_transaction_session_timeout = '60s'; SET client_min_messages = warning; SET jit = off;
    SELECT current_setting('server_version_num'), pg_backend_pid()";

/// How long to wait until the server knows that a connection is over.
const GOODBYE: Duration = Duration::from_millis(500);
/// Whether a connection that nobody used for longer is still there is looked at first.
const RESTED: Duration = Duration::from_secs(1);

/// One connection.
pub(crate) struct Connection {
    pub client: Client,
    /// The process that serves it.
    pub backend: i32,
    /// Whether a commit that failed here left nothing behind.
    pub is_clean: bool,
    statements: HashMap<String, Statement>,
    /// What moves its bytes, whenever somebody waits.
    moving: JoinHandle<()>,
}

impl Connection {
    /// The statement `sql`, prepared once.
    pub async fn prepared(&mut self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql.to_string(), statement.clone());
        Ok(statement)
    }

    /// The rows that `sql` finds.
    pub async fn rows(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        let statement = self.prepared(sql).await?;
        self.client.query(&statement, values).await
    }

    /// The row that `sql` finds, if it finds one.
    pub async fn row(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>, Error> {
        let statement = self.prepared(sql).await?;
        self.client.query_opt(&statement, values).await
    }
}

/// How to get at the server.
pub(crate) struct Connector {
    config: Config,
    tls: Tls,
}

impl Connector {
    /// A new connection as it is, with whoever moves its bytes.
    pub async fn dial(
        &self,
    ) -> Result<(Client, tokio_postgres::Connection<Socket, Protected<Socket>>), Error> {
        self.config.connect(self.tls.clone()).await
    }
}

/// The connections of one store.
pub(crate) struct Pool {
    pub shown: String,
    pub way: Arc<Connector>,
    /// Always there until the pool is dropped.
    runtime: Option<Runtime>,
    patience: Duration,
    state: Mutex<Idle>,
    returned: Condvar,
    dialed: AtomicU64,
}

#[derive(Default)]
struct Idle {
    /// With when each was used last.
    connections: Vec<(Connection, Instant)>,
    in_use: usize,
}

/// A connection for the time being; goes back when it is dropped.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    connection: Option<Connection>,
    counted: bool,
}

impl Pool {
    /// Nothing is connected yet.
    pub fn start(address: Address, patience: Duration) -> Result<Self, StoreError> {
        let tls = Tls::new(&address.tls).map_err(|why| {
            let remedy = "see docs/guide/teams.md for sslmode and sslrootcert";
            error::server(&address.shown, "protect connections to", why, remedy)
        })?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(StoreError::io("prepare to connect to", &address.shown))?;
        Ok(Self {
            shown: address.shown,
            way: Arc::new(Connector { config: address.config, tls }),
            runtime: Some(runtime),
            patience,
            state: Mutex::default(),
            returned: Condvar::new(),
            dialed: AtomicU64::new(0),
        })
    }

    /// How many connections there were so far. If it is another one, the server may be another one too, or have lost something.
    pub fn dialed(&self) -> u64 {
        self.dialed.load(Ordering::Relaxed)
    }

    /// Waits for an answer.
    pub fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        self.runtime().block_on(answer)
    }

    fn runtime(&self) -> &Runtime {
        // Taken out by `drop` alone.
        self.runtime.as_ref().unwrap_or_else(|| unreachable!("it is here"))
    }

    /// How long to wait for others.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// An error while doing `what`.
    pub fn failed(&self, what: &str, error: &Error) -> StoreError {
        error::translate(&self.shown, what, error)
    }

    /// A connection that nobody else uses.
    pub fn lease(self: &Arc<Self>) -> Result<Lease, StoreError> {
        let mut idle = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + self.patience;
        while idle.in_use >= MOST {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StoreError::Locked);
            }
            idle = self.returned.wait_timeout(idle, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        idle.in_use += 1;
        drop(idle);
        let mut lease = Lease { pool: self.clone(), connection: None, counted: true };
        while let Some((connection, used)) = self.take_idle() {
            if used.elapsed() > RESTED {
                // That the server closed it is noticed only while somebody waits.
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

    /// A connection of its own for a batch that is too large for memory; not one of the few that everybody shares.
    pub fn lease_apart(self: &Arc<Self>) -> Result<Lease, StoreError> {
        let connection = self.wait(self.connect())?;
        Ok(Lease { pool: self.clone(), connection: Some(connection), counted: false })
    }

    /// Asks a question; when the connection is lost, on a new one.
    pub fn ask<T>(
        self: &Arc<Self>,
        question: impl AsyncFn(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        self.persistently(|lease| {
            let connection = lease.connection()?;
            self.wait(question(connection)).map_err(|error| {
                // With it goes a transaction that may be open.
                lease.discard();
                let lost = error::is_lost(&error);
                let failure = self.failed("read from", &error);
                if lost { Failed::Lost(failure) } else { Failed::For(failure) }
            })
        })
    }

    /// Does `work` on a connection, and again on a new one whenever that one is lost before anything was decided.
    pub fn persistently<T>(
        self: &Arc<Self>,
        mut work: impl FnMut(&mut Lease) -> Result<T, Failed>,
    ) -> Result<T, StoreError> {
        let mut last = None;
        let until = Instant::now() + self.patience;
        for pause in AGAIN {
            if last.is_some() && Instant::now() + pause > until {
                break;
            }
            std::thread::sleep(pause);
            let mut lease = match self.lease() {
                Ok(lease) => lease,
                // Only a server that was there a moment ago is worth waiting for.
                Err(error) if last.is_some() => {
                    last = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            match work(&mut lease) {
                Ok(done) => return Ok(done),
                Err(Failed::For(error)) => return Err(error),
                Err(Failed::Lost(error)) => {
                    lease.discard();
                    // The others were most likely lost with it.
                    self.state.lock().unwrap_or_else(PoisonError::into_inner).connections.clear();
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or(StoreError::Locked))
    }

    /// A new connection, set up.
    pub async fn connect(&self) -> Result<Connection, StoreError> {
        let failed = |error: Error| self.failed("connect to", &error);
        let (client, connection) = self.way.dial().await.map_err(failed)?;
        let moving = self.runtime().spawn(async move {
            // Whoever waits for an answer is told what went wrong.
            let _ = connection.await;
        });
        let set_up = format!("SET lock_timeout = {}; {SET_UP}", self.patience.as_millis());
        let messages = client.simple_query(&set_up).await.map_err(failed)?;
        let said = messages.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((row.get(0)?.parse::<u32>().ok()?, row.get(1)?.parse::<i32>().ok()?))
            }
            _ => None,
        });
        match said {
            Some((version, _)) if version < OLDEST => Err(error::server(
                &self.shown,
                "use",
                format!("the server is PostgreSQL {}, and 13 is the oldest that works", version / 10_000),
                "use a newer server",
            )),
            _ => {
                let backend = said.map_or(0, |(_, backend)| backend);
                self.dialed.fetch_add(1, Ordering::Relaxed);
                Ok(Connection { client, backend, is_clean: true, statements: HashMap::new(), moving })
            }
        }
    }

    /// Ends a connection, and with it whatever it has begun and not ended.
    fn close(&self, connection: Connection) {
        let Connection { client, moving, .. } = connection;
        drop(client);
        self.wait(async {
            let _ = tokio::time::timeout(GOODBYE, moving).await;
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Without waiting: it may happen where nobody may wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Why something was not done.
pub(crate) enum Failed {
    /// For this reason; trying again would not help.
    For(StoreError),
    /// The connection was lost first.
    Lost(StoreError),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::For(error)
    }
}

impl Lease {
    /// The connection.
    pub fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        self.connection.as_mut().ok_or(StoreError::Locked)
    }

    /// Closes the connection instead of giving it back.
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
        if let Some(connection) = self.connection.take().filter(|known| !known.client.is_closed()) {
            idle.connections.push((connection, Instant::now()));
        }
        drop(idle);
        self.pool.returned.notify_one();
    }
}
