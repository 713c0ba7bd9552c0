//! Being told that somebody committed, without asking again and again.
//!
//! An announcement says only that it is worth to look. Who waits for a commit looks at the mark first, after every
//! announcement, and now and then anyway: announcements are lost with the connection. A thread of its own listens, since
//! nobody else moves bytes while nobody asks anything.

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

/// The channel that commits are announced on.
const CHANNEL: &str = "stepback";
/// The first half of the key of the lock that whoever listens shares. A commit that gets it for itself has nobody to tell: who
/// comes then waits for the commit's end, and looks.
pub(crate) const LISTENING: i32 = 0x5342_0005;
/// How long to wait before connecting again.
const RECONNECT: Duration = Duration::from_secs(1);
/// How often to look while announcements can be heard, and while they cannot.
const WITH_EARS: Duration = Duration::from_secs(5);
const WITHOUT: Duration = Duration::from_millis(200);

/// What is heard: how many announcements, and whether there is a connection to hear them on.
#[derive(Clone, Copy, Default)]
pub(crate) struct Heard {
    count: u64,
    listening: bool,
}

/// A thread that listens, until this is dropped.
pub(crate) struct Listener {
    heard: watch::Receiver<Heard>,
    handle: Handle,
}

impl Listener {
    fn new(way: Arc<Connector>, key: i32) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("listen to", "the database")(error);
        let (sender, heard) = watch::channel(Heard::default());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("postgres".into())
            .spawn(move || runtime.block_on(listen(&way, key.to_string(), sender)))
            .map_err(failed)?;
        Ok(Self { heard, handle })
    }
}

impl PostgresStore {
    /// Waits for a commit after `after`, of anybody.
    pub(crate) fn await_commit(
        &self,
        after: CommitMark,
        patience: Duration,
    ) -> Result<CommitMark, StoreError> {
        let ears = self.ears()?;
        let mut heard = ears.heard.clone();
        let until = Instant::now() + patience;
        loop {
            // Before the look: what is announced after it ends the wait.
            let listening = heard.borrow_and_update().listening;
            let mark = self.current_mark()?;
            let left = until.saturating_duration_since(Instant::now());
            if mark != after || left.is_zero() {
                return Ok(mark);
            }
            let pause = left.min(if listening { WITH_EARS } else { WITHOUT });
            // Too late and too soon are both fine: it is looked again.
            let _ = ears.handle.block_on(async { tokio::time::timeout(pause, heard.changed()).await });
        }
    }

    /// What is heard, from now on.
    fn ears(&self) -> Result<&Listener, StoreError> {
        match self.ears.get() {
            Some(ears) => Ok(ears),
            None => {
                let ears = Listener::new(self.pool.way.clone(), self.key)?;
                // Somebody else may have been faster; what nobody hears ends by itself.
                Ok(self.ears.get_or_init(|| ears))
            }
        }
    }
}

/// Listens until the store is gone.
async fn listen(way: &Connector, key: String, sender: watch::Sender<Heard>) {
    loop {
        if let Ok((client, mut connection)) = way.dial().await {
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
                    // What was announced before is worth a look too.
                    sender.send_modify(|heard| *heard = Heard { count: heard.count + 1, listening: true });
                    // The client must stay for as long as the connection is wanted.
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

/// What announces a commit, to be sent behind its end: so that no lock is held while it becomes durable. For an
/// announcement alone the server waits for no disk.
pub(crate) fn announcement(key: i32) -> String {
    format!("NOTIFY {CHANNEL}, '{key}'")
}
