//! Commit notifications, so that waiting for a commit does not need polling.
//!
//! A notification only says that it is worth checking. A caller that waits for a commit reads the commit mark first, after
//! every notification, and now and then regardless, since notifications are lost with the connection. A separate thread
//! listens, because otherwise I/O is driven only while a query is in progress.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepback_store::StoreError;
use stepback_store::port::CommitMark;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio_postgres::AsyncMessage;

use crate::PostgresStore;
use crate::pool::Connector;

/// The channel on which commits are announced.
const CHANNEL: &str = "stepback";
/// The first half of the key of the lock that listeners share. A commit that gets it exclusively has no listeners to
/// notify: a listener that arrives then waits for the end of the commit, and checks.
pub(crate) const LISTENING: i32 = 0x5342_0005;
/// The delay before reconnecting.
const RECONNECT: Duration = Duration::from_secs(1);
/// How often to check while notifications arrive, and while they cannot.
const NOTIFIED_POLL_INTERVAL: Duration = Duration::from_secs(5);
const UNNOTIFIED_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The number of notifications received, and whether there is a connection to receive them on.
#[derive(Clone, Copy, Default)]
pub(crate) struct ListenState {
    count: u64,
    listening: bool,
}

/// A thread that listens until this is dropped.
pub(crate) struct Listener {
    heard: watch::Receiver<ListenState>,
    handle: Handle,
}

impl Listener {
    fn new(connector: Arc<Connector>, key: i32) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("listen to", "the database")(error);
        let (sender, heard) = watch::channel(ListenState::default());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("postgres".into())
            .spawn(move || runtime.block_on(run_listener(&connector, key.to_string(), sender)))
            .map_err(failed)?;
        Ok(Self { heard, handle })
    }
}

impl PostgresStore {
    /// Waits for a commit after `after`, by any process.
    pub(crate) fn await_commit(
        &self,
        after: CommitMark,
        patience: Duration,
    ) -> Result<CommitMark, StoreError> {
        let ears = self.listener()?;
        let mut heard = ears.heard.clone();
        let deadline = Instant::now() + patience;
        loop {
            // Before the check, so that a notification after it ends the wait.
            let listening = heard.borrow_and_update().listening;
            let mark = self.current_mark()?;
            let remaining = deadline.saturating_duration_since(Instant::now());
            if mark != after || remaining.is_zero() {
                return Ok(mark);
            }
            let pause =
                remaining.min(if listening { NOTIFIED_POLL_INTERVAL } else { UNNOTIFIED_POLL_INTERVAL });
            // Waking too late or too early is harmless: the loop checks again.
            let _ = ears.handle.block_on(async { tokio::time::timeout(pause, heard.changed()).await });
        }
    }

    /// The listener, started on first use.
    fn listener(&self) -> Result<&Listener, StoreError> {
        match self.listener.get() {
            Some(ears) => Ok(ears),
            None => {
                let ears = Listener::new(self.pool.connector.clone(), self.key)?;
                // Another thread may have started one first; an unused listener ends by itself.
                Ok(self.listener.get_or_init(|| ears))
            }
        }
    }
}

/// Listens until the store is dropped.
async fn run_listener(connector: &Connector, key: String, sender: watch::Sender<ListenState>) {
    loop {
        if let Ok((client, mut connection)) = connector.dial().await {
            let listen = format!("LISTEN {CHANNEL}; SELECT pg_advisory_lock_shared({LISTENING}, {key})");
            let asking = client.batch_execute(&listen);
            let moving = async {
                loop {
                    match poll_fn(|context| connection.poll_message(context)).await {
                        Some(Ok(AsyncMessage::Notification(note))) => {
                            if note.channel() == CHANNEL && note.payload() == key {
                                sender.send_modify(|heard| heard.count += 1);
                            }
                        }
                        Some(Ok(_)) => {}
                        Some(Err(_)) | None => return,
                    }
                }
            };
            let listening = async {
                if asking.await.is_ok() {
                    // Commits from before listening began have to be checked too.
                    sender.send_modify(|heard| {
                        *heard = ListenState { count: heard.count + 1, listening: true }
                    });
                    // The connection closes when the client is dropped.
                    sender.closed().await;
                }
            };
            tokio::select! {
                () = listening => {}
                () = moving => {}
            }
            sender.send_modify(|heard| heard.listening = false);
        }
        tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(RECONNECT) => {}
        }
    }
}

/// The statement that announces a commit. It is sent after COMMIT, so that no lock is held while the commit becomes
/// durable; for a notification alone the server does not wait for the disk.
pub(crate) fn notify_sql(key: i32) -> String {
    format!("NOTIFY {CHANNEL}, '{key}'")
}
